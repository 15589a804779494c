package journal

import (
	"fmt"
	"io"
)

// ReadSnapshot gives the newest snapshot that is whole to restore, as Open does, or does not call it when there is none: the beginning of
// a fold beside the running log, which goes on with ReadFrom. No snapshot is made meanwhile. An error of restore is returned as it is.
// Reading ends with ErrClosed when Close comes meanwhile, which waits for restore to return.
func (j *Journal) ReadSnapshot(restore func(lsn uint64, r io.Reader) error) error {
	j.snapMu.Lock()
	defer j.snapMu.Unlock()
	f, err := listFolder(j.fs, j.opts.Dir)
	if err != nil {
		return err
	}
	for _, snap := range f.snaps {
		info, _ := checkSnapshot(j.fs, snap, &j.id)
		if info.unread != nil {
			return info.unread
		}
		if info.Damage == nil {
			return handOver(j.fs, snap, func(lsn uint64, r io.Reader) error { return restore(lsn, readUntilClosed{r, j.stop}) })
		}
	}
	if first := j.first.Load(); first > 1 {
		return fmt.Errorf("%w: no snapshot is whole, and the log begins with LSN %d", ErrPruned, first)
	}
	return nil
}

// readUntilClosed fails when the journal is being closed, as untilClosed does.
type readUntilClosed struct {
	r    io.Reader
	stop <-chan struct{}
}

// Read implements io.Reader.
func (u readUntilClosed) Read(p []byte) (int, error) {
	select {
	case <-u.stop:
		return 0, ErrClosed
	default:
		return u.r.Read(p)
	}
}
