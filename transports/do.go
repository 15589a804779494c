package transports

import (
	"context"
	"sync"

	pb "tailgate/proto/gen/orderentry/v1"
)

// Do handles one exchange and waits until its answer may leave, then stamps it. It is the whole way for a transport that has a
// goroutine for each request. The error is a *Fault. When the context ends while the answer waits for the journal, the
// outcome is UNKNOWN: the command is in the log already.
func Do(ctx context.Context, session Session, x *Exchange) error {
	if err := session.Handle(ctx, x); err != nil {
		return AsFault(err)
	}
	w, _ := waiters.Get().(*waiter)
	session.Commit(w, 0)
	var err error
	select {
	case err = <-w.released: // usual, and preferred to an end of the context that came at the same time
	default:
		select {
		case err = <-w.released:
		case <-ctx.Done():
			// The waiter is left to its Release, which finds room in the channel, and to the garbage collector.
			return InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, ctx.Err(), "the request ended while its answer waited for the journal; the same id again tells what became of it")
		}
	}
	waiters.Put(w)
	if err != nil {
		return InDoubt(pb.Reason_REASON_JOURNAL_UNAVAILABLE, err, "the journal failed before the answer was committed; the same id again tells what became of it")
	}
	StampSent(x.Response, Now())
	return nil
}

// waiter is a Releaser that one goroutine waits for. The channel holds one, so that Release never blocks.
type waiter struct{ released chan error }

var waiters = sync.Pool{New: func() any { return &waiter{released: make(chan error, 1)} }}

// Release implements Releaser.
func (w *waiter) Release(_ uint64, err error) { w.released <- err }
