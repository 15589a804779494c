package outbox

import (
	"fmt"

	"tailgate/transports/tcp/internal/wire"
)

// Event appends an EVENT frame, h with the length of its payload, which leaves as an [Box.EndControl] does; the last one needs a Flush. It waits while
// so many bytes of events are not flushed that this one has no room, and returns false where the box takes no more of them.
func (b *Box) Event(h wire.Header, payload []byte) bool {
	h.Length = uint32(len(payload))
	size := wire.HeaderSize + len(payload)
	b.mu.Lock()
	for b.takesEvents() && b.eventsFull(size) {
		b.flush() // what is appended and not written would never make room
		b.mu.Lock()
		if b.takesEvents() && b.eventsFull(size) {
			b.changed.Wait()
		}
	}
	if !b.takesEvents() {
		b.mu.Unlock()
		return false
	}
	room := b.reserve(size)
	h.Put(room)
	copy(room[wire.HeaderSize:], payload)
	b.push(size)
	b.events += uint64(size)
	b.releaseControl()
	b.mu.Unlock()
	return true
}

func (b *Box) takesEvents() bool { return !b.eventsEnded && !b.finishing && b.dead == nil }

func (b *Box) eventsFull(size int) bool { return b.events > 0 && b.events+uint64(size) > b.eventRoom }

// EndEvents makes the box take no more events. A call of Event that waits returns.
func (b *Box) EndEvents() {
	b.mu.Lock()
	b.eventsEnded = true
	b.changed.Broadcast()
	b.mu.Unlock()
}

// flooded reports whether more waits for the peer than may, events apart. An event counts until the kernel has it whole, so the sum never falls short.
func (b *Box) flooded() bool { return b.released-b.flushed > b.limit+b.events }

// drown is the death of it, with what die says of the lock.
func (b *Box) drown() {
	b.die(fmt.Errorf("%w: %d bytes wait, at most %d may", ErrSlowReader, b.released-b.flushed, b.limit+b.events))
}

// WaitBelow waits until less than n bytes, events apart, are appended and not flushed, or the box takes nothing more.
func (b *Box) WaitBelow(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.roomFor(n) {
		b.changed.Wait()
	}
}

// Room reports whether less than n bytes, events apart, are appended and not flushed, or the box takes nothing more. Where not, OnReady is called once, when
// that has come true.
func (b *Box) Room(n uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaited = 0
	if b.roomFor(n) {
		return true
	}
	b.awaited = n
	return false
}

func (b *Box) roomFor(n uint64) bool {
	return b.appended-b.flushed < n+b.events || b.dead != nil || b.finishing
}

// woken tells those who wait for a change that there was one.
func (b *Box) woken() {
	b.changed.Broadcast()
	if b.awaited > 0 && b.roomFor(b.awaited) {
		b.awaited = 0
		b.onReady()
	}
}

// Unflushed is how many bytes are appended and not flushed, events included.
func (b *Box) Unflushed() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.appended - b.flushed
}

// WaitReleased waits until everything that was marked is released, or will never leave.
func (b *Box) WaitReleased() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.outstanding > 0 && b.dead == nil && !b.aborted {
		b.changed.Wait()
	}
}
