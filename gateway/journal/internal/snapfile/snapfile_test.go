package snapfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"tailgate/gateway/journal/internal/snapfile"
)

// file is a file in memory.
type file []byte

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if more := int(off) + len(p) - len(*f); more > 0 {
		*f = append(*f, make([]byte, more)...)
	}
	return copy((*f)[off:], p), nil
}

var header = snapfile.Header{Salt: 7, LSN: 41, Term: 3, ID: [16]byte{1, 15: 9}}

// write makes a file of content, in writes of n bytes.
func write(t testing.TB, content []byte, n int) []byte {
	t.Helper()
	var f file
	w := snapfile.NewWriter(&f, header)
	for rest := content; len(rest) > 0; rest = rest[min(n, len(rest)):] {
		if _, err := w.Write(rest[:min(n, len(rest))]); err != nil {
			t.Fatal(err)
		}
	}
	h, err := w.Finish()
	if err != nil || h.Length != int64(len(content)) || h.FileBytes() != int64(len(f)) {
		t.Fatalf("%+v, %v, a file of %d bytes", h, err, len(f))
	}
	return f
}

func sample(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + i>>16)
	}
	return b
}

// TestRoundTrip writes contents around the size of a block, in pieces of several sizes:
// the pieces do not matter, and the content comes back.
func TestRoundTrip(t *testing.T) {
	for _, size := range []int{0, 1, snapfile.BlockBytes - 1, snapfile.BlockBytes, snapfile.BlockBytes + 1, 3 * snapfile.BlockBytes, 200_000} {
		content := sample(size)
		whole := write(t, content, size+1)
		for _, n := range []int{1000, snapfile.BlockBytes, snapfile.BlockBytes + 7} {
			if !bytes.Equal(whole, write(t, content, n)) {
				t.Fatalf("%d bytes in pieces of %d give another file", size, n)
			}
		}
		h, err := snapfile.Check(bytes.NewReader(whole), int64(len(whole)))
		if err != nil || h.LSN != header.LSN || h.Term != header.Term || h.ID != header.ID {
			t.Fatalf("%d bytes: %+v, %v", size, h, err)
		}
		got, err := io.ReadAll(snapfile.NewReader(bytes.NewReader(whole), h))
		if err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%d bytes: %d came back, %v", size, len(got), err)
		}
	}
}

// TestDamage: no byte can change, none be missing or added, and no block be another's,
// without being found; and no byte of a wrong block is given.
func TestDamage(t *testing.T) {
	const block = snapfile.BlockBytes + 4
	content := sample(3 * snapfile.BlockBytes)
	whole := write(t, content, 5000)
	bad := func(name string, b []byte) {
		t.Helper()
		if _, err := snapfile.Check(bytes.NewReader(b), int64(len(b))); !errors.Is(err, snapfile.ErrContent) {
			t.Fatalf("%s: %v", name, err)
		}
		h, err := snapfile.ReadHeader(bytes.NewReader(b))
		if err != nil {
			return
		}
		got, _ := io.ReadAll(snapfile.NewReader(bytes.NewReader(b), h))
		if !bytes.Equal(got, content[:len(got)]) || len(got)%snapfile.BlockBytes != 0 {
			t.Fatalf("%s: %d bytes given, not all of them right", name, len(got))
		}
	}
	for at := 0; at < len(whole); at += 1 + at/64*37 {
		b := bytes.Clone(whole)
		b[at] ^= 1 << (at % 8)
		bad(fmt.Sprintf("byte %d flipped", at), b)
	}
	for _, n := range []int{0, 1, 63, 64, 64 + block, len(whole) - 1} {
		bad(fmt.Sprintf("cut to %d", n), whole[:n])
	}
	bad("longer", append(bytes.Clone(whole), 0))
	swapped := bytes.Clone(whole)
	copy(swapped[64:], whole[64+block:64+2*block])
	copy(swapped[64+block:], whole[64:64+block])
	bad("two blocks swapped", swapped)
	other := header
	other.Salt++
	var f file
	w := snapfile.NewWriter(&f, other)
	if _, err := w.Write(sample(3 * snapfile.BlockBytes)[1:]); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	mixed := bytes.Clone(whole)
	copy(mixed[64+block:], f[64+block:64+2*block])
	bad("a block of another file", mixed)
}

// failing takes some writes and then no more.
type failing struct {
	file
	left int
}

func (f *failing) WriteAt(p []byte, off int64) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errDisk
	}
	return f.file.WriteAt(p, off)
}

var errDisk = errors.New("disk")

// TestFailedWrite: whoever does not look at the errors of Write gets no file, even if the
// disk works again.
func TestFailedWrite(t *testing.T) {
	for left := range 2 { // of the two blocks that three Writes complete
		f := &failing{left: left}
		w := snapfile.NewWriter(f, header)
		for range 3 {
			_, _ = w.Write(sample(snapfile.BlockBytes))
		}
		f.left = 100
		if _, err := w.Finish(); !errors.Is(err, errDisk) {
			t.Errorf("%d blocks written: finish: %v", left, err)
		}
		if _, err := snapfile.Check(bytes.NewReader(f.file), int64(len(f.file))); err == nil {
			t.Errorf("%d blocks written: called whole", left)
		}
	}
}

// FuzzCheck: what is called whole is what a Writer makes of its content.
func FuzzCheck(f *testing.F) {
	f.Add(write(f, nil, 1))
	f.Add(write(f, []byte("state"), 5))
	f.Add(write(f, sample(snapfile.BlockBytes+1), 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := snapfile.Check(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		content, err := io.ReadAll(snapfile.NewReader(bytes.NewReader(b), h))
		if err != nil {
			t.Fatal(err)
		}
		var again file
		w := snapfile.NewWriter(&again, h)
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Finish(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("written again it is another file: %v", err)
		}
	})
}
