package journal

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"tailgate/gateway/journal/internal/snapfile"
)

const (
	// keptSnapshots is how many snapshots a prune leaves: the newest, and the one that
	// stands in for it.
	keptSnapshots = 2
	// snapshotSyncBytes is how much of a snapshot is written before it is synced, so that
	// the syncs of the log never wait behind more of it.
	snapshotSyncBytes = 4 << 20
)

// Snapshot keeps the state that the entries up to lsn lead to, as write gives it, so
// that Open can begin with it instead of with the entries. It commits and syncs the log up
// to lsn first, in every mode. When it returns nil the snapshot is on the disk whole; before
// that none of it counts, and a crash at any moment leaves what was there before.
//
// It is for a goroutine in the background, beside Append and Commit, which it does not
// hold up; one at a time, the next call waits. lsn is one that was appended and is above
// that of the last snapshot; for that one itself there is nothing to do, and write is not
// called. The content has no bound but the disk; write holds what it likes, Snapshot
// 64 KiB.
//
// Then it prunes: it keeps the two newest snapshots that are whole, reading both again,
// and, with two of them and unless KeepSegments is set, removes the segments wholly below
// the older one.
//
// An error of write is the way to stop it, for the end of a context say: at once nothing
// remains of what was written, nothing is pruned, and no older snapshot is read. An error
// of w ends it too, also when write returns nil.
//
// Errors: that of write, as it is; ErrClosed (also from w, when Close comes meanwhile),
// ErrTerm, ErrFailed; anything else that keeps the snapshot from being written, a full
// disk above all, which costs the log nothing. An error that says "prune" comes after the
// snapshot has been written.
func (j *Journal) Snapshot(lsn uint64, write func(w io.Writer) error) error {
	j.snapMu.Lock()
	defer j.snapMu.Unlock()
	if err := j.mayWrite(); err != nil {
		return err
	}
	switch last := j.appended.Load(); {
	case lsn == 0 || lsn > last:
		return fmt.Errorf("journal: snapshot of LSN %d: the log has LSN 1 to %d", lsn, last)
	case lsn < j.snapshot.Load():
		return fmt.Errorf("journal: snapshot of LSN %d: there is one of LSN %d", lsn, j.snapshot.Load())
	case lsn == j.snapshot.Load():
		return nil
	}
	if err := j.syncUpTo(lsn); err != nil {
		return err
	}
	bytes, err := j.writeSnapshot(lsn, write)
	if err != nil {
		return err
	}
	j.snapshot.Store(lsn)
	j.opts.Logger.Info("journal snapshot written", "lsn", lsn, "bytes", bytes)
	if err := j.prune(); err != nil {
		return fmt.Errorf("journal: prune after the snapshot of LSN %d: %w", lsn, err)
	}
	return nil
}

// mayWrite says why this writer must not touch the folder any more.
func (j *Journal) mayWrite() error {
	if err := j.failed(); err != nil {
		return err
	}
	j.bufMu.Lock()
	defer j.bufMu.Unlock()
	return j.refused
}

// syncUpTo returns when everything up to lsn is on the disk.
func (j *Journal) syncUpTo(lsn uint64) error {
	if j.durable.Load() >= lsn {
		return nil
	}
	answer := make(chan error, 1)
	if j.opts.Sync == SyncAlways {
		j.Commit(answerTo(answer), 0)
		return <-answer
	}
	if err := j.writeThrough(lsn); err != nil {
		return err
	}
	// The one who syncs the segments left behind does this too: a file is synced and
	// closed by one goroutine only, and no committer waits for it.
	select {
	case j.space.asks <- answer:
		return <-answer
	case <-j.stop:
		return ErrClosed
	}
}

type answerTo chan error

// Release implements Waiter.
func (c answerTo) Release(_ uint64, err error) { c <- err }

// syncWritten makes durable what is written at the moment, under SyncOS and SyncOff,
// without holding up those who write. keepSpace calls it.
func (j *Journal) syncWritten() error {
	j.flushMu.Lock()
	seg, last := j.current, j.written.Load()
	j.flushMu.Unlock()
	if err := j.syncRetired(); err != nil {
		return err
	}
	if seg == nil || seg.closed {
		return nil // it was left behind meanwhile, and is synced
	}
	if err := seg.file.Sync(); err != nil {
		return j.fail("sync", seg.path, err)
	}
	j.stats.syncs.Add(1)
	if err := j.fs.SyncDir(j.opts.Dir); err != nil {
		return j.fail("sync folder", j.opts.Dir, err)
	}
	j.durable.Store(last)
	return nil
}

// writeSnapshot writes the file under another name, syncs it, and gives it its name.
func (j *Journal) writeSnapshot(lsn uint64, write func(w io.Writer) error) (bytes int64, err error) {
	temp, path := filepath.Join(j.opts.Dir, snapshotTemp), filepath.Join(j.opts.Dir, snapshotName(lsn))
	file, err := j.fs.Create(temp)
	if err != nil {
		return 0, fmt.Errorf("journal: create a snapshot: %w", err)
	}
	bytes, err = j.fillSnapshot(file, lsn, write)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = j.fs.Rename(temp, path)
	}
	if err != nil {
		if left := j.fs.Remove(temp); left != nil {
			return 0, errors.Join(err, left) // the next one empties it, and Open removes it
		}
		return 0, err
	}
	if err := j.fs.SyncDir(j.opts.Dir); err != nil {
		return 0, j.fail("sync folder", j.opts.Dir, err)
	}
	return bytes, nil
}

func (j *Journal) fillSnapshot(file File, lsn uint64, write func(w io.Writer) error) (bytes int64, err error) {
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // never fails, by its contract
	w := snapfile.NewWriter(&syncingFile{File: file}, snapfile.Header{Salt: binary.LittleEndian.Uint32(salt[:]), LSN: lsn, Term: j.opts.Term, ID: j.id})
	to := untilClosed{w: w, stop: j.stop}
	err = write(&to)
	if err == nil {
		err = to.err // which write has kept to itself: there is a hole in what it wrote
	}
	if err != nil {
		return 0, err
	}
	h, err := w.Finish()
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		return 0, fmt.Errorf("journal: write a snapshot: %w", err)
	}
	return h.Length, nil
}

// syncingFile syncs what is written to it every snapshotSyncBytes.
type syncingFile struct {
	File
	unsynced int
}

// WriteAt implements io.WriterAt.
func (f *syncingFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	if f.unsynced += n; err == nil && f.unsynced >= snapshotSyncBytes {
		f.unsynced = 0
		err = f.Sync()
	}
	return n, err
}

// untilClosed fails when the journal is being closed, so that Close waits for no whole
// snapshot that is written.
type untilClosed struct {
	w    io.Writer
	stop <-chan struct{}
	err  error // the first one; nothing is written after it
}

// Write implements io.Writer.
func (u *untilClosed) Write(p []byte) (n int, err error) {
	select {
	case <-u.stop:
		u.err = cmp.Or(u.err, ErrClosed)
	default:
	}
	if u.err == nil {
		n, u.err = u.w.Write(p)
	}
	return n, u.err
}

// prune removes what the newest snapshots make needless. snapMu is held. The state says
// first where the log begins from now on: what is removed after it, all or a part, in any
// order, is missed by nobody.
func (j *Journal) prune() error {
	select {
	case <-j.stop:
		return ErrClosed // the next one does it
	default:
	}
	f, err := listFolder(j.fs, j.opts.Dir)
	if err != nil {
		return err
	}
	var needless []string
	kept, oldest := 0, uint64(0)
	for _, snap := range f.snaps {
		if kept == keptSnapshots {
			needless = append(needless, snap.path)
			continue
		}
		info, _ := checkSnapshot(untilClosedFS{j.fs, j.stop}, snap, &j.id)
		if info.unread != nil {
			return info.unread // nobody knows what it is worth
		}
		if info.Damage != nil {
			j.opts.Logger.Warn("journal snapshot cannot be used", "error", info.Damage)
			needless = append(needless, snap.path)
			continue
		}
		kept++
		oldest = snap.lsn
	}
	if kept == keptSnapshots && !j.opts.KeepSegments {
		first := j.first.Load()
		for _, seg := range f.segs {
			if seg.first <= oldest+1 {
				first = max(first, seg.first)
			}
		}
		for _, seg := range f.segs {
			if seg.first < first {
				needless = append(needless, seg.path)
			}
		}
		j.first.Store(first)
	}
	if len(needless) > 0 {
		if err := j.note(); err != nil {
			return err
		}
	}
	for _, path := range needless {
		if err := j.fs.Remove(path); err != nil {
			return err
		}
	}
	if len(needless) > 0 {
		j.opts.Logger.Info("journal pruned", "files", len(needless), "first_lsn", j.first.Load())
	}
	return nil
}
