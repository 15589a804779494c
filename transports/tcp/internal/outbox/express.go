package outbox

import (
	"encoding/binary"

	"tailgate/transports/tcp/internal/wire"
)

// Express sends a frame without a payload before all answers that wait for their release, and does nothing where the box takes nothing more. What such an answer says
// of the connection's place in the queue for credit (y) is out of date behind it, so that becomes 0.
func (b *Box) Express(h wire.Header) {
	b.mu.Lock()
	if b.finishing || b.dead != nil {
		b.mu.Unlock()
		return
	}
	if b.appended == b.released || b.outstanding == 0 && !b.dirty {
		h.Put(b.reserve(wire.HeaderSize))
		b.push(wire.HeaderSize)
		b.release(b.appended, 0)
		b.flush()
		return
	}
	b.outdate()
	express := b.pool.Get(wire.HeaderSize)
	h.Put(express.B)
	express.written = wire.HeaderSize
	b.split()
	express.next, b.rel.next = b.rel.next, express
	b.rel, b.relOff = express, express.written
	b.debts.shift(b.released, wire.HeaderSize)
	b.released += wire.HeaderSize
	b.appended += wire.HeaderSize
	b.express += wire.HeaderSize
	b.flush()
}

// split makes the released bytes end with a buffer.
func (b *Box) split() {
	s := b.rel
	if b.relOff == s.written {
		return
	}
	// Both use the same memory. The rest owns it, since what is released is sent before.
	rest := &Buffer{B: s.B, class: s.class, written: s.written, flushed: b.relOff, boundary: b.relOff, next: s.next}
	s.class, s.written, s.next = unowned, b.relOff, rest
	if b.tail == s {
		b.tail = rest
	}
}

// outdate sets y of every answer that is not released to 0.
func (b *Box) outdate() {
	for s, at := b.rel, b.relOff; s != nil; {
		for at < s.written {
			h := wire.Parse(s.B[at:])
			if h.Type == wire.Response || h.Type == wire.Reject {
				binary.LittleEndian.PutUint16(s.B[at+wire.PlaceOfY:], 0)
			}
			at += wire.HeaderSize + int(h.Length)
		}
		if s = s.next; s != nil {
			at = s.boundary
		}
	}
}

// Held reports whether answers wait for their release.
func (b *Box) Held() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.outstanding > 0 || b.dirty
}
