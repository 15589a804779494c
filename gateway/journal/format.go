package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	// MaxPayloadBytes is the largest payload Append takes: 64 KiB. It bounds what
	// a reader must hold and what a damaged length field can ask for.
	MaxPayloadBytes = 64 << 10

	formatVersion      = 1 // of segments and records
	segmentHeaderBytes = 64
	recordHeaderBytes  = 44
	maxRecordBytes     = recordHeaderBytes + MaxPayloadBytes

	kindEntry     = 1
	kindCloseMark = 2
)

const segmentMagic = "TGJRNL\r\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segmentHeader is the first 64 bytes of a segment. The package comment has the
// byte table.
type segmentHeader struct {
	mode     SyncMode
	salt     uint32
	firstLSN uint64
	term     uint64
	durable  uint64
	id       identity
	size     int64 // of the file when it gets its name
}

// put writes the header into dst, which must hold segmentHeaderBytes.
func (h segmentHeader) put(dst []byte) {
	dst = dst[:segmentHeaderBytes]
	clear(dst)
	copy(dst, segmentMagic)
	dst[8] = formatVersion
	dst[9] = byte(h.mode)
	binary.LittleEndian.PutUint32(dst[12:], h.salt)
	binary.LittleEndian.PutUint64(dst[16:], h.firstLSN)
	binary.LittleEndian.PutUint64(dst[24:], h.term)
	binary.LittleEndian.PutUint64(dst[32:], h.durable)
	copy(dst[40:56], h.id[:])
	binary.LittleEndian.PutUint32(dst[56:], uint32(h.size))
	binary.LittleEndian.PutUint32(dst[60:], crc32.Checksum(dst[:60], castagnoli))
}

// decodeSegmentHeader reads what put wrote. The error says what is wrong with the
// bytes, without the file's name, which the caller has.
func decodeSegmentHeader(src []byte) (segmentHeader, error) {
	var h segmentHeader
	if len(src) < segmentHeaderBytes {
		return h, fmt.Errorf("segment header has %d bytes instead of %d", len(src), segmentHeaderBytes)
	}
	src = src[:segmentHeaderBytes]
	if string(src[:8]) != segmentMagic {
		return h, fmt.Errorf("segment header begins with %q instead of %q", src[:8], segmentMagic)
	}
	if got, want := crc32.Checksum(src[:60], castagnoli), binary.LittleEndian.Uint32(src[60:]); got != want {
		return h, fmt.Errorf("segment header has CRC32C %08x and contains %08x", got, want)
	}
	if src[8] != formatVersion {
		return h, fmt.Errorf("segment header has format version %d", src[8])
	}
	h.mode = SyncMode(src[9])
	if !h.mode.valid() || !blank(src[10:12]) {
		return h, fmt.Errorf("segment header has a value this program does not know")
	}
	h.salt = binary.LittleEndian.Uint32(src[12:])
	h.firstLSN = binary.LittleEndian.Uint64(src[16:])
	h.term = binary.LittleEndian.Uint64(src[24:])
	h.durable = binary.LittleEndian.Uint64(src[32:])
	copy(h.id[:], src[40:56])
	h.size = int64(binary.LittleEndian.Uint32(src[56:]))
	if h.firstLSN == 0 || h.durable >= h.firstLSN {
		return h, fmt.Errorf("segment header has first LSN %d and durable mark %d", h.firstLSN, h.durable)
	}
	if h.size < MinSegmentBytes || h.size > MaxSegmentBytes {
		return h, fmt.Errorf("segment header has segment size %d, which is not between %d and %d", h.size, MinSegmentBytes, MaxSegmentBytes)
	}
	return h, nil
}

// newerSegment returns the format version of a segment whose first bytes are src, or 0,
// if it is above what this program reads. Of a newer one only the magic and the place of
// the version are known. A version byte that has rotted is none: with the right one in its
// place the CRC is right.
func newerSegment(src []byte) byte {
	if len(src) < segmentHeaderBytes || string(src[:8]) != segmentMagic || src[8] <= formatVersion {
		return 0
	}
	b := bytes.Clone(src[:segmentHeaderBytes])
	b[8] = formatVersion
	if crc32.Checksum(b[:60], castagnoli) == binary.LittleEndian.Uint32(b[60:]) {
		return 0
	}
	return src[8]
}

// newerThan is the error of a file whose format version is above what this program reads.
func newerThan(path string, version, ours byte) error {
	return fmt.Errorf("%w: %s has format version %d, this one reads up to version %d. It is not damaged and nothing was changed: use the version that wrote it", ErrNewer, path, version, ours)
}

// record is a decoded record. Its payload points into the decoder's input.
type record struct {
	kind    byte
	lsn     uint64
	term    uint64
	timeNs  int64
	durable uint64
	payload []byte
}

// putRecord writes r into dst, which must hold recordHeaderBytes+len(r.payload).
func putRecord(dst []byte, salt uint32, r *record) {
	n := recordHeaderBytes + len(r.payload)
	dst = dst[:n]
	dst[4] = formatVersion
	dst[5] = r.kind
	dst[6], dst[7] = 0, 0
	binary.LittleEndian.PutUint32(dst[8:], uint32(len(r.payload)))
	binary.LittleEndian.PutUint64(dst[12:], r.lsn)
	binary.LittleEndian.PutUint64(dst[20:], r.term)
	binary.LittleEndian.PutUint64(dst[28:], uint64(r.timeNs))
	binary.LittleEndian.PutUint64(dst[36:], r.durable)
	copy(dst[recordHeaderBytes:], r.payload)
	binary.LittleEndian.PutUint32(dst, crc32.Update(salt, castagnoli, dst[4:n]))
}

// recordLength returns the whole length of the record whose header src begins
// with, or 0 if those bytes cannot be the header of a record. It is cheap and
// proves nothing: only the checksum does.
func recordLength(src []byte) int {
	if len(src) < recordHeaderBytes || src[4] != formatVersion || src[6] != 0 || src[7] != 0 {
		return 0
	}
	n := binary.LittleEndian.Uint32(src[8:])
	if n > MaxPayloadBytes {
		return 0
	}
	if src[5] != kindEntry && (src[5] != kindCloseMark || n != 0) {
		return 0
	}
	return recordHeaderBytes + int(n)
}

// decodeRecord decodes the record src begins with. It reports false for anything
// that putRecord cannot have written with this salt, truncation included.
func decodeRecord(src []byte, salt uint32) (record, bool) {
	n := recordLength(src)
	if n == 0 || n > len(src) {
		return record{}, false
	}
	if crc32.Update(salt, castagnoli, src[4:n]) != binary.LittleEndian.Uint32(src) {
		return record{}, false
	}
	return record{
		kind:    src[5],
		lsn:     binary.LittleEndian.Uint64(src[12:]),
		term:    binary.LittleEndian.Uint64(src[20:]),
		timeNs:  int64(binary.LittleEndian.Uint64(src[28:])),
		durable: binary.LittleEndian.Uint64(src[36:]),
		payload: src[recordHeaderBytes:n:n],
	}, true
}

// blank reports whether b holds zeros only.
func blank(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
