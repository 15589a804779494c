package sequencer

import (
	"fmt"
	"io"

	"tailgate/gateway/orders"
)

// Replica is a state that follows a log and decides nothing. At a start it is brought to the log's end and becomes the sequencer's;
// beside a running gateway another one is what a snapshot is folded in: it restores the last snapshot, replays what was committed
// since, and is written, so that no lock of the order path is ever held for it. Not safe for concurrent use.
type Replica struct {
	options orders.Options
	state   *orders.State
	last    uint64
}

// NewReplica returns a replica of an empty log.
func NewReplica(options orders.Options) (*Replica, error) {
	state, err := orders.New(options)
	if err != nil {
		return nil, err
	}
	return &Replica{options: options, state: state}, nil
}

// Restore replaces what the replica holds by a snapshot of the state after record lsn.
func (r *Replica) Restore(lsn uint64, from io.Reader) error {
	state, err := orders.RestoreSnapshot(r.options, from)
	if err != nil {
		return fmt.Errorf("snapshot at log sequence number %d: %w", lsn, err)
	}
	r.state, r.last = state, lsn
	return nil
}

// Replay applies one record of the log, which must be the next one.
func (r *Replica) Replay(lsn uint64, payload []byte) error {
	if lsn != r.last+1 {
		return fmt.Errorf("log sequence number %d: the state ends at %d, so %d must be next", lsn, r.last, r.last+1)
	}
	var c orders.Command
	if err := c.Decode(payload); err != nil {
		return fmt.Errorf("log sequence number %d: %w", lsn, err)
	}
	if err := r.state.Apply(&c, nil); err != nil {
		return fmt.Errorf("log sequence number %d: %w", lsn, err)
	}
	r.last = lsn
	return nil
}

// Last is the log sequence number of the last record in the state, 0 = none.
func (r *Replica) Last() uint64 { return r.last }

// Snapshot hands the state to the log.
func (r *Replica) Snapshot(log Log) error { return log.Snapshot(r.last, r.state.WriteSnapshot) }
