package restfasthttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"tailgate/transports"
	"tailgate/transports/internal/guard"
	"tailgate/transports/internal/httpserver"
	"tailgate/transports/internal/restapi"
	"tailgate/transports/internal/sockopt"
)

// maxHeaderBytes bounds request line and headers; beyond it the answer is 431. It is also the buffer that a connection reads into.
const maxHeaderBytes = 16 << 10

// grace is how long a draining server keeps connections open for one more request, and how recently such a connection must have carried one.
const grace = httpserver.Grace

// Server implements transports.Server. One connection has one request at a time; what a peer pipelines waits in the socket. It accepts and stops by
// itself, with a goroutine for each connection, and leaves fasthttp what a connection says: fasthttp's own stop closes idle connections only after whole
// seconds and looks for others ten times a second.
type Server struct {
	api      *restapi.API
	listener *guard.Listener
	http     *fasthttp.Server
	limits   transports.Limits
	tls      *tls.Config
	stop     sync.Once
	ending   atomic.Bool   // no connection waits for another request
	served   chan struct{} // closed when nothing is accepted any more

	mu   sync.Mutex
	open map[*guard.Conn]*conn // nil during the handshake of TLS; bounded by the listener
	none chan struct{}         // closed when open becomes empty; nil while it is
}

// Listen returns the Listen of the transport of this name. framework makes of the binding a fasthttp server with a handler and nothing else
// set.
//
// Memory is bounded by MaxConnections x (16 KiB + largest body + largest answer): buffers grow with the bytes that came, never with the length that a
// header claims. A stream of events has its connection to itself.
func Listen(transport string, framework func(*Binding) *fasthttp.Server) func(context.Context, transports.Gateway, transports.ListenConfig) (transports.Server, error) {
	return func(ctx context.Context, gateway transports.Gateway, config transports.ListenConfig) (transports.Server, error) {
		inner, err := sockopt.Listen(ctx, config.Address, config.CongestionControl)
		if err != nil {
			return nil, fmt.Errorf("%s: listen at %s: %w", transport, config.Address, err)
		}
		return Serve(transport, inner, gateway, config, framework), nil
	}
}

// Serve starts a server that accepts from inner, which belongs to it from then on.
func Serve(transport string, inner net.Listener, gateway transports.Gateway, config transports.ListenConfig, framework func(*Binding) *fasthttp.Server) *Server {
	limits := config.Limits.WithDefaults()
	binding := &Binding{restapi.New(transport, gateway, limits, config.Logger)}
	s := &Server{
		api: binding.api,
		listener: guard.Listen(inner, guard.Options{
			MaxConnections: limits.MaxConnections, SurplusTime: limits.HandshakeTimeout, WriteTimeout: limits.WriteTimeout,
		}),
		http: configure(framework(binding), binding, limits), limits: limits,
		served: make(chan struct{}), open: make(map[*guard.Conn]*conn),
	}
	if config.TLS != nil {
		s.tls = config.TLS.Clone()
		s.tls.NextProtos = []string{"http/1.1"}
	}
	go s.accept()
	return s
}

// configure sets what a framework's server needs to be ours.
func configure(s *fasthttp.Server, binding *Binding, limits transports.Limits) *fasthttp.Server {
	s.ErrorHandler = binding.unreadable
	s.HeaderReceived = func(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
		if binding.tooLarge(header) {
			// Else fasthttp would wait for the first 8 KiB before anybody is asked, of a peer that may wait for our word.
			header.Set("Expect", "100-continue")
		}
		return fasthttp.RequestConfig{ReadTimeout: limits.RequestTimeout} // tells conn.SetReadDeadline
	}
	s.ExpectHandler = binding.expect
	s.ConnState = changed
	s.Logger = debugLogger{binding.api.Logger()}
	s.Concurrency = 2 * (limits.MaxConnections + guard.MaxSurplus) // never reached: the listener bounds it
	s.ReadBufferSize = maxHeaderBytes
	s.StreamRequestBody = true // nobody buffers a body for a stranger, but for the 8 KiB that fasthttp reads ahead
	s.DisablePreParseMultipartForm = true
	s.SecureErrorLogMessage = true
	s.NoDefaultServerHeader, s.NoDefaultContentType = true, true
	s.NoDefaultDate = true // for which fasthttp runs a goroutine for the rest of the process; see date
	return s
}

// debugLogger is for what fasthttp says of single peers.
type debugLogger struct{ *slog.Logger }

// Printf implements fasthttp.Logger.
func (l debugLogger) Printf(format string, args ...any) {
	l.Debug("fasthttp", "message", fmt.Sprintf(format, args...))
}

// backoff is how long nothing is accepted after the process ran out of something for it.
const backoff = 5 * time.Millisecond

func (s *Server) accept() {
	defer close(s.served)
	for {
		c, err := s.listener.Accept()
		switch {
		case err == nil:
			below := c.(*guard.Conn)
			s.count(below, nil)
			go s.serve(below)
		case errors.Is(err, net.ErrClosed): // Shutdown closes it
			return
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ECONNABORTED):
			s.api.Logger().Warn("a connection could not be accepted", "error", err)
			<-time.After(backoff)
		default:
			s.api.Logger().Error("the listener failed; nothing new is accepted", "address", s.Addr().String(), "error", err)
			return
		}
	}
}

// count takes a connection into open, or says what it has become.
func (s *Server) count(below *guard.Conn, c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.none == nil {
		s.none = make(chan struct{})
	}
	s.open[below] = c
}

func (s *Server) forget(below *guard.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.open, below); len(s.open) == 0 {
		close(s.none)
		s.none = nil
	}
}

func (s *Server) serve(below *guard.Conn) {
	defer s.forget(below)
	plain, state := net.Conn(below), (*tls.ConnectionState)(nil)
	if s.tls != nil {
		secure := tls.Server(below, s.tls)
		if err := s.handshake(below, secure); err != nil {
			s.api.Logger().Debug("a handshake failed", "remote", below.Remote(), "error", err)
			below.Close() //nolint:errcheck // nothing was promised to this peer
			return
		}
		known := secure.ConnectionState()
		plain, state = secure, &known
	}
	c := newConn(plain, below, state, s)
	s.count(below, c)
	if err := s.http.ServeConn(c); err != nil {
		s.api.Logger().Debug("a connection failed", "remote", below.Remote(), "error", err)
	}
}

// handshake makes TLS of the connection, in its time. Who speaks plain HTTP is told so.
func (s *Server) handshake(below *guard.Conn, secure *tls.Conn) error {
	if err := below.SetReadDeadline(time.Now().Add(s.limits.HandshakeTimeout)); err != nil {
		return err
	}
	err := secure.HandshakeContext(context.Background()) // the deadline bounds it
	if other, ok := errors.AsType[tls.RecordHeaderError](err); ok && other.Conn != nil && looksLikeHTTP(other.RecordHeader) {
		io.WriteString(other.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n") //nolint:errcheck // the peer sees it, or not
	}
	return err
}

// looksLikeHTTP tells the start of a method of HTTP from that of a record.
func looksLikeHTTP(header [5]byte) bool {
	switch string(header[:4]) {
	case "GET ", "HEAD", "POST", "PUT ", "DELE", "OPTI":
		return true
	default:
		return false
	}
}

// Addr implements transports.Server.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Shutdown implements transports.Server. What was accepted is answered, and what comes later on a connection that carried a request within
// the last grace is refused (DRAINING), both with Connection: close; for that such connections stay open for another grace,
// unless the context ends. Those without a request yet, and those idle for longer, are closed at once. A request that crosses with a close
// on the wire was not read here, which its client cannot see: to the client it is in doubt.
func (s *Server) Shutdown(ctx context.Context) error {
	// First the listener: a client that is told Connection: close and dials again must find nobody, not a place in the backlog that
	// is reset when its request is on the way.
	s.listener.Close() //nolint:errcheck // nothing listens, either way
	s.stop.Do(s.api.Stop)
	// A request marks its connection before it looks whether the API was stopped: what is unmarked now has accepted nothing.
	s.listener.Drain()
	s.closeIdle(grace)
	graceful, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if s.wait(graceful) != nil {
		s.ending.Store(true)
		s.closeIdle(0)
	}
	if err := s.wait(ctx); err != nil && s.closeAll() > 0 {
		return err
	}
	<-s.served
	return nil
}

// closeIdle ends the wait of the connections that have waited for a request for so long.
func (s *Server) closeIdle(longer time.Duration) {
	before := transports.Now() - int64(longer)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		if c == nil {
			continue
		}
		if since := c.idleSince.Load(); since != 0 && since <= before {
			c.expire()
		}
	}
}

// closeAll closes what is left at once, and returns how many of the connections did not wait for a request.
func (s *Server) closeAll() (busy int) {
	s.mu.Lock()
	open := make([]*guard.Conn, 0, len(s.open))
	for below, c := range s.open {
		if c == nil || c.idleSince.Load() == 0 {
			busy++
		}
		open = append(open, below)
	}
	s.mu.Unlock()
	for _, below := range open { // not under the lock, which those that end take
		below.Close() //nolint:errcheck // the context's error is what is returned
	}
	return busy
}

// wait returns when no connection is open, or the context's error.
func (s *Server) wait(ctx context.Context) error {
	s.mu.Lock()
	none := s.none
	s.mu.Unlock()
	if none == nil {
		return nil
	}
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
