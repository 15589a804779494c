package transportstest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// streamCases need sessions or streams of events, but for the one that says who offers them.
var streamCases = []testCase{
	{"who streams", false, whoStreams, 0},

	{"events of everything", true, eventsOfEverything, streams | orderPath},
	{"places in a stream", true, places, streams},
	{"drop copy", true, dropCopy, streams | orderPath},
	{"events over epochs", true, eventsOverEpochs, streams | orderPath},
	{"events wait for their commit", false, eventsWait, streams | disk},
	{"events of a failed commit", false, eventsOfFailedCommit, streams | disk},
	{"slow reader", false, slowReader, streams | defaults},
	{"more readers than there may be", true, tooManyReaders, streams | orderPath},
	{"streams end with the server", false, streamsDrain, streams},

	{"session", true, session, sessions},
	{"every reason in a session", true, everyReasonInSession, sessions},
	{"session resumes", true, sessionResumes, sessions},
	{"logons in vain", true, logonsInVain, sessions},
	{"takeover", false, takeover, sessions},
	{"logout keeps orders", false, logoutKeeps, sessions | orderPath},
	{"lost session", false, lostSession, sessions | streams | orderPath},
	{"return within the grace time", false, returnInTime, sessions | orderPath},
	{"fill races the cancel", false, fillRacesCancel, sessions | streams | orderPath},
	{"session ends with the server", false, sessionDrains, sessions},
	{"session that is shut out", false, sessionShutOut, sessions | orderPath},
	{"table of sessions full", false, sessionsFull, sessions | orderPath},
}

// The transports with sessions, and those with streams of events: where one loses its own, the suite must not fall silent.
var (
	withSessions = []string{"memory", "tcp", "grpc"}
	withStreams  = []string{"memory", "tcp", "grpc", "rest", "connect", "fasthttp", "fiber", "echo"}
)

func whoStreams(t *testing.T, s *suite) {
	if has, should := s.transport.Trade != nil, slices.Contains(withSessions, s.transport.Name); has != should {
		t.Errorf("%s has sessions: %t, want %t", s.transport.Name, has, should)
	}
	if has, should := s.transport.Executions != nil, slices.Contains(withStreams, s.transport.Name); has != should {
		t.Errorf("%s has streams of events: %t, want %t", s.transport.Name, has, should)
	}
}

// inbox keeps the events that a reader or a session got.
type inbox struct {
	t    *testing.T
	gate chan struct{} // receive waits until it is closed; nil = it does not

	mu     sync.Mutex
	events []*pb.ExecutionReport
	at     []int64       // when each came, by transports.Now
	more   chan struct{} // closed with the next event
}

func newInbox(t *testing.T) *inbox { return &inbox{t: t, more: make(chan struct{})} }

func (b *inbox) receive(e *pb.ExecutionReport) {
	if b.gate != nil {
		<-b.gate
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events, b.at = append(b.events, e), append(b.at, transports.Now())
	close(b.more)
	b.more = make(chan struct{})
}

// all returns what has come so far.
func (b *inbox) all() []*pb.ExecutionReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

// upTo returns all events once number sequence of the epoch has come.
func (b *inbox) upTo(epoch uint32, sequence uint64) []*pb.ExecutionReport {
	b.t.Helper()
	b.reach(epoch, sequence)
	return b.all()
}

// reach waits until number sequence of the epoch has come.
func (b *inbox) reach(epoch uint32, sequence uint64) {
	b.t.Helper()
	late := time.After(bound)
	for {
		b.mu.Lock()
		more, last := b.more, &pb.ExecutionReport{}
		if n := len(b.events); n > 0 {
			last = b.events[n-1]
		}
		b.mu.Unlock()
		if last.GetEpoch() > epoch || last.GetEpoch() == epoch && last.GetSequence() >= sequence {
			return
		}
		select {
		case <-more:
		case <-late:
			events := b.all()
			b.t.Fatalf("event %d of epoch %d did not come within %v; %d came, the last is %s", sequence, epoch, bound, len(events), lastOf(events))
		}
	}
}

func lastOf(events []*pb.ExecutionReport) string {
	if len(events) == 0 {
		return "none"
	}
	return text(events[len(events)-1])
}

// reader is a stream of events.
type reader struct {
	*inbox
	rig  *rig
	done <-chan struct{}
	err  error // once done is closed
	stop context.CancelFunc
}

// follow opens a stream, which the end of the test ends.
func (r *rig) follow(key string, request *pb.StreamExecutionsRequest, changes ...func(*inbox)) *reader {
	r.t.Helper()
	config := r.dialed
	config.Key = key
	ctx, stop := context.WithCancel(context.Background())
	x := &reader{inbox: newInbox(r.t), rig: r, stop: stop}
	for _, change := range changes {
		change(x.inbox)
	}
	x.done = run(func() { x.err = r.transport.Executions(ctx, config, request, x.receive) })
	r.t.Cleanup(func() {
		stop()
		await(r.t, "the stream ends with its context", x.done)
	})
	return x
}

// ended waits for the end of the stream by itself and returns the fault that it ended with.
func (x *reader) ended() *transports.Fault {
	x.t.Helper()
	await(x.t, "the stream ends", x.done)
	fault := checkFault(x.t, "the stream", x.err)
	x.rig.see(fault.Reason)
	return fault
}

// read returns an account's events from a place up to one that is known to be there.
func (r *rig) read(key string, request *pb.StreamExecutionsRequest, epoch uint32, last uint64) []*pb.ExecutionReport {
	r.t.Helper()
	x := r.follow(key, request)
	events := x.upTo(epoch, last)
	x.stop()
	await(r.t, "the stream ends with its context", x.done)
	if !errors.Is(x.err, context.Canceled) {
		r.t.Errorf("a stream whose context has ended: %v", x.err)
	}
	return events
}

// refusedStream opens a stream that must not be, and adds it to the table.
func (r *rig) refusedStream(key string, request *pb.StreamExecutionsRequest, reason pb.Reason, field string) {
	r.t.Helper()
	x := r.follow(key, request)
	fault := x.ended()
	if fault.Reason != reason || fault.Outcome != notProcessed || fault.Field != field {
		r.t.Errorf("stream %s: %v, %v, field %q; want %v, %v, field %q", text(request), fault.Reason, fault.Outcome, fault.Field, reason, notProcessed, field)
	}
	if events := x.all(); len(events) > 0 {
		r.t.Errorf("stream %s was refused with events", text(request))
	}
	r.row("StreamExecutions "+text(request), observed(nil, fault))
}

// row adds something to the case's table that is no call of a client.
func (r *rig) row(call, answer string) {
	if r.rows != nil {
		r.rows.add(Row{Case: r.caseName, Call: call, Answer: answer})
	}
}

// tabled adds events to the table.
func (r *rig) tabled(whose string, events []*pb.ExecutionReport) {
	for _, e := range events {
		r.see(e.GetReason())
		r.row("event of "+whose, text(without(e, clocks)))
	}
}

// gapFree holds events to their numbering: from a place on, each has the next number, and a new epoch begins with 1.
func (r *rig) gapFree(account string, events []*pb.ExecutionReport, epoch uint32, from uint64) {
	r.t.Helper()
	for i, e := range events {
		if e.GetEpoch() == epoch+1 && e.GetSequence() == 1 && i > 0 {
			epoch, from = epoch+1, 1
		}
		if e.GetEpoch() != epoch || e.GetSequence() != from || e.GetAccount() != account {
			r.t.Fatalf("event %d is number %d of epoch %d of %q, want number %d of epoch %d of %q",
				i, e.GetSequence(), e.GetEpoch(), e.GetAccount(), from, epoch, account)
		}
		from++
	}
}

// sameEvents compares events by their deterministic bytes.
func sameEvents(t testing.TB, what string, got, want []*pb.ExecutionReport) {
	t.Helper()
	encode := func(e *pb.ExecutionReport) string {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(e)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d events, want %d", what, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if encode(got[i]) != encode(want[i]) {
			t.Errorf("%s: event %d is\n     %s\nwant %s", what, i, text(got[i]), text(want[i]))
		}
	}
}

// numbered is an acknowledgement with a place in its account's stream.
type numbered interface {
	proto.Message
	ack
	GetClientOrderId() string
	GetSequence() uint64
	GetEpoch() uint32
}

// announces holds an answer to the event that has its number.
func (r *rig) announces(events []*pb.ExecutionReport, a numbered) {
	r.t.Helper()
	i := slices.IndexFunc(events, func(e *pb.ExecutionReport) bool {
		return e.GetEpoch() == a.GetEpoch() && e.GetSequence() == a.GetSequence()
	})
	if i < 0 {
		r.t.Errorf("no event has the number of the answer %s", text(a))
		return
	}
	var want pb.ExecutionType
	switch a.(type) {
	case *pb.SubmitOrderResponse:
		want = pb.ExecutionType_EXECUTION_TYPE_NEW
	case *pb.ReplaceOrderResponse:
		want = pb.ExecutionType_EXECUTION_TYPE_REPLACED
	case *pb.CancelOrderResponse:
		want = pb.ExecutionType_EXECUTION_TYPE_CANCELED
	}
	if a.GetStatus() == rejected {
		want = pb.ExecutionType_EXECUTION_TYPE_REJECTED
	}
	e := events[i]
	if e.GetType() != want || e.GetReason() != a.GetReason() || e.GetOrder().GetClientOrderId() != a.GetClientOrderId() || e.GetOrder().GetOrderId() != a.GetOrderId() {
		r.t.Errorf("the answer %s\nhas the number of event %s", text(a), text(e))
	}
}

// folds holds what events say of each order last to what is read.
func (r *rig) folds(c *client, events []*pb.ExecutionReport) {
	r.t.Helper()
	last := map[string]*pb.Order{}
	var names []string
	for _, e := range events {
		name := e.GetOrder().GetClientOrderId()
		if last[name] == nil {
			names = append(names, name)
		}
		if e.GetOrder().GetOrderId() != 0 || e.GetType() == pb.ExecutionType_EXECUTION_TYPE_REJECTED && last[name] == nil {
			last[name] = e.GetOrder()
		}
	}
	for _, name := range names {
		response, fault := c.try(r.t.Context(), &pb.GetOrderRequest{ClientOrderId: name})
		if fault != nil {
			if fault.Reason != pb.Reason_REASON_NOT_FOUND || last[name].GetOrderId() != 0 {
				r.t.Errorf("order %s: %v", name, fault)
			}
			continue
		}
		if got := response.(*pb.GetOrderResponse).GetOrder(); !proto.Equal(got, last[name]) {
			r.t.Errorf("its last event says  %s\nthe order itself is %s", text(last[name]), text(got))
		}
	}
}
