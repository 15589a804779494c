package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"tailgate/transports"
	"tailgate/transports/internal/guard"
	"tailgate/transports/internal/sockopt"
)

// maxHeaderBytes bounds request line and headers; net/http adds a slack of 4 KiB and answers 431 beyond.
const maxHeaderBytes = 16 << 10

// server implements transports.Server. One connection has one request at a time; what a peer pipelines waits in the socket. A stream of
// events has its connection to itself.
//
// Memory is bounded by MaxConnections x (largest body + largest answer): buffers grow with the bytes that came, never with the
// length that a header claims.
type server struct {
	handler  *handler
	listener *guard.Listener
	http     *http.Server
	peers    peers
	grace    time.Duration
	stop     sync.Once
	served   chan struct{} // closed when Serve has returned
}

func listen(ctx context.Context, gateway transports.Gateway, config transports.ListenConfig) (transports.Server, error) {
	inner, err := sockopt.Listen(ctx, config.Address, config.CongestionControl)
	if err != nil {
		return nil, fmt.Errorf("rest: listen at %s: %w", config.Address, err)
	}
	return serve(inner, gateway, config), nil
}

// serve starts a server that accepts from inner, which belongs to it from then on.
func serve(inner net.Listener, gateway transports.Gateway, config transports.ListenConfig) *server {
	limits := config.Limits.WithDefaults()
	h := newHandler(gateway, limits, config.Logger)
	s := &server{
		handler: h,
		listener: guard.Listen(inner, guard.Options{
			MaxConnections: limits.MaxConnections, SurplusTime: limits.HandshakeTimeout, WriteTimeout: limits.WriteTimeout,
		}),
		http: &http.Server{
			Handler:                      h,
			DisableGeneralOptionsHandler: true,
			ReadHeaderTimeout:            limits.HandshakeTimeout,
			// From the first byte of a request to its last. WriteTimeout is not set here: net/http would count it from the
			// request's headers, where the contract counts from the last byte that the peer took; guard does that.
			ReadTimeout:    limits.RequestTimeout,
			IdleTimeout:    limits.IdleTimeout,
			MaxHeaderBytes: maxHeaderBytes,
			ErrorLog:       slog.NewLogLogger(h.logger.Handler(), slog.LevelDebug), // about single peers: handshakes, malformed requests
			Protocols:      new(http.Protocols),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, connKey{}, guard.Of(c.RemoteAddr()))
			},
		},
		grace:  grace,
		served: make(chan struct{}),
	}
	s.http.ConnState = s.peers.change
	s.http.Protocols.SetHTTP1(true)
	accept := s.http.Serve
	if config.TLS != nil {
		s.http.TLSConfig = config.TLS.Clone()
		s.http.TLSConfig.NextProtos = []string{"http/1.1"}
		accept = func(l net.Listener) error { return s.http.Serve(tls.NewListener(l, s.http.TLSConfig)) }
	}
	go func() {
		defer close(s.served)
		if err := accept(s.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) { // Shutdown closes it
			h.logger.Error("the listener failed; nothing new is accepted", "address", inner.Addr().String(), "error", err)
		}
	}()
	return s
}

// connKey finds the *guard.Conn in a request's context.
type connKey struct{}

// Addr implements transports.Server.
func (s *server) Addr() net.Addr { return s.listener.Addr() }

// Shutdown implements transports.Server. What was accepted is answered, and what comes later on a connection that carried a request within
// the last grace is refused (DRAINING), both with Connection: close; for that such connections stay open for another grace,
// unless the context ends. Those without a request yet, and those idle for longer, are closed at once. A request that crosses with a close
// on the wire was not read here, which its client cannot see: to the client it is in doubt.
func (s *server) Shutdown(ctx context.Context) error {
	// First the listener: a client that is told Connection: close and dials again must find nobody, not a place in the backlog that
	// is reset when its request is on the way.
	s.listener.Close() //nolint:errcheck // nothing listens, either way
	s.stop.Do(s.handler.stop)
	// A request marks its connection before it looks at draining: what is unmarked now has accepted nothing.
	s.listener.Drain()
	// Not net/http yet: from then on it drops, without an answer, what it is about to read.
	s.peers.closeIdle(s.grace)
	s.peers.wait(ctx, s.grace)
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close() //nolint:errcheck // the listener is closed already
		return err
	}
	<-s.served
	return nil
}
