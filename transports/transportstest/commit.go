package transportstest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// gatedCommit: an answer leaves only when its commit is released, and says so in its stamp.
func gatedCommit(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c, other := r.dial(alphaKey), r.dial(betaKey)
	gate := r.probe.hold(alphaKey)
	t.Cleanup(gate.open)
	call := c.begin(t.Context(), r.limit("gated", buy, 5, 0))
	gate.await(t)
	for i := range 20 { // an answer that leaves too early has this much time to arrive
		other.submit(r.immediate(id("meanwhile-%d", i), buy, 1, -1))
	}
	if call.over() {
		t.Errorf("answered before the commit was released")
	}
	opened := transports.Now()
	gate.open()
	response, fault := call.wait(t)
	if fault != nil {
		t.Fatalf("the gated call: %v", fault)
	}
	if sent := int64(response.(*pb.SubmitOrderResponse).GetSentNs()); sent < opened {
		t.Errorf("sent_ns is %v before the release", time.Duration(opened-sent))
	}
	c.submit(r.limit("after", buy, 5, 0))
}

// gatedDelaysNobody: while one client's commits are stuck, others enter, trade and read.
func gatedDelaysNobody(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	stuck, other, third := r.dial(alphaKey), r.dial(betaKey), r.dial(alpha2Key)
	gate := r.probe.hold(alphaKey)
	t.Cleanup(gate.open)
	var calls []*pending
	const n = 8
	for i := range n {
		calls = append(calls, stuck.begin(t.Context(), r.limit(id("stuck-%d", i), buy, 1, int64(i))))
	}
	gate.await(t)
	for i := range 20 {
		other.submit(r.limit(id("other-%d", i), buy, 1, -1))
		ask[*pb.GetBookResponse](other, &pb.GetBookRequest{Symbol: r.second})
		ask[*pb.ListOrdersResponse](third, &pb.ListOrdersRequest{})
	}
	for i, call := range calls {
		if call.over() {
			t.Errorf("stuck call %d was answered before the release", i)
		}
	}
	gate.open()
	for i, call := range calls {
		if _, fault := call.wait(t); fault != nil {
			t.Errorf("stuck call %d: %v", i, fault)
		}
	}
}

// canceledCall: who gives up while the answer waits is told UNKNOWN at once, and the same id then gets the first answer.
func canceledCall(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	gate := r.probe.hold(alphaKey)
	t.Cleanup(gate.open)
	order := with(r.limit("given-up", buy, 5, 0), func(o *pb.SubmitOrderRequest) { o.ClientTag = tag(1, 100) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := c.begin(ctx, order)
	gate.await(t)
	cancel()
	_, fault := call.wait(t) // the gate is closed still, so nothing but the end of the context can end it
	wantOutcome(t, fault, unknown)
	if fault != nil && !errors.Is(fault, context.Canceled) {
		t.Errorf("the fault does not wrap the context's error: %v", fault)
	}
	gate.open()
	again := c.submit(order)
	if !again.GetDuplicate() {
		t.Errorf("the same id after UNKNOWN: %s, want the first answer again", text(again))
	}
	equal(t, again, &pb.SubmitOrderResponse{
		ClientOrderId: "given-up", Status: accepted, Quantity: 5, LeavesQuantity: 5, Duplicate: true, ClientTag: order.GetClientTag(),
	})
	r.wantBook(c, 0, []*pb.BookLevel{{Price: r.price, Quantity: 5, OrderCount: 1}}, nil, 0)
}

// lateAnswer: messages are the caller's again when Do has returned; an answer that comes later touches nothing.
func lateAnswer(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	gate := r.probe.hold(alphaKey)
	t.Cleanup(gate.open)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := transports.Call{
		Operation: transports.SubmitOrder, Request: r.limit("late", buy, 5, 0), Response: &pb.SubmitOrderResponse{},
	}
	done := make(chan error, 1)
	go func() { done <- c.Do(ctx, &call) }()
	gate.await(t)
	cancel()
	if err := <-done; err == nil {
		t.Error("answered although the gate is closed")
	}
	call.Request.(*pb.SubmitOrderRequest).ClientOrderId = "mine-again"
	response := call.Response.(*pb.SubmitOrderResponse)
	response.Reset()
	response.Text = "mine again"
	gate.open()
	// The late answer is on its way. Nothing says when it has passed, so it has a moment to do harm; a transport that does none is
	// only given that moment, never failed by it.
	for i, begin := 0, time.Now(); time.Since(begin) < 300*time.Millisecond; i++ {
		c.submit(r.limit(id("next-%d", i), buy, 1, 0))
		if !proto.Equal(response, &pb.SubmitOrderResponse{Text: "mine again"}) {
			t.Fatalf("the late answer wrote into its caller's message: %s", text(response))
		}
	}
}

// deadlineWhileGated: a deadline ends the call as a cancel does.
func deadlineWhileGated(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	gate := r.probe.hold(alphaKey)
	t.Cleanup(gate.open)
	order := r.limit("too-slow", buy, 5, 0)
	// On a slow machine the deadline may pass before the request has arrived anywhere; then it was not processed, and says so.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, fault := c.begin(ctx, order).wait(t)
	if fault == nil {
		t.Fatal("answered although the gate is closed")
	}
	if fault.Reason != pb.Reason_REASON_DEADLINE_EXCEEDED {
		t.Errorf("%v, want %v: %v", fault.Reason, pb.Reason_REASON_DEADLINE_EXCEEDED, fault)
	}
	gate.open()
	if again := c.submit(order); fault.Outcome == notProcessed && again.GetDuplicate() {
		t.Errorf("not processed, but the same id again: %s", text(again))
	}
}

// callThatIsOver: a context that has ended enters nothing.
func callThatIsOver(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for name, ctx := range map[string]context.Context{"canceled": over, "late": late} {
		order := r.limit("over-"+name, buy, 5, 0)
		_, fault := c.try(ctx, order)
		wantFault(t, fault, pb.Reason_REASON_DEADLINE_EXCEEDED, notProcessed)
		if fault != nil && !errors.Is(fault, ctx.Err()) {
			t.Errorf("the fault does not wrap the context's error: %v", fault)
		}
		if c.submit(order).GetDuplicate() {
			t.Errorf("call %s: not processed, but the same id again is a duplicate", name)
		}
	}
}

// deadlineCarriers are the transports whose protocol says how long a caller waits and whose server tells the gateway. Others refuse
// by themselves what comes too late, or know nothing of it.
var deadlineCarriers = []string{"memory", "grpc", "tcp", "connect"}

// deadlineReachesGateway: where the protocol says how long a caller waits, the gateway's context knows it.
func deadlineReachesGateway(t *testing.T, s *suite) {
	type seen struct {
		at, deadline time.Time
		has          bool
	}
	arrived := make(chan seen, 1)
	r := s.start(t, twoAccounts(), func(r *rig) {
		r.probe.intercept = func(ctx context.Context, x *transports.Exchange, next func() error) error {
			if x.Operation == transports.SubmitOrder {
				deadline, has := ctx.Deadline()
				arrived <- seen{time.Now(), deadline, has}
			}
			return next()
		}
	})
	c := r.dial(alphaKey)
	const allowed = time.Hour // longer than any limit of a server's own
	ctx, cancel := context.WithTimeout(t.Context(), allowed)
	defer cancel()
	started := time.Now()
	if _, fault := c.begin(ctx, r.limit("bounded", buy, 1, 0)).wait(t); fault != nil {
		t.Fatal(fault)
	}
	got := <-arrived
	if !got.has {
		if slices.Contains(deadlineCarriers, s.transport.Name) {
			t.Fatal("the gateway's context has no deadline")
		}
		t.Skip("this transport hands no deadline to the gateway")
	}
	// A relative deadline starts again on arrival, so it may be later by the way here; gRPC rounds to 8 digits.
	if early, late := started.Add(allowed-time.Second), got.at.Add(allowed+time.Second); got.deadline.Before(early) || got.deadline.After(late) {
		t.Errorf("the gateway's deadline is %v after the call, want %v", got.deadline.Sub(started), allowed)
	}
}

// panics: a panic in the gateway costs one request.
func panics(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts(), func(r *rig) {
		r.probe.intercept = func(_ context.Context, x *transports.Exchange, next func() error) error {
			order, _ := x.Request.(*pb.SubmitOrderRequest)
			switch order.GetClientOrderId() {
			case "panic-before":
				panic("a fault of the gateway, before it did anything")
			case "panic-after":
				_ = next()
				panic("a fault of the gateway, when the order was entered")
			}
			return next()
		}
	})
	c, other := r.dial(alphaKey), r.dial(betaKey)
	gate := r.probe.hold(betaKey)
	t.Cleanup(gate.open)
	call := other.begin(t.Context(), r.limit("under-way", buy, 1, 0))
	gate.await(t)
	for _, name := range []string{"panic-before", "panic-after"} {
		wantFault(t, c.refuse(r.limit(name, buy, 1, 0)), pb.Reason_REASON_INTERNAL, unknown)
		c.submit(r.limit(name+"-and-on", buy, 1, 0)) // the same connection goes on
	}
	gate.open()
	if _, fault := call.wait(t); fault != nil {
		t.Errorf("another client's call: %v", fault)
	}
	r.wantBook(other, 0, []*pb.BookLevel{{Price: r.price, Quantity: 4, OrderCount: 4}}, nil, 0)
}

// failingCommit: when the journal cannot keep its promise nothing is acknowledged, and nobody is told that nothing happened.
func failingCommit(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	healthy, lone, c := r.dial(betaKey), r.dial(alphaKey), r.dial(alphaKey)
	healthy.submit(r.limit("before", buy, 1, 0))
	cause := errors.New("no space left on the disk of this test")
	r.probe.fail(alphaKey, cause)

	wantFault(t, lone.refuse(r.limit("lone", buy, 1, 0)), pb.Reason_REASON_JOURNAL_UNAVAILABLE, unknown)

	// Of calls beside each other one may find the connection gone already, but none is answered.
	gate := r.probe.hold(alphaKey)
	t.Cleanup(gate.open)
	var calls []*pending
	for i := range 8 {
		calls = append(calls, c.begin(t.Context(), r.limit(id("beside-%d", i), buy, 1, 0)))
	}
	gate.await(t)
	gate.open()
	for i, call := range calls {
		response, fault := call.wait(t)
		if fault == nil {
			t.Errorf("call %d was acknowledged although its commit failed: %s", i, text(response))
		} else if name := id("beside-%d", i); fault.Outcome == notProcessed && r.probe.handledOrders()[name] > 0 {
			t.Errorf("call %d entered an order and says not processed: %v", i, fault)
		}
	}
	healthy.submit(r.limit("after", buy, 1, 0))
}

// closedClient: closing a client ends its calls in doubt; what comes later is not sent.
func closedClient(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c, other := r.dial(alphaKey), r.dial(betaKey)
	gate := r.probe.hold(alphaKey)
	t.Cleanup(gate.open)
	call := c.begin(t.Context(), r.limit("under-way", buy, 1, 0))
	gate.await(t)
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	_, fault := call.wait(t)
	wantOutcome(t, fault, unknown)
	wantOutcome(t, c.refuse(r.limit("later", buy, 1, 0)), notProcessed)
	if err := c.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
	gate.open()
	other.submit(r.limit("others-go-on", buy, 1, 0))
	if n := r.probe.handledOrders()["later"]; n != 0 {
		t.Errorf("the gateway answered %d calls of a closed client", n)
	}
	if !r.dial(alphaKey).submit(r.limit("under-way", buy, 1, 0)).GetDuplicate() {
		t.Errorf("the order under way when the client closed is not a duplicate")
	}
}
