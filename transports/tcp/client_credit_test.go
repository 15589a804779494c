package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/wire"
)

// is reads the next frame and checks its type and what it says of credit: Released, and what waits. The aux of a REQUEST is its deadline, and queued its x.
func (p *peer) is(t testing.TB, kind string, released, queued, next uint32) wire.Header {
	t.Helper()
	h, _ := p.read()
	said := h.Aux
	if h.Type == wire.Request {
		said = uint32(h.X)
	}
	if h.Type.String() != kind || h.Credit != released || said != queued || uint32(h.Y) != next {
		t.Fatalf("the client sends %v with %d released, %d queued and %d next; want %s with %d, %d and %d", h.Type, h.Credit, said, h.Y, kind, released, queued, next)
	}
	return h
}

// background calls Go and leaves the outcome in a channel.
func background(client transports.AsyncClient, call *transports.Call) chan error {
	told := make(chan error, 1)
	client.Go(context.Background(), call, func(err error) { told <- err })
	return told
}

func grantOf(counter uint32) []byte {
	return wire.Frame(wire.Header{Type: wire.Credit, Credit: counter}, nil)
}

// TestReclaim: an idle client gives back what it can spare of what it is asked for, says so at once, and repeats it with every later frame.
func TestReclaim(t *testing.T) { onEngines(t, testReclaim) }

func testReclaim(t *testing.T, engine string) {
	p, client := fakeServer(t, engine)
	told := background(client, order("a", 1000)) // 18
	h := p.is(t, "REQUEST", 0, 0, 0)
	p.send(answer(t, h.Correlation, 80+18+50, "a"))
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	// Free is 150.
	p.send(wire.Frame(wire.Header{Type: wire.Reclaim, Credit: 148, Aux: 120}, nil))
	p.is(t, "DEMAND", 120, 0, 0)
	p.send(wire.Frame(wire.Header{Type: wire.Reclaim, Credit: 148, Aux: 120}, nil)) // more than is left
	p.is(t, "DEMAND", 150, 0, 0)
	told = background(client, order("b", 1000))
	p.is(t, "DEMAND", 150, 18, 18)
	p.send(grantOf(148 + 18))
	h = p.is(t, "REQUEST", 150, 0, 0)
	p.send(answer(t, h.Correlation, 148+18, "b"))
	if err := <-told; err != nil {
		t.Error(err)
	}
	if got := metric(t, client, "client_credit_reclaims_total"); got != 2 {
		t.Errorf("%v reclaims are counted, want 2", got)
	}
	if got := metric(t, client, "client_credit_demand_frames_total"); got != 3 {
		t.Errorf("%v DEMAND frames are counted, want 3", got)
	}
	if waits, waited := metric(t, client, "client_credit_waits_total"), metric(t, client, "client_credit_wait_seconds_total"); waits != 1 || waited <= 0 {
		t.Errorf("%v waits of %v s are counted, want 1", waits, waited)
	}
}

// metric is one figure of a client.
func metric(t testing.TB, client transports.Client, name string) float64 {
	t.Helper()
	for _, m := range client.(transports.Metered).Metrics() {
		if m.Name == name {
			return m.Value
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// TestStandingNeedsNoDemand: a place in the gateway's queue that an answer names is relied on while it can be, and no longer.
func TestStandingNeedsNoDemand(t *testing.T) { onEngines(t, testStandingNeedsNoDemand) }

func testStandingNeedsNoDemand(t *testing.T, engine string) {
	p, client := fakeServer(t, engine)
	stands := func(correlation, granted uint32, y uint16) []byte {
		b := answer(t, correlation, granted, "x")
		h := wire.Parse(b)
		h.Y = y
		h.Put(b)
		return b
	}
	granted := uint32(80)
	a := background(client, order("a", 80<<10)) // 98 of 100
	p.send(stands(p.is(t, "REQUEST", 0, 0, 0).Correlation, granted, 20))
	finished(t, a)
	b := background(client, order("b", 1000)) // 18, covered by the place
	granted += 16
	p.send(grantOf(granted))
	p.send(stands(p.is(t, "REQUEST", 0, 0, 0).Correlation, granted, 18))
	finished(t, b)
	c := background(client, order("c", 2000)) // 19, dearer than the place
	p.is(t, "DEMAND", 0, 19, 19)
	granted += 19 + 40
	p.send(grantOf(granted))
	h := p.is(t, "REQUEST", 0, 0, 0)
	d := background(client, order("d", 1000))
	last := p.is(t, "REQUEST", 0, 0, 0)
	p.send(stands(h.Correlation, granted, 20)) // made before d had come: the place may be gone
	finished(t, c)
	e := background(client, order("e", 10000)) // 27, 22 are there
	p.is(t, "DEMAND", 0, 27, 27)
	granted += 5
	p.send(stands(last.Correlation, granted, 0))
	p.send(stands(p.is(t, "REQUEST", 0, 0, 0).Correlation, granted, 0))
	finished(t, d, e)
}

// finished waits for calls, which must not fail.
func finished(t testing.TB, calls ...chan error) {
	t.Helper()
	for i, told := range calls {
		if err := <-told; err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}

// TestUrgentGoesFirst: a cancel is paid from the reserve and overtakes what waits; the next one waits for the reserve, or for credit, before all others.
func TestUrgentGoesFirst(t *testing.T) { onEngines(t, testUrgentGoesFirst) }

func testUrgentGoesFirst(t *testing.T, engine string) {
	p, client := fakeServer(t, engine)
	cancelOf := func(id string) *transports.Call {
		return &transports.Call{Operation: transports.CancelOrder, Request: &pb.CancelOrderRequest{ClientOrderId: id}, Response: &pb.CancelOrderResponse{}}
	}
	first := background(client, order("a", 80<<10)) // 98 of 100
	a := p.is(t, "REQUEST", 0, 0, 0)
	second := background(client, order("b", 1000))
	p.is(t, "DEMAND", 0, 18, 18)
	x := background(client, cancelOf("x"))
	urgent := p.is(t, "REQUEST", 0, 18, 18)
	if urgent.Flags != wire.Urgent || transports.Operation(urgent.Code) != transports.CancelOrder {
		t.Fatalf("the cancel is sent as %+v", urgent)
	}
	y := background(client, cancelOf("y")) // the reserve is spent
	p.send(wire.Frame(wire.Header{Type: wire.Response, Code: urgent.Code, Correlation: urgent.Correlation, Credit: 80}, nil))
	if urgent = p.is(t, "REQUEST", 0, 18, 18); urgent.Flags != wire.Urgent {
		t.Fatalf("the second cancel is sent as %+v", urgent)
	}
	z := background(client, cancelOf("z")) // and again: now credit comes first
	p.send(grantOf(80 + 17))
	h := p.is(t, "REQUEST", 0, 18, 18)
	if h.Flags != 0 || transports.Operation(h.Code) != transports.CancelOrder {
		t.Fatalf("the third cancel is sent as %+v", h)
	}
	p.send(grantOf(80 + 18 + 18))
	b := p.is(t, "REQUEST", 0, 0, 0)
	if b.Flags != 0 || transports.Operation(b.Code) != transports.SubmitOrder {
		t.Fatalf("the order is sent as %+v", b)
	}
	for _, h := range []wire.Header{a, urgent, h, b} {
		p.send(wire.Frame(wire.Header{Type: wire.Response, Code: h.Code, Correlation: h.Correlation, Credit: 80 + 36}, nil))
	}
	finished(t, first, second, x, y, z)
}

// TestTryDo does not wait, and says what is missing.
func TestTryDo(t *testing.T) { onEngines(t, testTryDo) }

func testTryDo(t *testing.T, engine string) {
	p, client := fakeServer(t, engine)
	told := background(client, order("a", 80<<10))
	a := p.is(t, "REQUEST", 0, 0, 0)
	err := client.TryDo(t.Context(), order("b", 1))
	checkFault(t, err, pb.Reason_REASON_NO_CREDIT, pb.Outcome_OUTCOME_NOT_PROCESSED, "costs 18 of credit, 2 are there and 0 calls wait before it")
	if got := metric(t, client, "client_credit_refusals_total"); got != 1 {
		t.Errorf("%v refusals are counted, want 1", got)
	}
	p.send(answer(t, a.Correlation, 80+98, "a"))
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- client.TryDo(context.Background(), order("b", 1)) }()
	b := p.is(t, "REQUEST", 0, 0, 0)
	p.send(answer(t, b.Correlation, 80+98+18, "b"))
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestMaxWaitRefusesAtOnce: the wait is judged by what waits before and by the pace at which credit came; the first to wait is never refused.
func TestMaxWaitRefusesAtOnce(t *testing.T) { onEngines(t, testMaxWaitRefusesAtOnce) }

func testMaxWaitRefusesAtOnce(t *testing.T, engine string) {
	p, client := fakeServerFor(t, transports.DialConfig{Engine: engine, MaxWait: time.Hour})
	held := background(client, order("held", 80<<10))
	a := p.is(t, "REQUEST", 0, 0, 0)
	var waiting []chan error
	for i := range 3 {
		waiting = append(waiting, background(client, order(fmt.Sprint(i), 1000)))
	}
	p.is(t, "DEMAND", 0, 18, 18)
	// The first in the queue has waited for a time at least: what stands behind four of its size can expect four times that, which is past a deadline of as much.
	<-time.After(20 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := client.Do(ctx, order("late", 1000))
	checkFault(t, err, pb.Reason_REASON_OVERLOADED, pb.Outcome_OUTCOME_NOT_PROCESSED, "for the gateway's credit")
	if f := transports.AsFault(err); f.RetryAfter < time.Millisecond || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, to be tried again after %v; want a refusal before the deadline", err, f.RetryAfter)
	}
	p.send(answer(t, a.Correlation, 80+98+54, "held"))
	answers := append([]chan error{held}, waiting...)
	for range waiting {
		h, _ := p.read()
		p.send(answer(t, h.Correlation, 80+98+54, "x"))
	}
	finished(t, answers...)
}

// TestUrgentOneAfterAnother: the reserve that an answer gives back is there for the next cancel, whoever hears of the answer first.
func TestUrgentOneAfterAnother(t *testing.T) { onEngines(t, testUrgentOneAfterAnother) }

func testUrgentOneAfterAnother(t *testing.T, engine string) {
	client := dial(t, listen(t, &gateway{}, transports.ListenConfig{}), transports.DialConfig{Engine: engine})
	call := &transports.Call{Operation: transports.CancelOrder, Request: &pb.CancelOrderRequest{ClientOrderId: "x"}, Response: &pb.CancelOrderResponse{}}
	for i := range 2000 {
		if err := client.Do(t.Context(), call); err != nil {
			t.Fatalf("cancel %d: %v", i, err)
		}
	}
}
