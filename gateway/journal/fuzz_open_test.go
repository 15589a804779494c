package journal_test

import (
	"bytes"
	"errors"
	"testing"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

// FuzzOpen opens a folder whose first segment begins well, so that the fuzzer gets
// past the header, and then holds anything; a second segment may follow. Open
// either stops and changes nothing, or gives a log that is not below its state, closes,
// and opens again with the same entries.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{}, uint8(0), uint8(0), false, []byte{})
	f.Add(make([]byte, 200), uint8(3), uint8(2), false, []byte{})
	f.Add([]byte("torn"), uint8(2), uint8(1), false, []byte("no header"))
	f.Add([]byte("no header at all"), uint8(0), uint8(0), true, []byte{})
	f.Add(journal.EncodeSegment(journal.SyncOS), uint8(0), uint8(0), true, journal.EncodeSegment(journal.SyncOS))
	for i := range uint8(6) {
		// After i records, a hole and a record that claims something.
		f.Add(append([]byte{0, 1}, journal.EncodeRecord(5, uint64(i), []byte("x"))...), i, i, false, []byte{})
		f.Add(journal.EncodeRecord(uint64(i), 0, nil), uint8(3), i, false, []byte{})
	}
	f.Fuzz(func(t *testing.T, rest []byte, records, mode uint8, raw bool, second []byte) {
		// What the state knows of: no segment, the first, or the second, which is not
		// always there.
		newest := []uint64{0, 1, 1, 5}[mode/3%4]
		fs := journaltest.NewDisk()
		var payloads [][]byte
		for i := range records % 8 {
			payloads = append(payloads, payload(uint64(i), int(i)))
		}
		opts := memOptions(fs, journal.SyncMode(mode%3))
		first := rest
		if !raw {
			first = append(journal.EncodeSegment(opts.Sync, payloads...), rest...)
		}
		// A segment gets its name when it has its full size.
		first = append(first, make([]byte, max(0, journal.MinSegmentBytes-len(first)))...)
		if len(second) > 0 {
			second = append(bytes.Clone(second), make([]byte, max(0, journal.MinSegmentBytes-len(second)))...)
		}
		known := int64(0)
		if newest != 0 {
			known = journal.MinSegmentBytes
		}
		fs.SetContent("/log/STATE", journal.EncodeState(newest, known, uint64(mode/12)))
		paths := []string{"/log/00000000000000000001.seg", "/log/00000000000000000005.seg"}
		contents := [][]byte{bytes.Clone(first), bytes.Clone(second)}
		fs.SetContent(paths[0], first)
		if len(second) > 0 {
			fs.SetContent(paths[1], second)
		} else {
			paths, contents = paths[:1], contents[:1]
		}
		opts.Term = 1<<64 - 1
		j, got, report, err := collect(opts)
		for i, e := range got {
			if e.LSN != uint64(i+1) {
				t.Fatalf("entry %d has LSN %d", i, e.LSN)
			}
		}
		if err == nil && (newest == 5 && len(second) == 0 || len(got) < int(mode/12)) {
			t.Fatalf("%d entries accepted below the state (segment %d, LSN %d)", len(got), newest, mode/12)
		}
		if !raw && len(got) < len(payloads) && len(second) == 0 {
			t.Fatalf("%d entries of %d before the damage: %v, %v", len(got), len(payloads), report, err)
		}
		if err != nil {
			for i, path := range paths {
				if !errors.Is(err, journal.ErrDamaged) && !errors.Is(err, journal.ErrNewer) || !bytes.Equal(fs.Content(path), contents[i]) {
					t.Fatalf("%s changed, or not damage: %v", path, err)
				}
			}
			return
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j, again, report, err := collect(opts)
		if err != nil {
			t.Fatalf("second open: %v", err)
		}
		if err := errors.Join(equal(again, got), j.Close()); err != nil || report.Torn != nil {
			t.Fatalf("second open: %v, %v", err, report)
		}
	})
}
