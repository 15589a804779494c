// Package outbox is the sending half of a connection: a bounded, locked out-buffer of frames, whose bytes leave in order, without anybody
// waiting for the peer.
//
// A frame goes through three positions, counted in bytes since the start: appended (encoded into the buffer), released (allowed to leave) and
// flushed (taken by the kernel). Whoever releases also writes, once and without blocking; what the kernel does not take is left to a writer
// goroutine that exists only while the socket is full (always where there is no raw socket: under TLS), or, in a polled box, to its owner's event loop. At
// most one goroutine writes at a time, and it does so outside the lock, so that neither who appends nor who releases waits for a system call of another.
//
// Events are frames that nobody asked for one by one, so no credit bounds them: a box counts their bytes apart, and whoever appends them waits for room of
// their own. What is said below of too much that waits is about everything else, as if there were none.
//
// What an answer has taken of something that is scarce comes back when the kernel has it: see [Box.Owe].
//
// The package knows frames as far as it must: it sets the stamp of a RESPONSE when it is released, and counts the bytes of an EVENT. It must never know sessions, operations or what an order means.
package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"tailgate/transports/tcp/internal/wire"
)

// ErrSlowReader is what a box dies of when its peer does not take what it is sent.
var ErrSlowReader = errors.New("the peer does not take its answers")

// ErrClosed is what a box dies of when its owner ends it.
var ErrClosed = errors.New("closed")

// segmentSize is the least buffer that frames are collected in, and about how much one write carries.
const segmentSize = 16 << 10

// maxPieces bounds one write, in buffers.
const maxPieces = 16

// Box is the out-buffer of one connection. Safe for concurrent use; Begin and End frame one append. Its lock is a leaf: nothing is called while it
// is held but the pool and, outside of writes, nothing that can wait.
type Box struct {
	pool         *Pool
	conn         net.Conn        // what carries the bytes
	socket       net.Conn        // the connection below, whose Close never waits
	raw          syscall.RawConn // nil: the writer goroutine writes, blocking
	limit        uint64          // most bytes released and not flushed, events apart
	eventRoom    uint64          // most bytes of events appended and not flushed
	writeTimeout time.Duration
	onDeath      func(error) // called once, without the lock, on the goroutine that found out
	onFlushed    func(Debt)
	onReady      func()
	polled       bool
	stayOpen     bool

	mu          sync.Mutex
	changed     sync.Cond // flushed went up, or the state changed
	head, tail  *Buffer   // frames not flushed yet, in order
	rel         *Buffer   // where the released bytes end: B[:relOff] of rel, nil with an empty queue
	relOff      int
	appended    uint64
	released    uint64
	flushed     uint64
	express     uint64 // bytes of Express frames that were put before others; all of them are released
	events      uint64 // bytes of EVENT frames appended and not wholly flushed
	eventsEnded bool   // no more of them
	outstanding int    // marks taken and not released
	debts       debts  // what is owed for answers that are not flushed
	settling    int    // goroutines that are giving settled ones to onFlushed
	settlers    int    // and those that wait for them
	awaited     uint64 // onReady is due when less than this is not flushed; 0 = is not asked for
	full        bool   // polled: the socket takes nothing until Writable
	again       bool   // polled: Writable came while somebody wrote
	stalledAt   uint64 // polled: flushed at stalledSince
	stalledFrom int64  // polled: when Overdue first saw it so; 0 = it has not
	dirty       bool   // answers appended since the last mark
	flushing    bool   // somebody has the writer's role
	writing     bool   // and is in a system call, outside the lock
	finishing   bool   // takes nothing more; done when all is flushed
	aborted     bool   // finishing, and marks mean nothing any more
	dead        error
	done        chan struct{} // closed when finished or dead
	doneClosed  bool

	// Owned by whoever has flushing.
	pieces    [][]byte
	room      [maxPieces][]byte
	want      int
	wrote     int
	wroteErr  error
	writeOnce func(fd uintptr) bool
	writeMore func(fd uintptr) bool
}

// Config is what a box needs. All fields but EventRoom, Raw, OnDeath and StayOpen are required.
type Config struct {
	Pool         *Pool
	Conn         net.Conn
	Raw          syscall.RawConn // for writes that do not block, see [Raw]; nil = a goroutine writes, blocking
	Limit        uint64          // most bytes released and not taken by the kernel, events apart; beyond it the peer is a slow reader
	EventRoom    uint64          // most bytes of events appended and not taken by the kernel, or one event; see [Box.Event]
	WriteTimeout time.Duration   // without any byte taken while some are due
	OnDeath      func(error)     // why the connection was given up; may be called on any goroutine

	// OnFlushed is called for each Owe, once the kernel has taken what it stands behind, or never will: without the lock, on any goroutine, in no order.
	OnFlushed func(Debt)
	// OnReady is what Room promises; of a polled box it also says that Writable is to be called, which nothing else may tell. It is called with the lock
	// held, so it must not call the box, and must not wait.
	OnReady func()
	// Polled says that the owner polls the socket: while it is full, no goroutine waits for it, and the owner calls Writable when it takes bytes again, and
	// Overdue now and then.
	Polled bool
	// StayOpen leaves the socket open when a write fails because the peer is gone, so that what the peer said before can still be read. The owner
	// closes it.
	StayOpen bool
}

// New returns an empty box. Without a raw socket it starts the writer goroutine, which ends when the box is finished or dead.
func New(config Config) *Box {
	b := &Box{
		pool: config.Pool, conn: config.Conn, socket: config.Conn, raw: config.Raw, limit: config.Limit, eventRoom: config.EventRoom,
		writeTimeout: config.WriteTimeout, onDeath: config.OnDeath, onFlushed: config.OnFlushed, onReady: config.OnReady, polled: config.Polled,
		stayOpen: config.StayOpen, done: make(chan struct{}),
	}
	if below, ok := config.Conn.(interface{ NetConn() net.Conn }); ok {
		b.socket = below.NetConn()
	}
	b.changed.L = &b.mu
	b.writeOnce, b.writeMore = b.once, b.more // prepared, so that a write allocates nothing
	if b.raw == nil {
		go b.writeBlocking()
	}
	return b
}

// Begin returns n bytes of room for one frame and locks the box; End must follow. It returns nil, unlocked, where the box takes nothing more.
func (b *Box) Begin(n int) []byte {
	b.mu.Lock()
	if b.finishing || b.dead != nil {
		b.mu.Unlock()
		return nil
	}
	return b.reserve(n)
}

func (b *Box) reserve(n int) []byte {
	if b.tail == nil || len(b.tail.B)-b.tail.written < n {
		b.link(b.pool.Get(max(n, segmentSize)))
	}
	return b.tail.B[b.tail.written : b.tail.written+n]
}

// link makes buf the last of the queue.
func (b *Box) link(buf *Buffer) {
	if b.tail == nil {
		b.head, b.rel, b.relOff = buf, buf, buf.boundary
	} else {
		b.tail.next = buf
	}
	b.tail = buf
}

// EndAnswer appends the first n bytes of the room, one frame that must wait for a mark to be released.
func (b *Box) EndAnswer(n int) {
	b.push(n)
	b.dirty = true
	b.mu.Unlock()
}

// EndControl appends the first n bytes of the room, one frame that leaves as soon as everything before it may, with the next Flush or
// Release. It returns the position behind the frame.
func (b *Box) EndControl(n int) (end uint64) {
	b.push(n)
	b.releaseControl()
	end = b.appended
	b.mu.Unlock()
	return end
}

// Adopt appends buf.B[from:to], one frame that must wait for a mark as with EndAnswer, without copying it. The box owns the buffer from then on. It
// returns false, and takes nothing, where the box takes nothing more.
func (b *Box) Adopt(buf *Buffer, from, to int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finishing || b.dead != nil {
		return false
	}
	buf.written, buf.flushed, buf.boundary = to, from, from
	b.link(buf)
	b.appended += uint64(to - from)
	b.dirty = true
	return true
}

// Cancel gives the room back unused.
func (b *Box) Cancel() { b.mu.Unlock() }

func (b *Box) push(n int) {
	b.tail.written += n
	b.appended += uint64(n)
}

// releaseControl lets frames go that wait for nobody.
func (b *Box) releaseControl() {
	if b.outstanding == 0 && !b.dirty {
		b.release(b.appended, 0)
	}
}

// Mark ends a batch of answers and returns the position to release them by. Exactly one Release or Abort must follow for each.
func (b *Box) Mark() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dirty = false
	b.outstanding++
	return b.appended - b.express // what comes before it later must not move it
}

// Release lets the answers up to mark go, stamped with now (nanoseconds), and writes what the socket takes at once. It never waits for the peer.
func (b *Box) Release(mark uint64, now int64) {
	b.mu.Lock()
	if b.outstanding--; b.outstanding == 0 {
		b.changed.Broadcast()
	}
	if b.dead == nil && !b.aborted {
		b.release(mark+b.express, uint64(now))
		b.releaseControl()
	}
	b.flush()
}

// release moves the released position to a frame boundary at or before appended.
func (b *Box) release(to, now uint64) {
	for b.released < to {
		if b.relOff == b.rel.written {
			b.rel, b.relOff = b.rel.next, b.rel.next.boundary
		}
		frame := b.rel.B[b.relOff:]
		h := wire.Parse(frame)
		if h.Type == wire.Response && h.X != 0 {
			binary.LittleEndian.PutUint64(frame[wire.HeaderSize+int(h.X):], now)
		}
		size := wire.HeaderSize + int(h.Length)
		b.relOff += size
		b.released += uint64(size)
	}
}

// Flush writes what is released and what the socket takes at once.
func (b *Box) Flush() {
	b.mu.Lock()
	b.flush()
}

// flush is called with the lock and returns without it.
func (b *Box) flush() {
	if b.raw == nil {
		b.changed.Broadcast()
		b.settle()
		return
	}
	if b.flushing || b.full || b.dead != nil || b.flushed == b.released {
		b.settle()
		return
	}
	b.flushing = true
	for range 2 { // what others release meanwhile is written too, but not without end: this may be the journal's goroutine
		b.gather()
		b.mu.Unlock()
		err := b.raw.Write(b.writeOnce)
		if err == nil {
			err = b.wroteErr
		}
		b.mu.Lock()
		if b.advance(b.wrote); err != nil {
			b.flushing = false
			b.die(fmt.Errorf("write: %w", err))
			return
		}
		if b.flushed == b.released || b.dead != nil {
			b.flushing = false
			b.settle()
			return
		}
		if b.wrote < b.want && !b.again {
			break
		}
		b.again = false
	}
	if b.flooded() {
		b.flushing = false
		b.drown()
		return
	}
	if b.polled {
		b.flushing, b.full, b.stalledFrom = false, true, 0
		if b.wrote == b.want { // it is not full, others release faster than this: no event will come of it
			b.onReady()
		}
		b.settle()
		return
	}
	go b.writeRest() // it has flushing now
	b.leave()
}

// settle looks at what a change of state means, and unlocks.
func (b *Box) settle() {
	if b.dead == nil && b.flooded() {
		b.drown()
		return
	}
	if b.finishing && b.flushed == b.appended && !b.flushing {
		b.closeDone()
	}
	b.leave()
}

func (b *Box) closeDone() {
	if !b.doneClosed {
		b.doneClosed = true
		close(b.done)
	}
}

// gather collects what is released and not flushed, at most maxPieces buffers.
func (b *Box) gather() {
	b.pieces, b.want, b.wrote, b.wroteErr = b.room[:0], 0, 0, nil // a write that is never made leaves nothing behind
	for s := b.head; s != nil && len(b.pieces) < maxPieces; s = s.next {
		end := s.written
		if s == b.rel {
			end = b.relOff
		}
		if end > s.flushed {
			b.pieces = append(b.pieces, s.B[s.flushed:end])
			b.want += end - s.flushed
		}
		if s == b.rel {
			break
		}
	}
	b.writing = b.want > 0
}

// advance ends a write: it counts n bytes as taken by the kernel and puts buffers back that are through.
func (b *Box) advance(n int) {
	clear(b.pieces)
	b.writing = false
	b.flushed += uint64(n) // in a dead box too: what has left has left
	defer b.woken()
	if n == 0 || b.dead != nil {
		return
	}
	for n > 0 {
		s := b.head
		end := s.written
		if s == b.rel {
			end = b.relOff
		}
		k := min(n, end-s.flushed)
		s.flushed += k
		n -= k
		for s.flushed-s.boundary >= wire.HeaderSize {
			h := wire.Parse(s.B[s.boundary:])
			if s.boundary+wire.HeaderSize+int(h.Length) > s.flushed {
				break
			}
			s.boundary += wire.HeaderSize + int(h.Length)
			if h.Type == wire.Event {
				b.events -= wire.HeaderSize + uint64(h.Length)
			}
		}
		if s.flushed < s.written {
			break
		}
		if b.head = s.next; b.head == nil {
			b.tail, b.rel = nil, nil
		} else if b.rel == s {
			b.rel, b.relOff = b.head, b.head.boundary
		}
		s.next = nil
		b.pool.Put(s)
	}
}

// once is the body of one non-blocking write.
func (b *Box) once(fd uintptr) bool {
	b.wrote, b.wroteErr = tryWrite(fd, b.pieces)
	return true
}

// writeRest is the writer goroutine while the socket is full. It holds flushing from the start and gives it up when all is flushed.
func (b *Box) writeRest() {
	for {
		before := b.progress()
		_ = b.socket.SetWriteDeadline(time.Now().Add(b.writeTimeout)) // fails on a closed connection only, and then the write says so
		err := b.raw.Write(b.writeMore)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The kernel wakes a writer only when a third of its buffer is free; a peer that took less than that has still taken something. So look
			// before judging.
			_ = b.socket.SetWriteDeadline(time.Now().Add(b.writeTimeout))
			b.mu.Lock()
			b.gather()
			b.mu.Unlock()
			if err = b.raw.Write(b.writeOnce); err == nil {
				err = b.wroteErr
			}
			b.mu.Lock()
			b.advance(b.wrote)
			b.leave()
			if err == nil && b.progress() == before {
				err = fmt.Errorf("%w: no byte for %v", ErrSlowReader, b.writeTimeout)
			}
		} else if err == nil {
			err = b.wroteErr
		}
		b.mu.Lock()
		switch {
		case b.dead != nil:
			b.flushing = false
			b.leave()
			return
		case err != nil:
			b.flushing = false
			b.die(fmt.Errorf("write: %w", err))
			return
		case b.flushed == b.released:
			// Before flushing is given up: with it, the next write may start, and it must not meet this deadline.
			_ = b.socket.SetWriteDeadline(time.Time{})
			b.flushing = false
			b.settle()
			return
		}
		b.leave()
	}
}

// more writes and, with the socket full, asks to be called again when there is room.
func (b *Box) more(fd uintptr) bool {
	b.mu.Lock()
	if b.dead != nil {
		b.mu.Unlock()
		return true
	}
	b.gather()
	b.mu.Unlock()
	if b.want == 0 {
		return true
	}
	b.wrote, b.wroteErr = tryWrite(fd, b.pieces)
	b.mu.Lock()
	b.advance(b.wrote)
	rest := b.flushed != b.released
	b.leave()
	// After progress the loop comes round for a fresh deadline, and finds the socket full or not.
	return b.wroteErr != nil || b.wrote > 0 || !rest
}

func (b *Box) progress() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flushed
}

// writeBlocking is the writer goroutine of a connection without a raw socket. It always has flushing while it writes.
func (b *Box) writeBlocking() {
	b.mu.Lock()
	for {
		for b.dead == nil && b.flushed == b.released {
			if b.finishing && b.flushed == b.appended {
				b.closeDone()
				b.mu.Unlock()
				return
			}
			b.changed.Wait()
		}
		if b.dead != nil {
			b.mu.Unlock()
			return
		}
		b.flushing = true
		b.gather()
		piece := b.pieces[0]
		piece = piece[:min(len(piece), segmentSize)] // a TLS record, so that the timeout is for some progress and not for all of it
		b.mu.Unlock()
		_ = b.conn.SetWriteDeadline(time.Now().Add(b.writeTimeout))
		n, err := b.conn.Write(piece)
		b.mu.Lock()
		b.advance(n)
		b.flushing = false
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = fmt.Errorf("%w: no byte for %v", ErrSlowReader, b.writeTimeout)
			}
			b.die(fmt.Errorf("write: %w", err))
			return
		}
		if b.debts.due(b.flushed) {
			b.leave()
			b.mu.Lock()
		}
	}
}

// Abort drops every answer that is not released, appends frame in their place and finishes. Releases that are still to come do nothing.
func (b *Box) Abort(frame []byte) {
	b.mu.Lock()
	if b.aborted || b.dead != nil {
		b.mu.Unlock()
		return
	}
	b.truncate()
	copy(b.reserve(len(frame)), frame)
	b.push(len(frame))
	b.release(b.appended, 0)
	b.finishing, b.aborted = true, true
	b.woken()
	b.flush()
}

// truncate forgets what is appended and not released.
func (b *Box) truncate() {
	if b.appended == b.released {
		return
	}
	for s := b.rel.next; s != nil; {
		next := s.next
		s.next = nil
		b.pool.Put(s)
		s = next
	}
	b.rel.next, b.tail = nil, b.rel
	b.rel.written = b.relOff
	b.appended = b.released
	b.debts.truncate(b.appended)
}

// Finish makes the box take nothing more. Done follows when everything appended is released and flushed.
func (b *Box) Finish() {
	b.mu.Lock()
	b.finishing = true
	b.woken()
	b.flush()
}

// Done is closed when everything is sent after Finish or Abort, or when the box is dead.
func (b *Box) Done() <-chan struct{} { return b.done }

// Die gives the connection up at once: it closes the socket, and what was not sent never will be. Later calls do nothing.
func (b *Box) Die(reason error) {
	b.mu.Lock()
	b.die(reason)
}

// die is called with the lock and returns without it.
func (b *Box) die(reason error) {
	if b.dead != nil {
		b.mu.Unlock()
		return
	}
	b.dead = reason
	// The buffers are left to the garbage collector: somebody may be writing from them.
	b.head, b.tail, b.rel = nil, nil, nil
	b.woken()
	b.closeDone()
	b.leave()
	if !b.stayOpen || !errors.Is(reason, syscall.EPIPE) && !errors.Is(reason, syscall.ECONNRESET) {
		_ = b.socket.Close() // what it could report is about bytes that are given up here
	}
	if b.onDeath != nil {
		b.onDeath(reason)
	}
}

// Err is why the box is dead, nil while it is not.
func (b *Box) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dead
}

// Offered is the position before which bytes may have reached the kernel: what lies behind it was never sent, and with a dead box never
// will be.
func (b *Box) Offered() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flushing {
		return b.released
	}
	return b.flushed
}
