package grpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/bearer"
	"tailgate/transports/internal/envelope"
	"tailgate/transports/internal/guard"
	"tailgate/transports/internal/sockopt"
)

const (
	// maxHeaderBytes bounds the header list of one request, as on REST.
	maxHeaderBytes = 16 << 10
	// minPingInterval is how often a client may ping, with or without requests; faster ones are closed with GOAWAY
	// "too_many_pings" (gRPC proposal A8). grpc's own default of 5 minutes would cut clients that look for dead paths.
	minPingInterval = 10 * time.Second
	// pingAfter and pingTimeout find peers that vanished without a word: a ping after so much silence, then so long for its answer.
	pingAfter   = time.Minute
	pingTimeout = 20 * time.Second
)

// server implements transports.Server.
type server struct {
	gateway  transports.Gateway
	limits   transports.Limits
	logger   *slog.Logger
	listener *guard.Listener
	grpc     *grpc.Server
	health   *health.Server
	draining atomic.Bool
	drain    chan struct{} // closed with draining: the streams end
	served   chan struct{} // closed when Serve has returned

	stop    sync.Once
	stopped chan struct{} // closed when GracefulStop has returned
}

func listen(ctx context.Context, gateway transports.Gateway, config transports.ListenConfig) (transports.Server, error) {
	inner, err := sockopt.Listen(ctx, config.Address, config.CongestionControl)
	if err != nil {
		return nil, fmt.Errorf("grpc: listen at %s: %w", config.Address, err)
	}
	s := newServer(gateway, config)
	s.serve(inner)
	return s, nil
}

// newServer returns a server that serves nothing yet.
func newServer(gateway transports.Gateway, config transports.ListenConfig) *server {
	limits := config.Limits.WithDefaults()
	logger := config.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &server{
		gateway: gateway, limits: limits, logger: logger.With("transport", Name), health: health.NewServer(),
		drain: make(chan struct{}), served: make(chan struct{}), stopped: make(chan struct{}),
	}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec(limits.MaxRequestBytes)),
		grpc.StreamInterceptor(s.foreignStream),
		grpc.MaxConcurrentStreams(uint32(min(limits.MaxStreams, 1<<31-1))),
		grpc.MaxRecvMsgSize(limits.MaxRequestBytes + envelope.MaxHead),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(limits.HandshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: limits.IdleTimeout, Time: pingAfter, Timeout: pingTimeout}),
	}
	if config.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config.TLS.Clone()))) // NewTLS adds "h2" to NextProtos
	}
	s.grpc = grpc.NewServer(options...)
	s.grpc.RegisterService(s.service(), s)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	s.health.SetServingStatus(pb.OrderEntryService_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	reflection.Register(s.grpc)
	return s
}

// serve starts to accept from inner, which belongs to the server from now on.
func (s *server) serve(inner net.Listener) {
	s.listener = guard.Listen(inner, guard.Options{
		MaxConnections: s.limits.MaxConnections, SurplusTime: s.limits.HandshakeTimeout, WriteTimeout: s.limits.WriteTimeout,
	})
	go func() {
		defer close(s.served)
		if err := s.grpc.Serve(s.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !s.draining.Load() {
			s.logger.Error("the listener failed; nothing new is accepted", "address", inner.Addr().String(), "error", err)
		}
	}()
}

// service describes OrderEntryService with handlers of our own instead of the generated ones: one for all operations, and able to
// answer bytes that are not the message they should be, see codec.
func (s *server) service() *grpc.ServiceDesc {
	generated := &pb.OrderEntryService_ServiceDesc
	desc := &grpc.ServiceDesc{ServiceName: generated.ServiceName, HandlerType: (*any)(nil), Metadata: generated.Metadata}
	for _, op := range transports.Operations() {
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: op.String(), Handler: s.unary(op)})
	}
	streams := map[string]func(peering, grpc.ServerStream) error{"Trade": s.trade, "StreamExecutions": s.executions}
	for _, stream := range generated.Streams {
		stream.Handler = s.streaming(stream.StreamName, streams[stream.StreamName])
		desc.Streams = append(desc.Streams, stream)
	}
	return desc
}

// unary returns the handler of one operation. grpc calls it on a goroutine of the request's own, with a context that carries the
// caller's deadline and ends with its stream.
func (s *server) unary(op transports.Operation) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (answer any, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				s.logger.Error("a request panicked", "operation", op.String(), "panic", cause, "stack", string(debug.Stack()))
				answer, err = nil, statusOf(transports.AsFault(fmt.Errorf("panic: %v", cause))).Err()
			}
		}()
		x := transports.Exchange{Operation: op, Request: op.NewRequest(), Response: op.NewResponse()}
		if err := s.exchange(ctx, decode, &x); err != nil {
			return nil, statusOf(transports.AsFault(err)).Err()
		}
		return x.Response, nil
	}
}

func (s *server) exchange(ctx context.Context, decode func(any) error, x *transports.Exchange) error {
	from, err := s.admit(ctx)
	if err != nil {
		return err
	}
	session, err := s.gateway.Open(ctx, from)
	if err != nil {
		return err
	}
	defer session.Close()
	in := incoming{request: x.Request}
	watch := s.watch(ctx)
	err = decode(&in)
	watch.end()
	if err != nil {
		return err // too large, broken off, or over: grpc has answered already, and does not look at this
	}
	if in.err != nil {
		return in.err
	}
	x.ReceivedNs = in.receivedNs
	return transports.Do(ctx, session, x)
}

// admit says who asks, or why nobody may.
func (s *server) admit(ctx context.Context) (transports.Peer, error) {
	from := transports.Peer{Transport: Name}
	if p, ok := peer.FromContext(ctx); ok {
		from.Remote = p.Addr
		if conn := guard.Of(p.Addr); conn != nil {
			from.Remote = conn.Remote()
			if conn.Surplus() {
				return from, transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d connections are open already, as many as this listener takes", s.limits.MaxConnections)
			}
			conn.Use() // before the look at draining, see Shutdown
		}
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			from.TLS = &info.State
		}
	}
	if s.draining.Load() {
		return from, transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later")
	}
	var err error
	from.Key, err = bearer.Key(metadata.ValueFromIncomingContext(ctx, "authorization"))
	return from, err
}

// closeCondemned closes, while the server stops, the connections of peers that left a stream unread. They had WriteTimeout to
// take what they are owed.
func (s *server) closeCondemned() {
	ticker := time.NewTicker(s.limits.WriteTimeout)
	defer ticker.Stop()
	for {
		select {
		case <-s.stopped:
			return
		case <-ticker.C:
			s.listener.CloseCondemned()
		}
	}
}

// Addr implements transports.Server.
func (s *server) Addr() net.Addr { return s.listener.Addr() }

// Shutdown implements transports.Server: health turns to NOT_SERVING, peers get GOAWAY, requests that come on the way are refused
// (DRAINING), those accepted are answered, sessions and streams of events end. A stream of server reflection that a peer keeps open lasts until the context ends.
func (s *server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() {
		s.draining.Store(true)
		close(s.drain)
		s.health.Shutdown()
		// A request marks its connection before it looks at draining: what is unmarked now has accepted nothing.
		s.listener.Drain()
		go func() {
			defer close(s.stopped)
			s.grpc.GracefulStop()
			<-s.served
		}()
		go s.closeCondemned()
	})
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
		s.grpc.Stop() // ends the contexts of what is left, by which GracefulStop returns as well
		return ctx.Err()
	}
}
