package entry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"tailgate/gateway/orders"
	"tailgate/gateway/sequencer"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// TestTakeoversOrdersAndExpiry: many connections fight for one session while orders come in and its grace time passes again and again.
// No order is entered by a connection that lost the session before, and a replay of the log gives the same state.
func TestTakeoversOrdersAndExpiry(t *testing.T) {
	g, log := newGateway(t, traders, 1<<15)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var accepted []string // in the order of the answers of one connection, not over them
	for n := range 6 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			for round := range 30 {
				s, err := g.Open(context.Background(), transports.Peer{Key: "alpha"})
				if err != nil {
					t.Error(err)
					return
				}
				s1, _ := s.(*session)
				if _, f := logon(s1, &pb.Logon{SessionId: "S", DisconnectMode: onDisconnect, GraceMs: random.Uint32N(2)}); f != nil {
					t.Error(f)
					return
				}
				for i := range random.IntN(20) {
					id := fmt.Sprintf("o-%d-%d-%d", n, round, i)
					_, f := do[pb.SubmitOrderRequest, pb.SubmitOrderResponse](s1, transports.SubmitOrder, order(id))
					if f != nil {
						if f.Reason != pb.Reason_REASON_SESSION_REPLACED || !f.Final {
							t.Error(f)
						}
						break
					}
					mu.Lock()
					accepted = append(accepted, id)
					mu.Unlock()
				}
				if random.IntN(4) == 0 {
					if f := logout(s1); f != nil && f.Reason != pb.Reason_REASON_SESSION_REPLACED {
						t.Error(f)
					}
				}
				s.Close()
			}
		})
	}
	wait.Wait()
	g.Drain()

	// In the log each order carries the session's number, and stands between its connection's logon and the next one.
	holding, logons := "", map[string]string{}
	inLog := 0
	for _, record := range log.records {
		var c orders.Command
		if err := c.Decode(record); err != nil {
			t.Fatal(err)
		}
		switch c.Kind {
		case orders.Logon:
			holding = ""
		case orders.Submit:
			inLog++
			id := c.ClientOrderID.String()
			connection := id[:len(id)-len(id[lastDash(id):])]
			if holding == "" {
				holding = connection
				if before, again := logons[connection]; again {
					t.Errorf("order %s was entered after its connection had lost the session (%s)", id, before)
				}
				logons[connection] = id
			}
			if holding != connection {
				t.Errorf("order %s was entered while %s held the session", id, holding)
			}
			if c.Session != 1 {
				t.Errorf("order %s carries session %d, want 1", id, c.Session)
			}
		default:
		}
	}
	if inLog != len(accepted) {
		t.Errorf("%d orders are in the log, %d were accepted", inLog, len(accepted))
	}
	if again, _ := replayed(t, log); digestOf(g.sequencer) != digestOf(again) {
		t.Error("a replay of the log gives another state")
	}
}

// TestNoRequestIsUnderWayAtATakeover: at the moment at which a logon enters the log, no request of the connection that it replaces is between
// its own checks and the writer's lock, where it would enter behind the logon.
func TestNoRequestIsUnderWayAtATakeover(t *testing.T) {
	g, log := newGateway(t, traders, 100)
	defer g.Drain()
	old, young := open(t, g, "alpha"), open(t, g, "alpha")
	mustLogon(t, old, "S", none, 0)
	looked := false
	log.onAppend = func() {
		looked = true
		if old.mu.TryRLock() {
			old.mu.RUnlock()
			t.Error("a request of the older connection could be under way")
		}
	}
	mustLogon(t, young, "S", none, 0)
	log.onAppend = nil
	if !looked {
		t.Error("the logon is not in the log")
	}
}

func lastDash(id string) int {
	for i := len(id) - 1; i > 0; i-- {
		if id[i] == '-' {
			return i
		}
	}
	return 0
}

func digestOf(s *sequencer.Sequencer) (digest any) {
	s.Read(func(state *orders.State, _ uint64) { digest = state.Digest() })
	return digest
}

// TestFillRacesCancelOnDisconnect: sellers lose their connection while buyers take what rests. Each lot is filled or canceled, never both,
// each order ends once in its stream, and both sides of each trade agree.
func TestFillRacesCancelOnDisconnect(t *testing.T) {
	g, _ := newGateway(t, traders, 1<<15)
	var wait sync.WaitGroup
	const rounds, lots = 60, 5
	for round := range rounds {
		seller, buyer := open(t, g, "alpha"), open(t, g, "beta")
		mustLogon(t, seller, fmt.Sprint("S", round), onDisconnect, 0)
		for i := range 8 {
			enter(t, seller, fmt.Sprintf("s-%d-%d", round, i), pb.Side_SIDE_SELL, lots)
		}
		wait.Go(seller.Close) // no grace: the cancels run now, on the timer's goroutine
		wait.Go(func() {
			for i := range 8 {
				request := order(fmt.Sprintf("b-%d-%d", round, i))
				request.Side, request.Quantity, request.TimeInForce = pb.Side_SIDE_BUY, lots-2, pb.TimeInForce_TIME_IN_FORCE_IOC
				if _, f := do[pb.SubmitOrderRequest, pb.SubmitOrderResponse](buyer, transports.SubmitOrder, request); f != nil {
					t.Error(f)
				}
			}
			buyer.Close()
		})
	}
	wait.Wait()
	checkSellers(t, open(t, g, "alpha"), rounds*8, lots)
	g.Drain()
	if got := openOrders(g, 1) + openOrders(g, 2); got != "" {
		t.Errorf("open are %s", got)
	}
}

// checkSellers reads the account's stream until so many orders have ended.
func checkSellers(t *testing.T, s *session, sellers int, lots uint64) {
	t.Helper()
	e, err := s.Subscribe(t.Context(), &pb.StreamExecutionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	filled, over := map[string]uint64{}, map[string]bool{}
	for next := uint64(1); len(over) < sellers; {
		batch, err := e.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range batch {
			var report pb.ExecutionReport
			if err := proto.Unmarshal(event.Report, &report); err != nil || report.GetSequence() != next {
				t.Fatalf("event %d, want %d (%v)", report.GetSequence(), next, err)
			}
			next++
			o := report.GetOrder()
			id := o.GetClientOrderId()
			if over[id] {
				t.Fatalf("order %s has ended, and then came %v", id, &report)
			}
			filled[id] += report.GetLastQuantity()
			if filled[id] != o.GetFilledQuantity() || filled[id]+o.GetLeavesQuantity() > lots {
				t.Fatalf("order %s: trades of %d lots, and the report says %v", id, filled[id], &report)
			}
			if o.GetLeavesQuantity() == 0 {
				over[id] = true
			}
		}
	}
}
