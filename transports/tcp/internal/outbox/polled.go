package outbox

import "fmt"

// Writable says that the socket of a polled box may take bytes again, and writes what it takes.
func (b *Box) Writable() {
	b.mu.Lock()
	if b.flushing {
		b.again = true // who is writing may have found the socket full before this
		b.mu.Unlock()
		return
	}
	b.full = false
	b.flush()
}

// Overdue gives a polled box up whose peer has taken nothing for WriteTimeout while bytes were due, now being nanoseconds of any clock that only goes
// forward. It judges at its second call after that time at the latest.
func (b *Box) Overdue(now int64) {
	b.mu.Lock()
	if !b.full || b.dead != nil {
		b.mu.Unlock()
		return
	}
	if b.stalledFrom == 0 || b.stalledAt != b.flushed {
		b.stalledFrom, b.stalledAt = now, b.flushed
		b.mu.Unlock()
		return
	}
	if now-b.stalledFrom <= int64(b.writeTimeout) {
		b.mu.Unlock()
		return
	}
	// The kernel tells of room only when a third of its buffer is free; a peer that took less than that has still taken something. So look before judging.
	before := b.flushed
	b.full = false
	b.flush()
	b.mu.Lock()
	if b.full && b.flushed == before && b.dead == nil {
		b.die(fmt.Errorf("write: %w: no byte for %v", ErrSlowReader, b.writeTimeout))
		return
	}
	b.mu.Unlock()
}

// WaitWritten waits until no system call of this box is under way: with a dead box, the socket's descriptor can be given back then.
func (b *Box) WaitWritten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.writing {
		b.changed.Wait()
	}
}
