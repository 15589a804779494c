package tcp

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tailgate/transports"
	"tailgate/transports/tcp/internal/outbox"
)

// clientEngines are the client's I/O engines, the first is the default.
var clientEngines = []string{engineNet, transports.EngineSpin, "park"}

// Times of the pollers.
const (
	// sleepAfter is how long the engine spin polls without an answer before it waits in the kernel: a client that is open and unused must not burn a core for ever.
	sleepAfter = time.Second
	// roundAfter is how often a loop looks for peers that take nothing.
	roundAfter = 100 * time.Millisecond
	// yieldAfter is after how many rounds without an answer the engine spin lets others run: about 20 µs.
	yieldAfter = 64
)

// poller is the event loop of one engine: one goroutine that reads for all clients of the process that have the engine, and tells of their calls of Go. It starts with
// the first of them and ends with the last. A request is written by whoever calls, and by the loop where the callback of an answer does.
//
// The engine park waits in the kernel for what comes next. The engine spin polls, and lets other goroutines run when one of them has got its answer, and after some
// looks that find nothing. The loop is not tied to an operating system thread: for a goroutine that is, every such yield is a switch of threads and back, far dearer than the wake-up that
// polling is to save.
type poller struct {
	name   string
	poll   int // descriptors: epoll, and the event that ends a wait in it
	wake   int
	asleep atomic.Bool // it waits in the kernel, or is about to
	busy   atomic.Bool // something is poked or left

	mu    sync.Mutex
	byFD  map[int32]*client
	poked []*client // to be looked at without an event
	left  []*client // whose descriptors are to be given back
	refs  int       // clients that have not left, and those that are about to join

	writable []*client // of the loop itself, empty between two rounds
	few      []*client // of the loop itself: all of byFD where they are at most fewConns, as of the last time that it asked the kernel

	told atomic.Bool // a goroutine that waits has got its answer
}

var pollers = struct {
	sync.Mutex
	byName map[string]*poller
}{byName: map[string]*poller{}}

// startPoller returns the running loop of an engine, for one client more.
func startPoller(name string) (*poller, error) {
	pollers.Lock()
	defer pollers.Unlock()
	if l := pollers.byName[name]; l != nil {
		l.mu.Lock()
		l.refs++
		l.mu.Unlock()
		return l, nil
	}
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("engine %s: epoll_create1: %w", name, err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wake)})
		if err != nil {
			_ = unix.Close(wake)
		}
	}
	if err != nil {
		_ = unix.Close(poll)
		return nil, fmt.Errorf("engine %s: eventfd: %w", name, err)
	}
	l := &poller{name: name, poll: poll, wake: wake, byFD: map[int32]*client{}, refs: 1}
	pollers.byName[name] = l
	go l.run()
	return l, nil
}

// leaveRuntime takes the socket from the runtime's poller, so that only the loop hears of it.
func (c *client) leaveRuntime(engine string) (syscall.RawConn, error) {
	raw := outbox.Raw(c.nc)
	if raw == nil {
		return nil, fmt.Errorf("engine %s: a %T has no socket of its own", engine, c.nc)
	}
	fd := -1
	var err error
	if failed := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); failed != nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", engine, err)
	}
	l, err := startPoller(engine)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	own := &ownSocket{fd: fd}
	_ = c.socket.Close() // the connection goes on with its double
	c.socket, c.nc, c.raw, c.engine = own, own, own, l
	return ownCalls{own}, nil
}

// join makes the loop read for c, which has its reference.
func (l *poller) join(c *client) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byFD[int32(c.raw.fd)] = c
	// By edges: what a read leaves behind is remembered here, and a socket that can be written to all the time is no news.
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&(1<<32-1), Fd: int32(c.raw.fd)}
	if err := unix.EpollCtl(l.poll, unix.EPOLL_CTL_ADD, c.raw.fd, &event); err != nil {
		return fmt.Errorf("engine %s: epoll_ctl: %w", l.name, err)
	}
	return nil
}

// leave is the end of c, whose box is dead. The loop gives its descriptor back, so that nobody reads from a stranger's. Called with c's lock.
func (l *poller) leave(c *client) {
	pollers.Lock()
	l.mu.Lock()
	if l.refs--; l.refs == 0 {
		delete(pollers.byName, l.name)
	}
	l.left = append(l.left, c)
	l.busy.Store(true)
	l.mu.Unlock()
	pollers.Unlock()
	l.rouse()
}

// poke makes the loop look at c. It waits for nothing but the loop's lock.
func (l *poller) poke(c *client) {
	l.mu.Lock()
	if !c.isPoked {
		c.isPoked = true
		l.poked = append(l.poked, c)
		l.busy.Store(true)
	}
	l.mu.Unlock()
	l.rouse()
}

func (l *poller) rouse() {
	if l.asleep.Load() {
		_, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // in the machine's order any non-zero number does
	}
}

// tells says that a goroutine that waits has got its answer. The nil poller, the runtime's own, needs no word of it.
func (l *poller) tells() {
	if l != nil {
		l.told.Store(true)
	}
}

// run is the loop.
func (l *poller) run() {
	defer func() { _, _ = unix.Close(l.poll), unix.Close(l.wake) }()
	var (
		events   [256]unix.EpollEvent
		ready    []*client // have something to read, or may have
		used     = time.Now()
		round    = used
		spin     = l.name == transports.EngineSpin
		idle     int  // rounds in a row without an answer
		answered bool // something came since used was set
	)
	for turn := uint(0); ; turn++ {
		timeout, n := 0, 0
		if spin && turn%askEvery != 0 && len(l.few) > 0 && !l.busy.Load() {
			for _, c := range l.few {
				if !c.isReady {
					c.isReady = true
					ready = append(ready, c)
				}
			}
		} else {
			if answered && idle >= clockEvery { // so the clock is looked at once for each answer at most
				used, answered = time.Now(), false
			}
			if len(ready) == 0 && (!spin || idle >= clockEvery && time.Since(used) > sleepAfter) {
				l.asleep.Store(true)
				if !l.busy.Load() { // looked at behind asleep: who comes later wakes
					timeout = int(roundAfter / time.Millisecond)
				}
			}
			var err error
			n, err = unix.EpollWait(l.poll, events[:], timeout)
			l.asleep.Store(false)
			if err != nil {
				n = 0 // EINTR
			}
			if n > 0 || l.busy.Load() {
				ready = l.sort(ready, events[:n])
			}
			if spin {
				l.countFew()
			}
		}
		if timeout > 0 || turn%1024 == 0 {
			if now := time.Now(); now.Sub(round) >= roundAfter {
				round = now
				l.overdue()
			}
			if l.over() {
				return
			}
		}
		// One read each in a round, so that nobody's answers wait for all of another's.
		worked := n > 0
		again := ready[:0]
		for _, c := range ready {
			more, read := c.readable()
			if c.isReady = more; more {
				again = append(again, c)
			}
			worked = worked || read
		}
		clear(ready[len(again):])
		ready = again
		if idle++; worked {
			idle, answered = 0, true
		}
		// To another goroutine, and to another thread of this core: one that wakes beside a thread which never sleeps gets the core at the end of a time slice only, some
		// milliseconds later. Whoever has just got an answer runs at once; else it is done after many rounds in vain, since it wakes a thread of the runtime each time,
		// which costs as much as a round trip.
		switch {
		case l.told.Load():
			l.told.Store(false)
			runtime.Gosched()
		case timeout == 0 && !worked && (!spin || idle%yieldAfter == 0):
			runtime.Gosched()
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
}

// countFew notes the clients where they are so few that asking each is cheaper than asking the kernel which one.
func (l *poller) countFew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.few)
	l.few = l.few[:0]
	if len(l.byFD) > fewConns {
		return
	}
	for _, c := range l.byFD {
		l.few = append(l.few, c)
	}
}

// sort adds to ready who has something to read, lets those write on who may, and gives back the descriptors of those who have left.
func (l *poller) sort(ready []*client, events []unix.EpollEvent) []*client {
	add := func(c *client) {
		if !c.isReady {
			c.isReady = true
			ready = append(ready, c)
		}
	}
	writable := l.writable[:0]
	l.mu.Lock()
	l.busy.Store(false)
	for i := range events {
		e := &events[i]
		if e.Fd == int32(l.wake) {
			var n [8]byte
			_, _ = unix.Read(l.wake, n[:])
			continue
		}
		c := l.byFD[e.Fd]
		if c == nil {
			continue // it has left
		}
		if e.Events&^unix.EPOLLOUT != 0 {
			add(c)
		}
		if e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			c.isEnding = true
		}
		if e.Events&unix.EPOLLOUT != 0 {
			writable = append(writable, c)
		}
	}
	for _, c := range l.poked {
		c.isPoked = false
		add(c)
		writable = append(writable, c)
	}
	clear(l.poked)
	l.poked = l.poked[:0]
	left := l.left
	l.left = nil
	l.mu.Unlock()
	for _, c := range writable {
		c.box.Writable()
	}
	clear(writable)
	l.writable = writable[:0]
	for _, c := range left {
		l.part(c)
	}
	return ready
}

// part gives the descriptor of c back, which has left.
func (l *poller) part(c *client) {
	l.mu.Lock()
	delete(l.byFD, int32(c.raw.fd))
	l.mu.Unlock()
	c.box.WaitWritten()
	c.raw.giveBack()
}

// over reports whether the loop has nobody left and nothing to do.
func (l *poller) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refs == 0 && len(l.byFD) == 0 && len(l.left) == 0
}

// overdue looks for peers that take nothing.
func (l *poller) overdue() {
	l.mu.Lock()
	all := make([]*client, 0, len(l.byFD))
	for _, c := range l.byFD {
		all = append(all, c)
	}
	l.mu.Unlock()
	now := transports.Now()
	for _, c := range all {
		c.box.Overdue(now)
	}
}

// readable reads once without waiting and handles what has come, on the loop, which always has the reader's role. It returns whether there may be more, and
// whether there was anything.
func (c *client) readable() (more, read bool) {
	if c.raw.gone {
		return false, false // it has left in this round: the descriptor may be a stranger's
	}
	if c.in == nil {
		c.in = clientBuffers.Get(c.borrow)
	}
	room := c.in.B[c.w:]
	n, again, err := outbox.TryRead(uintptr(c.raw.fd), room)
	c.mu.Lock()
	switch {
	case n > 0:
		c.took(n, nil)
		more = (n == len(room) || c.isEnding) && !c.broken // the end is no further event
	case !again && !c.broken:
		if err == nil {
			err = io.EOF
		}
		c.failLocked(c.lost(err))
	}
	// Who waits for nothing holds no buffer, and the next to read finds this one in the cache; where clients are so few that all are asked again at once, each keeps its own.
	if c.r == c.w && len(c.engine.few) == 0 {
		clientBuffers.Put(c.in)
		c.in, c.r, c.w = nil, 0, 0
	}
	c.unlock()
	return more, n > 0
}

// ownSocket is a socket outside the runtime's poller, as far as a box needs one: its calls never wait.
type ownSocket struct {
	net.Conn // nil: whatever is not below is called by nobody
	fd       int

	mu   sync.Mutex
	gone bool
}

// Control is a third of syscall.RawConn.
func (s *ownSocket) Control(f func(fd uintptr)) error {
	f(uintptr(s.fd))
	return nil
}

// ownCalls is the syscall.RawConn of a ownSocket.
type ownCalls struct{ *ownSocket }

// Read calls f once.
func (s ownCalls) Read(f func(fd uintptr) bool) error {
	f(uintptr(s.fd))
	return nil
}

// Write calls f once.
func (s ownCalls) Write(f func(fd uintptr) bool) error {
	f(uintptr(s.fd))
	return nil
}

// Close ends the connection in both directions; the loop hears of it. The descriptor stays until giveBack.
func (s *ownSocket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return net.ErrClosed
	}
	return unix.Shutdown(s.fd, unix.SHUT_RDWR)
}

// giveBack closes the descriptor, which nobody uses any more.
func (s *ownSocket) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	_ = unix.Close(s.fd)
}
