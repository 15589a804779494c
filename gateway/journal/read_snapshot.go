package journal

import (
	"fmt"
	"io"
)

// ReadSnapshot gives the newest snapshot that is whole to restore, as Open does, or does not call it when there is none: the
// beginning of a fold beside the running log, which goes on with ReadFrom. No snapshot is made meanwhile. An error of restore
// is returned as it is, and nothing more is read: so the end of a context stops it once restore is called. Before that the
// whole file is read to see that it is whole, which only Close stops. With Close all reading ends with ErrClosed, within a
// block of 64 KiB, and Close waits for restore to return.
func (j *Journal) ReadSnapshot(restore func(lsn uint64, r io.Reader) error) error {
	j.snapMu.Lock()
	defer j.snapMu.Unlock()
	fs := untilClosedFS{j.fs, j.stop}
	f, err := listFolder(fs, j.opts.Dir)
	if err != nil {
		return err
	}
	for _, snap := range f.snaps {
		info, _ := checkSnapshot(fs, snap, &j.id)
		if info.unread != nil {
			return info.unread
		}
		if info.Damage == nil {
			return handOver(fs, snap, restore)
		}
	}
	if first := j.first.Load(); first > 1 {
		return fmt.Errorf("%w: no snapshot is whole, and the log begins with LSN %d", ErrPruned, first)
	}
	return nil
}

// untilClosedFS fails to read when the journal is being closed, so that Close waits for no
// whole snapshot that is read.
type untilClosedFS struct {
	FS
	stop <-chan struct{}
}

// Open implements FS.
func (fs untilClosedFS) Open(path string, write bool) (File, error) {
	f, err := fs.FS.Open(path, write)
	if err != nil {
		return nil, err
	}
	return untilClosedFile{f, fs.stop}, nil
}

type untilClosedFile struct {
	File
	stop <-chan struct{}
}

// ReadAt implements io.ReaderAt.
func (f untilClosedFile) ReadAt(p []byte, off int64) (int, error) {
	select {
	case <-f.stop:
		return 0, ErrClosed
	default:
		return f.File.ReadAt(p, off)
	}
}
