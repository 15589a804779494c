package server

import (
	"context"
	"fmt"
	"time"

	"tailgate/gateway/journal"
	"tailgate/gateway/sequencer"
)

// snapshotPoll is how often the number of commands since the last snapshot is looked at.
const snapshotPoll = time.Second

// snapshots makes snapshots beside the running gateway, so that a restart replays a bounded number of commands: it folds the journal
// from the last snapshot on into a state of its own and writes that. The live state is not copied, because that would hold the
// writer's lock for as long as the copying of gigabytes takes, and that is somebody's tail.
type snapshots struct {
	server *Server
	every  uint64 // commands between two; 0 = only when asked for
	last   uint64 // log sequence number of the newest one
	tried  uint64 // and of the last try
	now    chan struct{}
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended: from then on last may be read
}

// startSnapshots starts the one goroutine; last is the log sequence number of the newest snapshot.
func startSnapshots(s *Server, last uint64) *snapshots {
	ctx, cancel := context.WithCancel(context.Background())
	n := &snapshots{server: s, every: s.config.Journal.SnapshotEvery, last: last, tried: last, now: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(n.done)
		n.run(ctx)
	}()
	return n
}

// Now asks for a snapshot of everything up to here, and waits for nothing.
func (n *snapshots) Now() {
	select {
	case n.now <- struct{}{}:
	default: // one that was asked for and not begun will have this, too
	}
}

// Stop gives up a snapshot that is being made, at its next read, record or write: nothing remains of one that is not whole by then. It waits
// for that until ctx ends, and returns the context's error when the goroutine is still at it. Safe to call more than once.
func (n *snapshots) Stop(ctx context.Context) error {
	n.cancel()
	select {
	case <-n.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the snapshot that was being made: %w", ctx.Err())
	}
}

func (n *snapshots) run(ctx context.Context) {
	tick := time.NewTicker(snapshotPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.now:
			n.make(ctx)
		case <-tick.C:
			if n.every > 0 && n.server.sequencer.Committed()-n.tried >= n.every {
				n.make(ctx)
			}
		}
	}
}

// make makes one snapshot. A failure costs the next restart some time and nothing else, so it is said and tried again later.
func (n *snapshots) make(ctx context.Context) {
	logger := n.server.logger
	started := time.Now()
	lsn, err := n.fold(ctx)
	n.tried = lsn // not again at every tick
	switch {
	case ctx.Err() != nil:
	case err != nil:
		logger.Error("no snapshot could be made; the next start replays from the last one", "last", n.last, "error", err)
	case lsn > n.last:
		logger.Info("snapshot", "log_sequence", lsn, "commands", lsn-n.last, "took", time.Since(started).String())
		n.last = lsn
	}
}

// atStop makes a snapshot of the live state, which nobody uses any more, where the next start would replay for long otherwise: from a tenth
// of the commands between two on, and unless Stop has given up. When ctx ends it gives up. Then it closes the journal, which is never left
// out, and ends what was begun and is not whole.
func (n *snapshots) atStop(ctx context.Context, closeJournal func() error) error {
	s := n.server
	select {
	case <-n.done:
	default:
		return closeJournal()
	}
	if n.every == 0 || ctx.Err() != nil || s.sequencer.Committed()-n.last < n.every/10 {
		return closeJournal()
	}
	s.log.until = ctx
	var failed error
	made := make(chan struct{})
	go func() {
		defer close(made)
		failed = s.sequencer.Snapshot()
	}()
	select {
	case <-made:
		if failed != nil && ctx.Err() == nil {
			s.logger.Error("no snapshot could be made; the next start replays from the last one", "last", n.last, "error", failed)
		}
		return closeJournal()
	case <-ctx.Done():
		err := closeJournal()
		<-made // the context or the journal has told it
		return err
	}
}

// fold replays what is committed into a state of its own and writes it. It returns up to where. It ends with ctx, in each of its parts.
func (n *snapshots) fold(ctx context.Context) (lsn uint64, err error) {
	s := n.server
	lsn = s.sequencer.Committed()
	options := stateOptions(&s.config)
	options.ReserveIDs = 0
	replica, err := sequencer.NewReplica(options)
	if err != nil {
		return lsn, err
	}
	if err := s.journal.ReadSnapshot(until(ctx, replica.Restore)); err != nil {
		return lsn, fmt.Errorf("restore the last one: %w", err)
	}
	if replica.Last() >= lsn {
		return lsn, nil
	}
	err = s.journal.ReadFrom(replica.Last()+1, lsn, func(e journal.Entry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return replica.Replay(e.LSN, e.Payload)
	})
	if err != nil {
		return lsn, fmt.Errorf("fold the journal: %w", err)
	}
	return lsn, replica.Snapshot(&journalLog{s.journal, ctx})
}
