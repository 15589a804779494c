package feed

import (
	"context"
	"slices"
	"sync"

	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

const (
	// lockBatch is how many events are copied at a time under the writer's lock: it decides how long an order waits for a reader.
	lockBatch = 32
	// nearEnd is how many events behind a reader still counts as live and is not paced: a hiccup of its peer must not put it behind
	// for good.
	nearEnd = 16_384
)

// Reader implements transports.Events. One goroutine at a time calls Next; Close and End may be called beside it.
type Reader struct {
	feed    *Feed
	account uint32
	owner   *Owner // of a stream; nil for a session's reader
	name    string
	epoch   uint32 // place of the next event
	next    uint64
	behind  uint64 // events from there on when it last looked
	wake    chan struct{}
	ends    []epochEnd // of epochs that ended since the reader was opened, until it has passed them; guarded by Feed.mu

	endOnce sync.Once
	ended   chan struct{} // closed when fault is set
	fault   *transports.Fault

	// What copyLocked found.
	copyFew func(state *orders.State, lsn uint64) // it, as a value made once
	last    uint64                                // log sequence number that the copies are from
	present uint32                                // epoch
	known   bool                                  // whether the epoch that is read is still there
	more    bool                                  // whether the batch goes on

	// Reused by every Next.
	reports []orders.Report
	events  []transports.Event
	bytes   []byte
	waiter  *waiter
	claim   claim
}

// Place implements transports.Events.
func (r *Reader) Place() (epoch uint32, sequence uint64) { return r.epoch, r.next }

// Next implements transports.Events. Where the context's end keeps events back they are not passed over: the reader is as it was, and
// the next call gives them.
func (r *Reader) Next(ctx context.Context) ([]transports.Event, error) {
	for {
		if err := r.over(ctx); err != nil {
			return nil, err
		}
		if r.behind > r.feed.nearEnd {
			if err := r.turn(ctx); err != nil {
				return nil, err
			}
		}
		last, err := r.copyBatch()
		if err != nil {
			return nil, err
		}
		if len(r.reports) > 0 {
			return r.give(ctx, last)
		}
		select {
		case <-r.wake:
		case <-r.ended:
		case <-ctx.Done():
		}
	}
}

// nudge makes the reader look for events.
func (r *Reader) nudge() {
	select {
	case r.wake <- struct{}{}:
	default: // it will look already
	}
}

// over says why the reader has ended, or nil.
func (r *Reader) over(ctx context.Context) error {
	select {
	case <-r.ended:
		return r.fault
	default:
		return ctx.Err()
	}
}

// turn waits until it is this reader's turn to catch up.
func (r *Reader) turn(ctx context.Context) error {
	r.feed.catchUp.ask(r.account, &r.claim)
	select {
	case <-r.claim.granted:
		return nil
	case <-r.ended:
	case <-ctx.Done():
	}
	r.feed.catchUp.giveUp(r.account, &r.claim)
	return r.over(ctx)
}

// copyBatch copies what comes next, and returns the log sequence number that must be committed before it may leave. It lets go of the
// writer's lock every few events. A batch ends with its epoch.
func (r *Reader) copyBatch() (last uint64, err error) {
	r.reports = r.reports[:0]
	for r.more = true; r.more; {
		r.reports = slices.Grow(r.reports, min(lockBatch, transports.MaxEvents-len(r.reports))) // not under the lock
		r.feed.source.Read(r.copyFew)
	}
	if !r.known {
		return 0, r.lostEpoch()
	}
	return r.last, nil
}

// copyLocked copies the next few events of the batch under the writer's lock.
func (r *Reader) copyLocked(state *orders.State, lsn uint64) {
	r.last, r.present, r.more = lsn, state.Epoch(), false
	end, known := r.feed.endOf(state, r)
	for known && end == r.next && r.epoch != r.present {
		r.epoch, r.next = r.epoch+1, 1
		end, known = r.feed.endOf(state, r)
	}
	if r.known = known; !known {
		return
	}
	from := r.next + uint64(len(r.reports))
	r.reports = state.Events(r.account, r.epoch, from, min(lockBatch, transports.MaxEvents-len(r.reports)), r.reports)
	r.behind = end - r.next
	r.more = len(r.reports) < transports.MaxEvents && uint64(len(r.reports)) < r.behind
}

// lostEpoch is the end of a reader that slept through a whole epoch.
func (r *Reader) lostEpoch() error {
	f := transports.Refuse(pb.Reason_REASON_SLOW_READER, "the rest of epoch %d from event %d on was let go before it was read: there are epoch %d (the present one) and the one before it", r.epoch, r.next, r.present)
	f.Final = true
	return f
}

// give encodes the batch, waits until it is committed, and moves on.
func (r *Reader) give(ctx context.Context, last uint64) ([]transports.Event, error) {
	if r.events == nil {
		r.events = make([]transports.Event, 0, transports.MaxEvents)
	}
	r.events, r.bytes = r.events[:0], r.bytes[:0]
	for i := range r.reports {
		report := &r.reports[i]
		start := len(r.bytes)
		r.bytes = AppendReport(r.bytes, report, r.name)
		r.events = append(r.events, transports.Event{Epoch: report.Epoch, Sequence: report.Sequence, Report: r.bytes[start:len(r.bytes):len(r.bytes)]})
	}
	if err := r.committed(ctx, last); err != nil {
		return nil, err
	}
	n := uint64(len(r.reports))
	r.next += n
	r.behind -= n
	return r.events, nil
}

// committed waits until the log keeps its promise for everything up to last.
func (r *Reader) committed(ctx context.Context, last uint64) error {
	if r.feed.source.Committed() >= last {
		return nil
	}
	if r.waiter == nil {
		r.waiter = &waiter{released: make(chan error, 1)}
	}
	w := r.waiter
	r.feed.source.Commit(w, last)
	var err error
	select {
	case err = <-w.released:
	case <-r.ended:
		r.waiter = nil // left to its Release, which finds room in the channel
		return r.fault
	case <-ctx.Done():
		r.waiter = nil
		return ctx.Err()
	}
	if err != nil {
		f := transports.InDoubt(pb.Reason_REASON_JOURNAL_UNAVAILABLE, err, "the journal failed before these events were committed; after a restart the stream goes on behind the last number that was given")
		f.Final = true
		return f
	}
	return nil
}

// End ends the reader with a fault, which Next returns from then on. The first one counts.
func (r *Reader) End(why *transports.Fault) {
	r.endOnce.Do(func() {
		r.fault = why
		close(r.ended)
	})
}

// Close implements transports.Events.
func (r *Reader) Close() {
	r.End(errClosed)
	r.feed.remove(r)
}

var errClosed = transports.Refuse(pb.Reason_REASON_CONNECTION_LOST, "this reader of events is closed")

// waiter is a Releaser that one goroutine waits for. The channel holds one, so that Release never blocks.
type waiter struct{ released chan error }

// Release implements transports.Releaser.
func (w *waiter) Release(_ uint64, err error) { w.released <- err }
