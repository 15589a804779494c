package feed

import (
	"context"
	"slices"
	"sync"
	"time"

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
}

// Place implements transports.Events.
func (r *Reader) Place() (epoch uint32, sequence uint64) { return r.epoch, r.next }

// Next implements transports.Events. Events that were not given because the context ended or the journal failed are not passed over.
func (r *Reader) Next(ctx context.Context) ([]transports.Event, error) {
	for {
		if err := r.over(ctx); err != nil {
			return nil, err
		}
		if r.behind > r.feed.nearEnd {
			if err := r.await(ctx, r.feed.catchUp.turn(transports.MaxEvents)); err != nil {
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

// await lets time pass.
func (r *Reader) await(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-r.ended:
		return r.fault
	case <-ctx.Done():
		return ctx.Err()
	}
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

// pace hands out turns at a steady rate, in the order in which they are asked for. Safe for concurrent use.
type pace struct {
	rate int // events a second
	mu   sync.Mutex
	next time.Time // when the next turn begins
}

// turn takes the next turn for n events and returns how long to wait for it.
func (p *pace) turn(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
	return wait
}
