package entry

import (
	"context"
	"fmt"
	"maps"
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/memory"
)

// TestSessionsOverATransport is the life of a session as its client sees it: orders and their events, a takeover, a lost connection, and a drop
// copy that saw it all.
func TestSessionsOverATransport(t *testing.T) {
	keys := map[string]Key{"copy": {Name: "copy", Role: DropCopy, Accounts: []uint32{1}}}
	maps.Copy(keys, traders)
	g, _ := newGateway(t, keys, 100)
	network := memory.Transport()
	server, err := network.Listen(t.Context(), g, transports.ListenConfig{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	dial := func(key string) transports.DialConfig {
		return transports.DialConfig{Address: server.Addr().String(), Key: key}
	}
	trade := func(key string, logon *pb.Logon) (transports.Trader, chan string) {
		events := make(chan string, 100)
		trader, err := network.Trade(ctx, dial(key), logon, func(r *pb.ExecutionReport) { events <- told(r) })
		if err != nil {
			t.Fatal(err)
		}
		return trader, events
	}
	submit := func(trader transports.Trader, id string, side pb.Side, lots uint64) {
		t.Helper()
		request := order(id)
		request.Side, request.Quantity = side, lots
		if err := trader.Do(ctx, &transports.Call{Operation: transports.SubmitOrder, Request: request, Response: &pb.SubmitOrderResponse{}}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(who string, events chan string, want ...string) {
		t.Helper()
		for _, w := range want {
			if got := <-events; got != w {
				t.Fatalf("%s is told %q, want %q", who, got, w)
			}
		}
	}

	copied := make(chan string, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- network.Executions(ctx, dial("copy"), &pb.StreamExecutionsRequest{Account: "alpha"}, func(r *pb.ExecutionReport) { copied <- told(r) })
	}()
	first, events := trade("alpha", &pb.Logon{SessionId: "S", DisconnectMode: onDisconnect})
	beta, _ := trade("beta", &pb.Logon{SessionId: "S"})
	submit(first, "a", pb.Side_SIDE_BUY, 5)
	submit(beta, "b", pb.Side_SIDE_SELL, 2)
	submit(first, "c", pb.Side_SIDE_BUY, 1)
	expect("the first connection", events, "1 NEW a 5", "2 TRADE a 3", "3 NEW c 1")

	second, events := trade("alpha", &pb.Logon{SessionId: "S", Epoch: 1, LastSequence: 2, DisconnectMode: onDisconnect})
	<-first.Done()
	if err := first.Err(); reasonOf(err) != pb.Reason_REASON_SESSION_REPLACED {
		t.Errorf("the first connection ended with %v", err)
	}
	expect("the second connection", events, "3 NEW c 1")
	_ = second.Close() // lost, without a grace time
	expect("the drop copy", copied, "1 NEW a 5", "2 TRADE a 3", "3 NEW c 1", "4 CANCELED a 0", "5 CANCELED c 0")

	if err := beta.Logout(ctx, "good night"); err != nil {
		t.Error(err)
	}
	<-beta.Done()
	g.Drain()
	if err := <-ended; reasonOf(err) != pb.Reason_REASON_DRAINING {
		t.Errorf("the drop copy ended with %v, want DRAINING", err)
	}
	cancel()
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// told is a report in short: number, what, whose, how much is open.
func told(r *pb.ExecutionReport) string {
	return fmt.Sprintf("%d %s %s %d", r.GetSequence(), r.GetType().String()[len("EXECUTION_TYPE_"):], r.GetOrder().GetClientOrderId(), r.GetOrder().GetLeavesQuantity())
}
