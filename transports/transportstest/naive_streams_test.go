package transportstest_test

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// The naive gateway's events and sessions: a slice for each account, one epoch, and everybody who waits is woken by everything.

// naiveDisk holds commits back, or fails them. It implements transportstest.Disk.
type naiveDisk struct {
	mu     sync.Mutex
	gate   chan struct{} // closed = open; nil = open
	broken bool
	failed bool // a commit has met it
}

var errNaiveDisk = errors.New("the disk is broken")

// HoldDisk implements transportstest.Disk.
func (g *naive) HoldDisk() (release func()) {
	gate := make(chan struct{})
	g.disk.mu.Lock()
	defer g.disk.mu.Unlock()
	g.disk.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

// BreakDisk implements transportstest.Disk.
func (g *naive) BreakDisk() {
	g.disk.mu.Lock()
	defer g.disk.mu.Unlock()
	g.disk.broken = true
}

// hasFailed reports whether a commit has failed: nothing more is taken then.
func (d *naiveDisk) hasFailed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// held is what to wait for before anything may leave, nil = nothing.
func (d *naiveDisk) held() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gate
}

// failure is how a commit ends.
func (d *naiveDisk) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed = d.failed || d.broken; d.failed {
		return errNaiveDisk
	}
	return nil
}

// Commit implements transports.Session. Releases of one releaser keep their order, since a gate lets go of one after the other.
func (s *naiveSession) Commit(r transports.Releaser, mark uint64) {
	gate := s.disk.held()
	if gate == nil {
		r.Release(mark, s.disk.failure())
		return
	}
	go func() {
		<-gate
		s.mu.Lock()
		defer s.mu.Unlock()
		r.Release(mark, s.disk.failure())
	}()
}

// Close implements transports.Session.
func (*naiveSession) Close() {}

// report numbers an event of an order's account, and returns its number. The lock is held.
func (g *naive) report(o *order, e *pb.ExecutionReport) uint64 {
	g.executions++
	e.Epoch, e.Sequence, e.ExecutionId = 1, uint64(len(o.account.events))+1, g.executions
	e.Order, e.Account, e.EventNs = proto.CloneOf(o.Order), o.account.name, uint64(transports.Now())
	o.account.events = append(o.account.events, e)
	g.wake()
	return e.Sequence
}

// wake makes all readers look. The lock is held.
func (g *naive) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// logon takes a session from whoever holds it. The lock is held.
func (s *naiveSession) logon(q *pb.Logon) (proto.Message, error) {
	if err := check("session_id", idPattern.MatchString(q.SessionId), "disconnect_mode", q.DisconnectMode >= 0 && q.DisconnectMode <= 2,
		"grace_ms", q.GraceMs <= 60_000, "epoch", q.Epoch <= 1, "last_sequence", q.LastSequence <= uint64(len(s.account.events))); err != nil {
		return nil, err
	}
	name := s.account.name + "/" + q.SessionId
	if old := s.holders[name]; old != nil && old.over == nil {
		old.over = transports.Refuse(pb.Reason_REASON_SESSION_REPLACED, "another connection has this session now")
		old.over.Final = true
		s.wake()
	}
	s.holders[name] = s
	return &pb.LogonAck{Epoch: 1, NextSequence: q.LastSequence + 1}, nil
}

// Subscribe implements transports.Session.
func (s *naiveSession) Subscribe(_ context.Context, q *pb.StreamExecutionsRequest) (transports.Events, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Account != "" && q.Account != s.account.name {
		f := transports.Refuse(pb.Reason_REASON_PERMISSION_DENIED, "the key is not of %q", q.Account)
		f.Field = "account"
		return nil, f
	}
	from := max(q.FromSequence, 1)
	if err := check("epoch", q.Epoch <= 1, "from_sequence", from <= uint64(len(s.account.events))+1); err != nil {
		return nil, err
	}
	return &naiveEvents{session: s, next: from, closed: make(chan struct{})}, nil
}

type naiveEvents struct {
	session *naiveSession
	next    uint64
	once    sync.Once
	closed  chan struct{}
}

// Place implements transports.Events.
func (e *naiveEvents) Place() (epoch uint32, sequence uint64) { return 1, e.next }

// Next implements transports.Events.
func (e *naiveEvents) Next(ctx context.Context) ([]transports.Event, error) {
	for {
		e.session.mu.Lock()
		over, changed := e.session.over, e.session.changed
		var list []transports.Event
		for _, report := range e.session.account.events[e.next-1:] {
			encoded, err := proto.Marshal(report)
			if err != nil || len(list) == transports.MaxEvents {
				break
			}
			list = append(list, transports.Event{Epoch: report.Epoch, Sequence: report.Sequence, Report: encoded})
		}
		e.session.mu.Unlock()
		if over != nil {
			return nil, over
		}
		if len(list) > 0 {
			if err := e.committed(ctx); err != nil {
				return nil, err
			}
			e.next += uint64(len(list))
			return list, nil
		}
		select {
		case <-changed:
		case <-e.closed:
			return nil, transports.Refuse(pb.Reason_REASON_CONNECTION_LOST, "closed")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (e *naiveEvents) committed(ctx context.Context) error {
	if e.session.leaks {
		return nil
	}
	if gate := e.session.disk.held(); gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := e.session.disk.failure(); err != nil {
		return transports.InDoubt(pb.Reason_REASON_JOURNAL_UNAVAILABLE, err, "the disk is broken")
	}
	return nil
}

// Close implements transports.Events.
func (e *naiveEvents) Close() { e.once.Do(func() { close(e.closed) }) }
