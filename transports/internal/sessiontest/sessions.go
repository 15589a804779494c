package sessiontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
)

func answersAndEvents(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	r.feed.Publish(3)
	box := newInbox()
	trader := r.trade(&pb.Logon{SessionId: "s"}, box.receive)
	if ack := trader.Ack(); ack.GetEpoch() != 1 || ack.GetNextSequence() != 1 {
		t.Errorf("the ack is %v", ack)
	}
	const callers, each = 8, 50
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for j := range each {
				if err := r.order(trader, fmt.Sprintf("o-%d-%d", i, j)); err != nil {
					t.Errorf("%d, %d: %v", i, j, err)
				}
				r.feed.Publish(2)
			}
		})
	}
	group.Wait()
	box.wait(t, 3+2*callers*each, 1)
	if trader.Err() != nil {
		t.Errorf("Err is %v before the end", trader.Err())
	}
	if err := trader.Logout(t.Context(), "done for today"); err != nil {
		t.Errorf("Logout: %v", err)
	}
	if err := r.done(trader); err != nil {
		t.Errorf("the session ended with %v", err)
	}
	last := r.gateway.Requests()
	if logout, ok := last[len(last)-1].(*pb.Logout); !ok || logout.GetText() != "done for today" {
		t.Errorf("the gateway saw %v last", last[len(last)-1])
	}
	if lost := r.gateway.Lost(); len(lost) != 0 {
		t.Errorf("lost are %v", lost)
	}
	checkFault(t, "an order after the Logout", r.order(trader, "late"), pb.Reason_REASON_CONNECTION_LOST, notProcessed)
	if err := trader.Logout(t.Context(), "again"); err == nil {
		t.Error("a second Logout is taken")
	}
}

func everyRequest(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	trader := r.trade(&pb.Logon{SessionId: "s", GraceMs: 5, DisconnectMode: pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT}, func(*pb.ExecutionReport) {})
	if logon, ok := r.gateway.Take()[0].(*pb.Logon); !ok || logon.GetGraceMs() != 5 || logon.GetDisconnectMode() != pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT {
		t.Errorf("the gateway saw %v first", logon)
	}
	for _, op := range []transports.Operation{transports.SubmitOrder, transports.ReplaceOrder, transports.CancelOrder, transports.MassCancel} {
		fake.CheckThereAndBack(t, r.gateway, trader, op)
	}
	// Work is used again: a large tag, then a small one.
	for _, size := range []int{0, 1 << 16, 1, 1<<20 - 100, 2047, 0} {
		tag := bytes.Repeat([]byte{7}, size)
		c := fake.Call(transports.SubmitOrder, fake.Order("o", tag))
		if err := trader.Do(t.Context(), c); err != nil || !bytes.Equal(c.Response.(*pb.SubmitOrderResponse).GetClientTag(), tag) {
			t.Errorf("a tag of %d bytes: %v", size, err)
		}
	}
}

func errorsLeaveTheSession(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	var fault *transports.Fault
	r.gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		if q, ok := x.Request.(*pb.SubmitOrderRequest); ok && q.GetClientOrderId() == "bad" {
			return fault
		}
		r.gateway.Answer(x)
		return nil
	}
	trader := r.trade(&pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
	for _, fault = range fake.Faults() {
		got, ok := errors.AsType[*transports.Fault](r.order(trader, "bad"))
		if !ok || *got != *fault {
			t.Errorf("the client has %+v, want %+v", got, fault)
		}
		if err := r.order(trader, "good"); err != nil {
			t.Errorf("after %v: %v", fault.Reason, err)
		}
	}
}

func finalFault(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	final := transports.Refuse(pb.Reason_REASON_THROTTLED, "too much, for too long")
	final.Final = true
	r.gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		if x.Operation == transports.SubmitOrder {
			return final
		}
		r.gateway.Answer(x)
		return nil
	}
	trader := r.trade(&pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
	checkFault(t, "the request", r.order(trader, "o"), pb.Reason_REASON_THROTTLED, notProcessed)
	checkFault(t, "the session", r.done(trader), pb.Reason_REASON_THROTTLED, notProcessed)
	checkFault(t, "a request behind it", r.order(trader, "p"), pb.Reason_REASON_THROTTLED, notProcessed)
}

// hold keeps the commits of orders back.
type hold struct {
	mu       sync.Mutex
	over     bool
	releases []func(error)
	held     chan struct{} // one element for each
}

func (r *rig) hold() *hold {
	h := &hold{held: make(chan struct{}, 10_000)}
	r.gateway.OnCommit = func(release func(error)) {
		h.mu.Lock()
		over := h.over
		if !over {
			h.releases = append(h.releases, release)
		}
		h.mu.Unlock()
		if over {
			release(nil)
			return
		}
		h.held <- struct{}{}
	}
	return h
}

// open holds nothing back any more.
func (h *hold) open() {
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
	h.release(nil)
}

// release lets go what was held so far.
func (h *hold) release(err error) {
	h.mu.Lock()
	list := h.releases
	h.releases = nil
	h.mu.Unlock()
	for _, release := range list {
		release(err)
	}
}

// held sends an order and returns once its commit is held.
func (r *rig) held(h *hold, trader transports.Client, id string) <-chan error {
	r.Helper()
	answered := make(chan error, 1)
	go func() { answered <- r.order(trader, id) }()
	<-h.held
	return answered
}

func answersWait(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	trader := r.trade(&pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
	h := r.hold()
	first := r.held(h, trader, "o-1")
	second := r.held(h, trader, "o-2")
	select {
	case err := <-first:
		t.Errorf("o-1 is answered before its commit: %v", err)
	case err := <-second:
		t.Errorf("o-2 is answered before its commit: %v", err)
	default:
	}
	h.release(nil)
	if err := errors.Join(<-first, <-second); err != nil {
		t.Error(err)
	}
}

func failedCommit(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	trader := r.trade(&pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
	h := r.hold()
	first, second := r.held(h, trader, "o-1"), r.held(h, trader, "o-2")
	h.release(errors.New("disk full"))
	checkFault(t, "o-1", <-first, pb.Reason_REASON_JOURNAL_UNAVAILABLE, unknown)
	checkFault(t, "o-2", <-second, pb.Reason_REASON_JOURNAL_UNAVAILABLE, unknown)
	// Whether the session ends with it, as where its connection is all there is, or goes on: the next request is processed, or it is not, and never in doubt.
	h.open()
	if err := r.order(trader, "o-3"); err != nil {
		checkFault(t, "o-3", err, pb.Reason_REASON_JOURNAL_UNAVAILABLE, notProcessed)
		checkFault(t, "the session", r.done(trader), pb.Reason_REASON_JOURNAL_UNAVAILABLE, unknown)
	}
}

func logoutAnswers(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	trader := r.trade(&pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
	h := r.hold()
	accepted := r.held(h, trader, "o-1")
	out := make(chan error, 1)
	go func() { out <- trader.Logout(context.Background(), "") }()
	<-h.held // the Logout's own commit
	h.release(nil)
	if err := <-accepted; err != nil {
		t.Errorf("what was accepted: %v", err)
	}
	if err := <-out; err != nil {
		t.Errorf("Logout: %v", err)
	}
	if err := r.done(trader); err != nil {
		t.Errorf("the session ended with %v", err)
	}
}

func drain(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	box := newInbox()
	trader := r.trade(&pb.Logon{SessionId: "s"}, box.receive)
	streamed := make(chan error, 1)
	seen := newInbox()
	go func() {
		streamed <- transport.Executions(context.Background(), r.config(), &pb.StreamExecutionsRequest{}, seen.receive)
	}()
	r.feed.Publish(5)
	box.wait(t, 5, 1)
	seen.wait(t, 5, 1)
	h := r.hold()
	accepted := r.held(h, trader, "o-1")
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(context.Background()) }()
	checkFault(t, "the stream", <-streamed, pb.Reason_REASON_DRAINING, notProcessed) // which shows that the drain has begun
	select {
	case <-trader.Done():
		t.Error("the session ended before what it had accepted was answered")
	case err := <-stopped:
		t.Errorf("Shutdown returned (%v) before the accepted request was answered", err)
	default:
	}
	h.release(nil)
	if err := <-accepted; err != nil {
		t.Errorf("what was accepted: %v", err)
	}
	checkFault(t, "the session", r.done(trader), pb.Reason_REASON_DRAINING, notProcessed)
	checkFault(t, "a request behind it", r.order(trader, "o-2"), pb.Reason_REASON_DRAINING, notProcessed)
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func drainGivesUp(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	trader := r.trade(&pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
	h := r.hold()
	accepted := r.held(h, trader, "o-1") // and nobody releases
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(ctx) }()
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	checkFault(t, "what was accepted", <-accepted, pb.Reason_REASON_CONNECTION_LOST, unknown)
	if err := r.done(trader); err == nil {
		t.Error("the session ended without an error")
	}
	h.release(nil) // late: nobody waits, nothing breaks
}

func takeover(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	older := r.trade(&pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
	other := r.trade(&pb.Logon{SessionId: "t"}, func(*pb.ExecutionReport) {})
	box := newInbox()
	newer := r.trade(&pb.Logon{SessionId: "s"}, box.receive)
	checkFault(t, "the older", r.done(older), pb.Reason_REASON_SESSION_REPLACED, notProcessed)
	checkFault(t, "a request of the older", r.order(older, "o"), pb.Reason_REASON_SESSION_REPLACED, notProcessed)
	older.Close()
	checkFault(t, "a request of the older, closed", r.order(older, "o"), pb.Reason_REASON_SESSION_REPLACED, notProcessed)
	checkFault(t, "its logout", older.Logout(t.Context(), ""), pb.Reason_REASON_SESSION_REPLACED, notProcessed)
	if err := older.Err(); err == nil {
		t.Error("Close has made the older forget why it ended")
	}
	r.feed.Publish(1)
	box.wait(t, 1, 1)
	for _, trader := range []transports.Trader{newer, other} {
		if err := r.order(trader, "p"); err != nil {
			t.Error(err)
		}
	}
	if lost := r.gateway.Lost(); len(lost) != 0 {
		t.Errorf("lost are %v", lost)
	}
}

func resume(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	r.feed.Publish(20)
	box := newInbox()
	first := r.trade(&pb.Logon{SessionId: "s"}, box.receive)
	box.wait(t, 20, 1)
	first.Close()
	if err := r.done(first); err != nil {
		t.Errorf("the closed session ended with %v", err)
	}
	r.eventually("the lost connection is told to the gateway", func() bool { return len(r.gateway.Lost()) == 1 })
	r.feed.Publish(300)
	again := newInbox()
	second := r.trade(&pb.Logon{SessionId: "s", Epoch: 1, LastSequence: 10}, again.receive)
	if ack := second.Ack(); ack.GetEpoch() != 1 || ack.GetNextSequence() != 11 {
		t.Errorf("the ack is %v", ack)
	}
	again.wait(t, 310, 11)
	if err := r.order(second, "o"); err != nil {
		t.Error(err)
	}
}

func refusedLogons(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	r.gateway.Key = "good"
	for name, c := range map[string]struct {
		key    string
		logon  *pb.Logon
		reason pb.Reason
	}{
		"key":        {"bad", &pb.Logon{SessionId: "s"}, pb.Reason_REASON_UNAUTHENTICATED},
		"session id": {"good", &pb.Logon{}, pb.Reason_REASON_MALFORMED},
		"place":      {"good", &pb.Logon{SessionId: "s", LastSequence: 99}, pb.Reason_REASON_MALFORMED},
		"epoch":      {"good", &pb.Logon{SessionId: "s", Epoch: 9}, pb.Reason_REASON_MALFORMED},
	} {
		config := r.config()
		config.Key = c.key
		trader, err := transport.Trade(t.Context(), config, c.logon, func(*pb.ExecutionReport) { t.Errorf("%s: an event", name) })
		if err == nil {
			trader.Close()
			t.Errorf("%s: the logon is taken", name)
			continue
		}
		checkFault(t, name, err, c.reason, notProcessed)
	}
	if lost := r.gateway.Lost(); len(lost) != 0 {
		t.Errorf("lost are %v, and none was taken", lost)
	}
	config := r.config()
	config.Key = "good"
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := transport.Trade(over, config, &pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {}); err == nil {
		t.Error("a context that is over is no matter")
	}
}

// logonWithoutEvents: the Logon took effect, so that a plain refusal would be wrong, and the session without events is over.
func logonWithoutEvents(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	r.gateway.OnSubscribe = func(context.Context, *pb.StreamExecutionsRequest) (transports.Events, error) {
		return nil, transports.Refuse(pb.Reason_REASON_OVERLOADED, "too many readers")
	}
	_, err := transport.Trade(t.Context(), r.config(), &pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) { t.Error("an event") })
	checkFault(t, "the logon", err, pb.Reason_REASON_OVERLOADED, unknown)
	r.eventually("the session is told to be lost", func() bool { return slices.Equal(r.gateway.Lost(), []string{"s"}) })
	err = transport.Executions(t.Context(), r.config(), &pb.StreamExecutionsRequest{}, func(*pb.ExecutionReport) { t.Error("an event") })
	checkFault(t, "a stream, which changes nothing", err, pb.Reason_REASON_OVERLOADED, notProcessed)
}

func eventsEnd(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	box := newInbox()
	trader := r.trade(&pb.Logon{SessionId: "s"}, box.receive)
	h := r.hold()
	accepted := r.held(h, trader, "o-1")
	r.feed.Publish(7)
	r.feed.Fail(transports.Refuse(pb.Reason_REASON_THROTTLED, "the session was ended"))
	h.release(nil)
	if err := <-accepted; err != nil {
		t.Errorf("what was accepted: %v", err)
	}
	checkFault(t, "the session", r.done(trader), pb.Reason_REASON_THROTTLED, notProcessed)
	box.wait(t, 7, 1)
}

func panics(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	r.gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		if q, ok := x.Request.(*pb.SubmitOrderRequest); ok && q.GetClientOrderId() == "bad" {
			panic("as told")
		}
		r.gateway.Answer(x)
		return nil
	}
	trader := r.trade(&pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
	checkFault(t, "the request", r.order(trader, "bad"), pb.Reason_REASON_INTERNAL, unknown)
	if err := r.order(trader, "good"); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func callerGivesUp(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	trader := r.trade(&pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
	h := r.hold()
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	c := fake.Call(transports.SubmitOrder, fake.Order("o", nil))
	go func() { given <- trader.Do(ctx, c) }()
	<-h.held
	cancel()
	checkFault(t, "the call", <-given, pb.Reason_REASON_DEADLINE_EXCEEDED, unknown)
	checkFault(t, "a call that is over before", trader.Do(ctx, c), pb.Reason_REASON_DEADLINE_EXCEEDED, notProcessed)
	h.release(nil)
	next := r.held(h, trader, "p")
	h.release(nil)
	if err := <-next; err != nil {
		t.Errorf("the next: %v", err)
	}
}

func otherOperations(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	trader := r.trade(&pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
	for _, op := range []transports.Operation{transports.Logon, transports.Logout, transports.StreamExecutions} {
		checkFault(t, op.String(), trader.Do(t.Context(), fake.Call(op, op.NewRequest())), pb.Reason_REASON_UNIMPLEMENTED, notProcessed)
	}
	if got := len(r.gateway.Requests()); got != 1 {
		t.Errorf("the gateway saw %d requests, want the Logon", got)
	}
	large := fake.Order("o", make([]byte, transports.DefaultMaxRequestBytes))
	checkFault(t, "too large", trader.Do(t.Context(), fake.Call(transports.SubmitOrder, large)), pb.Reason_REASON_TOO_LARGE, notProcessed)
	if err := r.order(trader, "o"); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func closed(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	trader := r.trade(&pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
	h := r.hold()
	underWay := r.held(h, trader, "o")
	if err := trader.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	checkFault(t, "under way", <-underWay, pb.Reason_REASON_CONNECTION_LOST, unknown)
	if err := r.done(trader); err != nil {
		t.Errorf("Err is %v after Close", err)
	}
	checkFault(t, "behind it", r.order(trader, "p"), pb.Reason_REASON_CONNECTION_LOST, notProcessed)
	if err := trader.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	h.release(nil) // a connection that has no word for its loss is lost when what it accepted is answered
	r.eventually("the lost session is told to the gateway", func() bool { return len(r.gateway.Lost()) == 1 })
}

// largeOrders has answers larger than HTTP/2's windows and events compete for one stream.
func largeOrders(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	box := newInbox()
	trader := r.trade(&pb.Logon{SessionId: "s"}, box.receive)
	tag := bytes.Repeat([]byte{1}, 100<<10)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 8 {
				c := fake.Call(transports.SubmitOrder, fake.Order("o", tag))
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				err := trader.Do(ctx, c)
				cancel()
				if err != nil || len(c.Response.(*pb.SubmitOrderResponse).GetClientTag()) != len(tag) {
					t.Errorf("%v", err)
				}
				r.feed.Publish(50)
			}
		})
	}
	group.Wait()
	box.wait(t, 4*8*50, 1)
}
