// Package sequencer is the one writer: it puts every command of the gateway into one order, first in the journal, then in
// the state.
//
// Whoever calls it does the work on his own goroutine, under one lock: decide, append (memory only), apply. The lock is never
// held across a write, an fsync or a peer's socket; what waits for those is released later through Commit. The room must
// never know how a journal keeps its promise, what a session is, or bytes of any transport.
package sequencer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Log is the ordered log of commands that the sequencer needs: a journal on one disk, or a replicated one.
type Log interface {
	// Append puts a record behind the last one. The sequencer calls it from one goroutine at a time, under its lock, so it must
	// not block; the payload is copied. An error means that the record is not in the log and never will be.
	Append(timeNs int64, payload []byte) (lsn uint64, err error)
	// Commit arranges for one call of r.Release(mark, nil) when all that was appended before is as durable as the log promises,
	// or with an error when that can no longer be said. It is called without the sequencer's lock, from many goroutines.
	Commit(r transports.Releaser, mark uint64)
	// Committed is the log sequence number up to which the promise is kept.
	Committed() uint64
	// Err is why the log takes nothing more, or nil.
	Err() error
}

// Sequencer orders commands. Safe for concurrent use after Start.
type Sequencer struct {
	mu     sync.Mutex // guards all below
	state  *orders.State
	log    Log
	last   uint64 // log sequence number of the last applied command
	buffer []byte // one encoded command
	broken error  // the state and the log differ: nothing more is taken
}

// New returns a sequencer over an empty state, ready for Replay.
func New(state *orders.State) *Sequencer {
	return &Sequencer{state: state, buffer: make([]byte, 0, orders.MaxCommandBytes)}
}

// Replay applies one record of the log, as at a start. Not safe for concurrent use.
func (s *Sequencer) Replay(lsn uint64, payload []byte) error {
	var c orders.Command
	if err := c.Decode(payload); err != nil {
		return fmt.Errorf("log sequence number %d: %w", lsn, err)
	}
	if err := s.state.Apply(&c, nil); err != nil {
		return fmt.Errorf("log sequence number %d: %w", lsn, err)
	}
	s.last = lsn
	return nil
}

// Start gives the sequencer its log, once everything in it has been replayed.
func (s *Sequencer) Start(log Log) { s.log = log }

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
	if errors.Is(err, orders.ErrIDsFull) {
		return idsFullFault(err)
	}
	if err != nil {
		f := transports.Refuse(pb.Reason_REASON_MALFORMED, "%v", err)
		f.Err = err
		return f
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
	return nil
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

func idsFullFault(err error) *transports.Fault {
	f := transports.Refuse(pb.Reason_REASON_ID_TABLE_FULL, "%v; raise ids.max, or begin with an empty journal folder", err)
	f.Err = err
	return f
}
