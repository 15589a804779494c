package journal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

// history is what a test did to a journal and what it was promised.
type history struct {
	sequencer sync.Mutex // one caller of Append at a time

	mu      sync.Mutex
	entries []journal.Entry
	acked   uint64 // highest mark released without an error
	kept    uint64 // LSN of the last snapshot that was written without an error
	pending map[uint64]int
	err     error // the first broken promise of Release

	folded []journal.Entry // what snapshots were made from, as ReadFrom gave it
}

func newHistory() *history { return &history{pending: map[uint64]int{}} }

// promise is what a crash must leave: a prefix of entries, with those acked, and a
// snapshot not older than kept.
type promise struct {
	entries     []journal.Entry
	acked, kept uint64
}

func (h *history) promise() promise {
	h.mu.Lock()
	defer h.mu.Unlock()
	return promise{slices.Clone(h.entries), h.acked, h.kept}
}

// keep writes a snapshot of all that was appended, made as the gateway makes it: by
// folding what the log has over what the last one held.
func (h *history) keep(j *journal.Journal) error {
	h.mu.Lock()
	lsn, last := uint64(len(h.entries)), uint64(len(h.folded))
	h.mu.Unlock()
	if last == 0 {
		// The process before has pruned what its snapshots hold.
		h.folded = slices.Clone(h.entries[:j.Stats().FirstLSN-1])
		last = uint64(len(h.folded))
	}
	if lsn == last {
		return nil
	}
	err := j.ReadFrom(last+1, lsn, func(e journal.Entry) error {
		e.Payload = slices.Clone(e.Payload)
		h.folded = append(h.folded, e)
		return nil
	})
	if err != nil {
		h.folded = h.folded[:last]
		return err
	}
	if err := j.Snapshot(lsn, func(w io.Writer) error { return writeEntries(w, h.folded) }); err != nil {
		return err
	}
	h.mu.Lock()
	h.kept = lsn
	h.mu.Unlock()
	return nil
}

// snapshotPadding makes a snapshot one of several blocks.
const snapshotPadding = 70_000

// writeEntries writes a snapshot's content. Of a payload the size is enough: see payload.
func writeEntries(w io.Writer, entries []journal.Entry) error {
	b := payload(uint64(len(entries)), snapshotPadding)
	for _, e := range entries {
		if !bytes.Equal(e.Payload, payload(e.LSN, len(e.Payload))) {
			return fmt.Errorf("ReadFrom gave a wrong payload of LSN %d", e.LSN)
		}
		for _, v := range []uint64{e.LSN, e.Term, uint64(e.TimeNs), uint64(len(e.Payload))} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	_, err := w.Write(b)
	return err
}

func readEntries(lsn uint64, r io.Reader) ([]journal.Entry, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if len(b) != snapshotPadding+32*int(lsn) || !bytes.Equal(b[:snapshotPadding], payload(lsn, snapshotPadding)) {
		return nil, fmt.Errorf("a snapshot of LSN %d with %d bytes, or with others", lsn, len(b))
	}
	var entries []journal.Entry
	for b = b[snapshotPadding:]; len(b) > 0; b = b[32:] {
		v := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
		entries = append(entries, journal.Entry{LSN: v(0), Term: v(1), TimeNs: int64(v(2)), Payload: payload(v(0), int(v(3)))})
	}
	return entries, nil
}

// append appends the next entry, with size bytes, and reports whether it was taken.
func (h *history) append(j *journal.Journal, term uint64, size int) (bool, error) {
	h.sequencer.Lock()
	defer h.sequencer.Unlock()
	h.mu.Lock()
	n := uint64(len(h.entries) + 1)
	e := journal.Entry{LSN: n, Term: term, TimeNs: int64(n) << 20, Payload: payload(n, size)}
	h.entries = append(h.entries, e)
	h.mu.Unlock()

	lsn, err := j.Append(e.TimeNs, e.Payload)
	if err != nil {
		h.mu.Lock()
		h.entries = h.entries[:n-1]
		h.mu.Unlock()
		return false, err
	}
	if lsn != n {
		return true, fmt.Errorf("LSN %d, want %d", lsn, n)
	}
	return true, nil
}

// commit commits everything appended so far.
func (h *history) commit(j *journal.Journal) {
	h.mu.Lock()
	mark := uint64(len(h.entries))
	h.pending[mark]++
	h.mu.Unlock()
	failed := errors.Is(j.Err(), journal.ErrFailed)
	j.Commit(waiterFunc(func(got uint64, err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.pending[got]--; h.pending[got] < 0 {
			h.err = fmt.Errorf("mark %d released more often than committed", got)
		}
		if err == nil && failed {
			h.err = fmt.Errorf("mark %d acked after the journal had failed", got)
		}
		if err == nil {
			h.acked = max(h.acked, got)
		}
	}), mark)
}

type waiterFunc func(mark uint64, err error)

func (f waiterFunc) Release(mark uint64, err error) { f(mark, err) }

// snapshot returns what was appended and what was acked up to now.
func (h *history) snapshot() (entries []journal.Entry, acked uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.entries), h.acked
}

// settled reports a promise broken by Release, a missing one included.
func (h *history) settled() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for mark, n := range h.pending {
		if n != 0 && h.err == nil {
			h.err = fmt.Errorf("mark %d was not released", mark)
		}
	}
	return h.err
}

// collect opens the journal and returns what it replays, over what a snapshot holds.
func collect(opts journal.Options) (*journal.Journal, []journal.Entry, journal.RecoveryReport, error) {
	var got []journal.Entry
	if opts.Restore == nil {
		opts.Restore = func(lsn uint64, r io.Reader) (err error) {
			got, err = readEntries(lsn, r)
			return err
		}
	}
	j, report, err := journal.Open(opts, func(e journal.Entry) error {
		e.Payload = slices.Clone(e.Payload)
		got = append(got, e)
		return nil
	})
	return j, got, report, err
}

// survives opens what a crash left in fs and checks it: a prefix of entries, with
// every acked one, on which a new process can build. What the new process is
// promised must survive a power cut in turn.
func survives(t *testing.T, fs *journaltest.Disk, opts journal.Options, p promise, rng *rand.Rand) {
	t.Helper()
	entries, acked := p.entries, p.acked
	opts.FS = fs
	j, got, report, err := collect(opts)
	if err != nil {
		t.Errorf("open: %v", err)
		return
	}
	if len(got) > len(entries) || uint64(len(got)) < acked {
		t.Errorf("%d entries after the crash, %d acked, %d appended; %v", len(got), acked, len(entries), report)
	} else if err := equal(got, entries[:len(got)]); err != nil {
		t.Errorf("after the crash: %v", err)
	}
	if report.Restored < p.kept {
		t.Errorf("began with a snapshot of LSN %d, there was one of LSN %d; %v", report.Restored, p.kept, report)
	}
	h := newHistory()
	h.entries = got
	if _, err := h.append(j, opts.Term, 100); err != nil {
		t.Errorf("append after the crash: %v", err)
	}
	h.commit(j)
	if rng.IntN(2) == 0 {
		if err := h.keep(j); err != nil {
			t.Errorf("snapshot after the crash: %v", err)
		}
	}
	if err := j.Close(); err != nil {
		t.Errorf("close after the crash: %v", err)
	}
	if err := h.settled(); err != nil {
		t.Error(err)
	}
	want := h.entries
	opts.FS = fs.PowerCut(rng) // Close promises the disk in every mode
	j, got, report, err = collect(opts)
	if err != nil {
		t.Errorf("open after close and power cut: %v", err)
		return
	}
	if err := errors.Join(equal(got, want), j.Close()); err != nil || !report.CleanClose {
		t.Errorf("after close and power cut: %v; %v", err, report)
	}
}
