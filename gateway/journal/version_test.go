package journal_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

// The bytes of a folder as a program of version 1 left it: two entries under term 3, at
// times 1000 and 1001, and a clean stop. A program that reads version 1 reads these.
const (
	pinnedSegment = "54474a524e4c0d0a01000000f240104001000000000000000300000000000000" +
		"0000000000000000fab2c68071c1bb97609baf4e1fa43e170000020096a97f09" +
		"ddf43bcd010100000200000001000000000000000300000000000000e80300000000000000000000000000006f62" +
		"9302227a010100000200000002000000000000000300000000000000e90300000000000000000000000000007275" +
		"4b9c46d601020000000000000200000000000000030000000000000000000000000000000200000000000000"
	pinnedNote4 = "54474a5354410d0a0100000000000000fab2c68071c1bb97609baf4e1fa43e17" +
		"04000000000000000100000000000000000002000200000000000000e4e080c6"
	pinnedNote3 = "54474a5354410d0a0100000000000000fab2c68071c1bb97609baf4e1fa43e17" +
		"030000000000000001000000000000000000020000000000000000003530a434"

	pinnedSegmentPath = "/log/00000000000000000001.seg"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	little     = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// layOut writes values one behind the other, as the tables of the package comment have them.
func layOut(values ...any) (b []byte) {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			b = append(b, v...)
		case []byte:
			b = append(b, v...)
		case byte:
			b = append(b, v)
		case uint32:
			b = little.AppendUint32(b, v)
		case int:
			b = little.AppendUint64(b, uint64(v))
		default:
			panic(fmt.Sprintf("%T has no place in a table", v))
		}
	}
	return b
}

// sealed is b with its CRC32C behind it.
func sealed(b []byte) []byte { return little.AppendUint32(b, crc32.Checksum(b, castagnoli)) }

// laidRecord is a record of version 1, term 3.
func laidRecord(salt uint32, kind byte, lsn, timeNs, mark int, payload string) []byte {
	b := layOut(byte(1), kind, byte(0), byte(0), uint32(len(payload)), lsn, 3, timeNs, mark, payload)
	return append(layOut(crc32.Update(salt, castagnoli, b)), b...)
}

// laidSegment is the segment that is pinned, of another journal and with another salt.
func laidSegment(id []byte, salt uint32) []byte {
	b := sealed(layOut("TGJRNL\r\n", byte(1), byte(0), byte(0), byte(0), salt, 1, 3, 0, id, uint32(journal.MinSegmentBytes)))
	b = append(b, laidRecord(salt, 1, 1, 1000, 0, "ob")...)
	b = append(b, laidRecord(salt, 1, 2, 1001, 0, "ru")...)
	b = append(b, laidRecord(salt, 2, 2, 0, 2, "")...)
	return append(b, make([]byte, journal.MinSegmentBytes-len(b))...)
}

// laidNote is a note of the journal's STATE file: version 1 in 64 bytes or in 80, or version 2.
func laidNote(version byte, size int, id []byte, number, newest, length, durable, first, term int) []byte {
	b := layOut("TGJSTA\r\n", version, make([]byte, 7), id, number, newest, uint32(length), durable)
	if size == stateNote {
		b = append(b, layOut(first, term)...)
	}
	return sealed(b)
}

func laidState(notes ...[]byte) []byte {
	b := make([]byte, 2*stateSlot)
	for _, note := range notes {
		copy(b[stateSlot*int(little.Uint64(note[32:])%2):], note)
	}
	return b
}

// older rewrites a STATE file as a program of version 1 would have written it, with notes
// of size bytes.
func older(t *testing.T, fs *journaltest.Disk, size int) {
	t.Helper()
	var notes [][]byte
	for slot := range 2 {
		b := fs.Content(statePath)[slot*stateSlot:][:stateNote]
		at := func(i int) int { return int(little.Uint64(b[i:])) }
		if size != stateNote && (at(60) != 1 || at(68) != 0) {
			t.Fatalf("%d bytes do not hold a log that begins with LSN %d and has term %d", size, at(60), at(68))
		}
		if again := laidNote(2, stateNote, b[16:32], at(32), at(40), int(little.Uint32(b[48:])), at(52), at(60), at(68)); !bytes.Equal(b, again) {
			t.Fatalf("a note is\n%x, want\n%x", b, again)
		}
		notes = append(notes, laidNote(1, size, b[16:32], at(32), at(40), int(little.Uint32(b[48:])), at(52), at(60), at(68)))
	}
	fs.SetContent(statePath, laidState(notes...))
}

// TestPinnedFolder: what version 1 wrote is read, and segments and records are still
// written so, to the byte. STATE is written in version 2.
func TestPinnedFolder(t *testing.T) {
	pinned := append(unhex(t, pinnedSegment), make([]byte, journal.MinSegmentBytes-len(pinnedSegment)/2)...)
	if laid := laidSegment(pinned[40:56], little.Uint32(pinned[12:])); !bytes.Equal(laid, pinned) {
		t.Fatalf("the table gives\n%x, pinned is\n%x", laid[:200], pinned[:200])
	}
	notes := laidState(laidNote(1, 64, pinned[40:56], 4, 1, journal.MinSegmentBytes, 2, 1, 0), laidNote(1, 64, pinned[40:56], 3, 1, journal.MinSegmentBytes, 0, 1, 0))
	if state := laidState(unhex(t, pinnedNote3), unhex(t, pinnedNote4)); !bytes.Equal(notes, state) {
		t.Fatalf("the table gives\n%x, pinned is\n%x", notes, state)
	}
	entries := []journal.Entry{{LSN: 1, Term: 3, TimeNs: 1000, Payload: []byte("ob")}, {LSN: 2, Term: 3, TimeNs: 1001, Payload: []byte("ru")}}

	old := journaltest.NewDisk()
	old.SetContent(pinnedSegmentPath, bytes.Clone(pinned))
	old.SetContent(statePath, bytes.Clone(notes))
	var seen []journal.Entry
	report, err := journal.Verify("/log", old, func(e journal.Entry) error {
		e.Payload = bytes.Clone(e.Payload)
		seen = append(seen, e)
		return nil
	})
	if err := errors.Join(err, equal(seen, entries)); err != nil || !report.CleanClose || report.DurableLSN != 2 || report.FirstLSN != 1 {
		t.Fatalf("verify: %v, %v", err, report)
	}
	if !bytes.Equal(old.Content(pinnedSegmentPath), pinned) || !bytes.Equal(old.Content(statePath), notes) {
		t.Fatal("verify has changed something")
	}

	fs := journaltest.NewDisk()
	opts := memOptions(fs, journal.SyncOS)
	opts.Term = 3
	synctest.Test(t, func(t *testing.T) {
		j, _, _ := open(t, opts)
		w := newReleased()
		for _, e := range entries {
			if _, err := j.Append(e.TimeNs, e.Payload); err != nil {
				t.Fatal(err)
			}
			j.Commit(w, 0)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		opts.FS = old
		j, got, _ := open(t, opts)
		if err := errors.Join(equal(got, entries), j.Close()); err != nil {
			t.Fatal(err)
		}
	})
	written := fs.Content(pinnedSegmentPath)
	id, salt := written[40:56], little.Uint32(written[12:])
	if laid := laidSegment(id, salt); !bytes.Equal(written, laid) {
		t.Errorf("segments are written as\n%x, pinned is\n%x", written[:200], laid[:200])
	}
	laid := laidState(laidNote(2, 80, id, 4, 1, journal.MinSegmentBytes, 2, 1, 3), laidNote(2, 80, id, 3, 1, journal.MinSegmentBytes, 0, 1, 3))
	if !bytes.Equal(fs.Content(statePath), laid) {
		t.Errorf("STATE is written as\n%x, pinned is\n%x", fs.Content(statePath), laid)
	}
	for slot := range 2 {
		if version := old.Content(statePath)[slot*stateSlot+8]; version != 2 {
			t.Errorf("after a start on the old folder note %d has version %d", slot, version)
		}
	}
}

// TestOlderState opens logs whose STATE is of version 1, and holds them to what it says.
func TestOlderState(t *testing.T) {
	for _, mode := range modes {
		for _, size := range []int{64, stateNote} {
			for _, closed := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					fs, entries := stoppedLog(t, mode, 50, closed)
					older(t, fs, size)
					short := fs.Killed(nil, 0)
					removeFile(t, short, short.Paths(".seg")[1])
					_, _, _, err := collect(memOptions(short, mode))
					if damage := (*journal.DamageError)(nil); !errors.As(err, &damage) || damage.LSN != 33 {
						t.Errorf("without the last segment: %v; want damage at LSN 33", err)
					}
					goesOn(t, short, mode, 33, entries[:32])
					if report, err := journal.Verify("/log", fs, nil); err != nil || report.LastLSN != 50 {
						t.Errorf("verify: %v, %v", err, report)
					}
					for range 2 {
						j, got, _ := open(t, memOptions(fs, mode))
						if err := errors.Join(equal(got, entries), j.Close()); err != nil {
							t.Fatal(err)
						}
					}
				})
			}
		}
	}
	// The longer one was written by a program that pruned, too.
	fs, opts, entries := keptLog(t, journal.SyncOS, false)
	older(t, fs, stateNote)
	j, got, report := open(t, opts)
	if err := errors.Join(equal(got, entries), j.Close()); err != nil || report.FirstLSN == 1 {
		t.Errorf("%v, %v", err, report)
	}
}

// TestUpgradeCrash stops the first start on an old folder at every call, with a note
// written up to a byte of it, and cuts the power there. Also where one note has
// rotted before, so that the other is all there is.
func TestUpgradeCrash(t *testing.T) {
	const none = 2
	rng := rand.New(rand.NewPCG(9, 9))
	for _, size := range []int{64, stateNote} {
		for rotted := range 3 {
			synctest.Test(t, func(t *testing.T) {
				fs, entries := stoppedLog(t, journal.SyncAlways, 34, rotted == none)
				older(t, fs, size)
				if rotted != none {
					state := bytes.Clone(fs.Content(statePath))
					clear(state[rotted*stateSlot:][:stateSlot])
					fs.SetContent(statePath, state)
				}
				images := 0
				fs.Intercept(oneAtATime(func(c journaltest.Call) *journaltest.Fault {
					after := []*journaltest.Disk{fs.PowerCut(rng), fs.Killed(&c, 0)}
					if c.Op == journaltest.Write && c.Path == statePath {
						for n := 1; n <= len(c.Data); n += every * (1 + n/9) {
							after = append(after, fs.Killed(&c, n))
						}
					}
					for i, after := range after {
						if t.Failed() {
							return nil
						}
						images++
						survives(t, after, memOptions(nil, journal.SyncAlways), promise{entries: entries, acked: uint64(len(entries))}, rng)
						if t.Failed() {
							t.Logf("notes of %d bytes, note %d rotted, stopped at call %d: %s %s, image %d", size, rotted, c.N, c.Op, c.Path, i)
						}
					}
					return nil
				}))
				j, got, _ := open(t, memOptions(fs, journal.SyncAlways))
				fs.Intercept(nil)
				if err := errors.Join(equal(got, entries), j.Close()); err != nil {
					t.Fatal(err)
				}
				if images < 60 {
					t.Fatalf("%d images: the start is too short", images)
				}
			})
		}
	}
}

// TestNewer puts one file of a newer version, of which this program knows nothing but
// where the version is, into a folder, whole or with damage before it. Nothing reads
// past it, calls it damaged, advises a cut, or cuts.
func TestNewer(t *testing.T) {
	log, opts, _ := keptLog(t, journal.SyncOS, true)
	segs, snaps := log.Paths(".seg"), log.Paths(".snap")
	noise := rand.NewChaCha8([32]byte{10})
	newer := func(path string, at, size int) func(fs *journaltest.Disk) {
		return func(fs *journaltest.Disk) {
			b := fs.Content(path)[at:]
			_, _ = noise.Read(b[9:size])
			b[8] = 3
		}
	}
	for name, change := range map[string]func(fs *journaltest.Disk){
		"first note":  newer(statePath, 0, 100),
		"second note": newer(statePath, stateSlot, 100),
		"both notes":  func(fs *journaltest.Disk) { newer(statePath, 0, 100)(fs); newer(statePath, stateSlot, 100)(fs) },
		"longer state": func(fs *journaltest.Disk) {
			newer(statePath, 0, 100)(fs)
			fs.SetContent(statePath, append(bytes.Clone(fs.Content(statePath)), 1))
		},
		"last segment":  newer(segs[3], 0, 1000),
		"an empty one":  func(fs *journaltest.Disk) { clear(fs.Content(segs[3])[64:]); newer(segs[3], 0, 64)(fs) },
		"newest snap":   newer(snaps[1], 0, 64),
		"older snap":    newer(snaps[0], 0, 64),
		"no state":      func(fs *journaltest.Disk) { removeFile(t, fs, statePath); newer(snaps[0], 0, 64)(fs) },
		"behind damage": func(fs *journaltest.Disk) { flip(fs, segs[2], 70); newer(segs[3], 0, 1000)(fs) },
		"a record": func(fs *journaltest.Disk) {
			b := fs.Content(segs[3])
			r := b[64:]
			n := 44 + int(little.Uint32(r[8:]))
			r[4], r[6] = 2, 9
			little.PutUint32(r, crc32.Update(little.Uint32(b[12:]), castagnoli, r[4:n]))
		},
	} {
		fs := log.Killed(nil, 0)
		change(fs)
		before := fs.Killed(nil, 0)
		opts.FS = fs
		_, _, _, openErr := collect(opts)
		_, verifyErr := journal.Verify("/log", fs, nil)
		_, cutErr := journal.Cut("/log", fs, 18)
		for what, err := range map[string]error{"open": openErr, "verify": verifyErr, "cut": cutErr} {
			if !errors.Is(err, journal.ErrNewer) || errors.Is(err, journal.ErrDamaged) || strings.Contains(err.Error(), "journal cut") ||
				!strings.Contains(err.Error(), "use the version that wrote it") {
				t.Errorf("%s: %s: %v; want ErrNewer and nothing else", name, what, err)
			}
		}
		if was, is := before.Paths(""), fs.Paths(""); !slices.Equal(was, is) {
			t.Errorf("%s: left are %v of %v", name, is, was)
		}
		for _, path := range before.Paths("") {
			if !bytes.Equal(before.Content(path), fs.Content(path)) {
				t.Errorf("%s: %s was changed", name, path)
			}
		}
	}
}
