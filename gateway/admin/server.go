package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"strings"
	"time"

	"connectrpc.com/connect"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/proto/gen/orderentry/v1/orderentryv1connect"
	"tailgate/transports"
)

// Bounds of the listener. Administration is a few requests a minute; what passes these is not an operator.
const (
	maxConnections  = 64
	maxStreams      = 16       // requests in flight on one connection over HTTP/2
	maxRequestBytes = 64 << 10 // a SetLimits with 1,000 restricted symbols has about 18 KiB
	maxHeaderBytes  = 16 << 10
	keyTimeout      = 5 * time.Second // from connect to the first request with a key, handshakes included
	requestTimeout  = 10 * time.Second
	idleTimeout     = time.Minute
)

// Server is the running listener.
type Server struct {
	door     *door
	listener net.Listener // the door, or TLS before it
	http     *http.Server
	served   chan struct{} // closed when Serve has returned
}

// Listen starts the listener. tlsConfig nil means plain text; logger nil means none.
func Listen(ctx context.Context, address string, tlsConfig *tls.Config, backend Backend, logger *slog.Logger) (*Server, error) {
	return listen(ctx, address, tlsConfig, backend, logger, &door{most: maxConnections, patience: keyTimeout})
}

// listen is Listen through a door that has no listener yet.
func listen(ctx context.Context, address string, tlsConfig *tls.Config, backend Backend, logger *slog.Logger, door *door) (*Server, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	var config net.ListenConfig
	inner, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(Handler(backend, logger))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC without TLS, on loopback
	door.Listener = inner
	s := &Server{
		door: door, listener: door, served: make(chan struct{}),
		http: &http.Server{
			Handler: mux, Protocols: protocols, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
			ConnContext: withGuest, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
			ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: 2 * requestTimeout, IdleTimeout: idleTimeout,
		},
	}
	if tlsConfig != nil {
		tlsConfig = tlsConfig.Clone()
		tlsConfig.NextProtos = []string{"h2", "http/1.1"}
		s.listener = tls.NewListener(s.listener, tlsConfig)
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("the admin listener failed", "error", err)
		}
	}()
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Shutdown takes nothing new, closes connections that have shown no key, and answers what was accepted. When the context ends first, it closes what is left and returns the
// context's error. Safe to call more than once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.door.turnAway()
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close() // the context's end is the error to report
	}
	<-s.served
	return err
}

// Handler is AdminService with its path, for a mux. Every request has to show an administrator's key.
func Handler(backend Backend, logger *slog.Logger) (string, http.Handler) {
	return orderentryv1connect.NewAdminServiceHandler(
		&service{backend: backend},
		connect.WithReadMaxBytes(maxRequestBytes),
		connect.WithCodec(jsonCodec{}),
		connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
				name, err := authorize(ctx, backend, r)
				var response connect.AnyResponse
				if err == nil {
					response, err = next(ctx, r)
				}
				who := []any{"method", r.Spec().Procedure, "remote", r.Peer().Addr, "administrator", name}
				if err != nil {
					err = errorOf(err)
					logger.Warn("admin request refused", append(who, "error", err)...)
					return nil, err
				}
				level := slog.LevelInfo
				if strings.HasPrefix(path.Base(r.Spec().Procedure), "Get") {
					level = slog.LevelDebug // a reading changes nothing, and may come every second
				}
				request, _ := jsonCodec{}.Marshal(r.Any()) // zeros are written: engaged=false is half of the trail
				logger.Log(ctx, level, "admin request", append(who, "request", string(request))...)
				return response, nil
			}
		})),
		connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, cause any) error {
			logger.Error("an admin request panicked", "method", spec.Procedure, "panic", cause)
			return errorOf(transports.AsFault(fmt.Errorf("panic: %v", cause)))
		}),
	)
}

// authorize returns the name of the administrator who asks.
func authorize(ctx context.Context, backend Backend, r connect.AnyRequest) (name string, err error) {
	key := ""
	if header := r.Header().Get("Authorization"); header != "" {
		scheme, value, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") || value == "" {
			return "", transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "the Authorization header must be: Bearer KEY")
		}
		key = value
	}
	remote, err := net.ResolveTCPAddr("tcp", r.Peer().Addr) // numeric, so nothing is looked up
	if err != nil {
		return "", transports.AsFault(err)
	}
	if name, err = backend.Authorize(key, remote); err != nil {
		return "", err
	}
	if g := guestOf(ctx); g != nil && !g.authorize() {
		return name, transports.Refuse(pb.Reason_REASON_OVERLOADED, "the connection is closed: it came too late with its key, or too many came without one")
	}
	return name, nil
}

// codes says with which code a refusal ends.
var codes = map[pb.Reason]connect.Code{
	pb.Reason_REASON_MALFORMED:           connect.CodeInvalidArgument,
	pb.Reason_REASON_UNAUTHENTICATED:     connect.CodeUnauthenticated,
	pb.Reason_REASON_PERMISSION_DENIED:   connect.CodePermissionDenied,
	pb.Reason_REASON_NOT_FOUND:           connect.CodeNotFound,
	pb.Reason_REASON_DEADLINE_EXCEEDED:   connect.CodeDeadlineExceeded,
	pb.Reason_REASON_JOURNAL_UNAVAILABLE: connect.CodeUnavailable,
	pb.Reason_REASON_DRAINING:            connect.CodeUnavailable,
	pb.Reason_REASON_OVERLOADED:          connect.CodeUnavailable,
}

// errorOf is a fault as connect says it, with the contract's ErrorDetail. What is connect's own already stays.
func errorOf(err error) error {
	if own, ok := errors.AsType[*connect.Error](err); ok {
		return own
	}
	fault := transports.AsFault(err)
	code, ok := codes[fault.Reason]
	if !ok {
		code = connect.CodeInternal
	}
	message := fault.Message
	if fault.Field != "" {
		message = fault.Field + ": " + message
	}
	e := connect.NewError(code, errors.New(message))
	if detail, err := connect.NewErrorDetail(fault.Detail()); err == nil {
		e.AddDetail(detail)
	}
	return e
}
