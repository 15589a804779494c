package journal_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"tailgate/gateway/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// released collects what a Waiter is told.
type released struct{ ch chan error }

func newReleased() *released { return &released{make(chan error, 1<<16)} }

func (r *released) Release(_ uint64, err error) { r.ch <- err }

// payload is a value of which every byte depends on n, so that no two are equal
// and none is a prefix of another.
func payload(n uint64, size int) []byte {
	p := make([]byte, size)
	for i := range min(size, 256) {
		p[i] = byte(n*131 + uint64(i)*7 + 1)
	}
	for done := 256; done < size; done *= 2 {
		copy(p[done:], p[:done]) // the sum above comes again after 256
	}
	if size >= 8 {
		binary.LittleEndian.PutUint64(p, n)
	}
	return p
}

func open(t testing.TB, opts journal.Options) (*journal.Journal, []journal.Entry, journal.RecoveryReport) {
	t.Helper()
	j, got, report, err := collect(opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return j, got, report
}

func TestRoundTrip(t *testing.T) {
	for _, mode := range []journal.SyncMode{journal.SyncOff, journal.SyncOS, journal.SyncAlways} {
		t.Run(mode.String(), func(t *testing.T) {
			opts := journal.Options{Dir: t.TempDir() + "/a/b", Sync: mode, SegmentBytes: 1 << 20}
			var want []journal.Entry
			for run := range 3 {
				opts.Term = uint64(run)
				j, got, report := open(t, opts)
				if err := equal(got, want); err != nil {
					t.Fatalf("run %d: %v", run, err)
				}
				if run > 0 && (!report.CleanClose || report.Torn != nil || report.Records != uint64(len(want))) {
					t.Fatalf("run %d: report %v", run, report)
				}
				w := newReleased()
				for i := range 100 {
					n := uint64(len(want) + 1)
					e := journal.Entry{LSN: n, Term: opts.Term, TimeNs: int64(n) * -3, Payload: payload(n, i*i)}
					lsn, err := j.Append(e.TimeNs, e.Payload)
					if err != nil || lsn != n {
						t.Fatalf("append: LSN %d, %v; want %d", lsn, err, n)
					}
					want = append(want, e)
					if i%7 == 0 {
						j.Commit(w, n)
						if err := <-w.ch; err != nil {
							t.Fatalf("release: %v", err)
						}
						if j.Committed() < n {
							t.Fatalf("committed mark %d after the release of %d", j.Committed(), n)
						}
					}
				}
				if err := j.Close(); err != nil {
					t.Fatalf("close: %v", err)
				}
			}
		})
	}
}

// equal compares entry by entry.
func equal(got, want []journal.Entry) error {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) {
			return fmt.Errorf("%d entries, want %d", len(got), len(want))
		}
		g, w := got[i], want[i]
		if g.LSN != w.LSN || g.Term != w.Term || g.TimeNs != w.TimeNs || !bytes.Equal(g.Payload, w.Payload) {
			return fmt.Errorf("entry %d is %+v, want %+v", i, g, w)
		}
	}
	return nil
}
