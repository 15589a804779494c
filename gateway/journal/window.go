package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// windowBytes is what a reader holds of a file at a time: several of the largest
// records. It bounds the memory of a scan.
const windowBytes = 256 << 10

// window reads a file through a buffer that moves forward.
type window struct {
	file File
	path string
	size int64
	buf  []byte // its capacity is how much is held
	base int64  // offset of buf in the file
}

func openWindow(fs FS, path string, buf []byte) (*window, error) {
	f, err := fs.Open(path, false)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal: size of %s: %w", path, err), f.Close())
	}
	return &window{file: f, path: path, size: size, buf: buf[:0]}, nil
}

func (w *window) close() error { return w.file.Close() }

// forget makes the next call read the file again.
func (w *window) forget() { w.buf = w.buf[:0] }

// at returns the n bytes at off, fewer at the end of the file. They are valid
// until the next call.
func (w *window) at(off int64, n int) ([]byte, error) {
	n = int(max(0, min(int64(n), w.size-off)))
	if n == 0 {
		return nil, nil
	}
	if off < w.base || off+int64(n) > w.base+int64(len(w.buf)) {
		want := int(min(int64(cap(w.buf)), w.size-off))
		got, err := w.file.ReadAt(w.buf[:want], off)
		if got < want {
			return nil, fmt.Errorf("journal: read %d bytes at byte %d of %s: %w", want, off, w.path, errors.Join(err, io.ErrUnexpectedEOF))
		}
		w.base, w.buf = off, w.buf[:got]
	}
	return w.buf[off-w.base:][:n], nil
}

// record decodes the record at off; its length is 0 when there is none. The
// payload is valid until the next call.
func (w *window) record(off int64, salt uint32) (record, int, error) {
	b, err := w.at(off, recordHeaderBytes)
	if err != nil {
		return record{}, 0, err
	}
	n := recordLength(b)
	if n == 0 {
		return record{}, 0, nil
	}
	if b, err = w.at(off, n); err != nil {
		return record{}, 0, err
	}
	r, ok := decodeRecord(b, salt)
	if !ok {
		return record{}, 0, nil
	}
	return r, n, nil
}

// newerRecord returns the format version of the record at off, or 0, if it is above what
// this program reads. Only the checksum shows that it is a record, so one is found as long
// as that and the length are where they are in this version.
func (w *window) newerRecord(off int64, salt uint32) (version byte, err error) {
	b, err := w.at(off, maxRecordBytes)
	if err != nil || len(b) < recordHeaderBytes || b[4] <= formatVersion {
		return 0, err
	}
	n := int64(recordHeaderBytes) + int64(binary.LittleEndian.Uint32(b[8:]))
	if n > int64(len(b)) || crc32.Update(salt, castagnoli, b[4:n]) != binary.LittleEndian.Uint32(b) {
		return 0, nil
	}
	return b[4], nil
}

// lastByte returns the offset of the last byte from off on that is not zero, or
// off-1.
func (w *window) lastByte(off int64) (int64, error) {
	last := off - 1
	for off < w.size {
		b, err := w.at(off, cap(w.buf))
		if err != nil {
			return 0, err
		}
		if !blank(b) {
			i := len(b) - 1
			for b[i] == 0 {
				i--
			}
			last = off + int64(i)
		}
		off += int64(len(b))
	}
	return last, nil
}
