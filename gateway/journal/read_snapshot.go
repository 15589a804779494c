package journal

import (
	"fmt"
	"io"
)

// ReadSnapshot gives the newest snapshot that is whole to restore, as Open does, or does not call it when there is none: the beginning of
// a fold beside the running log, which goes on with ReadFrom. No snapshot is made meanwhile. An error of restore is returned as it is.
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
			return handOver(j.fs, snap, restore)
		}
	}
	if first := j.first.Load(); first > 1 {
		return fmt.Errorf("%w: no snapshot is whole, and the log begins with LSN %d", ErrPruned, first)
	}
	return nil
}
