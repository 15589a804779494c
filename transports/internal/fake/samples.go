package fake

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Order returns a limit order with the given id and tag.
func Order(id string, tag []byte) *pb.SubmitOrderRequest {
	return &pb.SubmitOrderRequest{
		ClientOrderId: id, Symbol: "DEMO", Side: pb.Side_SIDE_BUY, Type: pb.OrderType_ORDER_TYPE_LIMIT,
		TimeInForce: pb.TimeInForce_TIME_IN_FORCE_GTC, Quantity: 5, Price: 100, ClientTag: tag,
	}
}

// Sample returns a request of the operation, with every field set that [Gateway.Answer] repeats and characters that need care in a URL.
func Sample(op transports.Operation) proto.Message {
	switch op {
	case transports.SubmitOrder:
		return Order("order-1", []byte{0, 1, 0xFF})
	case transports.ReplaceOrder:
		return &pb.ReplaceOrderRequest{RequestId: "r-1", ClientOrderId: "order-1", Quantity: 1 << 62, Price: -1 << 60}
	case transports.CancelOrder:
		return &pb.CancelOrderRequest{RequestId: "r-2", ClientOrderId: "a b/c?d#e%41"}
	case transports.MassCancel:
		return &pb.MassCancelRequest{RequestId: "r-3", Symbol: "DE.MO", Side: pb.Side_SIDE_SELL}
	case transports.CancelAllAfter:
		return &pb.CancelAllAfterRequest{TimeoutMs: 5000}
	case transports.GetOrder:
		return &pb.GetOrderRequest{ClientOrderId: "érdre"}
	case transports.ListOrders:
		return &pb.ListOrdersRequest{State: pb.ListOrdersState_LIST_ORDERS_STATE_ALL, PageSize: 7, PageToken: "a b&c=%+"}
	case transports.GetBook:
		return &pb.GetBookRequest{Symbol: "..", Depth: 20}
	default:
		return op.NewRequest()
	}
}

// Call returns a call of the operation.
func Call(op transports.Operation, request proto.Message) *transports.Call {
	return &transports.Call{Operation: op, Request: request, Response: op.NewResponse()}
}

// CheckThereAndBack sends a sample of the operation through the client and checks what the gateway saw and what came back.
func CheckThereAndBack(t *testing.T, gateway *Gateway, client transports.Client, op transports.Operation) {
	t.Helper()
	request := Sample(op)
	before := len(gateway.Requests())
	c := Call(op, proto.Clone(request))
	if err := client.Do(t.Context(), c); err != nil {
		t.Fatalf("%s: %v", op, err)
	}
	if op != transports.ListInstruments {
		seen := gateway.Requests()[before:]
		if len(seen) != 1 || !proto.Equal(seen[0], request) {
			t.Errorf("%s: the gateway saw\n%v\nwant once\n%v", op, seen, request)
		}
	}
	want := transports.Exchange{Operation: op, ReceivedNs: 1, Request: request, Response: op.NewResponse()}
	(&Gateway{}).Answer(&want)
	got := proto.Clone(c.Response)
	checkStamps(t, got)
	checkStamps(t, stamped(want.Response))
	if r, ok := got.(*pb.SubmitOrderResponse); ok {
		r.OrderId = want.Response.(*pb.SubmitOrderResponse).OrderId // counts the orders of this gateway
	}
	if !proto.Equal(got, want.Response) {
		t.Errorf("%s: the client got\n%v\nwant\n%v", op, got, want.Response)
	}
}

func stamped(response proto.Message) proto.Message {
	transports.StampSent(response, 1)
	return response
}

// checkStamps checks the order of an acknowledgement's stamps and takes them out, so that the rest can be compared.
func checkStamps(t *testing.T, response proto.Message) {
	t.Helper()
	m := response.ProtoReflect()
	received, sent := m.Descriptor().Fields().ByName("received_ns"), m.Descriptor().Fields().ByName("sent_ns")
	if sent == nil {
		return
	}
	if r, s := m.Get(received).Uint(), m.Get(sent).Uint(); r == 0 || s < r {
		t.Errorf("received_ns %d, sent_ns %d: want 0 < received <= sent", r, s)
	}
	m.Clear(received)
	m.Clear(sent)
}

// Faults are one fault for every reason of the session layer, with every member set.
func Faults() []*transports.Fault {
	var faults []*transports.Fault
	for number, name := range pb.Reason_name {
		if number < 1 || number > 99 {
			continue
		}
		fault := transports.Refuse(pb.Reason(number), "why %s <&> é", name)
		fault.Field = "some.field"
		if number%2 == 0 {
			fault.Outcome = pb.Outcome_OUTCOME_UNKNOWN
			fault.RetryAfter = 1500e6
		}
		faults = append(faults, fault)
	}
	return faults
}
