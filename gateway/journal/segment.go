package journal

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lockName       = "LOCK"
	segmentSuffix  = ".seg"
	preparedPrefix = "prepared-"
	preparedSuffix = ".tmp"
	snapshotSuffix = ".snap"
	snapshotTemp   = "snapshot.tmp"
)

// segment is an open segment file. Whoever prepares it owns it until Append
// takes it; from then on its fields belong to the holder of flushMu, except salt
// and firstLSN, which do not change any more.
type segment struct {
	file     File
	path     string
	salt     uint32
	firstLSN uint64
	lastLSN  uint64 // set when the segment is retired
	end      int64  // first byte not written
	dirty    bool   // written since the last sync
	closed   bool
}

func (s *segment) close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.file.Close()
}

func (s *segment) header(opts Options, id identity, durable uint64) segmentHeader {
	return segmentHeader{mode: opts.Sync, salt: s.salt, firstLSN: s.firstLSN, term: opts.Term, durable: durable,
		id: id, size: opts.SegmentBytes}
}

func segmentName(first uint64) string { return fmt.Sprintf("%020d%s", first, segmentSuffix) }

func snapshotName(lsn uint64) string { return fmt.Sprintf("%020d%s", lsn, snapshotSuffix) }

// buffer holds encoded records between Append and the write, and where they go.
type buffer struct {
	bytes []byte
	parts []part
}

// part is a run of bytes for one segment, up to the start of the next part.
type part struct {
	seg    *segment
	start  int   // in the buffer
	off    int64 // in the file
	begins bool  // the bytes begin with room for the segment's header
}

func newBuffer(size int) *buffer {
	return &buffer{bytes: make([]byte, 0, size), parts: make([]part, 0, 4)}
}

func (b *buffer) fits(n int) bool { return len(b.bytes)+n <= cap(b.bytes) }

func (b *buffer) grow(n int) []byte {
	l := len(b.bytes)
	b.bytes = b.bytes[:l+n]
	return b.bytes[l:]
}

// begin makes what follows go into seg, header first.
func (b *buffer) begin(seg *segment) {
	b.parts = append(b.parts, part{seg: seg, start: len(b.bytes), begins: true})
	b.grow(segmentHeaderBytes)
}

// reset empties b; what follows goes into seg at off.
func (b *buffer) reset(seg *segment, off int64) {
	b.bytes = b.bytes[:0]
	b.parts = b.parts[:0]
	if seg != nil {
		b.parts = append(b.parts, part{seg: seg, off: off})
	}
}

func (b *buffer) part(i int) (part, []byte) {
	end := len(b.bytes)
	if i+1 < len(b.parts) {
		end = b.parts[i+1].start
	}
	return b.parts[i], b.bytes[b.parts[i].start:end]
}

// restamp sets the durable mark of the record data begins with.
func restamp(data []byte, salt uint32, durable uint64) {
	n := recordLength(data)
	binary.LittleEndian.PutUint64(data[36:], durable)
	binary.LittleEndian.PutUint32(data, crc32.Update(salt, castagnoli, data[4:n]))
}

// spaceKeeper keeps one prepared segment ahead, so that Append finds it at once.
type spaceKeeper struct {
	next   atomic.Pointer[segment]
	full   atomic.Pointer[failure] // why there is none: no space
	kick   chan struct{}           // a segment was taken or retired
	asks   chan chan error         // for a sync of all that is written (not under SyncAlways)
	serial uint64                  // of prepared files; keepSpace alone, after Open

	mu      sync.Mutex
	retired []*segment // left behind and not yet synced, oldest first
}

// take returns the prepared segment, or ErrFull or ErrBacklog.
func (k *spaceKeeper) take() (*segment, error) {
	if seg := k.next.Swap(nil); seg != nil {
		k.wake()
		return seg, nil
	}
	if full := k.full.Load(); full != nil {
		return nil, full.err
	}
	return nil, ErrBacklog
}

func (k *spaceKeeper) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// keepSpace prepares the next segment whenever there is none, and syncs the ones
// left behind. It does both by turns, so under SyncOS and SyncOff at most three
// segments are ever written and not synced: a disk that cannot keep up with a
// segment shows as ErrBacklog instead of ever more to lose.
func (j *Journal) keepSpace() {
	for {
		var retry <-chan time.Time
		if j.failed() == nil && j.space.next.Load() == nil {
			seg, err := j.prepare()
			switch {
			case err == nil:
				if j.space.full.Swap(nil) != nil {
					j.opts.Logger.Info("journal has space again", "dir", j.opts.Dir)
				}
				j.space.next.Store(seg)
			case outOfSpace(err):
				j.noSpace(err)
				retry = time.After(spaceRetry)
			default:
				_ = j.fail("prepare a segment in", j.opts.Dir, err)
			}
		}
		if j.failed() == nil && j.noted.Load() != j.stats.segments.Load() && j.note() != nil {
			// No space: a file system that copies on write needs some even here.
			retry = time.After(spaceRetry)
		}
		if j.failed() == nil {
			_ = j.syncRetired()
		}
		select {
		case <-j.space.kick:
		case <-retry:
		case answer := <-j.space.asks:
			answer <- j.syncWritten()
		case <-j.stop:
			return
		}
	}
}

// noSpace notes why there is no next segment, and logs it the first time.
func (j *Journal) noSpace(err error) {
	full := &failure{fmt.Errorf("%w: %d bytes in %s: %w", ErrFull, j.opts.SegmentBytes, j.opts.Dir, err)}
	if j.space.full.Swap(full) == nil {
		j.opts.Logger.Warn("journal has no space for its next segment", "error", full.err)
	}
}

// prepare creates a file of zeros that can become a segment. It leaves nothing
// behind when it fails: half an allocation would keep the disk full.
func (j *Journal) prepare() (*segment, error) {
	j.space.serial++
	path := filepath.Join(j.opts.Dir, preparedPrefix+strconv.FormatUint(j.space.serial, 10)+preparedSuffix)
	file, err := j.fs.Create(path)
	if err != nil {
		return nil, err
	}
	err = file.Allocate(j.opts.SegmentBytes)
	if err == nil {
		// The size and the block map now: so a commit syncs little else, and in
		// every mode a segment that is shorter than allocated was not left by a crash.
		err = file.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), j.fs.Remove(path))
	}
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // never fails, by its contract
	return &segment{file: file, path: path, salt: binary.LittleEndian.Uint32(salt[:])}, nil
}

// beginFirst begins the segment for what comes after recovery, if there is space.
func (j *Journal) beginFirst() error {
	seg, err := j.prepare()
	if outOfSpace(err) {
		j.noSpace(err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("journal: prepare a segment: %w", err)
	}
	seg.firstLSN = j.appended.Load() + 1
	var header [segmentHeaderBytes]byte
	seg.header(j.opts, j.id, j.durable.Load()).put(header[:])
	if _, err = seg.file.WriteAt(header[:], 0); err == nil {
		seg.end, seg.dirty = segmentHeaderBytes, true
		err = j.syncSegment(seg)
	}
	if err == nil {
		err = j.adopt(seg)
	}
	if err == nil {
		err = j.note()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("journal: begin %s: %w", seg.path, err), seg.file.Close())
	}
	j.tail, j.tailOff = seg, segmentHeaderBytes
	j.pending.reset(seg, segmentHeaderBytes)
	return nil
}

// finish ends the current segment, whose last LSN is last. Under SyncAlways it is
// synced before a byte of the next one is written: so a segment with a valid
// header proves everything below it. flushMu is held.
func (j *Journal) finish(last uint64) error {
	old := j.current
	if old == nil {
		return nil
	}
	old.lastLSN = last
	if j.opts.Sync == SyncAlways {
		if err := j.syncSegment(old); err != nil {
			return err
		}
		j.durable.Store(last)
		j.current = nil
		if err := old.close(); err != nil {
			return j.fail("close", old.path, err)
		}
		return nil
	}
	j.current = nil
	j.space.mu.Lock()
	j.space.retired = append(j.space.retired, old)
	j.space.mu.Unlock()
	j.space.wake()
	return nil
}

// adopt gives seg its name and makes it the current one. Under SyncAlways its
// content is synced before and the name after. flushMu is held (or Open runs).
func (j *Journal) adopt(seg *segment) error {
	j.current = seg
	if j.opts.Sync == SyncAlways {
		if err := j.syncSegment(seg); err != nil {
			return err
		}
	}
	named := filepath.Join(j.opts.Dir, segmentName(seg.firstLSN))
	if err := j.fs.Rename(seg.path, named); err != nil {
		return j.fail("rename", seg.path, err)
	}
	seg.path = named
	j.newest.Store(seg.firstLSN)
	j.stats.segments.Add(1)
	if j.opts.Sync == SyncAlways {
		if err := j.fs.SyncDir(j.opts.Dir); err != nil {
			return j.fail("sync folder", j.opts.Dir, err)
		}
	}
	j.space.wake() // to note it
	return nil
}

// note writes into the state which segment is the newest, how much is on the disk, and
// what a prune or a fence has changed. It syncs the folder before, because it may run
// between the rename of adopt and the sync there.
func (j *Journal) note() error {
	j.noteMu.Lock()
	defer j.noteMu.Unlock()
	if j.noMoreNotes {
		return ErrClosed
	}
	begun := j.stats.segments.Load()
	st := j.state.last
	st.durable, st.first, st.term = j.durable.Load(), j.first.Load(), j.term.Load()
	if begun > 0 {
		st.newest, st.size = j.newest.Load(), j.opts.SegmentBytes
	}
	if err := j.fs.SyncDir(j.opts.Dir); err != nil {
		return j.fail("sync folder", j.opts.Dir, err)
	}
	if err := j.state.store(st); outOfSpace(err) {
		return err
	} else if err != nil {
		return j.fail("note the state in", j.opts.Dir, err)
	}
	j.noted.Store(begun)
	return nil
}

// syncSegment makes seg's content durable. A failed sync is final: the kernel may
// have dropped the pages and call them clean the next time.
func (j *Journal) syncSegment(seg *segment) error {
	if !seg.dirty {
		return nil
	}
	if err := seg.file.Sync(); err != nil {
		return j.fail("sync", seg.path, err)
	}
	seg.dirty = false
	j.stats.syncs.Add(1)
	return nil
}

// syncRetired syncs the segments left behind, names included, and raises the
// durable mark over them. keepSpace calls it, and Close after keepSpace has ended.
func (j *Journal) syncRetired() error {
	for {
		j.space.mu.Lock()
		if len(j.space.retired) == 0 {
			j.space.mu.Unlock()
			return nil
		}
		seg := j.space.retired[0]
		j.space.mu.Unlock()

		if err := j.syncSegment(seg); err != nil {
			return err
		}
		if err := j.fs.SyncDir(j.opts.Dir); err != nil {
			return j.fail("sync folder", j.opts.Dir, err)
		}
		j.durable.Store(seg.lastLSN)
		j.space.mu.Lock()
		j.space.retired = slices.Delete(j.space.retired, 0, 1)
		j.space.mu.Unlock()
		if err := seg.close(); err != nil {
			return j.fail("close", seg.path, err)
		}
	}
}

// writeCloseMark syncs the current segment and then writes the record that says
// that everything before it is on the disk. flushMu is held, workers have ended.
func (j *Journal) writeCloseMark() error {
	seg := j.current
	if seg == nil {
		return nil
	}
	if err := j.syncSegment(seg); err != nil {
		return err
	}
	if err := j.fs.SyncDir(j.opts.Dir); err != nil {
		return j.fail("sync folder", j.opts.Dir, err)
	}
	last := j.appended.Load()
	j.durable.Store(last)
	var mark [recordHeaderBytes]byte
	putRecord(mark[:], seg.salt, &record{kind: kindCloseMark, lsn: last, term: j.opts.Term, durable: last})
	if _, err := seg.file.WriteAt(mark[:], seg.end); err != nil {
		return j.fail("write", seg.path, err)
	}
	seg.dirty = true
	return j.syncSegment(seg)
}

// closeFiles closes what is open and removes the segment prepared and not used.
// After a failure segments may have been taken that no write has reached; they
// are found through the buffers. Everything else has ended, so no lock is needed
// but flushMu.
func (j *Journal) closeFiles() error {
	var errs []error
	if seg := j.space.next.Swap(nil); seg != nil {
		errs = append(errs, seg.close(), j.fs.Remove(seg.path))
	}
	open := append([]*segment{j.current, j.tail}, j.space.retired...)
	for _, p := range slices.Concat(j.pending.parts, j.spare.parts) {
		open = append(open, p.seg)
	}
	for _, seg := range open {
		if seg != nil {
			errs = append(errs, seg.close())
		}
	}
	j.space.retired = nil
	return errors.Join(errs...)
}

// segmentFile is a segment as the folder lists it.
type segmentFile struct {
	path  string
	first uint64
}

// snapshotFile is a snapshot as the folder lists it.
type snapshotFile struct {
	path string
	lsn  uint64
}

// folder is what a folder holds of a log.
type folder struct {
	segs  []segmentFile  // by first LSN
	snaps []snapshotFile // newest first
	temps []string       // what a process that has ended left unfinished
}

func listFolder(fs FS, dir string) (folder, error) {
	var f folder
	names, err := fs.List(dir)
	if err != nil {
		return f, fmt.Errorf("journal: list %s: %w", dir, err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if name == snapshotTemp || strings.HasPrefix(name, preparedPrefix) && strings.HasSuffix(name, preparedSuffix) {
			f.temps = append(f.temps, path)
			continue
		}
		suffix := filepath.Ext(name)
		if suffix != segmentSuffix && suffix != snapshotSuffix {
			continue
		}
		lsn, err := strconv.ParseUint(strings.TrimSuffix(name, suffix), 10, 64)
		if err != nil || lsn == 0 || name != fmt.Sprintf("%020d%s", lsn, suffix) {
			return f, fmt.Errorf("journal: %s is not the name of a segment or a snapshot (20 digits, an LSN): move the file away", path)
		}
		if suffix == segmentSuffix {
			f.segs = append(f.segs, segmentFile{path, lsn})
		} else {
			f.snaps = append(f.snaps, snapshotFile{path, lsn})
		}
	}
	slices.SortFunc(f.segs, func(a, b segmentFile) int { return cmp.Compare(a.first, b.first) })
	slices.SortFunc(f.snaps, func(a, b snapshotFile) int { return cmp.Compare(b.lsn, a.lsn) })
	return f, nil
}
