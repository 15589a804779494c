package workload_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

func readers(t testing.TB) *workload.Flow {
	t.Helper()
	return newFlow(t, func(c *workload.Config) { c.Operation, c.Size = transports.GetBook, 0 })
}

// TestGetBookIsTheSameRequest: whoever asks, and however often.
func TestGetBookIsTheSameRequest(t *testing.T) {
	flow := readers(t)
	for client := range 3 {
		s := flow.Source(client)
		for range 10 {
			var call transports.Call
			s.Next(&call)
			want := &pb.GetBookRequest{Symbol: "ACME", Depth: workload.BookDepth}
			if request, ok := call.Request.(*pb.GetBookRequest); call.Operation != transports.GetBook || !ok || !proto.Equal(request, want) {
				t.Fatalf("%s %v, want %v", call.Operation, call.Request, want)
			}
			if _, ok := call.Response.(*pb.GetBookResponse); !ok {
				t.Fatalf("the place for the answer is a %T", call.Response)
			}
		}
	}
}

// TestBooksAreChecked: what no book can be is found out.
func TestBooksAreChecked(t *testing.T) {
	good := func() *pb.GetBookResponse {
		return &pb.GetBookResponse{
			Symbol: "ACME", LogSequence: 7,
			Bids: []*pb.BookLevel{{Price: 9, Quantity: 1}, {Price: 8, Quantity: 2}},
			Asks: []*pb.BookLevel{{Price: 10, Quantity: 1}, {Price: 12, Quantity: 2}},
		}
	}
	var deep []*pb.BookLevel
	for i := range workload.BookDepth + 1 {
		deep = append(deep, &pb.BookLevel{Price: int64(20 + i), Quantity: 1})
	}
	for name, c := range map[string]struct {
		change func(*pb.GetBookResponse)
		want   string
	}{
		"another":   {func(m *pb.GetBookResponse) { m.Symbol = "ZORG" }, `"ZORG"`},
		"too deep":  {func(m *pb.GetBookResponse) { m.Asks = deep }, "11 asks"},
		"crossed":   {func(m *pb.GetBookResponse) { m.Bids[0].Price = 10 }, "crossed"},
		"bids":      {func(m *pb.GetBookResponse) { m.Bids[1].Price = 9 }, "out of order"},
		"asks":      {func(m *pb.GetBookResponse) { m.Asks[1].Price = 10 }, "out of order"},
		"empty":     {func(m *pb.GetBookResponse) { m.Asks[1].Quantity = 0 }, "is empty"},
		"backwards": {func(m *pb.GetBookResponse) { m.LogSequence = 6 }, "back in time"},
	} {
		s := readers(t).Source(0)
		var call transports.Call
		s.Next(&call)
		call.Response = good()
		answer, err := s.Check(&call)
		if err != nil || answer.Rejected || answer.HasServer {
			t.Fatalf("%s: a good book: %+v, %v", name, answer, err)
		}
		m := good()
		c.change(m)
		call.Response = m
		if _, err := s.Check(&call); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if name == "backwards" {
			s.Forget()
			if _, err := s.Check(&call); err != nil {
				t.Errorf("after an unknown outcome the log may begin anew: %v", err)
			}
		}
	}
}

// TestBookOrdersRest: they give every level that is read, none trades with another, and no two have an id.
func TestBookOrdersRest(t *testing.T) {
	ids, bids, asks := map[string]bool{}, map[int64]bool{}, map[int64]bool{}
	for _, m := range readers(t).BookOrders() {
		ids[m.ClientOrderId] = true
		switch {
		case m.Symbol != "ACME" || m.Quantity == 0 || m.TimeInForce != pb.TimeInForce_TIME_IN_FORCE_DAY:
			t.Errorf("%v", m)
		case m.Side == pb.Side_SIDE_BUY && m.Price < 10_000:
			bids[m.Price] = true
		case m.Side == pb.Side_SIDE_SELL && m.Price > 10_000:
			asks[m.Price] = true
		default:
			t.Errorf("%s at %d would trade with the other side", m.Side, m.Price)
		}
	}
	if len(bids) != workload.BookDepth || len(asks) != workload.BookDepth || len(ids) != 2*workload.BookDepth {
		t.Errorf("%d bid levels, %d ask levels, %d ids", len(bids), len(asks), len(ids))
	}
}

// TestOperations: names lead to what they say, and everything else is refused with what is allowed.
func TestOperations(t *testing.T) {
	if op, err := workload.ParseOperation("get-book"); op != transports.GetBook || err != nil {
		t.Error(op, err)
	}
	if op, err := workload.ParseOperation(workload.OperationNames()[0]); op != transports.SubmitOrder || err != nil {
		t.Error(op, err)
	}
	if _, err := workload.ParseOperation("list-orders"); err == nil || !strings.Contains(err.Error(), "submit-order and get-book") {
		t.Error(err)
	}
	for _, change := range []func(*workload.Config){
		func(c *workload.Config) { c.Operation = transports.ListOrders },
		func(c *workload.Config) { c.Operation, c.EchoOnly = transports.GetBook, true },
	} {
		config := workload.Config{Prefix: "abcdef", Size: 64, Clients: 1, Instruments: instruments}
		change(&config)
		if _, err := workload.New(config); err == nil {
			t.Errorf("%+v is taken", config)
		}
	}
}
