package journal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
)

const (
	stateName = "STATE"
	stateTemp = "STATE.tmp"

	noFile = "no such file" // what readState says then

	stateMagic     = "TGJSTA\r\n"
	stateNoteBytes = 80 // of the longest layout
	// stateSlotBytes keeps the two notes on pages of their own, so that a torn
	// write of one leaves the other alone.
	stateSlotBytes = 4096
	stateFileBytes = 2 * stateSlotBytes
)

// noteLayout is how a note is laid out: its format version, and its length, whose last
// four bytes are the CRC.
type noteLayout struct {
	version byte
	bytes   int
}

// noteLayouts are those that are read; the first is the one that is written. Version 1
// came to be written in two lengths: without first and term, which are 1 and 0 then, and
// as version 2, which differs from it in nothing else.
var noteLayouts = [...]noteLayout{{2, 80}, {1, 64}, {1, 80}}

// whole reports whether the CRC of a note of this layout is right.
func (l noteLayout) whole(src []byte) bool {
	return crc32.Checksum(src[:l.bytes-4], castagnoli) == binary.LittleEndian.Uint32(src[l.bytes-4:])
}

// identity tells one journal from another. It is drawn when a folder is first used.
type identity [16]byte

func newIdentity() (id identity) {
	_, _ = rand.Read(id[:]) // never fails, by its contract
	return id
}

func (id identity) String() string { return hex.EncodeToString(id[:]) }

// state is a note of what must be there at least. A log cannot show that its own
// end is missing; this can. The package comment has the byte table.
type state struct {
	id      identity
	number  uint64 // of the note, from 1; its parity is its slot
	newest  uint64 // first LSN of the newest segment taken into use; 0 is none
	size    int64  // bytes that its file has at least
	durable uint64 // LSN that is on the disk, and all below
	first   uint64 // LSN the log begins with; what was below was pruned
	term    uint64 // no writer with a lower one may open the log
	layout  int    // as it was read, of noteLayouts; 0 is the one that is written
}

// put writes the note into dst, which must hold stateNoteBytes, and returns how many of
// them it takes. A layout that is not written any more needs first 1 and term 0 where it
// has no place for them.
func (st state) put(dst []byte) int {
	layout := noteLayouts[st.layout]
	dst = dst[:layout.bytes]
	clear(dst)
	copy(dst, stateMagic)
	dst[8] = layout.version
	copy(dst[16:32], st.id[:])
	binary.LittleEndian.PutUint64(dst[32:], st.number)
	binary.LittleEndian.PutUint64(dst[40:], st.newest)
	binary.LittleEndian.PutUint32(dst[48:], uint32(st.size))
	binary.LittleEndian.PutUint64(dst[52:], st.durable)
	if layout.bytes == stateNoteBytes {
		binary.LittleEndian.PutUint64(dst[60:], st.first)
		binary.LittleEndian.PutUint64(dst[68:], st.term)
	}
	binary.LittleEndian.PutUint32(dst[layout.bytes-4:], crc32.Checksum(dst[:layout.bytes-4], castagnoli))
	return layout.bytes
}

// decodeState reads what put wrote. It reports false for anything else.
func decodeState(src []byte) (state, bool) {
	var st state
	if len(src) < stateNoteBytes {
		return st, false
	}
	if string(src[:8]) != stateMagic || !blank(src[9:16]) {
		return st, false
	}
	st.layout = slices.IndexFunc(noteLayouts[:], func(l noteLayout) bool { return l.version == src[8] && l.whole(src) })
	if st.layout < 0 {
		return st, false
	}
	copy(st.id[:], src[16:32])
	st.number = binary.LittleEndian.Uint64(src[32:])
	st.newest = binary.LittleEndian.Uint64(src[40:])
	st.size = int64(binary.LittleEndian.Uint32(src[48:]))
	st.durable = binary.LittleEndian.Uint64(src[52:])
	st.first = 1
	if noteLayouts[st.layout].bytes == stateNoteBytes {
		st.first = binary.LittleEndian.Uint64(src[60:])
		st.term = binary.LittleEndian.Uint64(src[68:])
	}
	return st, st.number > 0 && st.size <= MaxSegmentBytes && (st.newest == 0) == (st.size == 0) &&
		st.first > 0 && (st.newest == 0 || st.first <= st.newest)
}

// newerNote returns the format version of a note, or 0, if it is above what this program
// reads. A version byte that has rotted is none: with the right one in its place the CRC
// is right.
func newerNote(src []byte) byte {
	ours := noteLayouts[0]
	if string(src[:8]) != stateMagic || src[8] <= ours.version {
		return 0
	}
	b := bytes.Clone(src)
	for _, layout := range noteLayouts {
		if b[8] = layout.version; layout.whole(b) {
			return 0
		}
	}
	return src[8]
}

// readState returns the last whole note in dir. A file that no crash can have left
// (none at all, too short, no whole note) is told in bad; err is one of the file
// system, or ErrNewer: then the other note, if this program can read it, is not the last.
func readState(fs FS, dir string) (st state, bad string, err error) {
	path := filepath.Join(dir, stateName)
	f, err := fs.Open(path, false)
	if errors.Is(err, os.ErrNotExist) {
		return st, noFile, nil
	}
	if err != nil {
		return st, "", fmt.Errorf("journal: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return st, "", fmt.Errorf("journal: size of %s: %w", path, err)
	}
	for slot := range int64(2) {
		var note [stateNoteBytes]byte
		if _, err := f.ReadAt(note[:], slot*stateSlotBytes); err != nil && !errors.Is(err, io.EOF) {
			return st, "", fmt.Errorf("journal: read %s: %w", path, err)
		}
		if version := newerNote(note[:]); version != 0 {
			return state{}, "", newerThan(path, version, noteLayouts[0].version)
		}
		if got, ok := decodeState(note[:]); ok && got.number > st.number {
			st = got
		}
	}
	if size != stateFileBytes {
		return state{}, fmt.Sprintf("a file of %d bytes instead of %d", size, stateFileBytes), nil
	}
	if st.number == 0 {
		return st, "no note whose CRC32C is right", nil
	}
	return st, "", nil
}

// stateFile writes the notes. One caller at a time: Open, then the holder of noteMu.
type stateFile struct {
	fs   FS
	dir  string
	last state // what the file holds; number 0: there is none yet, or none that is valid
}

func (f *stateFile) id() identity { return f.last.id }

// write makes st the note of its number, durably, in its layout.
func (f *stateFile) write(st state) (err error) {
	path := filepath.Join(f.dir, stateName)
	file, err := f.fs.Open(path, true)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var note [stateNoteBytes]byte
	n := st.put(note[:])
	if _, err = file.WriteAt(note[:n], int64(st.number%2)*stateSlotBytes); err == nil {
		err = file.Sync()
	}
	if err != nil {
		return fmt.Errorf("journal: write %s: %w", path, err)
	}
	f.last = st
	return nil
}

// store makes st the last note, in place of the last but one. It is in place and not
// by a new file, so that a full disk does not stop it. In whatever layout the last note
// is, this one has the one that is written.
func (f *stateFile) store(st state) error {
	st.number, st.layout = f.last.number+1, 0
	return f.write(st)
}

// settle makes st both notes, so that no older one counts any more: st may promise
// less than they do. It creates the file if there is none that is valid.
func (f *stateFile) settle(st state) error {
	if f.last.number == 0 {
		return f.create(st)
	}
	// Once more what is there: after a failed sync the kernel may show a last note
	// that never reached the disk, and the other one is about to be overwritten. The same
	// bytes, in an older layout if they are: a crash that tears them changes nothing.
	if err := f.write(f.last); err != nil {
		return err
	}
	if err := f.store(st); err != nil {
		return err
	}
	return f.store(st)
}

func (f *stateFile) create(st state) (err error) {
	st.number = 2
	before := st
	before.number = 1
	content := make([]byte, stateFileBytes)
	st.put(content)
	before.put(content[stateSlotBytes:])

	path, temp := filepath.Join(f.dir, stateName), filepath.Join(f.dir, stateTemp)
	file, err := f.fs.Create(temp)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if _, err = file.WriteAt(content, 0); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.fs.Rename(temp, path)
	}
	if err == nil {
		err = f.fs.SyncDir(f.dir)
	}
	if err != nil {
		return fmt.Errorf("journal: create %s: %w", path, err)
	}
	f.last = st
	return nil
}
