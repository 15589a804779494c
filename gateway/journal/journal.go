package journal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Waiter is told when what it waits for is durable.
type Waiter interface {
	// Release is called exactly once for each Commit, with the mark given there.
	// A nil err: everything appended before that Commit is as durable as the mode
	// promises. Any other: the log failed or was closed, durability is unknown,
	// and what waits must never leave as an ack.
	//
	// The Releases of one Waiter come in the order of its Commits. Release must
	// not block and must not call Close: under SyncAlways it runs on the one
	// goroutine that releases everybody. It may call Append and Commit.
	Release(mark uint64, err error)
}

// Journal is an open log. Append is for one caller at a time; everything else
// may be called concurrently.
type Journal struct {
	opts Options
	fs   FS
	lock io.Closer

	appended atomic.Uint64 // last LSN given out
	written  atomic.Uint64 // last LSN that a write has taken to the page cache
	durable  atomic.Uint64 // last LSN known to be on the disk: the durable mark

	// The appending side. Held for a copy of memory, never across a system call.
	bufMu   sync.Mutex
	pending *buffer
	tail    *segment // where the next record goes; nil when there was no space
	tailOff int64
	refused error // why nothing is appended any more: ErrClosed or ErrTerm

	// The writing side. Held across write and, under SyncAlways, fdatasync.
	flushMu sync.Mutex
	spare   *buffer
	current *segment // the segment written to; nil before the first

	id     identity
	newest atomic.Uint64 // first LSN of the last segment that got its name
	first  atomic.Uint64 // LSN the log begins with
	term   atomic.Uint64 // the highest that may write

	// The note. Held across the write of it.
	noteMu      sync.Mutex
	state       *stateFile
	noted       atomic.Uint64 // how many segments had their names when it was written
	noMoreNotes bool

	// Snapshots, one at a time. Taken before all other locks.
	snapMu   sync.Mutex
	snapshot atomic.Uint64 // LSN of the last one

	space spaceKeeper
	queue waitQueue
	stats counters

	failure atomic.Pointer[failure]
	fenced  atomic.Pointer[failure] // why the writer must not append any more; set with refused
	stop    chan struct{}
	workers sync.WaitGroup
}

type failure struct{ err error }

type counters struct {
	writes, writtenBytes, syncs, segments atomic.Uint64
}

// Stats are counters since Open and gauges. Each is right by itself; together
// they may be some calls apart.
type Stats struct {
	AppendedLSN, WrittenLSN, DurableLSN uint64
	FirstLSN                            uint64 // the log begins with it: what was below is pruned
	SnapshotLSN                         uint64 // of the last snapshot; 0 is none
	Writes, WrittenBytes, Syncs         uint64
	Segments                            uint64 // begun since Open
	Waiting                             int    // Commits not yet released
	NoSpace                             bool   // the next segment cannot be allocated
}

// Stats returns the counters.
func (j *Journal) Stats() Stats {
	return Stats{
		AppendedLSN: j.appended.Load(), WrittenLSN: j.written.Load(), DurableLSN: j.durable.Load(),
		FirstLSN: j.first.Load(), SnapshotLSN: j.snapshot.Load(),
		Writes: j.stats.writes.Load(), WrittenBytes: j.stats.writtenBytes.Load(), Syncs: j.stats.syncs.Load(),
		Segments: j.stats.segments.Load(),
		Waiting:  j.queue.length(),
		NoSpace:  j.space.full.Load() != nil,
	}
}

// Open opens the log in opts.Dir, creating it if there is none, and calls replay
// for each entry in order. An error of replay ends Open and is returned as it is.
// A torn tail is cut and named in the report; damage is returned as *DamageError
// and nothing on the disk is changed.
//
// When Open returns, everything replayed is on the disk, whatever the mode: what
// is acked from now on may rest on it. A journal without space for a segment
// opens all the same, and Append returns ErrFull until there is. A nil replay is
// allowed.
func Open(opts Options, replay func(Entry) error) (*Journal, RecoveryReport, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, RecoveryReport{}, err
	}
	fs := opts.FS
	if err := fs.MkdirAll(opts.Dir); err != nil {
		return nil, RecoveryReport{}, fmt.Errorf("journal: create folder: %w", err)
	}
	lock, err := fs.Lock(filepath.Join(opts.Dir, lockName))
	if err != nil {
		return nil, RecoveryReport{}, err
	}
	report, state, err := recoverLog(opts, replay)
	if err != nil {
		return nil, report, errors.Join(err, lock.Close())
	}
	j := &Journal{
		opts: opts, fs: fs, lock: lock, id: state.id(), state: state,
		pending: newBuffer(opts.MaxPendingBytes / 2),
		spare:   newBuffer(opts.MaxPendingBytes / 2),
		stop:    make(chan struct{}),
	}
	j.space.kick, j.space.asks = make(chan struct{}, 1), make(chan chan error)
	j.queue.init()
	j.appended.Store(report.LastLSN)
	j.written.Store(report.LastLSN)
	j.durable.Store(report.LastLSN)
	j.first.Store(state.last.first)
	j.term.Store(opts.Term)
	j.snapshot.Store(report.Restored)
	// The first segment is begun at once, because its header confirms everything
	// below it: from here on damage to any replayed record is told from a tear.
	if err := j.beginFirst(); err != nil {
		return nil, report, errors.Join(err, lock.Close())
	}
	j.workers.Go(j.keepSpace)
	switch opts.Sync {
	case SyncAlways:
		j.workers.Go(j.syncLoop)
	case SyncOff:
		j.workers.Go(j.writeLoop)
	case SyncOS:
		// The committers write.
	}
	return j, report, nil
}

// Commit arranges that w.Release(mark, err) is called exactly once, when
// everything appended before this call is as durable as the mode promises. mark
// is the caller's own and only handed back.
//
// Under SyncOff and SyncOS Release runs on this goroutine before Commit returns;
// under SyncOS Commit performs the write itself unless another caller's write has
// taken these entries along. Under SyncAlways Commit does no I/O and Release runs
// later on the syncing goroutine; the queue of waiters holds one entry for each
// Commit not yet released, so callers bound it by the batches they leave open.
//
// Any number of callers may be here at once. Do not hold the lock that guards
// Append: appending goes on while this writes.
func (j *Journal) Commit(w Waiter, mark uint64) {
	switch j.opts.Sync {
	case SyncOS:
		w.Release(mark, j.writeThrough(j.appended.Load()))
	case SyncOff:
		j.queue.wake()
		w.Release(mark, j.failed())
	case SyncAlways:
		if !j.queue.push(w, mark, &j.appended) {
			w.Release(mark, j.afterClose())
		}
	}
}

// Committed returns the committed mark: the last LSN that is as durable as the
// mode promises (appended, written or synced). It never goes back.
func (j *Journal) Committed() uint64 {
	switch j.opts.Sync {
	case SyncOff:
		return j.appended.Load()
	case SyncAlways:
		return j.durable.Load()
	default:
		return j.written.Load()
	}
}

// Err returns nil while the journal takes entries or will take them again, and otherwise
// why it never will: ErrFailed, wrapped, once a write or a sync has failed, and then it
// does not change any more; ErrTerm, wrapped, from Fence on unless that happens, and what
// was appended before it is still committed and released. Close is no reason.
func (j *Journal) Err() error {
	if err := j.failed(); err != nil {
		return err
	}
	if f := j.fenced.Load(); f != nil {
		return f.err
	}
	return nil
}

// failed returns why nothing can be written or released any more, or nil.
func (j *Journal) failed() error {
	if f := j.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// fail makes err the lasting reason, unless there is one, and returns the reason.
func (j *Journal) fail(doing, path string, err error) error {
	f := &failure{fmt.Errorf("%w: %s %s: %w", ErrFailed, doing, path, err)}
	if j.failure.CompareAndSwap(nil, f) {
		j.opts.Logger.Error("journal failed", "error", f.err)
	}
	return j.failed()
}

// Close takes no more entries, writes and syncs all that were appended in every
// mode, releases every waiter, marks the log as closed and gives the folder back.
// A second Close returns ErrClosed. The error says that something appended may
// not be on the disk.
func (j *Journal) Close() error {
	j.bufMu.Lock()
	again := j.closed()
	if !again {
		j.refused = ErrClosed
	}
	j.bufMu.Unlock()
	if again {
		return ErrClosed
	}
	j.queue.close()
	close(j.stop)
	j.workers.Wait()
	j.snapMu.Lock() // a snapshot that is being written ends with ErrClosed
	defer j.snapMu.Unlock()

	j.flushMu.Lock()
	defer j.flushMu.Unlock()
	err := j.flush()
	if err == nil {
		err = j.syncRetired()
	}
	if err == nil {
		err = j.writeCloseMark()
	}
	if err == nil {
		err = j.note()
	}
	j.noteMu.Lock()
	j.noMoreNotes = true
	j.noteMu.Unlock()
	return errors.Join(err, j.closeFiles(), j.lock.Close())
}

// afterClose is the answer to a Commit that came when nobody syncs any more: the
// last flush has taken everything or has failed, and Close may still be at it.
func (j *Journal) afterClose() error {
	if err := j.failed(); err != nil {
		return err
	}
	if j.durable.Load() < j.appended.Load() {
		return ErrClosed
	}
	return nil
}

// syncLoop is the one goroutine that makes entries durable and releases waiters
// under SyncAlways. What comes while it syncs shares the next sync.
func (j *Journal) syncLoop() {
	var due []waiting
	for j.queue.await() {
		j.flushMu.Lock()
		err := j.flush()
		j.flushMu.Unlock()
		due = j.queue.pop(due[:0], j.durable.Load(), err != nil)
		for i := range due {
			due[i].w.Release(due[i].mark, err)
			due[i] = waiting{}
		}
	}
}

// writeLoop is the background writer of SyncOff.
func (j *Journal) writeLoop() {
	for j.queue.await() {
		j.flushMu.Lock()
		_ = j.flush() // sticky: the next Append and Commit say it
		j.flushMu.Unlock()
	}
}

// writeThrough returns when everything up to lsn has been written.
func (j *Journal) writeThrough(lsn uint64) error {
	if j.written.Load() < lsn {
		j.flushMu.Lock()
		defer j.flushMu.Unlock()
		if j.written.Load() < lsn {
			return j.flush()
		}
	}
	return j.failed()
}

// flush writes everything pending, in one write a segment, and under SyncAlways
// syncs it. flushMu is held.
func (j *Journal) flush() error {
	if err := j.failed(); err != nil {
		return err
	}
	j.bufMu.Lock()
	full := j.pending
	last := j.appended.Load()
	j.pending = j.spare
	j.pending.reset(j.tail, j.tailOff)
	j.bufMu.Unlock()
	j.spare = full

	for i := range full.parts {
		p, data := full.part(i)
		if len(data) == 0 {
			continue
		}
		if err := j.writePart(p, data); err != nil {
			return err
		}
	}
	j.written.Store(last)
	if j.opts.Sync != SyncAlways {
		return nil
	}
	if j.current != nil && j.current.dirty {
		start := time.Now()
		if err := j.syncSegment(j.current); err != nil {
			return err
		}
		if j.opts.OnSync != nil {
			j.opts.OnSync(time.Since(start))
		}
	}
	j.durable.Store(last)
	return nil
}

// writePart writes the bytes of one segment, beginning the segment if they do.
func (j *Journal) writePart(p part, data []byte) error {
	if p.begins {
		if err := j.finish(p.seg.firstLSN - 1); err != nil {
			return err
		}
		p.seg.header(j.opts, j.id, j.durable.Load()).put(data)
	} else if j.opts.Sync == SyncAlways {
		// The mark of the first record is set anew, because the group before has
		// been synced since it was appended: so each group confirms all before it.
		restamp(data, p.seg.salt, j.durable.Load())
	}
	p.seg.dirty = true
	if _, err := p.seg.file.WriteAt(data, p.off); err != nil {
		return j.fail("write", p.seg.path, err)
	}
	p.seg.end = p.off + int64(len(data))
	j.stats.writes.Add(1)
	j.stats.writtenBytes.Add(uint64(len(data)))
	if p.begins {
		return j.adopt(p.seg)
	}
	return nil
}
