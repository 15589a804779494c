package floor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

const (
	// turnTick bounds how long a parked loop sleeps, so that it looks at deadlines.
	turnTick = 100 // milliseconds
	// eventsAtOnce bounds the connections that one look at the kernel returns; the others come with the next.
	eventsAtOnce = 64
	// newAtOnce bounds the accepted connections that the loop has not seen yet.
	newAtOnce = 256
)

// poller is the kernel's list of connections with something to do, in the order in which they got it.
type poller struct {
	epoll, wake int // descriptors
	spin        bool
	events      [eventsAtOnce]unix.EpollEvent
	idle        int
}

func newPoller(spin bool) (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("floor: epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wake)})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("floor: epoll: %w", err), unix.Close(epoll))
	}
	return &poller{epoll: epoll, wake: wake, spin: spin}, nil
}

func (p *poller) close() {
	_, _ = unix.Close(p.epoll), unix.Close(p.wake) // nothing is written by either
}

// kick ends a sleep of the loop. A loop that polls has none.
func (p *poller) kick() {
	if !p.spin {
		_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // full: it is awake
	}
}

// wait returns the connections with something to do, without those that only woke it.
func (p *poller) wait() ([]unix.EpollEvent, error) {
	timeout := turnTick
	if p.spin {
		timeout = 0
	}
	n, err := unix.EpollWait(p.epoll, p.events[:], timeout)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return nil, fmt.Errorf("floor: epoll: %w", err)
	}
	if p.spin && n <= 0 {
		if p.idle++; p.idle%asksBeforeYield == 0 {
			runtime.Gosched()
		}
	}
	return p.events[:max(n, 0)], nil
}

func (p *poller) watch(op int, f *framed, events uint32) error {
	return unix.EpollCtl(p.epoll, op, f.fd, &unix.EpollEvent{Events: events, Fd: int32(f.fd)})
}

// framed is a connection with the frame that it is reading and the one that it is writing.
type framed struct {
	file   *os.File
	fd     int
	in     []byte
	filled int
	out    []byte // left to write
	armed  bool   // the poller watches for room to write
}

// detach takes the socket out of the runtime's hands.
func detach(conn net.Conn) (*framed, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("floor: %T is no TCP connection", conn)
	}
	file, err := tcp.File()
	if err := errors.Join(err, tcp.Close()); err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	f := &framed{file: file, fd: int(file.Fd()), in: make([]byte, 4096)}
	if err := unix.SetNonblock(f.fd, true); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

// read reads once, and returns the frame when it is whole.
func (f *framed) read() (frame []byte, err error) {
	n, err := unix.Read(f.fd, f.in[f.filled:])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil, nil
	case err != nil:
		return nil, err
	case n == 0:
		return nil, io.EOF
	}
	if f.filled += n; f.filled < 4 {
		return nil, nil
	}
	size := 4 + int(binary.LittleEndian.Uint32(f.in))
	switch {
	case size > maxFrame || f.filled > size:
		return nil, fmt.Errorf("floor: a frame of %d bytes after %d", size, f.filled)
	case size > len(f.in):
		f.in = append(make([]byte, 0, size), f.in[:f.filled]...)[:size]
	}
	if f.filled < size {
		return nil, nil
	}
	f.filled = 0
	return f.in[:size], nil
}

// flush writes what is left, as far as there is room.
func (f *framed) flush(p *poller) error {
	for len(f.out) > 0 {
		n, err := unix.Write(f.fd, f.out)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return f.arm(p, true)
		case err != nil:
			return err
		default:
			f.out = f.out[n:]
		}
	}
	return f.arm(p, false)
}

func (f *framed) arm(p *poller, armed bool) error {
	if f.armed == armed {
		return nil
	}
	f.armed = armed
	events := uint32(unix.EPOLLIN)
	if armed {
		events = unix.EPOLLOUT // what it sent must be on its way before it is read again
	}
	return p.watch(unix.EPOLL_CTL_MOD, f, events)
}

// TurnServer is a running echo in turn.
type TurnServer struct {
	listener net.Listener
	poller   *poller
	accepted chan *framed
	stop     atomic.Bool
	work     sync.WaitGroup
}

// ServeInTurn starts an echo on the listener, which it owns from then on: one loop for all connections that takes one message of each in turn. With
// spin the loop never sleeps.
func ServeInTurn(listener net.Listener, spin bool) (*TurnServer, error) {
	p, err := newPoller(spin)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s := &TurnServer{listener: listener, poller: p, accepted: make(chan *framed, newAtOnce)}
	s.work.Go(s.accept)
	s.work.Go(s.loop)
	return s, nil
}

func (s *TurnServer) accept() {
	defer close(s.accepted)
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		if f, err := detach(conn); err == nil {
			s.accepted <- f
			s.poller.kick()
		}
	}
}

func (s *TurnServer) loop() {
	runtime.LockOSThread()
	conns := map[int32]*framed{}
	defer func() {
		for f := range s.accepted { // until the listener is closed
			_ = f.file.Close()
		}
		for _, f := range conns {
			_ = f.file.Close()
		}
		s.poller.close()
	}()
	for !s.stop.Load() {
		for more := true; more; {
			select {
			case f, ok := <-s.accepted:
				if more = ok; ok && s.poller.watch(unix.EPOLL_CTL_ADD, f, unix.EPOLLIN) == nil {
					conns[int32(f.fd)] = f
				}
			default:
				more = false
			}
		}
		events, err := s.poller.wait()
		if err != nil {
			return
		}
		for _, e := range events {
			f := conns[e.Fd]
			if f == nil {
				s.drain()
				continue
			}
			if err := s.turn(f); err != nil {
				delete(conns, e.Fd)
				_ = f.file.Close()
			}
		}
	}
}

func (s *TurnServer) drain() {
	var count [8]byte
	_, _ = unix.Read(s.poller.wake, count[:]) // it says only that there is something to look at
}

// turn goes on with one connection: with the answer that is under way, or with one read.
func (s *TurnServer) turn(f *framed) error {
	if len(f.out) > 0 {
		return f.flush(s.poller)
	}
	frame, err := f.read()
	if err != nil || frame == nil {
		return err
	}
	f.out = frame // nothing is read until it is gone
	return f.flush(s.poller)
}

// Close ends the listener and all connections, and waits for them.
func (s *TurnServer) Close() error {
	s.stop.Store(true)
	err := s.listener.Close()
	s.poller.kick()
	s.work.Wait()
	return err
}

// turns is the loop that all clients of an engine share. It runs while there are any.
type turns struct {
	window int
	spin   bool

	mu      sync.Mutex
	members int
	loop    *turnLoop
}

// turnLoop is one life of it. Requests stand in one line over all connections; so many as its window are under way.
type turnLoop struct {
	poller *poller
	window int
	stop   atomic.Bool
	ended  chan struct{}

	mu     sync.Mutex
	line   []*turnClient // first in, first out
	opened []*turnClient
	closed []*turnClient
	news   atomic.Bool // any of the three

	clients map[int32]*turnClient
	first   []*turnClient // the line, as the loop has taken it
	under   int           // requests under way
	died    error
}

// turnClient is one connection. Its request belongs to the loop from Go to done.
type turnClient struct {
	framed
	turns  *turns
	loop   *turnLoop
	busy   atomic.Bool
	closed sync.Once

	ctx    context.Context
	call   *transports.Call
	done   func(error)
	frame  []byte
	number uint64
	under  bool
	gone   bool
}

func (t *turns) dial(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
	dialer := net.Dialer{Control: control(config.CongestionControl)}
	conn, err := dialer.DialContext(ctx, "tcp", config.Address)
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	f, err := detach(conn)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.members == 0 {
		p, err := newPoller(t.spin)
		if err != nil {
			return nil, errors.Join(err, f.file.Close())
		}
		t.loop = &turnLoop{poller: p, window: t.window, ended: make(chan struct{}), clients: map[int32]*turnClient{}}
		go t.loop.run()
	}
	t.members++
	c := &turnClient{framed: *f, turns: t, loop: t.loop}
	c.loop.tell(&c.loop.opened, c)
	return c, nil
}

// Close implements transports.Client. It must not be called from an answer.
func (c *turnClient) Close() error {
	c.closed.Do(func() {
		c.loop.tell(&c.loop.closed, c)
		t := c.turns
		t.mu.Lock()
		t.members--
		last := t.members == 0
		t.mu.Unlock()
		if last {
			c.loop.stop.Store(true)
			c.loop.poller.kick()
			<-c.loop.ended
		}
	})
	return nil
}

// Do implements transports.Client.
func (c *turnClient) Do(ctx context.Context, call *transports.Call) error {
	done := make(chan error, 1)
	c.Go(ctx, call, func(err error) { done <- err })
	return <-done
}

// TryDo implements transports.AsyncClient.
func (c *turnClient) TryDo(ctx context.Context, call *transports.Call) error { return c.Do(ctx, call) }

// Go implements transports.AsyncClient.
func (c *turnClient) Go(ctx context.Context, call *transports.Call, done func(error)) {
	request, ok := call.Request.(*pb.SubmitOrderRequest)
	if !ok {
		done(transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "a bare echo takes new orders only, not %s", call.Operation))
		return
	}
	if !c.busy.CompareAndSwap(false, true) {
		done(transports.Refuse(pb.Reason_REASON_OVERLOADED, "a bare echo in turn takes one request at a time"))
		return
	}
	size := 4 + max(proto.Size(request), 8)
	if len(c.frame) != size {
		c.frame = make([]byte, size)
		binary.LittleEndian.PutUint32(c.frame, uint32(size-4))
	}
	c.number++
	binary.LittleEndian.PutUint64(c.frame[4:12], c.number) // so that an old frame is not taken for this one's echo
	c.ctx, c.call, c.done = ctx, call, done
	c.loop.tell(&c.loop.line, c)
}

// tell leaves something for the loop.
func (l *turnLoop) tell(list *[]*turnClient, c *turnClient) {
	l.mu.Lock()
	*list = append(*list, c)
	l.mu.Unlock()
	if !l.news.Swap(true) {
		l.poller.kick()
	}
}

func (l *turnLoop) run() {
	runtime.LockOSThread()
	defer close(l.ended)
	defer l.poller.close()
	defer l.end()
	for rounds := 0; !l.stop.Load(); rounds++ {
		l.listen()
		for l.under < l.window && len(l.first) > 0 {
			c := l.first[0]
			l.first = l.first[1:]
			l.send(c)
		}
		if l.news.Load() {
			continue // an answer has brought the next request
		}
		var events []unix.EpollEvent
		if events, l.died = l.poller.wait(); l.died != nil {
			return
		}
		for _, e := range events {
			if c := l.clients[e.Fd]; c != nil {
				l.turn(c)
				continue
			}
			var count [8]byte
			_, _ = unix.Read(l.poller.wake, count[:]) // it says only that there is news
		}
		if len(events) == 0 && (!l.poller.spin || rounds%(1<<16) == 0) {
			l.expire()
		}
	}
}

// listen takes what was left for the loop.
func (l *turnLoop) listen() {
	if !l.news.Swap(false) {
		return
	}
	l.mu.Lock()
	opened, closed := l.opened, l.closed
	l.opened, l.closed = nil, nil
	l.first = append(l.first, l.line...)
	l.line = l.line[:0]
	l.mu.Unlock()
	for _, c := range opened {
		l.clients[int32(c.fd)] = c
		if err := l.poller.watch(unix.EPOLL_CTL_ADD, &c.framed, unix.EPOLLIN); err != nil {
			l.lose(c, err)
		}
	}
	for _, c := range closed {
		l.lose(c, net.ErrClosed)
	}
}

func (l *turnLoop) send(c *turnClient) {
	if c.gone {
		c.answer(transports.Refuse(pb.Reason_REASON_CONNECTION_LOST, "the connection is gone"))
		return
	}
	if c.ctx.Err() != nil {
		c.answer(transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "its time passed before its turn came"))
		return
	}
	l.under++
	c.under, c.out = true, c.frame
	if err := c.flush(l.poller); err != nil {
		l.lose(c, err)
	}
}

// turn goes on with one connection.
func (l *turnLoop) turn(c *turnClient) {
	if len(c.out) > 0 {
		if err := c.flush(l.poller); err != nil {
			l.lose(c, err)
		}
		return
	}
	frame, err := c.read()
	if err != nil {
		l.lose(c, err)
		return
	}
	if frame == nil {
		return
	}
	if !c.under || !bytes.Equal(frame, c.frame) {
		l.lose(c, errors.New("the echo is not what was sent"))
		return
	}
	response, ok := c.call.Response.(*pb.SubmitOrderResponse)
	request, ok2 := c.call.Request.(*pb.SubmitOrderRequest)
	if ok && ok2 {
		proto.Reset(response)
		response.ClientOrderId, response.ClientTag = request.ClientOrderId, request.ClientTag
	}
	l.under--
	c.under = false
	c.answer(nil)
}

func (c *turnClient) answer(err error) {
	done := c.done
	c.ctx, c.call, c.done = nil, nil, nil
	c.busy.Store(false)
	done(err)
}

// lose ends a connection, and its request.
func (l *turnLoop) lose(c *turnClient, why error) {
	if c.gone {
		return
	}
	c.gone = true
	delete(l.clients, int32(c.fd))
	_ = c.file.Close()
	if c.under {
		l.under--
		c.under = false
		reason := pb.Reason_REASON_CONNECTION_LOST
		if errors.Is(why, context.DeadlineExceeded) {
			reason = pb.Reason_REASON_DEADLINE_EXCEEDED
		}
		c.answer(transports.InDoubt(reason, why, "the echo did not come back"))
	}
}

// expire ends requests whose time has passed. Half a frame may be under way, so their connections end with them.
func (l *turnLoop) expire() {
	for _, c := range l.clients {
		if c.under && c.ctx.Err() != nil {
			l.lose(c, c.ctx.Err())
		}
	}
}

func (l *turnLoop) end() {
	l.listen()
	for _, c := range l.clients {
		l.lose(c, net.ErrClosed)
	}
	for _, c := range l.first {
		c.answer(transports.Refuse(pb.Reason_REASON_CONNECTION_LOST, "the connection is gone"))
	}
}
