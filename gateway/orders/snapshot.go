package orders

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
)

// ErrSnapshot means that what RestoreSnapshot read is not a snapshot of this version, or a damaged one.
var ErrSnapshot = errors.New("not a snapshot of this version")

// A snapshot is a sequence of blocks, each a length in four bytes (little endian) and so many bytes, at most maxBlock; a length of 0
// and the SHA-256 of all before end it. Records do not cross blocks, so that both sides need the memory of one block, whatever the
// size of the state. What can be reckoned from the rest (exposures, lists, tables of ids) is not in it.
const (
	snapshotVersion = 1
	snapshotMagic   = "tailgate orders\n"
	fullBlock       = 32 << 10
	maxBlock        = fullBlock + 40<<10 // the longest record has two sets of limits
)

// WriteSnapshot writes everything that decides how the state goes on. Equal states give equal bytes. The state must not be changed
// meanwhile; it is only read. An error is the writer's.
func (s *State) WriteSnapshot(w io.Writer) error {
	b := blockWriter{w: w, sum: sha256.New()}
	s.pass(&pass{flush: b.write})
	return b.end()
}

// Digest is the hash of the snapshot: equal for states that go on equally.
func (s *State) Digest() (digest [sha256.Size]byte) {
	b := blockWriter{w: io.Discard, sum: sha256.New()}
	s.pass(&pass{flush: b.write})
	b.sum.Sum(digest[:0])
	return digest
}

// RestoreSnapshot returns the state that WriteSnapshot wrote. The options may be larger than the ones that it was written under; where
// it does not fit them the error wraps ErrReplay, where it is none or is damaged ErrSnapshot, else it is the reader's. r is read up to
// the snapshot's end, and not further.
func RestoreSnapshot(options Options, r io.Reader) (*State, error) {
	s, err := New(options)
	if err != nil {
		return nil, err
	}
	b := blockReader{r: r, sum: sha256.New()}
	p := pass{reading: true, fill: b.read}
	if err := s.restore(&p); err != nil {
		return nil, err
	}
	if err := b.end(); err != nil {
		return nil, err
	}
	return s, nil
}

// blockWriter writes blocks, and nothing more after an error.
type blockWriter struct {
	w   io.Writer
	sum hash.Hash
	err error
}

func (b *blockWriter) write(block []byte) error {
	if len(block) > 0 {
		b.put(binary.LittleEndian.AppendUint32(nil, uint32(len(block))))
		b.put(block)
	}
	return b.err
}

func (b *blockWriter) put(part []byte) {
	if b.err != nil {
		return
	}
	b.sum.Write(part)
	_, b.err = b.w.Write(part)
}

func (b *blockWriter) end() error {
	b.put(make([]byte, 4))
	b.put(b.sum.Sum(nil))
	return b.err
}

// blockReader reads blocks into one buffer.
type blockReader struct {
	r      io.Reader
	sum    hash.Hash
	length [4]byte
	block  []byte
}

// read returns the next block, which is valid until the next call. It must not be called behind the last one.
func (b *blockReader) read() ([]byte, error) {
	if err := b.get(b.length[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(b.length[:])
	if n == 0 || n > maxBlock {
		return nil, fmt.Errorf("%w: a block of %d bytes, allowed are 1 to %d", ErrSnapshot, n, maxBlock)
	}
	if cap(b.block) < int(n) {
		b.block = make([]byte, n)
	}
	b.block = b.block[:n]
	if err := b.get(b.block); err != nil {
		return nil, err
	}
	return b.block, nil
}

func (b *blockReader) get(part []byte) error {
	if _, err := io.ReadFull(b.r, part); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: it breaks off", ErrSnapshot)
		}
		return fmt.Errorf("read the snapshot: %w", err)
	}
	b.sum.Write(part)
	return nil
}

func (b *blockReader) end() error {
	if err := b.get(b.length[:]); err != nil {
		return err
	}
	if b.length != [4]byte{} {
		return fmt.Errorf("%w: there is more behind what should be its end", ErrSnapshot)
	}
	want := b.sum.Sum(nil)
	got := make([]byte, len(want))
	if err := b.get(got); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: its checksum does not fit, so it is damaged", ErrSnapshot)
	}
	return nil
}

// pass goes over fields and either writes them or reads them, so that both sides cannot differ.
type pass struct {
	out   []byte
	flush func(block []byte) error

	reading bool
	in      reader
	fill    func() ([]byte, error)
	err     error
}

// record comes before each record: it ends a block that is full, or takes the next one when this one is used up. False after an error.
func (p *pass) record() bool {
	if !p.reading {
		if p.err == nil && len(p.out) >= fullBlock {
			p.err = p.flush(p.out)
			p.out = p.out[:0]
		}
		return p.err == nil
	}
	if p.err == nil && p.in.failed {
		p.err = fmt.Errorf("%w: a record is wrong", ErrSnapshot)
	}
	if p.err == nil && len(p.in.rest) == 0 {
		p.in.rest, p.err = p.fill()
	}
	return p.err == nil
}

// must fails a reading pass.
func (p *pass) must(ok bool) {
	if p.reading {
		p.in.must(ok)
	}
}

func (p *pass) uvarint(v *uint64) {
	if p.reading {
		*v = p.in.uvarint()
	} else {
		p.out = binary.AppendUvarint(p.out, *v)
	}
}

func (p *pass) varint(v *int64) {
	if p.reading {
		*v = p.in.varint()
	} else {
		p.out = binary.AppendVarint(p.out, *v)
	}
}

func (p *pass) bool(v *bool) {
	if p.reading {
		*v = p.in.bool()
	} else {
		p.out = appendBool(p.out, *v)
	}
}

// number passes a number of a smaller type, which must not be negative.
func number[T ~uint8 | ~uint16 | ~uint32 | ~int32 | ~int](p *pass, v *T) {
	wide := uint64(*v)
	p.uvarint(&wide)
	p.must(uint64(T(wide)) == wide && T(wide) >= 0)
	*v = T(wide)
}

func (p *pass) text(v *string, most int) {
	if p.reading {
		*v = string(p.in.text(most))
	} else {
		p.out = appendText(p.out, []byte(*v))
	}
}

func (p *pass) id(v *ID) {
	if p.reading {
		*v = p.in.id(true)
	} else {
		p.out = appendText(p.out, v.Bytes())
	}
}

func (p *pass) symbol(v *Symbol) {
	if p.reading {
		*v = p.in.symbol(true)
	} else {
		p.out = appendText(p.out, v.Bytes())
	}
}

func (p *pass) limits(v *Limits) {
	if p.reading {
		*v = *p.in.limits()
	} else {
		p.out = v.append(p.out)
	}
}

// times passes a count and then so many records.
func (p *pass) times(count int, one func(i int)) {
	if !p.record() {
		return
	}
	number(p, &count)
	for i := 0; i < count && p.record(); i++ {
		one(i)
	}
}
