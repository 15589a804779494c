package journal

import (
	"errors"
	"fmt"
	"path/filepath"
)

// scan reads the segments of a folder in order, from the last one that begins at or
// below start. It changes nothing.
type scan struct {
	fs    FS
	dir   string
	visit func(Entry) error
	start uint64 // entries up to this one are not visited, segments before it not read
	limit uint64 // stop before this LSN; 0 is none
	live  bool   // somebody may be writing

	state   state  // what must be there at least
	first   uint64 // LSN the log begins with
	noState string // what is there instead of a state; empty when there is one
	id      identity
	idFile  string // that says so; empty while nothing has
	short   string // what says that the newest segment's file is too short, if it is

	segs     []segmentFile  // those read
	snaps    []snapshotFile // newest first
	proven   uint64         // LSN of the newest snapshot: the log had reached the disk up to it
	proof    string         // its file
	snapTerm uint64         // of the snapshot that start is from
	temps    []string
	ends     []segmentEnd // of the segments to keep, a prefix of segs
	report   RecoveryReport

	buf []byte // shared by all windows, one of which is open at a time
}

// segmentEnd is where what is to be kept of a segment ends.
type segmentEnd struct {
	off     int64 // behind the last record
	lastLSN uint64
	header  segmentHeader
}

// stop is where reading ended before the end of the log, and what lies behind.
type stop struct {
	seg    int
	file   string // if it is not that of the segment
	off    int64
	found  string
	why    string   // why this cannot be the tail of a crash, if that is known already
	headed bool     // the segment has a valid header
	mode   SyncMode // from it
	missed bool     // the file ends well, but the next one begins too late

	durable uint64 // highest durable mark behind
	bytes   int64  // from off to the last that is not zero, in all files
	records uint64 // whole records behind in the same file
	lsn     uint64 // of the first of them
	later   string // a later segment that is not empty
}

// run reads the log, after list, into s.report and s.ends. It returns a *DamageError,
// an error of the file system, or the error of visit.
func (s *scan) run() error {
	err := s.read()
	s.report.DurableLSN = max(s.report.DurableLSN, s.state.durable, s.proven)
	return err
}

func (s *scan) read() error {
	s.buf = make([]byte, windowBytes)
	if err := s.enter(); err != nil {
		return err
	}
	for i := range s.segs {
		if s.reached() {
			break
		}
		s.report.Segments++
		at, err := s.segment(i)
		if err != nil {
			return err
		}
		if at == nil && !s.reached() && i+1 < len(s.segs) && s.segs[i+1].first != s.next() {
			at = &stop{seg: i, off: s.ends[i].off, headed: true, mode: s.ends[i].header.mode, missed: true,
				found: fmt.Sprintf("nothing, and the next segment begins with LSN %d", s.segs[i+1].first)}
		}
		if at != nil {
			return s.judge(at)
		}
	}
	if !s.reached() {
		if err := s.reaches(); err != nil {
			return err
		}
	}
	return nil
}

// next is the LSN that should come next.
func (s *scan) next() uint64 { return s.report.LastLSN + 1 }

func (s *scan) reached() bool { return s.limit != 0 && s.next() >= s.limit }

// segment reads segment i. It adds to s.ends unless not even the header can be
// kept, and returns where it stopped if that is not a clean end.
func (s *scan) segment(i int) (at *stop, err error) {
	w, err := openWindow(s.fs, s.segs[i].path, s.buf)
	if err != nil {
		return nil, errors.Join(s.unmoved(), err)
	}
	defer func() { err = errors.Join(err, w.close()) }()

	b, err := w.at(0, segmentHeaderBytes)
	if err != nil {
		return nil, err
	}
	if version := newerSegment(b); version != 0 {
		return nil, newerThan(s.segs[i].path, version, formatVersion)
	}
	header, bad := decodeSegmentHeader(b)
	s.measure(i, w.size, header)
	if bad != nil {
		last, err := w.lastByte(0)
		return &stop{seg: i, found: bad.Error(), bytes: last + 1}, err
	}
	if found, why := s.foreign(header, s.segs[i]); found != "" {
		last, err := w.lastByte(0)
		return &stop{seg: i, found: found, why: why, bytes: last + 1}, err
	}
	s.report.CleanClose = false
	s.report.DurableLSN = max(s.report.DurableLSN, header.durable)
	s.report.Term = header.term
	s.report.Bytes += segmentHeaderBytes
	s.ends = append(s.ends, segmentEnd{segmentHeaderBytes, s.report.LastLSN, header})

	off := int64(segmentHeaderBytes)
	for !s.reached() {
		r, n, err := w.record(off, header.salt)
		if err != nil {
			return nil, err
		}
		if n == 0 || !s.follows(r) {
			at = &stop{seg: i, off: off, headed: true, mode: header.mode}
			if err := at.look(w, header.salt); err != nil || at.bytes == 0 {
				return nil, err
			}
			if s.live && at.records > 0 {
				// Beside a writer a record may be read half written. What proves
				// that it is whole was read no earlier, so reading it once more
				// must find it whole.
				w.forget()
				if r, n, err = w.record(off, header.salt); err != nil {
					return nil, err
				}
			}
			if n == 0 || !s.follows(r) {
				at.found, err = describe(w, off, header.salt)
				return at, err
			}
		}
		if err := s.take(r); err != nil {
			return nil, err
		}
		off += int64(n)
		s.report.Bytes += int64(n)
		s.ends[i] = segmentEnd{off, s.report.LastLSN, header}
	}
	return nil, nil
}

// foreign says what shows that the file with this header is not the segment that it
// is named for, and why no crash leaves it so.
func (s *scan) foreign(h segmentHeader, seg segmentFile) (found, why string) {
	if s.idFile == "" {
		s.id, s.idFile = h.id, seg.path
	}
	switch {
	case h.id != s.id:
		found = fmt.Sprintf("a segment of journal %v, while %s is of journal %v", h.id, s.idFile, s.id)
	case h.firstLSN != seg.first:
		found = fmt.Sprintf("segment header has first LSN %d", h.firstLSN)
	case h.term < s.report.Term:
		found = fmt.Sprintf("segment header has term %d after term %d", h.term, s.report.Term)
	default:
		return "", ""
	}
	return found, "a header whose CRC32C is right was not torn: the file comes from elsewhere"
}

// measure notes when the file of segment i is shorter than it must be. Only the
// newest one can be cut without a later one that shows it.
func (s *scan) measure(i int, size int64, h segmentHeader) {
	seg := s.segs[i]
	if i != len(s.segs)-1 || seg.first < s.state.newest || s.noState != "" {
		return
	}
	// A segment has its full size before it gets its name, and is cut only after
	// the state says so.
	least, from := max(h.size, MinSegmentBytes), "that it had when it got its name"
	if seg.first == s.state.newest {
		least, from = s.state.size, "that "+stateName+" knows of"
	}
	if size < least {
		s.short = fmt.Sprintf("the file has %d bytes of the %d %s, and no crash shortens a file", size, least, from)
	}
}

// shortfall says in what a log that ends at the stop falls short of its state, or
// what the state itself lacks.
func (s *scan) shortfall(at *stop) string {
	path := filepath.Join(s.dir, stateName)
	last := len(s.segs) - 1
	switch newest := s.state.newest; {
	case s.noState == noFile && last < 0 && len(s.snaps) == 0:
		return "" // a new folder
	case s.noState != "":
		return fmt.Sprintf("%s is there before the first segment, a crash leaves one of its notes whole, and without it nobody knows whether the log has lost its end", path)
	case s.next() <= s.state.durable:
		return fmt.Sprintf("the durable mark in %s says that everything up to LSN %d had reached the disk", path, s.state.durable)
	case s.next() <= s.proven:
		return fmt.Sprintf("snapshot %s was written only when everything up to LSN %d had reached the disk", s.proof, s.proven)
	case newest != 0 && (last < 0 || s.segs[last].first < newest):
		return fmt.Sprintf("%s knows that segment %s was in use", path, segmentName(newest))
	case !at.headed && at.seg >= 0 && s.segs[at.seg].first <= newest:
		return fmt.Sprintf("%s knows that the segment was in use, so its header had been written", path)
	}
	return ""
}

// reaches is asked of a log that ends well, and says when that end is too early.
func (s *scan) reaches() error {
	last := len(s.segs) - 1
	at := &stop{seg: last, headed: true}
	switch {
	case s.short == "" && s.shortfall(at) == "":
		return nil
	case s.noState != "":
		at.file, at.found = filepath.Join(s.dir, stateName), s.noState
	case last < 0 || s.segs[last].first < s.state.newest:
		at.file, at.found = filepath.Join(s.dir, segmentName(s.next())), noFile
	default:
		at.off, at.found = s.ends[last].off, "the end of the log"
	}
	return s.judge(at)
}

// unmoved is an error when the state is another by now, because a process has begun,
// cut or pruned the log beside this reader: then it is no measure for the files.
func (s *scan) unmoved() error {
	if !s.live {
		return nil
	}
	now, bad, err := readState(s.fs, s.dir)
	if err == nil && (now != s.state || bad != s.noState) {
		err = fmt.Errorf("journal: a process has begun, cut or pruned the log in %s while it was read: read it again", s.dir)
	}
	return err
}

// follows reports whether r, which is whole, is what comes next.
func (s *scan) follows(r record) bool {
	switch {
	case r.term < s.report.Term || s.report.CleanClose:
		return false
	case r.kind == kindCloseMark:
		return r.lsn == s.report.LastLSN && r.durable == r.lsn
	}
	return r.lsn == s.next() && r.durable < r.lsn
}

// take counts r and shows it to the visitor.
func (s *scan) take(r record) error {
	s.report.DurableLSN = max(s.report.DurableLSN, r.durable)
	s.report.Term = r.term
	if r.kind == kindCloseMark {
		s.report.CleanClose = true
		return nil
	}
	s.report.LastLSN = r.lsn
	if r.lsn <= s.start {
		return nil
	}
	s.report.Records++
	if s.visit == nil {
		return nil
	}
	return s.visit(Entry{LSN: r.lsn, Term: r.term, TimeNs: r.timeNs, Payload: r.payload})
}

// look counts what lies behind the stop in its file, w.
func (at *stop) look(w *window, salt uint32) error {
	last, err := w.lastByte(at.off)
	if err != nil {
		return err
	}
	at.bytes = last + 1 - at.off
	for off := at.off; off <= last; {
		r, n, err := w.record(off, salt)
		if err != nil {
			return err
		}
		if n == 0 {
			off++
			continue
		}
		if at.records == 0 {
			at.lsn = r.lsn
		}
		at.records++
		at.durable = max(at.durable, r.durable)
		off += int64(n)
	}
	return nil
}

// describe says what stands at off instead of the record that should. It is ErrNewer if
// that is a record of a newer version.
func describe(w *window, off int64, salt uint32) (string, error) {
	r, n, err := w.record(off, salt)
	if err != nil {
		return "", err
	}
	if n > 0 {
		return fmt.Sprintf("a whole record with LSN %d, term %d, mark %d", r.lsn, r.term, r.durable), nil
	}
	b, err := w.at(off, recordHeaderBytes)
	if err != nil {
		return "", err
	}
	switch n := recordLength(b); {
	case blank(b):
		return "zeros, with other bytes behind them", nil
	case len(b) < recordHeaderBytes:
		return fmt.Sprintf("the end of the file after %d bytes of a record header", len(b)), nil
	case n == 0:
		switch version, err := w.newerRecord(off, salt); {
		case err != nil:
			return "", err
		case version != 0:
			return "", newerThan(w.path, version, formatVersion)
		}
		return "bytes that are no record header", nil
	case off+int64(n) > w.size:
		return fmt.Sprintf("a record of %d bytes that reaches past the end of the file", n), nil
	default:
		return fmt.Sprintf("a record of %d bytes whose CRC32C is wrong", n), nil
	}
}

// lookLater adds what the segments after seg hold. It ends with ErrNewer at one that this
// program cannot judge.
func (s *scan) lookLater(at *stop) error {
	for _, seg := range s.segs[at.seg+1:] {
		w, err := openWindow(s.fs, seg.path, s.buf)
		if err != nil {
			return err
		}
		b, err := w.at(0, segmentHeaderBytes)
		if err != nil {
			return errors.Join(err, w.close())
		}
		version := newerSegment(b)
		header, bad := decodeSegmentHeader(b)
		last, err := w.lastByte(0)
		if err := errors.Join(err, w.close()); err != nil {
			return err
		}
		if version != 0 {
			return newerThan(seg.path, version, formatVersion)
		}
		at.bytes += last + 1
		if bad == nil && header.id == s.id {
			at.durable = max(at.durable, header.durable)
		}
		if at.later == "" && (bad == nil || last >= segmentHeaderBytes) {
			at.later = seg.path
		}
	}
	return nil
}

// judge decides whether the log was torn at the stop or damaged. The package
// comment has the argument.
func (s *scan) judge(at *stop) error {
	if err := s.lookLater(at); err != nil {
		return err
	}
	s.report.CleanClose = false
	s.report.DurableLSN = max(s.report.DurableLSN, at.durable)
	why, byState := at.why, ""
	switch {
	case why != "":
	case s.short != "":
		byState = s.short
	case s.next() <= s.report.DurableLSN:
		why = fmt.Sprintf("a later durable mark says that everything up to LSN %d had reached the disk", s.report.DurableLSN)
	case at.later != "":
		why = fmt.Sprintf("the later segment %s was begun only when everything before it was written", at.later)
	case !at.headed && at.bytes > segmentHeaderBytes:
		why = "no byte is behind a segment header before the header is written"
	default:
		byState = s.shortfall(at)
	}
	switch {
	case byState != "":
		if err := s.unmoved(); err != nil {
			return err
		}
		why = byState
	case why == "" && at.records > 0 && at.mode != SyncAlways:
		why = fmt.Sprintf("whole records from LSN %d on lie behind it, and under sync mode %v a dying process leaves none (a power cut may: this mode promises nothing then)", at.lsn, at.mode)
	}
	if at.file == "" {
		at.file = s.segs[at.seg].path
	}
	if why != "" {
		return s.damage(DamageError{File: at.file, Offset: at.off, LSN: s.next(), Found: at.found, Why: why})
	}
	s.report.Torn = &TornTail{File: at.file, Offset: at.off, LSN: s.next(), Bytes: at.bytes, Records: at.records, Why: at.found}
	return nil
}

// giveUp notes what Cut leaves out, if anything: what lies behind the last end.
func (s *scan) giveUp() (err error) {
	at := &stop{seg: len(s.ends) - 1}
	if at.seg >= 0 {
		w, err := openWindow(s.fs, s.segs[at.seg].path, s.buf)
		if err != nil {
			return err
		}
		last, err := w.lastByte(s.ends[at.seg].off)
		if err := errors.Join(err, w.close()); err != nil {
			return err
		}
		at.bytes = last + 1 - s.ends[at.seg].off
	}
	if err := s.lookLater(at); err != nil || at.bytes == 0 {
		return err
	}
	s.report.CleanClose = false
	s.report.Torn = &TornTail{File: s.segs[max(0, at.seg)].path, LSN: s.limit, Bytes: at.bytes, Why: "given up by Cut"}
	if at.seg >= 0 {
		s.report.Torn.Offset = s.ends[at.seg].off
	}
	return nil
}
