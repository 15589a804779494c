// Package cursor follows the numbers of a stream of events on a client's side, so that a gap is a fault and never goes by unseen. It must
// never know what the events are about.
package cursor

import (
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Cursor is the place in a stream. The zero value takes any event as its first.
type Cursor struct {
	epoch uint32
	next  uint64
}

// At is the cursor of a stream whose first event has this place.
func At(epoch uint32, sequence uint64) Cursor { return Cursor{epoch: epoch, next: sequence} }

// Take moves on to the event, or says with a fault (INTERNAL) that it is not the one that follows: the next number of the epoch, or the first
// of a later epoch.
func (c *Cursor) Take(event *pb.ExecutionReport) error {
	epoch, sequence := event.GetEpoch(), event.GetSequence()
	switch {
	case c.next == 0, epoch == c.epoch && sequence == c.next, epoch > c.epoch && sequence == 1:
		c.epoch, c.next = epoch, sequence+1
		return nil
	default:
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, nil, "event %d of epoch %d came where %d of epoch %d was due", sequence, epoch, c.next, c.epoch)
	}
}
