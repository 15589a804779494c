package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/sockopt"
	"tailgate/transports/tcp/internal/credit"
	"tailgate/transports/tcp/internal/outbox"
	"tailgate/transports/tcp/internal/wire"
)

// minWork is how much work is granted at least where a thread sleeps while there is none, and has to be woken: with less, the core idles while that happens.
const minWork = time.Millisecond

// maxRefusals bounds how many refused connections are kept open, each for at most HandshakeTimeout and lingerTimeout, to be told why. Beyond
// it they are closed without a word.
const maxRefusals = 64

// server is a listener with its connections.
//
// What it holds is bounded: MaxConnections connections, each with at most two largest answers, a batch and eventRoom in its out-buffer, and one largest request in its
// in-buffer. What connections with credit hold of answers, and of requests whose first bytes have come, is no more than the pool's capacity, over all of them.
type server struct {
	gateway  transports.Gateway
	limits   transports.Limits
	tls      *tls.Config
	log      *slog.Logger
	listener net.Listener
	pool     outbox.Pool

	model         wire.CostModel
	credit        *credit.Pool
	ticking       atomic.Bool // a goroutine ticks for the pool
	loop          *loop       // reads the connections; nil where each has a goroutine
	largestAnswer uint64      // payload and header of one largest answer, in bytes

	ctx      context.Context // of every Handle; ends when Shutdown gives up
	cancel   context.CancelFunc
	draining atomic.Bool
	grace    atomic.Uint32 // what GOAWAY says, in milliseconds
	refusals chan struct{} // one token each

	mu    sync.Mutex
	conns map[*conn]struct{}
	work  int           // goroutines of this server: the acceptor, connections, refusals
	idle  chan struct{} // closed when draining and work is 0
}

func listen(ctx context.Context, gateway transports.Gateway, config transports.ListenConfig) (transports.Server, error) {
	return listenWith(ctx, gateway, config, credit.Config{})
}

// listenWith is listen with another pool of credit than the default, whose largest cost follows from the limits.
func listenWith(ctx context.Context, gateway transports.Gateway, config transports.ListenConfig, pool credit.Config) (transports.Server, error) {
	limits := config.Limits.WithDefaults()
	if limits.MaxRequestBytes < 1 || limits.MaxRequestBytes > maxMaxRequest {
		return nil, fmt.Errorf("tcp: MaxRequestBytes is %d, it must be 1 to %d", limits.MaxRequestBytes, maxMaxRequest)
	}
	engine, err := choose("engine", config.Engine, engines)
	if err != nil {
		return nil, err
	}
	listener, err := sockopt.Listen(ctx, config.Address, config.CongestionControl)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	s := &server{
		gateway: gateway, tls: withALPN(config.TLS), log: config.Logger, listener: listener,
		model: wire.Model(), refusals: make(chan struct{}, maxRefusals),
		conns: make(map[*conn]struct{}), work: 1, idle: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if engine != engineSpin && pool.MinWork == 0 {
		pool.MinWork = minWork
	}
	s.setLimits(limits, pool)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.startLoop(engine); err != nil {
		_ = listener.Close()
		return nil, err
	}
	go s.accept()
	return s, nil
}

// startLoop starts what reads the connections, where the engine has such.
func (s *server) startLoop(engine string) (err error) {
	if engine == engineNet {
		return nil
	}
	if s.tls != nil {
		s.log.Warn("tcp: an event loop does not speak TLS, so the engine is another", "configured", engine, "engine", engineNet)
		return nil
	}
	if s.loop, err = newLoop(s, engine == engineSpin); err != nil {
		return fmt.Errorf("tcp: engine %q: %w", engine, err)
	}
	return nil
}

// setLimits derives what follows from the limits.
func (s *server) setLimits(limits transports.Limits, pool credit.Config) {
	largest, cost := s.model.Largest(uint32(limits.MaxRequestBytes))
	s.limits, s.largestAnswer = limits, largest+wire.HeaderSize
	pool.Largest = cost // the default capacity holds that of the largest MaxRequestBytes, and as much again
	s.credit = credit.New(pool)
}

// Addr implements transports.Server.
func (s *server) Addr() net.Addr { return s.listener.Addr() }

// accept is the acceptor goroutine.
func (s *server) accept() {
	defer s.leave(nil)
	pause := time.Duration(0)
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, or the peer was gone before it was accepted: nothing of that lasts, so wait and try again, at most a second.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Error("tcp: accept failed, trying again", "error", err, "pause", pause)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
				return
			}
			continue
		}
		pause = 0
		s.admit(nc)
	}
}

// admit starts a connection, or its refusal.
func (s *server) admit(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		_ = nc.Close() // it was in the kernel's queue when the listener closed, like those that nobody accepts any more
		return
	}
	if len(s.conns) >= s.limits.MaxConnections {
		select {
		case s.refusals <- struct{}{}:
			s.work++
			go s.refuse(nc)
		default:
			_ = nc.Close() // too many to be told one by one
		}
		return
	}
	c := newConn(s, nc)
	s.conns[c] = struct{}{}
	s.work++
	go c.run()
}

// refuse tells a peer that there is no room.
func (s *server) refuse(nc net.Conn) {
	defer s.leave(nil)
	defer func() { <-s.refusals }()
	defer nc.Close()
	fault := transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d connections are open, at most %d are taken; close one or try again later",
		s.limits.MaxConnections, s.limits.MaxConnections)
	fault.RetryAfter = time.Second
	s.log.Warn("tcp: connection refused", "remote", nc.RemoteAddr(), "reason", fault.Message)
	_ = nc.SetDeadline(time.Now().Add(s.limits.HandshakeTimeout))
	if s.tls != nil {
		nc = tls.Server(nc, s.tls)
	}
	if _, err := nc.Write(errorFrame(fault, 0)); err == nil {
		linger(nc, make([]byte, 512))
	}
}

// leave ends one of the server's goroutines.
func (s *server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.work--; s.work == 0 {
		close(s.idle) // the acceptor is among them, so this is after the listener was closed
		if s.loop != nil {
			s.loop.stop()
		}
	}
}

// Shutdown implements transports.Server: every connection gets GOAWAY, answers what it accepted and closes. A peer that does not close by itself is
// closed lingerTimeout later.
func (s *server) Shutdown(ctx context.Context) error {
	if until, ok := ctx.Deadline(); ok {
		s.grace.Store(uint32(max(0, time.Until(until).Milliseconds())))
	}
	s.mu.Lock()
	s.draining.Store(true)
	for c := range s.conns {
		c.kick()
	}
	s.mu.Unlock()
	_ = s.listener.Close() // a second close of it has nothing to report
	select {
	case <-s.idle:
		s.cancel()
		if s.loop != nil {
			<-s.loop.done
		}
		return nil
	case <-ctx.Done():
		s.cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			c.kill()
		}
		return ctx.Err()
	}
}

// linger closes the sending half and reads what still comes until the peer closes too, at most lingerTimeout.
func linger(nc net.Conn, scratch []byte) {
	if half, ok := nc.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		return
	}
	_ = nc.SetReadDeadline(time.Now().Add(lingerTimeout))
	for {
		if _, err := nc.Read(scratch); err != nil {
			return
		}
	}
}
