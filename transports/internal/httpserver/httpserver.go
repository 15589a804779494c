// Package httpserver is the life of a net/http server whose peers enter orders: bounds on connections and on the time that each part of a
// request may take, TLS, and a stop by which no request is lost in silence. The transports that stand on net/http share it.
//
// It must never know what a handler answers.
package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"tailgate/transports"
	"tailgate/transports/internal/guard"
)

// MaxHeaderBytes bounds request line and headers; net/http adds a slack of 4 KiB and answers 431 beyond.
const MaxHeaderBytes = 16 << 10

// Config is what a server needs beside its listener and its handler.
type Config struct {
	Limits transports.Limits // with their defaults filled in
	TLS    *tls.Config       // nil = plain text; a copy is changed
	Logger *slog.Logger      // must not be nil

	// HTTP2 adds HTTP/2 on the same listener: chosen in the handshake with TLS, by the client's first bytes without (RFC 9113, section 3.3).
	// One connection then has up to Limits.MaxStreams requests at a time.
	HTTP2 bool

	// Stop is called once, when a shutdown begins and nothing listens any more: from then on the handler refuses what comes, closes the
	// connections that it answers on, and ends the streams that it has open.
	Stop func()
}

// Server implements transports.Server. A connection of HTTP/1.1 has one request at a time; what a peer pipelines waits in the socket.
type Server struct {
	// Grace is [Grace] unless it is set before the shutdown.
	Grace time.Duration

	handler  http.Handler
	listener *guard.Listener
	http     *http.Server
	peers    peers
	begin    func() // of the stop
	stop     sync.Once
	served   chan struct{} // closed when Serve has returned
}

// Serve starts a server that accepts from inner, which belongs to it from then on. The handler finds the connection of a request with [Conn].
func Serve(inner net.Listener, handler http.Handler, config Config) *Server {
	limits := config.Limits
	var s *Server
	s = &Server{
		Grace:   Grace,
		handler: handler,
		listener: guard.Listen(inner, guard.Options{
			MaxConnections: limits.MaxConnections, SurplusTime: limits.HandshakeTimeout, WriteTimeout: limits.WriteTimeout,
		}),
		http: &http.Server{
			Handler:                      handler,
			DisableGeneralOptionsHandler: true,
			ReadHeaderTimeout:            limits.HandshakeTimeout,
			// From the first byte of a request to its last. WriteTimeout is not set here: net/http would count it from the
			// request's headers, where the contract counts from the last byte that the peer took; guard does that.
			ReadTimeout:    limits.RequestTimeout,
			IdleTimeout:    limits.IdleTimeout,
			MaxHeaderBytes: MaxHeaderBytes,
			ErrorLog:       slog.NewLogLogger(config.Logger.Handler(), slog.LevelDebug), // about single peers: handshakes, malformed requests
			Protocols:      new(http.Protocols),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, connKey{}, s.peers.add(c))
			},
		},
		begin:  config.Stop,
		served: make(chan struct{}),
	}
	s.http.ConnState = s.peers.change
	s.http.Protocols.SetHTTP1(true)
	nextProtos := []string{"http/1.1"}
	if config.HTTP2 {
		s.http.Handler = http.HandlerFunc(s.multiplexed)
		s.http.Protocols.SetHTTP2(true)
		s.http.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: limits.MaxStreams, SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
		nextProtos = []string{"h2", "http/1.1"}
		if config.TLS == nil {
			s.http.Protocols.SetUnencryptedHTTP2(true)
			s.peers.handshake = limits.HandshakeTimeout
		}
	}
	accept := s.http.Serve
	if config.TLS != nil {
		s.http.TLSConfig = config.TLS.Clone()
		s.http.TLSConfig.NextProtos = nextProtos
		accept = func(l net.Listener) error { return s.http.Serve(tls.NewListener(l, s.http.TLSConfig)) }
	}
	go func() {
		defer close(s.served)
		if err := accept(s.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) { // Shutdown closes it
			config.Logger.Error("the listener failed; nothing new is accepted", "address", inner.Addr().String(), "error", err)
		}
	}()
	return s
}

// pingAfter and pingTimeout find peers of HTTP/2 that vanished without a word: a ping after so much silence, then so long for its answer.
const (
	pingAfter   = time.Minute
	pingTimeout = 20 * time.Second
)

// multiplexed notes which connections speak HTTP/2, before the handler sees their requests.
func (s *Server) multiplexed(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		if p, _ := r.Context().Value(connKey{}).(*peer); p != nil {
			s.peers.multiplexed(p)
		}
	}
	s.handler.ServeHTTP(w, r)
}

// connKey finds the *peer in a request's context.
type connKey struct{}

// Conn returns the connection of a request of this package's servers by the request's context, nil for any other. A handler marks it
// (Use) before it looks whether it was stopped, see [Server.Shutdown].
func Conn(ctx context.Context) *guard.Conn {
	if p, _ := ctx.Value(connKey{}).(*peer); p != nil {
		return p.conn
	}
	return nil
}

// Addr implements transports.Server.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Shutdown implements transports.Server. What was accepted is answered, and what comes later on a connection that carried a request within
// the last grace is refused (DRAINING), both with Connection: close; for that such connections stay open for another grace,
// unless the context ends. Those without a request yet, and those idle for longer, are closed at once. A request that crosses with a close
// on the wire was not read here, which its client cannot see: to the client it is in doubt. With HTTP/2 it can: GOAWAY names the last request
// that was taken.
func (s *Server) Shutdown(ctx context.Context) error {
	// First the listener: a client that is told Connection: close and dials again must find nobody, not a place in the backlog that
	// is reset when its request is on the way.
	s.listener.Close() //nolint:errcheck // nothing listens, either way
	s.stop.Do(s.begin)
	// A request marks its connection before it looks at draining: what is unmarked now has accepted nothing.
	s.listener.Drain()
	// Not net/http yet, which says GOAWAY where HTTP/2 is spoken: in HTTP/1.1, from then on it drops, without an answer, what it is about to read.
	s.peers.closeIdle(s.Grace)
	s.peers.wait(ctx, s.Grace)
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close() //nolint:errcheck // the listener is closed already
		return err
	}
	<-s.served
	return nil
}
