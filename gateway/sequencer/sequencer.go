// Package sequencer is the one writer: it puts every command of the gateway into one order, first in the journal, then in
// the state.
//
// Whoever calls it does the work on his own goroutine, under one lock: decide, append (memory only), apply. The lock is never
// held across a write, an fsync or a peer's socket; what waits for those is released later through Commit. The room must
// never know how a journal keeps its promise, what a session is, or bytes of any transport.
package sequencer

import (
	"context"
	"errors"
	"sync"
	"time"

	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Observer is told what commands did, in the order of the log, so that what others derive from the state follows it whoever
// executes a command. Its methods run under the writer's lock: they must be quick, must not block, and must not call the sequencer.
type Observer interface {
	// Touched names the accounts that the command gave events; the slice is valid until it returns. It is called for every command
	// that was applied, so it must allocate nothing.
	Touched(accounts []uint32)
	// Changed is called after a command that is not a submit, a replace or a cancel was applied, with the state as it is now.
	Changed(state *orders.State, c *orders.Command)
}

// Sequencer orders commands. Safe for concurrent use.
type Sequencer struct {
	mu       sync.Mutex // guards all below
	state    *orders.State
	log      Log
	last     uint64 // log sequence number of the last applied command
	buffer   []byte // one encoded command
	broken   error  // the state and the log differ: nothing more is taken
	observer Observer
}

// New returns a sequencer that goes on where the replica is, which must be the end of the log. The replica is the sequencer's from here on.
func New(r *Replica, log Log) *Sequencer {
	return &Sequencer{state: r.state, last: r.last, log: log, buffer: make([]byte, 0, orders.MaxCommandBytes)}
}

// Observe sets the one observer. It hears of every command that is executed from here on.
func (s *Sequencer) Observe(o Observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observer = o
}

// Execute runs one command: its answer is in out, and may leave after Commit. The error is a *transports.Fault, and then nothing
// happened but for INTERNAL. The caller owns both and may reuse them.
func (s *Sequencer) Execute(c *orders.Command, out *orders.Answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		f := transports.Refuse(pb.Reason_REASON_INTERNAL, "the gateway takes nothing more after an internal error; it must be restarted")
		f.Err = s.broken
		return f
	}
	journal, err := s.state.Decide(c, out)
	if err != nil {
		return decideFault(err)
	}
	if !journal {
		return nil
	}
	s.buffer = c.Append(s.buffer[:0])
	lsn, err := s.log.Append(c.ReceivedNs, s.buffer)
	if err != nil {
		return s.logFault(err)
	}
	// From here to the end of Apply the log has a command that the state has not, or not whole. Should Apply fail or
	// panic, to go on would be to answer from a state that no replay gives.
	s.broken = errHalfApplied
	if err := s.state.Apply(c, out); err != nil {
		s.broken = err
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the gateway stopped half way through this request; after a restart the same id tells what became of it")
	}
	s.broken = nil
	s.last = lsn
	if s.observer != nil {
		s.observe(c)
	}
	return nil
}

// observe tells the observer. The state and the log agree already, whatever it does.
func (s *Sequencer) observe(c *orders.Command) {
	if touched := s.state.Touched(); len(touched) > 0 {
		s.observer.Touched(touched)
	}
	switch c.Kind {
	case orders.Submit, orders.Replace, orders.Cancel:
	default:
		s.observer.Changed(s.state, c)
	}
}

// Read shows the state and the log sequence number of the last command in it. Nothing is changed meanwhile, and nobody is served either:
// read must copy what it needs and be quick.
func (s *Sequencer) Read(read func(state *orders.State, last uint64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read(s.state, s.last)
}

// Commit implements the second half of transports.Session for all sessions.
func (s *Sequencer) Commit(r transports.Releaser, mark uint64) { s.log.Commit(r, mark) }

// Wait returns when all that was executed before is as durable as the log promises, for callers without a transport's batch. The error is a
// *transports.Fault, of outcome UNKNOWN: what was executed may be kept.
func (s *Sequencer) Wait(ctx context.Context) error {
	done := make(released, 1)
	s.Commit(done, 0)
	select {
	case err := <-done:
		if err != nil {
			return transports.InDoubt(pb.Reason_REASON_JOURNAL_UNAVAILABLE, err, "the journal failed before this was committed; it may have taken effect")
		}
		return nil
	case <-ctx.Done():
		return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, ctx.Err(), "the request ended while it waited for the journal; it may have taken effect")
	}
}

// released is a Releaser that one goroutine waits for; its channel holds one, so that Release never blocks.
type released chan error

// Release implements transports.Releaser.
func (r released) Release(_ uint64, err error) { r <- err }

// Committed is the log sequence number up to which the log's promise is kept.
func (s *Sequencer) Committed() uint64 { return s.log.Committed() }

// Snapshot writes the state as it is into the log, with the writer's lock held until it is on the disk: for a clean stop, when nobody is
// served any more. A running gateway folds a [Replica] instead.
func (s *Sequencer) Snapshot() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken // a state that no replay gives must not become the one that all replays begin with
	}
	return s.log.Snapshot(s.last, s.state.WriteSnapshot)
}

// Err is why nothing more is taken, or nil.
func (s *Sequencer) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.broken, s.log.Err())
}

var errHalfApplied = errors.New("a command stopped half way")

// retryJournal is when to come back to a journal that takes nothing at the moment: a disk is not freed, nor a backlog written, faster than this.
const retryJournal = 100 * time.Millisecond

// logFault says whether it passes. The log's own words name files of the server, so they are for its logs and not for clients.
func (s *Sequencer) logFault(err error) *transports.Fault {
	f := transports.Refuse(pb.Reason_REASON_JOURNAL_UNAVAILABLE, "the journal takes nothing at the moment: its disk is full or behind; try again")
	f.RetryAfter = retryJournal
	if s.log.Err() != nil {
		f = transports.Refuse(pb.Reason_REASON_JOURNAL_UNAVAILABLE, "the journal has failed, and the gateway takes nothing more until it is restarted")
	}
	f.Err = err
	return f
}

// decideFault says which table is full, or what is wrong with a definition.
func decideFault(err error) *transports.Fault {
	var f *transports.Fault
	switch {
	case errors.Is(err, orders.ErrIDsFull):
		f = transports.Refuse(pb.Reason_REASON_ID_TABLE_FULL, "%v; raise ids.max, or end the day", err)
	case errors.Is(err, orders.ErrEventsFull):
		f = transports.Refuse(pb.Reason_REASON_EVENT_STORE_FULL, "%v; raise events.max, or end the day; cancels go through", err)
	case errors.Is(err, orders.ErrSessionsFull):
		f = transports.Refuse(pb.Reason_REASON_OVERLOADED, "%v; raise sessions.max, or log out of sessions that are not needed", err)
	case errors.Is(err, orders.ErrAccountSessionsFull):
		f = transports.Refuse(pb.Reason_REASON_OVERLOADED, "%v; log out of those that are not needed and cancel their orders, or raise sessions.max_per_account", err)
	default:
		f = transports.Refuse(pb.Reason_REASON_MALFORMED, "%v", err)
	}
	f.Err = err
	return f
}
