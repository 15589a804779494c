package tcp_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/credit"
)

// TestManyClientsShareASmallPool: with far more clients than the pool holds messages, idle ones among them, calls that give up and cancels between the orders, every
// call ends as it should, and no connection is found to break the rules.
func TestManyClientsShareASmallPool(t *testing.T) { onEngines(t, testManyClientsShareASmallPool) }

func testManyClientsShareASmallPool(t *testing.T, engine string) {
	const clients, each, size = 60, 25, 64 << 10
	g := &gateway{}
	server := listenWith(t, g, transports.ListenConfig{}, credit.Config{Capacity: 4000, Floor: 21, Reserve: 18})
	list := asyncs(t, server, clients, transports.DialConfig{Engine: engine})
	var group sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for c, client := range list {
		seed := uint64(c)
		random := rand.New(rand.NewPCG(seed, 1))
		group.Add(1)
		left := each
		var next func()
		next = func() {
			if left == 0 {
				group.Done()
				return
			}
			left--
			call := order(fmt.Sprintf("c%d-%d", c, left), random.IntN(size))
			ctx, cancel := context.Background(), func() {}
			switch random.IntN(8) {
			case 0:
				call = &transports.Call{Operation: transports.CancelOrder, Request: &pb.CancelOrderRequest{ClientOrderId: "x"}, Response: &pb.CancelOrderResponse{}}
			case 1:
				ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Microsecond)
			}
			client.Go(ctx, call, func(err error) {
				defer cancel()
				outcome := "answered"
				if err != nil {
					f := transports.AsFault(err)
					outcome = f.Reason.String()
					if f.Reason != pb.Reason_REASON_NO_CREDIT && f.Reason != pb.Reason_REASON_DEADLINE_EXCEEDED {
						t.Errorf("client %d: %v", c, err)
					}
				} else if call.Operation == transports.SubmitOrder {
					if err := checkAnswer(call); err != nil {
						t.Error(err)
					}
				}
				mu.Lock()
				outcomes[outcome]++
				mu.Unlock()
				next()
			})
		}
		next()
	}
	group.Wait()
	if outcomes["answered"] < clients*each*6/8 {
		t.Errorf("of %d calls: %v", clients*each, outcomes)
	}
	for _, m := range server.(transports.Metered).Metrics() {
		if m.Name == "credit_violations_total" && m.Value != 0 {
			t.Errorf("%v violations", m.Value)
		}
		if testing.Verbose() {
			fmt.Println(m.Name, m.Value)
		}
	}
	var demands float64
	for _, client := range list {
		demands += metric(t, client, "client_credit_demand_frames_total")
	}
	t.Logf("%v, %v DEMAND frames for %d calls", outcomes, demands, clients*each)
}
