package tcp

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tailgate/transports"
	"tailgate/transports/tcp/internal/credit"
	"tailgate/transports/tcp/internal/outbox"
)

// engines are the I/O engines of this system, the first is the default.
var engines = []string{engineNet, engineSpin, enginePark}

// Bounds of a loop's work.
const (
	loopEvents = 256                   // taken from the kernel at a time
	scanEvery  = 50 * time.Millisecond // between two looks at the clocks of connections
	scanAtMost = 512                   // connections of one look
	fewConns   = 4                     // so many are read without asking the kernel whether there is something to read
	askEvery   = 16                    // rounds of those until it is asked all the same
	clockEvery = 64                    // rounds of a spinning loop until it looks at the clock
	yieldEvery = 256                   // rounds without work of a spinning loop until it lets others run, where they wait for this thread
)

// loop is an event loop: one goroutine that reads all connections of a server, one message, or one read of small ones, of each in turn. Who is next is decided
// here and not by the scheduler, and nobody is woken to be served. A spinning loop never sleeps, so that no request waits until a thread has been woken; a parking one
// sleeps in the kernel. What other goroutines have to say comes by mail.
//
// A handshake is a goroutine's work before, and a connection's last words, which may wait for the journal, are one's after.
type loop struct {
	server *server
	spin   bool
	epoll  int
	bell   int // an eventfd that ends the sleep
	done   chan struct{}

	rung     atomic.Bool // there is mail, or the loop has to stop
	sleeping atomic.Bool
	stopping atomic.Bool

	// mu guards mail. It is a leaf: whoever has it takes no other lock.
	mu   sync.Mutex
	mail []*looped

	// Of the goroutine.
	slots   []*looped // by the number that the kernel gives back with an event, nil where free
	free    []int32
	open    int
	ready   []*looped // whose turn comes in the next round
	spare   []*looped // room for the one after it
	letters []*looped
	events  [loopEvents]unix.EpollEvent
	round   uint
	idle    uint  // rounds since the last that had work
	worked  bool  // this one had some
	ticked  int64 // when the pool of credit ticked
	scanned int64 // when the clocks of connections were looked at
	scanAt  int   // the slot with which that goes on
}

// looped is a connection's place in a loop. Its fields belong to the loop's goroutine, but for the atomic ones.
type looped struct {
	loop     *loop
	conn     *conn
	socket   *loopSocket
	mailed   atomic.Bool
	finished atomic.Bool // everything has left, or never will

	state    loopState
	slot     int32
	queued   bool  // in ready
	readable bool  // a read may bring something
	hungUp   bool  // the peer has ended its half, or all of it
	rest     bool  // frames are left that need no read
	paused   bool  // until there is room
	due      int64 // end of lingering
}

type loopState uint8

const (
	arriving  loopState = iota // in its first letter
	reading                    // open
	finishing                  // a goroutine waits until everything has left
	lingering                  // half-closed, until the peer has read
	gone
)

// newLoop starts a loop.
func newLoop(s *server, spin bool) (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, bell, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -1}); err != nil {
		_, _ = unix.Close(bell), unix.Close(epoll)
		return nil, fmt.Errorf("epoll_ctl: %w", err)
	}
	l := &loop{server: s, spin: spin, epoll: epoll, bell: bell, done: make(chan struct{})}
	go l.run()
	return l, nil
}

// take makes the loop read a connection from now on, whose handshake is done. It returns false where that cannot be.
func (l *loop) take(c *conn) bool {
	socket, err := newLoopSocket(c.socket)
	if err != nil {
		c.log.Warn("tcp: a connection is served by a goroutine and not by the event loop", "error", err)
		return false
	}
	c.server.mu.Lock()
	c.socket = socket
	c.server.mu.Unlock()
	c.nc = socket
	p := &looped{loop: l, conn: c, socket: socket}
	c.looped.Store(p)
	c.start((*rawLoopSocket)(socket), true)
	p.wake()
	return true
}

// wake makes the loop look at the connection, from any goroutine.
func (p *looped) wake() {
	if p.mailed.Swap(true) {
		return
	}
	l := p.loop
	l.mu.Lock()
	l.mail = append(l.mail, p)
	l.mu.Unlock()
	l.ring()
}

// ring makes the loop look at its mail.
func (l *loop) ring() {
	l.rung.Store(true)
	if l.sleeping.Load() {
		_, _ = unix.Write(l.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // fails only when it has been rung 2^64 times
	}
}

// stop ends the loop, which has no connections any more.
func (l *loop) stop() {
	l.stopping.Store(true)
	l.ring()
}

// run is the loop's goroutine. It is not bound to its thread: one that is, and is preempted at the end of its time slice, waits for two threads to be woken until it
// has both back.
func (l *loop) run() {
	defer close(l.done)
	for !l.stopping.Load() {
		l.worked = false
		l.poll()
		if l.rung.Load() {
			l.readMail()
		}
		l.turns()
		l.clock()
		if l.worked {
			l.idle = 0
		} else if l.idle++; l.idle%yieldEvery == 0 && l.spin {
			runtime.Gosched()
		}
	}
	_, _ = unix.Close(l.bell), unix.Close(l.epoll)
}

// direct says whether the connections are so few that a loop which never sleeps reads them without asking.
func (l *loop) direct() bool { return l.spin && l.open <= fewConns }

// poll asks the kernel what has happened. A parking loop waits for it where there is nothing else to do.
func (l *loop) poll() {
	l.round++
	if l.direct() && len(l.slots) <= 2*fewConns && l.round%askEvery != 0 {
		for _, p := range l.slots {
			if p != nil {
				p.readable = true
				l.queue(p)
			}
		}
		return
	}
	for i := range l.events[:l.wait()] {
		e := &l.events[i]
		if e.Fd < 0 {
			continue // the bell has ended the sleep, and that is all
		}
		p := l.slots[e.Fd]
		if e.Events&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			p.conn.box.Writable()
		}
		if e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			p.hungUp = true
		}
		if e.Events != unix.EPOLLOUT {
			p.readable = true
			l.queue(p)
		}
	}
}

// wait asks the kernel, and sleeps in it where a parking loop has nothing else to do. It returns the number of events.
func (l *loop) wait() int {
	if l.spin || len(l.ready) > 0 {
		return l.look()
	}
	l.sleeping.Store(true)
	defer l.sleeping.Store(false)
	if l.rung.Load() { // looked at after it was said that the bell has to be rung
		return l.look()
	}
	n, _ := unix.EpollWait(l.epoll, l.events[:], l.patience()) // EINTR is no event, and the next round asks again
	return max(n, 0)
}

// look is epoll_wait without waiting, which is cheaper when the scheduler is not told of it.
func (l *loop) look() int {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll), uintptr(unsafe.Pointer(&l.events[0])), loopEvents, 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// patience is how long the loop may sleep, in milliseconds, -1 = until something happens.
func (l *loop) patience() int {
	switch {
	case l.server.credit.Hungry():
		return int(credit.TickEvery / time.Millisecond)
	case l.open > 0:
		return int(scanEvery / time.Millisecond)
	default:
		return -1
	}
}

// queue gives a connection a turn in the next round.
func (l *loop) queue(p *looped) {
	if !p.queued {
		p.queued = true
		l.ready = append(l.ready, p)
	}
}

// readMail looks at the connections that others have said something about.
func (l *loop) readMail() {
	l.rung.Store(false)
	l.worked = true
	l.mu.Lock()
	l.mail, l.letters = l.letters, l.mail
	l.mu.Unlock()
	for _, p := range l.letters {
		p.mailed.Store(false)
		switch p.state {
		case gone:
			continue
		case arriving:
			l.arrive(p)
		default:
			p.conn.box.Writable()
		}
		l.queue(p)
	}
	clear(l.letters)
	l.letters = l.letters[:0]
}

// arrive makes the kernel tell of a connection.
func (l *loop) arrive(p *looped) {
	if n := len(l.free); n > 0 {
		p.slot, l.free = l.free[n-1], l.free[:n-1]
		l.slots[p.slot] = p
	} else {
		p.slot = int32(len(l.slots))
		l.slots = append(l.slots, p)
	}
	l.open++
	p.state, p.readable = reading, true
	err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, p.socket.fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: p.slot})
	if err != nil {
		p.conn.box.Die(fmt.Errorf("epoll_ctl: %w", err))
	}
}

// turns gives each connection that is ready its turn.
func (l *loop) turns() {
	round := l.ready
	l.ready = l.spare
	for _, p := range round {
		p.queued = false
		switch p.state {
		case reading:
			l.read(p)
		case finishing:
			if p.finished.Load() {
				l.linger(p)
			}
		case lingering:
			l.discard(p)
		default: // it has gone in the meantime
		}
	}
	clear(round)
	l.spare = round[:0]
}

// read is a turn of an open connection: at most one read, and what is to be done with it.
func (l *loop) read(p *looped) {
	c := p.conn
	if c.stopping() {
		l.finish(p, c.why(errStopped))
		return
	}
	if p.paused = !c.room(); p.paused {
		return // the box tells when there is some
	}
	if !p.rest {
		if !p.readable {
			return
		}
		c.lend()
		space := c.in.B[c.w:]
		n, again, err := outbox.TryRead(uintptr(p.socket.fd), space)
		if n == 0 && again && l.direct() {
			p.readable = false
			return // it is asked again at once, with the same buffer
		}
		if n == 0 {
			c.unlend()
			if again {
				p.readable = false
				return
			}
			if err == nil {
				err = io.EOF
			}
			l.finish(p, c.why(err))
			return
		}
		l.worked = true
		p.readable = p.hungUp || n == len(space) // the kernel tells of what comes after a read that was not filled
		c.received(n, transports.Now())
	}
	last, next := c.process()
	if next == nextEnd {
		l.finish(p, last)
		return
	}
	if p.rest = next == nextRoom; p.rest || p.readable {
		l.queue(p)
	}
}

// finish ends the reading of a connection. A goroutine waits until everything has left.
func (l *loop) finish(p *looped, last []byte) {
	p.state = finishing
	c := p.conn
	go func() {
		// When Shutdown gives up, who waits for the journal has to hear of it.
		stop := context.AfterFunc(c.server.ctx, func() { c.box.Die(outbox.ErrClosed) })
		c.conclude(last)
		stop()
		p.finished.Store(true)
		p.wake()
	}()
}

// linger gives the peer time to read why the connection ends, see linger of the other engine.
func (l *loop) linger(p *looped) {
	if p.conn.box.Err() != nil || unix.Shutdown(p.socket.fd, unix.SHUT_WR) != nil {
		l.remove(p)
		return
	}
	p.state, p.due = lingering, transports.Now()+int64(lingerTimeout)
	l.discard(p)
}

// discard reads what a peer still sends that has been said goodbye.
func (l *loop) discard(p *looped) {
	scratch := l.server.pool.Get(512)
	defer l.server.pool.Put(scratch)
	n, again, _ := outbox.TryRead(uintptr(p.socket.fd), scratch.B)
	switch {
	case n > 0:
		l.queue(p)
	case !again:
		l.remove(p)
	}
}

// remove closes a connection.
func (l *loop) remove(p *looped) {
	p.state = gone
	p.conn.box.Die(outbox.ErrClosed)
	p.conn.box.WaitWritten()
	p.socket.release() // which takes it out of the kernel's poll
	l.slots[p.slot] = nil
	if l.open--; l.open == 0 {
		l.slots, l.free = l.slots[:0], l.free[:0]
	} else {
		l.free = append(l.free, p.slot)
	}
	l.server.leave(p.conn)
}

// clock does what time brings.
func (l *loop) clock() {
	hungry := l.server.credit.Hungry()
	if !hungry && l.spin && l.round%clockEvery != 0 {
		return
	}
	now := transports.Now()
	if hungry && now-l.ticked >= int64(credit.TickEvery) {
		l.ticked = now
		l.server.credit.Tick(now)
	}
	if now-l.scanned < int64(scanEvery) {
		return
	}
	l.scanned = now
	for range min(scanAtMost, len(l.slots)) {
		l.scanAt = (l.scanAt + 1) % len(l.slots)
		if p := l.slots[l.scanAt]; p != nil {
			l.check(p, now)
		}
	}
}

// check looks at the clocks of one connection.
func (l *loop) check(p *looped, now int64) {
	p.conn.box.Overdue(now)
	switch {
	case p.state == lingering && now >= p.due:
		l.remove(p)
	case p.state == reading && !p.queued && !p.paused && now >= p.conn.due():
		l.finish(p, p.conn.why(os.ErrDeadlineExceeded))
	}
}
