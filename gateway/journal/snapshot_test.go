package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"tailgate/gateway/journal"
)

// TestSnapshotRoundTrip writes snapshots of a log of several segments and begins with
// them: the state handed over and the entries after it are the whole log.
func TestSnapshotRoundTrip(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			opts := journal.Options{Dir: t.TempDir(), Sync: mode, SegmentBytes: journal.MinSegmentBytes}
			content := func(lsn uint64) []byte { return payload(lsn, int(lsn)*1000) }
			j, _, _ := open(t, opts)
			for lsn := uint64(1); lsn <= 200; lsn++ {
				appendWait(t, j, payload(lsn, 1000))
				if lsn%50 != 0 {
					continue
				}
				if err := j.Snapshot(lsn, func(w io.Writer) error { _, err := w.Write(content(lsn)); return err }); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			if _, _, err := journal.Open(opts, nil); err == nil {
				t.Fatal("a pruned log opened without Restore")
			}
			opts.Restore = func(lsn uint64, r io.Reader) error {
				got, err := io.ReadAll(r)
				if err == nil && (lsn != 200 || !bytes.Equal(got, content(200))) {
					err = fmt.Errorf("a snapshot of LSN %d with %d bytes", lsn, len(got))
				}
				return err
			}
			j, got, report := open(t, opts)
			if err := j.Close(); err != nil || len(got) != 0 || report.Restored != 200 || report.FirstLSN < 100 || report.LastLSN != 200 {
				t.Fatalf("%v, %d entries, %v", err, len(got), report)
			}
			report, err := journal.Verify(opts.Dir, nil, nil)
			if err != nil || len(report.Snapshots) != 2 || report.Snapshots[1].LSN != 150 {
				t.Fatalf("%v, %v", err, report)
			}
			if err := journal.ReadFrom(opts.Dir, nil, 1, 200, nil); !errors.Is(err, journal.ErrPruned) {
				t.Fatal(err)
			}
			next := uint64(160)
			if err := journal.ReadFrom(opts.Dir, nil, 160, 199, func(e journal.Entry) error {
				if e.LSN != next || !bytes.Equal(e.Payload, payload(next, 1000)) {
					return fmt.Errorf("LSN %d instead of %d", e.LSN, next)
				}
				next++
				return nil
			}); err != nil || next != 200 {
				t.Fatal(next, err)
			}
		})
	}
}
