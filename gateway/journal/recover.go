package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Entry is one record as replay sees it. Payload is valid only during the call.
type Entry struct {
	LSN, Term uint64
	TimeNs    int64
	Payload   []byte
}

// RecoveryReport says what was read.
type RecoveryReport struct {
	Segments int    // read, the empty one included
	Records  uint64 // entries replayed
	FirstLSN uint64 // the log begins with it: 1, or more when segments were pruned
	LastLSN  uint64 // of the last entry; 0 for an empty log
	// Restored is the LSN of the snapshot that Open gave to Restore, 0 when it gave none.
	// Entries above it were replayed.
	Restored uint64
	// Snapshots are those that were read whole, newest first: by Verify all, by Open and
	// Cut the damaged ones that were passed over and the one they began with.
	Snapshots  []SnapshotInfo
	DurableLSN uint64 // highest durable mark found
	Term       uint64 // of the last entry or segment
	Bytes      int64  // of entries and headers
	// CleanClose: the log ends with a close mark.
	CleanClose bool
	// Torn is the torn tail, nil when there is none. Open and Cut have removed
	// it, Verify has only seen it.
	Torn *TornTail
}

// TornTail is what a crash left behind the last entry that can be believed.
type TornTail struct {
	File    string
	Offset  int64  // in File, in bytes
	LSN     uint64 // that would have begun there; it and all above are cut
	Bytes   int64  // from Offset to the last byte that is not zero, later files included
	Records uint64 // whole records among them, none of them ever released
	Why     string
}

// String returns one line for a log or a terminal.
func (r RecoveryReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d entries in %d segments, last LSN %d, term %d, durable mark %d", r.Records, r.Segments, r.LastLSN, r.Term, r.DurableLSN)
	if r.FirstLSN > 1 {
		fmt.Fprintf(&b, ", pruned below LSN %d", r.FirstLSN)
	}
	if r.CleanClose {
		b.WriteString(", closed cleanly")
	}
	if r.Restored > 0 {
		fmt.Fprintf(&b, "; replayed from a snapshot of LSN %d", r.Restored)
	}
	for _, s := range r.Snapshots {
		if s.Damage != nil {
			fmt.Fprintf(&b, "; snapshot %s cannot be used: %s", s.File, s.Damage.Found)
		} else {
			fmt.Fprintf(&b, "; snapshot of LSN %d, %d bytes", s.LSN, s.Bytes)
		}
	}
	if t := r.Torn; t != nil {
		fmt.Fprintf(&b, "; torn tail from LSN %d on at byte %d of %s: %s, %d bytes, %d whole records", t.LSN, t.Offset, t.File, t.Why, t.Bytes, t.Records)
	}
	return b.String()
}

// DamageError says where a log cannot be read that should be readable. It wraps
// ErrDamaged.
type DamageError struct {
	File    string
	Offset  int64  // in File, in bytes
	LSN     uint64 // that should begin there
	Durable uint64 // highest durable mark found anywhere in the log
	Found   string // what is there instead
	Why     string // why this cannot be the tail of a crash
	// Final: Cut has nothing to begin with, because what was below LSN is in snapshots
	// only, and none of them ends below it.
	Final bool
}

func (e *DamageError) Error() string {
	text := fmt.Sprintf("%v: %s at byte %d, where LSN %d should begin: %s; this is not the torn tail of a crash, because %s. Restore the folder from a copy",
		ErrDamaged, e.File, e.Offset, e.LSN, e.Found, e.Why)
	if e.Final {
		return text
	}
	return fmt.Sprintf("%s, or give up LSN %d and everything above (journal cut %d)", text, e.LSN, e.LSN)
}

// Unwrap returns ErrDamaged.
func (e *DamageError) Unwrap() error { return ErrDamaged }

// recoverLog reads the log, cuts its torn tail, and puts what it has replayed on
// the disk. The folder is locked.
func recoverLog(opts Options, replay func(Entry) error) (RecoveryReport, *stateFile, error) {
	s := scan{fs: opts.FS, dir: opts.Dir, visit: replay}
	if err := s.list(); err != nil {
		return s.report, nil, err
	}
	if opts.Restore == nil && s.first > 1 {
		return s.report, nil, fmt.Errorf("journal: the log in %s begins with LSN %d, and what was before is in snapshots only: set Options.Restore", opts.Dir, s.first)
	}
	if opts.Restore != nil {
		if err := s.pick(); err != nil {
			return s.report, nil, err
		}
		for _, snap := range s.report.Snapshots {
			if snap.Damage != nil {
				opts.Logger.Warn("journal snapshot cannot be used", "error", snap.Damage)
			}
		}
		if err := s.restore(opts.Restore); err != nil {
			return s.report, nil, err
		}
		s.report.Restored = s.start
	}
	if err := s.run(); err != nil {
		return s.report, nil, err
	}
	s.report.Term = max(s.report.Term, s.state.term, s.snapTerm)
	if opts.Term < s.report.Term {
		return s.report, nil, fmt.Errorf("%w: this process has term %d, %s has term %d: another has taken over", ErrTerm, opts.Term, opts.Dir, s.report.Term)
	}
	if t := s.report.Torn; t != nil {
		opts.Logger.Warn("journal tail cut", "file", t.File, "offset", t.Offset, "lsn", t.LSN, "bytes", t.Bytes, "records", t.Records, "why", t.Why)
	}
	state, err := s.settle()
	return s.report, state, err
}

// Cut gives up the entry with the given LSN and everything above it, for good. It
// is the operator's answer to a DamageError that no copy of the log can heal: what
// it removes may have been acked. No process may have the log open. A nil fs is
// the real one.
func Cut(dir string, fs FS, lsn uint64) (RecoveryReport, error) {
	if lsn == 0 {
		return RecoveryReport{}, errors.New("journal: cut from LSN 0: LSNs begin at 1")
	}
	if fs == nil {
		fs = osFS{}
	}
	lock, err := fs.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return RecoveryReport{}, err
	}
	s := scan{fs: fs, dir: dir, limit: lsn}
	err = s.list()
	if err == nil {
		err = s.pick()
	}
	if err == nil {
		err = s.run()
	}
	if err == nil {
		err = s.giveUp()
	}
	if err == nil {
		_, err = s.settle()
	}
	return s.report, errors.Join(err, lock.Close())
}

// Verify reads the log in dir and calls visit, when it is not nil, for each entry.
// It takes no lock and changes nothing, so it may run beside the process that
// writes; what is being written at the moment then looks like a torn tail. A nil
// fs is the real one. Damage is returned as *DamageError. A log that is begun or cut
// while it is read, and then seems too short, is an error that asks to read it again.
func Verify(dir string, fs FS, visit func(Entry) error) (RecoveryReport, error) {
	if fs == nil {
		fs = osFS{}
	}
	s := scan{fs: fs, dir: dir, visit: visit, live: true}
	err := s.list()
	if err == nil {
		err = s.run()
	}
	if err == nil {
		err = s.checkAll()
	}
	return s.report, err
}

// settle brings the disk to what the scan has believed: everything kept is on the
// disk, then the state says so, and then what is not kept goes: later files away,
// the last one cut at its end.
func (s *scan) settle() (*stateFile, error) {
	for _, path := range s.temps {
		if err := s.fs.Remove(path); err != nil {
			return nil, fmt.Errorf("journal: remove what an earlier process has left unfinished: %w", err)
		}
	}
	for i, end := range s.ends {
		if end.lastLSN <= s.report.DurableLSN {
			continue
		}
		if err := s.withFile(i, func(f File) error { return rewrite(f, end.off) }); err != nil {
			return nil, fmt.Errorf("journal: settle the tail: %w", err)
		}
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return nil, fmt.Errorf("journal: settle the tail: %w", err)
	}
	f := &stateFile{fs: s.fs, dir: s.dir, last: s.state}
	if err := f.settle(s.kept()); err != nil {
		return nil, err
	}
	// The snapshots of what is given up go before it does: none may be above the log.
	for _, snap := range s.snaps {
		if s.limit == 0 || snap.lsn < s.limit {
			continue
		}
		if err := s.fs.Remove(snap.path); err != nil {
			return nil, fmt.Errorf("journal: cut a snapshot: %w", err)
		}
		if err := s.fs.SyncDir(s.dir); err != nil {
			return nil, fmt.Errorf("journal: cut a snapshot: %w", err)
		}
	}
	// From the end, so that a crash in between leaves a log without a hole.
	for i := len(s.segs) - 1; i >= len(s.ends); i-- {
		if err := s.fs.Remove(s.segs[i].path); err != nil {
			return nil, fmt.Errorf("journal: cut the tail: %w", err)
		}
		if err := s.fs.SyncDir(s.dir); err != nil {
			return nil, fmt.Errorf("journal: cut the tail: %w", err)
		}
	}
	if last := len(s.ends) - 1; last >= 0 {
		if err := s.withFile(last, func(f File) error { return f.Truncate(s.ends[last].off) }); err != nil {
			return nil, fmt.Errorf("journal: cut the tail: %w", err)
		}
	}
	return f, nil
}

// kept is the state of what the scan has believed.
func (s *scan) kept() state {
	st := state{id: s.id, durable: s.report.LastLSN, first: s.first, term: max(s.state.term, s.report.Term)}
	if s.idFile == "" {
		st.id = newIdentity()
	}
	if last := len(s.ends) - 1; last >= 0 {
		st.newest, st.size = s.segs[last].first, s.ends[last].off
	}
	return st
}

// withFile opens segment i, changes it, and syncs it.
func (s *scan) withFile(i int, change func(File) error) error {
	f, err := s.fs.Open(s.segs[i].path, true)
	if err != nil {
		return err
	}
	if err = change(f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// rewrite writes the first end bytes again. A sync alone would not do: after a failed
// one the kernel may hold pages it calls clean that never reached the disk, and a
// sync of those does nothing.
func rewrite(f File, end int64) error {
	buf := make([]byte, min(end, windowBytes))
	for off := int64(0); off < end; off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), end-off)]
		if _, err := f.ReadAt(buf, off); err != nil {
			return err
		}
		if _, err := f.WriteAt(buf, off); err != nil {
			return err
		}
	}
	return nil
}
