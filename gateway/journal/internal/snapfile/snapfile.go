// Package snapfile is the format of a snapshot's file: a stream of bytes, cut into
// blocks that carry a checksum each, behind a header that says of which journal and
// of which log sequence number it is.
//
// It knows bytes and positions only: no folders and names, nothing of when a file is
// durable, and nothing of what the content means.
//
// All integers are little endian; CRC32C is the Castagnoli polynomial (RFC 3720,
// appendix B.4). The header is 64 bytes:
//
//	 0   8  magic "TGJSNP\r\n"
//	 8   1  format version (1)
//	 9   3  zero
//	12   4  salt, random: the CRC of every block starts from it
//	16   8  LSN: the content holds all up to it
//	24   8  term of the writer
//	32   8  content length in bytes
//	40  16  identity of the journal
//	56   4  content bytes of a block, the last one excepted (65536)
//	60   4  CRC32C of bytes 0 to 59
//
// Blocks follow without padding: up to 65536 bytes of content, then the CRC32C of the
// block's number (8 bytes, from 0) and its content, starting from the salt. So a block
// of another snapshot, or in another place, is told from the right one. Nothing
// follows the last block.
package snapfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	// HeaderBytes is where the first block begins.
	HeaderBytes = 64
	// BlockBytes is how much content a block holds: what a reader must hold at a time.
	BlockBytes = 64 << 10
	// MaxLength bounds the content, so that no length overflows: one pebibyte.
	MaxLength = 1 << 50

	version  = 1
	magic    = "TGJSNP\r\n"
	crcBytes = 4
)

// ErrContent says that the bytes are not those of a whole snapshot. Any other error of reading is
// one of the file.
var ErrContent = errors.New("not a whole snapshot")

// ErrNewer says that the file has a format version above what this program reads. Of such
// a file only the magic and the place of the version are known.
var ErrNewer = errors.New("a newer format of snapshots")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is what a file says of itself.
type Header struct {
	Salt   uint32
	LSN    uint64
	Term   uint64
	Length int64 // bytes of content
	ID     [16]byte
}

// Put writes the header into dst, which must hold HeaderBytes.
func (h Header) Put(dst []byte) {
	dst = dst[:HeaderBytes]
	clear(dst)
	copy(dst, magic)
	dst[8] = version
	binary.LittleEndian.PutUint32(dst[12:], h.Salt)
	binary.LittleEndian.PutUint64(dst[16:], h.LSN)
	binary.LittleEndian.PutUint64(dst[24:], h.Term)
	binary.LittleEndian.PutUint64(dst[32:], uint64(h.Length))
	copy(dst[40:56], h.ID[:])
	binary.LittleEndian.PutUint32(dst[56:], BlockBytes)
	binary.LittleEndian.PutUint32(dst[60:], crc32.Checksum(dst[:60], castagnoli))
}

// DecodeHeader reads what Put wrote. The error says what is wrong with the bytes,
// without the file's name, which the caller has.
func DecodeHeader(src []byte) (Header, error) {
	var h Header
	if len(src) < HeaderBytes {
		return h, fmt.Errorf("%w: the header has %d bytes instead of %d", ErrContent, len(src), HeaderBytes)
	}
	src = src[:HeaderBytes]
	if string(src[:8]) != magic {
		return h, fmt.Errorf("%w: the header begins with %q instead of %q", ErrContent, src[:8], magic)
	}
	if got, want := crc32.Checksum(src[:60], castagnoli), binary.LittleEndian.Uint32(src[60:]); got != want || src[8] > version {
		// A version byte that has rotted: with the right one in its place the CRC is right.
		b := bytes.Clone(src[:60])
		b[8] = version
		if src[8] > version && crc32.Checksum(b, castagnoli) != want {
			return h, fmt.Errorf("%w: version %d, this program reads up to version %d", ErrNewer, src[8], version)
		}
		return h, fmt.Errorf("%w: the header has CRC32C %08x and contains %08x", ErrContent, got, want)
	}
	if src[8] != version {
		return h, fmt.Errorf("%w: format version %d", ErrContent, src[8])
	}
	h.Salt = binary.LittleEndian.Uint32(src[12:])
	h.LSN = binary.LittleEndian.Uint64(src[16:])
	h.Term = binary.LittleEndian.Uint64(src[24:])
	h.Length = int64(binary.LittleEndian.Uint64(src[32:]))
	copy(h.ID[:], src[40:56])
	if src[9]|src[10]|src[11] != 0 || binary.LittleEndian.Uint32(src[56:]) != BlockBytes || h.LSN == 0 || h.Length < 0 || h.Length > MaxLength {
		return h, fmt.Errorf("%w: the header has a value this program does not know", ErrContent)
	}
	return h, nil
}

// FileBytes is the size of the whole file.
func (h Header) FileBytes() int64 {
	return HeaderBytes + h.Length + blocks(h.Length)*crcBytes
}

func blocks(length int64) int64 { return (length + BlockBytes - 1) / BlockBytes }

func offset(block int64) int64 { return HeaderBytes + block*(BlockBytes+crcBytes) }

func checksum(salt uint32, block int64, content []byte) uint32 {
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], uint64(block))
	return crc32.Update(crc32.Update(salt, castagnoli, number[:]), castagnoli, content)
}

// Writer cuts what is written to it into blocks of dst. Not safe for concurrent use.
type Writer struct {
	dst    io.WriterAt
	header Header
	block  []byte // content of the block that is being filled
	number int64
	err    error // the first one; nothing is written after it
}

// NewWriter returns a writer of a file from its first byte on. The length in h is
// ignored.
func NewWriter(dst io.WriterAt, h Header) *Writer {
	h.Length = 0
	return &Writer{dst: dst, header: h, block: make([]byte, 0, BlockBytes+crcBytes)}
}

// Write adds content. An error is one of dst and leaves the file of no use.
func (w *Writer) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if len(w.block) == BlockBytes {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
		k := min(len(p), BlockBytes-len(w.block))
		w.block = append(w.block, p[:k]...)
		p, n = p[k:], n+k
	}
	return n, nil
}

func (w *Writer) flush() error {
	content := len(w.block)
	if content == 0 {
		return nil
	}
	if w.err == nil && w.header.Length+int64(content) > MaxLength {
		w.err = fmt.Errorf("the content is larger than %d bytes", int64(MaxLength))
	}
	if w.err == nil {
		b := binary.LittleEndian.AppendUint32(w.block, checksum(w.header.Salt, w.number, w.block))
		_, w.err = w.dst.WriteAt(b, offset(w.number))
	}
	if w.err != nil {
		return w.err
	}
	w.header.Length += int64(content)
	w.number++
	w.block = w.block[:0]
	return nil
}

// Finish writes the last block and then the header, without which the file is not
// valid. Nothing may be written after it.
func (w *Writer) Finish() (Header, error) {
	if err := errors.Join(w.flush(), w.err); err != nil {
		return w.header, err
	}
	var b [HeaderBytes]byte
	w.header.Put(b[:])
	_, err := w.dst.WriteAt(b[:], 0)
	return w.header, err
}

// ReadHeader reads the header of a file.
func ReadHeader(src io.ReaderAt) (Header, error) {
	var b [HeaderBytes]byte
	n, err := src.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Header{}, err
	}
	return DecodeHeader(b[:n])
}

// Check reads a whole file of the given size and says what is wrong with it.
func Check(src io.ReaderAt, size int64) (Header, error) {
	h, err := ReadHeader(src)
	if err != nil {
		return h, err
	}
	if size != h.FileBytes() {
		return h, fmt.Errorf("%w: the file has %d bytes instead of %d", ErrContent, size, h.FileBytes())
	}
	_, err = io.Copy(io.Discard, NewReader(src, h))
	return h, err
}

// Reader gives the content, each block only after its checksum was right. Not safe for
// concurrent use.
type Reader struct {
	src    io.ReaderAt
	header Header
	buf    []byte
	rest   []byte // of the block in buf
	number int64  // of the next block
	err    error
}

// NewReader returns a reader of the content of the file with header h.
func NewReader(src io.ReaderAt, h Header) *Reader {
	return &Reader{src: src, header: h, buf: make([]byte, BlockBytes+crcBytes)}
}

// Read implements io.Reader. An error but io.EOF names the block that is not right;
// nothing of it, or behind it, was or will be given.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.rest) == 0 && r.err == nil {
		r.err = r.next()
	}
	if r.err != nil {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *Reader) next() error {
	left := r.header.Length - r.number*BlockBytes
	if left <= 0 {
		return io.EOF
	}
	n := min(left, BlockBytes)
	b := r.buf[:n+crcBytes]
	if got, err := r.src.ReadAt(b, offset(r.number)); got < len(b) {
		return fmt.Errorf("read block %d at byte %d: %w", r.number, offset(r.number), errors.Join(err, io.ErrUnexpectedEOF))
	}
	if got, want := checksum(r.header.Salt, r.number, b[:n]), binary.LittleEndian.Uint32(b[n:]); got != want {
		return fmt.Errorf("%w: block %d at byte %d has CRC32C %08x and contains %08x", ErrContent, r.number, offset(r.number), got, want)
	}
	r.rest = b[:n]
	r.number++
	return nil
}
