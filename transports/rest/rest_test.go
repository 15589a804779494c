package rest_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; only a failure takes so long.
const patience = 20 * time.Second

// listen starts a server at a free port and stops it with the test.
func listen(t testing.TB, gateway transports.Gateway, config transports.ListenConfig) transports.Server {
	t.Helper()
	config.Address = "127.0.0.1:0"
	server, err := rest.Transport().Listen(t.Context(), gateway, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return server
}

// dial connects a client to the server and closes it with the test.
func dial(t testing.TB, server transports.Server, config transports.DialConfig) transports.Client {
	t.Helper()
	config.Address = server.Addr().String()
	client, err := rest.Transport().Dial(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return client
}

// call makes the Call for a request.
func call(op transports.Operation, request proto.Message) *transports.Call {
	return &transports.Call{Operation: op, Request: request, Response: op.NewResponse()}
}

func order(id string, tag []byte) *pb.SubmitOrderRequest {
	return &pb.SubmitOrderRequest{
		ClientOrderId: id, Symbol: "DEMO", Side: pb.Side_SIDE_BUY, Type: pb.OrderType_ORDER_TYPE_LIMIT,
		TimeInForce: pb.TimeInForce_TIME_IN_FORCE_GTC, Quantity: 5, Price: 100, ClientTag: tag,
	}
}

// requests has one request of each operation, with every field set that the fake gateway repeats.
var requests = map[transports.Operation]proto.Message{
	transports.SubmitOrder:     order("order-1", []byte{0, 1, 0xFF}),
	transports.ReplaceOrder:    &pb.ReplaceOrderRequest{RequestId: "r-1", ClientOrderId: "order-1", Quantity: 1 << 62, Price: -1 << 60},
	transports.CancelOrder:     &pb.CancelOrderRequest{RequestId: "r-2", ClientOrderId: "order-1"},
	transports.MassCancel:      &pb.MassCancelRequest{RequestId: "r-3", Symbol: "DE.MO", Side: pb.Side_SIDE_SELL},
	transports.CancelAllAfter:  &pb.CancelAllAfterRequest{TimeoutMs: 5000},
	transports.GetOrder:        &pb.GetOrderRequest{ClientOrderId: "order-1"},
	transports.ListOrders:      &pb.ListOrdersRequest{State: pb.ListOrdersState_LIST_ORDERS_STATE_ALL, PageSize: 7, PageToken: "a b&c=%"},
	transports.GetBook:         &pb.GetBookRequest{Symbol: "DE-MO.1", Depth: 20},
	transports.ListInstruments: &pb.ListInstrumentsRequest{},
}

func TestEveryOperationGoesThereAndBack(t *testing.T) {
	for _, encoding := range rest.Transport().Encodings {
		for _, op := range transports.Operations() {
			t.Run(encoding+"/"+op.String(), func(t *testing.T) { testThereAndBack(t, encoding, op) })
		}
	}
}

func testThereAndBack(t *testing.T, encoding string, op transports.Operation) {
	var seen proto.Message
	gateway := &fake.Gateway{}
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		if x.Operation == op {
			seen = proto.Clone(x.Request)
		}
		if x.ReceivedNs == 0 {
			t.Error("ReceivedNs is not set")
		}
		gateway.Answer(x)
		return nil
	}
	client := dial(t, listen(t, gateway, transports.ListenConfig{}), transports.DialConfig{Encoding: encoding})
	c := call(op, requests[op])
	if err := client.Do(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(seen, requests[op]) {
		t.Errorf("the gateway saw\n%v\nwant\n%v", seen, requests[op])
	}
	want := transports.Exchange{Operation: op, Request: requests[op], Response: op.NewResponse()}
	(&fake.Gateway{}).Answer(&want)
	transports.StampSent(want.Response, 0)
	checkStamps(t, c.Response)
	if !proto.Equal(c.Response, want.Response) {
		t.Errorf("the client got\n%v\nwant\n%v", c.Response, want.Response)
	}
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
