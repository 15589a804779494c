package tcp_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

func TestRoundTrip(t *testing.T) {
	onEngines(t, testRoundTrip)
}

func testRoundTrip(t *testing.T, engine string) {
	for _, flow := range []string{"credit", "none"} {
		for _, size := range []int{0, 33, 4 << 10, 15 << 10, 64 << 10, 300 << 10, 1<<20 - 100} {
			t.Run(fmt.Sprintf("%s/%d", flow, size), func(t *testing.T) {
				g := &gateway{}
				client := dial(t, listen(t, g, transports.ListenConfig{}), transports.DialConfig{Flow: flow, Engine: engine})
				for i := range 5 {
					call := order(fmt.Sprint("order-", i), size)
					if err := client.Do(t.Context(), call); err != nil {
						t.Fatal(err)
					}
					if err := checkAnswer(call); err != nil {
						t.Fatal(err)
					}
					if call.FirstWrite.IsZero() {
						t.Error("FirstWrite is not set")
					}
				}
			})
		}
	}
}

func TestConcurrentCallsShareOneConnection(t *testing.T) {
	onEngines(t, testConcurrentCallsShareOneConnection)
}

func testConcurrentCallsShareOneConnection(t *testing.T, engine string) {
	for _, test := range []struct {
		flow  string
		apart bool // releases come from a goroutine of the journal
		limit int  // MaxRequestBytes: with little, credit is always short
	}{{"credit", false, 0}, {"credit", true, 4 << 10}, {"none", false, 0}, {"none", true, 4 << 10}} {
		t.Run(fmt.Sprintf("%s/apart=%v", test.flow, test.apart), func(t *testing.T) {
			g := &gateway{}
			if test.apart {
				g.commit = newSyncer(t).commit
			}
			server := listen(t, g, transports.ListenConfig{Limits: transports.Limits{MaxRequestBytes: test.limit}})
			client := dial(t, server, transports.DialConfig{Flow: test.flow, Engine: engine})
			const callers, each = 64, 20
			var group sync.WaitGroup
			for caller := range callers {
				group.Go(func() {
					for i := range each {
						call := order(fmt.Sprintf("c%d-%d", caller, i), caller*i*3)
						if err := client.Do(context.Background(), call); err != nil {
							t.Error(err)
							return
						}
						if err := checkAnswer(call); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			ids := g.ids()
			slices.Sort(ids)
			if n := len(slices.Compact(ids)); n != callers*each || len(g.ids()) != n {
				t.Errorf("%d orders were handled, %d of them different, want %d once each", len(g.ids()), n, callers*each)
			}
		})
	}
}

func TestOtherOperations(t *testing.T) {
	onEngines(t, testOtherOperations)
}

func testOtherOperations(t *testing.T, engine string) {
	client := dial(t, listen(t, &gateway{}, transports.ListenConfig{}), transports.DialConfig{Engine: engine})
	cancel := &transports.Call{Operation: transports.CancelOrder, Request: &pb.CancelOrderRequest{ClientOrderId: "abc"}, Response: &pb.CancelOrderResponse{}}
	if err := client.Do(t.Context(), cancel); err != nil {
		t.Fatal(err)
	}
	if r := cancel.Response.(*pb.CancelOrderResponse); r.ClientOrderId != "abc" || r.SentNs < 1e18 {
		t.Errorf("cancel answered with %v, want the id and a stamp", r)
	}
	mass := &transports.Call{Operation: transports.MassCancel, Request: &pb.MassCancelRequest{RequestId: "m"}, Response: &pb.MassCancelResponse{}}
	if err := client.Do(t.Context(), mass); err != nil {
		t.Fatal(err)
	}
	if r := mass.Response.(*pb.MassCancelResponse); r.RequestId != "m" || r.SentNs < 1e18 {
		t.Errorf("mass cancel answered with %v, want the id and a stamp", r)
	}
	book := &transports.Call{Operation: transports.GetBook, Request: &pb.GetBookRequest{Symbol: "TG.A"}, Response: &pb.GetBookResponse{}}
	if err := client.Do(t.Context(), book); err != nil {
		t.Fatal(err)
	}
	if r := book.Response.(*pb.GetBookResponse); r.Symbol != "TG.A" {
		t.Errorf("book answered with %v", r)
	}
}

func TestShutdownAnswersAndCloses(t *testing.T) {
	t.Parallel()
	onEngines(t, testShutdownAnswersAndCloses)
}

func testShutdownAnswersAndCloses(t *testing.T, engine string) {
	g := &gateway{}
	server := listen(t, g, transports.ListenConfig{})
	client := dial(t, server, transports.DialConfig{Engine: engine})
	if err := client.Do(t.Context(), order("a", 10)); err != nil {
		t.Fatal(err)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := client.Do(t.Context(), order("b", 10))
	fault := transports.AsFault(err)
	if err == nil || fault.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED || fault.Reason != pb.Reason_REASON_DRAINING {
		t.Errorf("after the shutdown: %v, want DRAINING and NOT_PROCESSED", err)
	}
	if ids := g.ids(); !slices.Equal(ids, []string{"a"}) {
		t.Errorf("handled %v", ids)
	}
}
