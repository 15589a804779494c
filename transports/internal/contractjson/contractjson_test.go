package contractjson_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/contractjson"
)

func TestThereAndBack(t *testing.T) {
	m := &pb.SubmitOrderRequest{ClientOrderId: "o", Symbol: "ACME", Side: pb.Side_SIDE_BUY, Quantity: 1<<40 - 1, Price: -3, ClientTag: []byte{0, 255, '"'}}
	b, err := contractjson.Append([]byte("x"), m)
	if err != nil || b[0] != 'x' || !strings.Contains(string(b), `"post_only":`) || !strings.Contains(string(b), `"client_order_id":`) {
		t.Fatalf("%s, %v: want names of the contract and zero values", b, err)
	}
	var got pb.SubmitOrderRequest
	if err := contractjson.ReadRequest(b[1:], &got); err != nil || !proto.Equal(&got, m) {
		t.Errorf("%v, %v", &got, err)
	}
	m.ClientTag = make([]byte, 1<<20)
	if b, err = contractjson.Append(nil, m); err != nil || len(b) > contractjson.MaxBytes(proto.Size(m)) {
		t.Errorf("%d bytes (%v), MaxBytes says %d", len(b), err, contractjson.MaxBytes(proto.Size(m)))
	}
}

func TestRequestsAreReadStrictly(t *testing.T) {
	for text, field := range map[string]string{
		`{"qty": 1}`: "qty", `{"client_order_id": 1}`: "client_order_id", `{"symbol":"A","symbol":"B"}`: "symbol", `{"quantity": -1}`: "quantity", `{`: "", ``: "",
	} {
		fault, ok := errors.AsType[*transports.Fault](contractjson.ReadRequest([]byte(text), &pb.SubmitOrderRequest{}))
		if !ok || fault.Reason != pb.Reason_REASON_MALFORMED || fault.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED || fault.Field != field || strings.Contains(fault.Message, "proto:") {
			t.Errorf("%s: %+v, want MALFORMED of the field %q", text, fault, field)
		}
	}
	var answer pb.SubmitOrderResponse
	if err := contractjson.ReadResponse([]byte(`{"client_order_id":"o","of_a_newer_gateway":1}`), &answer); err != nil || answer.GetClientOrderId() != "o" {
		t.Errorf("an answer of a newer gateway: %v, %v", &answer, err)
	}
}
