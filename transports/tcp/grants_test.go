package tcp_test

import (
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/credit"
	"tailgate/transports/tcp/internal/wire"
)

// answered reads a RESPONSE.
func (p *peer) answered() {
	p.t.Helper()
	_, _ = p.expect(wire.Response)
}

// scarce is a server whose pool covers one GetBook of bookCost at a time, beside the floors of two connections.
func scarce(t *testing.T, g transports.Gateway, change func(*credit.Config)) transports.Server {
	t.Helper()
	pool := credit.Config{Capacity: bookCost + 1 + 2*(credit.DefaultFloor+credit.DefaultReserve) + 3} // a 32nd of the floors is the pool's own
	if change != nil {
		change(&pool)
	}
	return listenWith(t, g, transports.ListenConfig{Limits: transports.Limits{MaxRequestBytes: 1024}}, pool)
}

// bookCost is what a GetBook costs, which the answer makes dear.
const bookCost = 330

func (p *peer) demand(queued, next uint32) {
	p.t.Helper()
	p.send(wire.Frame(wire.Header{Type: wire.Demand, Credit: p.released, Aux: queued, Y: uint16(next)}, nil))
}

// credit reads a CREDIT that covers a request of so much.
func (p *peer) credit(cost uint32) {
	p.t.Helper()
	h, _, err := p.tryRead()
	if err != nil || h.Type != wire.Credit {
		p.t.Fatalf("read %v (%v), want CREDIT", h.Type, err)
	}
	if wire.After(p.used+p.released+cost, h.Credit) {
		p.t.Fatalf("CREDIT grants up to %d, used are %d, released %d: a request of %d is not covered", h.Credit, p.used, p.released, cost)
	}
}

func (p *peer) book() []byte {
	return p.request(transports.GetBook, &pb.GetBookRequest{Symbol: "TG.A"})
}

// TestTurnsWithoutDemand: two others want what only one more can have. Each is in the queue again with its answer, and has its turn without asking.
func TestTurnsWithoutDemand(t *testing.T) {
	const float = 2 * (bookCost - credit.DefaultFloor)
	server := scarce(t, &gateway{}, func(c *credit.Config) {
		c.Standing, c.MinFloat, c.Capacity = patience, float, float+3*(credit.DefaultFloor+credit.DefaultReserve)+11
	})
	holder, a, b := greet(t, server, wire.FeatureCredit), greet(t, server, wire.FeatureCredit), greet(t, server, wire.FeatureCredit)
	for _, p := range []*peer{holder, a} {
		p.demand(bookCost, bookCost)
		p.credit(bookCost)
	}
	b.demand(bookCost, bookCost)
	b.send(wire.Frame(wire.Header{Type: wire.Ping, Correlation: 1, Aux: b.used}, nil)) // what it wanted has been seen, and it has nothing yet
	if h, _ := b.expect(wire.Pong); h.Credit != b.used+b.floor {
		t.Fatalf("PONG grants up to %d, want the floor behind %d", h.Credit, b.used)
	}
	for turn := range 10 {
		a.send(a.book())
		h, _ := a.expect(wire.Response)
		if h.Y != bookCost {
			t.Fatalf("turn %d: the answer says that the connection stands for %d, want %d", turn, h.Y, bookCost)
		}
		b.credit(bookCost)
		a, b = b, a
	}
}

// TestConnectionWithoutFloorAsksFirst: there are floors for two.
func TestConnectionWithoutFloorAsksFirst(t *testing.T) {
	server := scarce(t, &gateway{}, nil)
	for range 2 {
		if p := greet(t, server, wire.FeatureCredit); p.floor != credit.DefaultFloor {
			t.Fatalf("the floor is %d, want %d", p.floor, credit.DefaultFloor)
		}
	}
	p := greet(t, server, wire.FeatureCredit)
	if p.floor != 0 {
		t.Fatalf("a third connection has a floor of %d", p.floor)
	}
	const cost = 18
	p.demand(cost, cost)
	p.credit(cost)
	for i := range 3 {
		p.send(p.order("order", i))
		if h, _ := p.response(); wire.After(p.used+cost, h.Credit) {
			t.Fatalf("the answer grants up to %d, used are %d: nothing covers the next order", h.Credit, p.used)
		}
	}
}

// TestCreditOvertakesHeldAnswers: while the journal keeps an answer, the client is told what more it may send.
func TestCreditOvertakesHeldAnswers(t *testing.T) {
	h := newHeld()
	g := &gateway{commit: h.commit}
	p := greet(t, listen(t, g, transports.ListenConfig{}), wire.FeatureCredit)
	p.send(p.order("first", 10))
	g.waitHandled(t, 1)
	p.demand(18, 18)
	p.credit(18)
	p.send(p.order("second", 10))
	g.waitHandled(t, 2)
	<-h.came
	<-h.came
	h.release(nil)
	for _, id := range []string{"first", "second"} {
		if _, m := p.response(); m.ClientOrderId != id {
			t.Errorf("answered %q, want %q", m.ClientOrderId, id)
		}
	}
}

// TestServerReclaims: what lies unused while somebody else waits is asked back; who gives it goes on, and who says nothing is sent away.
func TestServerReclaims(t *testing.T) {
	for name, test := range map[string]struct{ gives, violates bool }{"given back": {gives: true}, "no answer": {violates: true}} {
		t.Run(name, func(t *testing.T) {
			server := scarce(t, &gateway{}, func(c *credit.Config) { c.ReclaimAfter = 50 * time.Millisecond })
			hoarder, other := greet(t, server, wire.FeatureCredit), greet(t, server, wire.FeatureCredit)
			hoarder.demand(bookCost, bookCost)
			hoarder.credit(bookCost)
			other.demand(bookCost, bookCost)
			h, _ := hoarder.expect(wire.Reclaim)
			if h.Aux != bookCost-credit.DefaultFloor {
				t.Errorf("RECLAIM asks for %d, want what passes the floor, %d", h.Aux, bookCost-credit.DefaultFloor)
			}
			if test.gives {
				hoarder.released += h.Aux
				hoarder.demand(0, 0)
			}
			if test.violates {
				_, fault := hoarder.expect(wire.Error)
				checkFault(t, fault, pb.Reason_REASON_NO_CREDIT, pb.Outcome_OUTCOME_NOT_PROCESSED, "RECLAIM of 309 units")
				hoarder.expectEnd()
			}
			other.credit(bookCost)
			other.send(other.book())
			other.answered()
			if test.gives {
				hoarder.send(hoarder.order("floor", 10)) // which is still there
				hoarder.response()
			}
		})
	}
}

// TestMoreGivenBackThanThereWas is proof enough.
func TestMoreGivenBackThanThereWas(t *testing.T) {
	for name, frame := range map[string]func(p *peer) []byte{
		"DEMAND": func(p *peer) []byte { return wire.Frame(wire.Header{Type: wire.Demand, Credit: p.floor + 1}, nil) },
		"REQUEST": func(p *peer) []byte {
			b := p.order("order", 10)
			h := wire.Parse(b)
			h.Credit = p.floor
			h.Put(b)
			return b
		},
		"a demand that nothing covers": func(p *peer) []byte {
			return wire.Frame(wire.Header{Type: wire.Demand, Aux: 1 << 20, Y: 1<<16 - 1}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := greet(t, listen(t, &gateway{}, transports.ListenConfig{}), wire.FeatureCredit)
			p.send(frame(p))
			_, fault := p.expect(wire.Error)
			checkFault(t, fault, pb.Reason_REASON_NO_CREDIT, pb.Outcome_OUTCOME_NOT_PROCESSED, "")
			p.expectEnd()
		})
	}
}

// urgent makes a cancel that is paid from the reserve.
func (p *peer) urgent() []byte {
	used := p.used
	b := p.request(transports.CancelOrder, &pb.CancelOrderRequest{ClientOrderId: "order"})
	p.used = used
	h := wire.Parse(b)
	h.Flags = wire.Urgent
	h.Put(b)
	return b
}

// TestUrgentNeedsNoCredit: with the floor spent and its answer held, a cancel is handled all the same; its reserve is back with its answer, and a second one before that
// is too much.
func TestUrgentNeedsNoCredit(t *testing.T) {
	h := newHeld()
	g := &gateway{commit: h.commit}
	canceled := make(chan struct{}, 10)
	g.handle = func(x *transports.Exchange) error {
		if x.Operation == transports.CancelOrder {
			canceled <- struct{}{}
		}
		return g.acknowledge(x)
	}
	log := &logged{}
	p := greet(t, listen(t, g, transports.ListenConfig{Logger: log.logger()}), wire.FeatureCredit)
	p.send(p.order("order", 10))
	<-h.came
	p.send(p.urgent())
	<-canceled
	<-h.came
	h.release(nil)
	granted, _ := p.response()
	answer, _ := p.expect(wire.Response)
	if answer.Credit != granted.Credit {
		t.Errorf("the answer to the cancel grants up to %d, the one before it %d", answer.Credit, granted.Credit)
	}
	p.send(p.urgent())
	<-canceled
	<-h.came
	p.send(p.urgent()) // the answer to the one before it is held
	waitLog(t, log, "left of the reserve")
	h.release(nil)
	p.answered()
	_, fault := p.expect(wire.Error)
	checkFault(t, fault, pb.Reason_REASON_NO_CREDIT, pb.Outcome_OUTCOME_NOT_PROCESSED, "the reserve")
}

// TestUrgentReserveIsBackWithTheAnswer: a client that has read the answer may send the next one at once, however fast it is.
func TestUrgentReserveIsBackWithTheAnswer(t *testing.T) {
	p := greet(t, listen(t, &gateway{}, transports.ListenConfig{}), wire.FeatureCredit)
	for range 2000 {
		p.send(p.urgent())
		p.answered()
	}
	p.alive()
}

func TestUrgentIsForCancels(t *testing.T) {
	p := greet(t, listen(t, &gateway{}, transports.ListenConfig{}), wire.FeatureCredit)
	b := p.order("order", 10)
	h := wire.Parse(b)
	h.Flags = wire.Urgent
	h.Put(b)
	p.send(b)
	_, fault := p.expect(wire.Error)
	checkFault(t, fault, pb.Reason_REASON_MALFORMED, pb.Outcome_OUTCOME_NOT_PROCESSED, "SubmitOrder cannot be an urgent request")
}

// TestMetricsTellWhatTheCreditDoes compares a few figures with what was done.
func TestMetricsTellWhatTheCreditDoes(t *testing.T) {
	server := scarce(t, &gateway{}, func(c *credit.Config) { c.Standing = patience })
	a, b := greet(t, server, wire.FeatureCredit), greet(t, server, wire.FeatureCredit)
	a.demand(bookCost, bookCost)
	a.credit(bookCost)
	b.demand(2*bookCost, bookCost)
	b.alive()
	metrics := make(map[string]float64)
	for _, m := range server.(transports.Metered).Metrics() {
		if _, twice := metrics[m.Name]; twice || m.Help == "" {
			t.Errorf("%s is there twice, or without a help text", m.Name)
		}
		metrics[m.Name] = m.Value
	}
	for name, want := range map[string]float64{
		"connections": 2, "credit_floor_units": 2 * (credit.DefaultFloor + credit.DefaultReserve), "credit_granted_units": bookCost + credit.DefaultFloor,
		"credit_demand_units": 2*bookCost - credit.DefaultFloor, "credit_queue_connections": 1, "credit_grants_total": 1, "credit_violations_total": 0,
	} {
		if got, ok := metrics[name]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", name, got, ok, want)
		}
	}
}
