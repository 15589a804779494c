package journal

import "fmt"

// Append gives payload the next LSN and copies it into memory; the caller keeps
// payload. One caller at a time. It does no I/O, never waits for any, and
// allocates nothing. The entry is written when a Commit, or Close, comes after it.
//
// Errors: ErrTooLarge; ErrBacklog, ErrFull (the entry was not taken, no LSN was
// used, later ones may be); ErrFailed, ErrTerm, ErrClosed (none will be taken any
// more).
func (j *Journal) Append(timeNs int64, payload []byte) (lsn uint64, err error) {
	if len(payload) > MaxPayloadBytes {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(payload), MaxPayloadBytes)
	}
	size := recordHeaderBytes + len(payload)

	j.bufMu.Lock()
	defer j.bufMu.Unlock()
	if err := j.room(size); err != nil {
		return 0, err
	}
	return j.put(timeNs, payload), nil
}

// AppendBatch appends all payloads, with the same time, or none: first is the LSN of
// the first one, the others follow without a gap. Everything said of Append holds for
// it. All or none is what the caller sees; a crash may leave a part of a batch that no
// Commit has released, from its beginning on, as of any entries.
//
// A batch, with 44 bytes for each payload, must fit into one segment and into half of
// MaxPendingBytes, each less 108 bytes; ErrTooLarge otherwise. An empty batch appends
// nothing and returns 0.
func (j *Journal) AppendBatch(timeNs int64, payloads [][]byte) (first uint64, err error) {
	size := 0
	for _, p := range payloads {
		if len(p) > MaxPayloadBytes {
			return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(p), MaxPayloadBytes)
		}
		size += recordHeaderBytes + len(p)
	}
	if most := min(j.opts.MaxPendingBytes/2, int(j.opts.SegmentBytes)) - segmentHeaderBytes - recordHeaderBytes; size > most {
		return 0, fmt.Errorf("%w: a batch of %d payloads takes %d bytes, at most %d", ErrTooLarge, len(payloads), size, most)
	}

	j.bufMu.Lock()
	defer j.bufMu.Unlock()
	if err := j.room(size); err != nil || size == 0 {
		return 0, err
	}
	first = j.appended.Load() + 1
	for _, p := range payloads {
		j.put(timeNs, p)
	}
	return first, nil
}

// room sees to it that records of size bytes together fit into the buffer and into the
// tail segment, beginning the next one if they do not. bufMu is held.
func (j *Journal) room(size int) error {
	if err := j.failed(); err != nil {
		return err
	}
	if j.refused != nil {
		return j.refused
	}
	b := j.pending
	// A segment always keeps room for the close mark.
	if j.tail != nil && j.tailOff+int64(size)+recordHeaderBytes <= j.opts.SegmentBytes {
		if !b.fits(size) {
			return ErrBacklog
		}
		return nil
	}
	if !b.fits(segmentHeaderBytes + size) {
		return ErrBacklog
	}
	next, err := j.space.take()
	if err != nil {
		return err
	}
	next.firstLSN = j.appended.Load() + 1
	b.begin(next)
	j.tail, j.tailOff = next, segmentHeaderBytes
	return nil
}

// put encodes the record for which there is room. bufMu is held.
func (j *Journal) put(timeNs int64, payload []byte) (lsn uint64) {
	size := recordHeaderBytes + len(payload)
	lsn = j.appended.Load() + 1
	putRecord(j.pending.grow(size), j.tail.salt, &record{
		kind: kindEntry, lsn: lsn, term: j.opts.Term, timeNs: timeNs,
		durable: j.durable.Load(), payload: payload,
	})
	j.tailOff += int64(size)
	j.appended.Store(lsn)
	return lsn
}

// Term returns the term of the log: Options.Term, or a higher one once Fence was called.
func (j *Journal) Term() uint64 { return j.term.Load() }

// Fence takes the log away from its writer for one with a higher term: when it has
// returned nil, every Append and Err give ErrTerm, and no process opens the folder with a term
// below this one, whatever happens to this process. What was appended before is still
// committed and released. The new writer opens the folder with Options.Term not below
// term when this Journal is closed.
//
// Errors: ErrTerm (term is not above Term: whoever calls has been replaced himself),
// ErrClosed, ErrFailed; with a full disk the reason, and then the fence holds for this
// Journal and is not yet on the disk.
func (j *Journal) Fence(term uint64) error {
	j.bufMu.Lock()
	if j.closed() {
		j.bufMu.Unlock()
		return ErrClosed
	}
	if now := j.term.Load(); term <= now {
		j.bufMu.Unlock()
		return fmt.Errorf("%w: fence with term %d, the log has term %d", ErrTerm, term, now)
	}
	j.refused = fmt.Errorf("%w: a writer with term %d has taken over from term %d", ErrTerm, term, j.opts.Term)
	j.fenced.Store(&failure{j.refused})
	j.term.Store(term) // behind the reason: who sees the new term finds it
	j.bufMu.Unlock()
	if err := j.failed(); err != nil {
		return err
	}
	return j.note()
}

// closed reports whether Close was called. bufMu is held.
func (j *Journal) closed() bool { return j.refused == ErrClosed } //nolint:errorlint // set here, never wrapped
