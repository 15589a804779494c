package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"tailgate/gateway/journal/internal/snapfile"
)

// SnapshotInfo is a snapshot as it was found.
type SnapshotInfo struct {
	File   string
	LSN    uint64         // it holds all up to it
	Term   uint64         // of its writer
	Bytes  int64          // of content
	Damage *SnapshotError // why it cannot be used; nil when it is whole

	unread error // the file system's, when it and not the content kept the file from being read
}

// SnapshotError says why a snapshot cannot be used. It wraps ErrDamaged.
type SnapshotError struct {
	File  string
	Found string // what is wrong with it
	Lost  string // why nothing can stand in for it; empty when something does
}

func (e *SnapshotError) Error() string {
	if e.Lost == "" {
		return fmt.Sprintf("%v: snapshot %s: %s. An older one, or the log, stands in for it; the next prune removes it", ErrDamaged, e.File, e.Found)
	}
	return fmt.Sprintf("%v: snapshot %s: %s; %s. Restore the folder from a copy", ErrDamaged, e.File, e.Found, e.Lost)
}

// Unwrap returns ErrDamaged.
func (e *SnapshotError) Unwrap() error { return ErrDamaged }

// list reads what is there: the state, the names, and what the newest snapshot proves. It
// ends with ErrNewer when one of the snapshots is of a newer version.
func (s *scan) list() error {
	var err error
	// The state is read before the names, so that beside a writer the names hold all
	// that the state knows of.
	if s.state, s.noState, err = readState(s.fs, s.dir); err != nil {
		return err
	}
	// The names are taken before anything is read: a segment is among them only if the
	// one before is whole, even beside a writer.
	f, err := listFolder(s.fs, s.dir)
	if err != nil {
		return err
	}
	s.segs, s.snaps, s.temps = f.segs, f.snaps, f.temps
	switch {
	case s.limit == 1:
		s.first = 1 // everything is given up
	case s.noState == "":
		s.first = s.state.first
	case len(s.segs) > 0 && len(s.snaps) > 0:
		s.first = s.segs[0].first
	default:
		s.first = 1
	}
	proves := snapshotFile{}
	for _, snap := range s.snaps {
		h, err := readSnapshot(s.fs, snap, func(f File, _ int64) (snapfile.Header, error) { return snapfile.ReadHeader(f) })
		if errors.Is(err, snapfile.ErrNewer) {
			return fmt.Errorf("%w: %s: %w. It is not damaged and nothing was changed: use the version that wrote it", ErrNewer, snap.path, err)
		}
		if err == nil && proves.lsn == 0 && s.noState == "" && h.ID == s.state.id && h.LSN == snap.lsn {
			proves = snap
		}
	}
	if s.noState != "" {
		return nil
	}
	s.proven, s.proof = proves.lsn, proves.path
	s.id, s.idFile = s.state.id, filepath.Join(s.dir, stateName)
	// What a prune has left that did not come to its end is no part of the log: a power
	// cut brings removed files back in any order.
	for i, seg := range s.segs {
		if seg.first == s.first {
			s.segs = s.segs[i:]
			break
		}
	}
	return nil
}

// enter goes to the segment to begin with.
func (s *scan) enter() error {
	s.report.FirstLSN, s.report.LastLSN = s.first, s.first-1
	if len(s.segs) == 0 || s.reached() {
		return nil
	}
	if s.segs[0].first != s.first {
		if err := s.unmoved(); err != nil {
			return err
		}
		return s.damage(DamageError{File: s.segs[0].path, LSN: s.first,
			Found: fmt.Sprintf("the first segment begins with LSN %d", s.segs[0].first), Why: "segments are missing"})
	}
	for len(s.segs) > 1 && s.segs[1].first <= s.start {
		s.segs = s.segs[1:]
	}
	s.report.LastLSN = s.segs[0].first - 1
	return nil
}

// damage completes e.
func (s *scan) damage(e DamageError) error {
	e.Durable = max(s.report.DurableLSN, s.state.durable, s.proven)
	e.Final = s.first > 1
	for _, snap := range s.snaps {
		if s.joins(snap) && snap.lsn < e.LSN {
			e.Final = false
		}
	}
	return &e
}

// readSnapshot opens a snapshot and reads of it what read does.
func readSnapshot(fs FS, snap snapshotFile, read func(f File, size int64) (snapfile.Header, error)) (h snapfile.Header, err error) {
	f, err := fs.Open(snap.path, false)
	if err != nil {
		return h, err
	}
	size, err := f.Size()
	if err == nil {
		h, err = read(f, size)
	}
	_ = f.Close() // it was only read
	return h, err
}

// checkSnapshot reads a snapshot whole. It may be of any journal when id is nil.
func checkSnapshot(fs FS, snap snapshotFile, id *identity) (SnapshotInfo, snapfile.Header) {
	h, err := readSnapshot(fs, snap, func(f File, size int64) (snapfile.Header, error) { return snapfile.Check(f, size) })
	switch {
	case err != nil:
	case h.LSN != snap.lsn:
		err = fmt.Errorf("%w: its header has LSN %d", snapfile.ErrContent, h.LSN)
	case id != nil && h.ID != *id:
		err = fmt.Errorf("%w: of journal %v, and this is journal %v", snapfile.ErrContent, identity(h.ID), *id)
	}
	info := SnapshotInfo{File: snap.path, LSN: snap.lsn, Term: h.Term, Bytes: h.Length}
	if err != nil {
		info.Damage = &SnapshotError{File: snap.path, Found: err.Error()}
		if !errors.Is(err, snapfile.ErrContent) {
			info.unread = err
		}
	}
	return info, h
}

func (s *scan) check(snap snapshotFile) SnapshotInfo {
	id := &s.id
	if s.idFile == "" {
		id = nil
	}
	info, h := checkSnapshot(s.fs, snap, id)
	if info.Damage == nil && s.idFile == "" {
		s.id, s.idFile = h.ID, snap.path
	}
	return info
}

// joins reports whether the log goes on where the snapshot ends.
func (s *scan) joins(snap snapshotFile) bool { return snap.lsn+1 >= s.first }

// pick makes the scan start from the newest snapshot below the limit that is whole. It
// is an error that there is none, if the log does not begin at LSN 1.
func (s *scan) pick() error {
	for _, snap := range s.snaps {
		if s.limit != 0 && snap.lsn >= s.limit || !s.joins(snap) {
			continue
		}
		info := s.check(snap)
		s.report.Snapshots = append(s.report.Snapshots, info)
		if info.Damage == nil {
			s.start = snap.lsn
			s.snapTerm = info.Term
			return nil
		}
	}
	return s.baseless()
}

// baseless is what a log without a snapshot to start from lacks.
func (s *scan) baseless() error {
	if s.first == 1 {
		return nil
	}
	e := SnapshotError{File: filepath.Join(s.dir, snapshotName(s.first-1)), Found: noFile}
	for _, info := range s.report.Snapshots {
		if info.Damage != nil {
			e = *info.Damage
			break
		}
	}
	e.Lost = fmt.Sprintf("the log begins with LSN %d, and what was before is in snapshots only", s.first)
	if s.limit != 0 {
		e.Lost = fmt.Sprintf("%s, none of which is whole and below LSN %d", e.Lost, s.limit)
	}
	return &e
}

// restore hands the picked snapshot over.
func (s *scan) restore(to func(lsn uint64, r io.Reader) error) error {
	if s.start == 0 {
		return nil
	}
	snap := s.report.Snapshots[len(s.report.Snapshots)-1]
	return handOver(s.fs, snapshotFile{snap.File, snap.LSN}, to)
}

// handOver gives a snapshot that was found whole to restore, each of its checksums looked at once more.
func handOver(fs FS, snap snapshotFile, restore func(lsn uint64, r io.Reader) error) error {
	var failed error
	_, err := readSnapshot(fs, snap, func(f File, _ int64) (snapfile.Header, error) {
		h, err := snapfile.ReadHeader(f)
		if err == nil {
			failed = restore(snap.lsn, snapfile.NewReader(f, h))
		}
		return h, err
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("journal: snapshot %s: %w", snap.path, err)
	}
	return nil
}

// checkAll checks every snapshot for Verify. A damaged one is an error even if another,
// or the log, stands in for it.
func (s *scan) checkAll() error {
	based := false
	for _, snap := range s.snaps {
		info := s.check(snap)
		if errors.Is(info.unread, os.ErrNotExist) {
			continue // pruned meanwhile
		}
		s.report.Snapshots = append(s.report.Snapshots, info)
		based = based || info.Damage == nil && s.joins(snap)
	}
	if !based {
		if err := s.baseless(); err != nil {
			return err
		}
	}
	for _, info := range s.report.Snapshots {
		if info.Damage != nil {
			return info.Damage
		}
	}
	return nil
}
