package connect

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"connectrpc.com/connect"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/httpserver"
	"tailgate/transports/internal/sockopt"
)

// handler implements http.Handler: it finds the method, bounds what the library reads and watches what it writes. Between the two, the library
// calls gate before it reads the message, and then unary or stream.
type handler struct {
	gateway  transports.Gateway
	limits   transports.Limits
	logger   *slog.Logger
	methods  map[string]http.Handler // by path; never changed
	errors   *connect.ErrorWriter
	draining atomic.Bool
	drain    chan struct{} // closed with draining: the streams of events end
	streams  atomic.Int64  // of events over HTTP/1.1, open now; see mostStreams
}

func listen(ctx context.Context, gateway transports.Gateway, config transports.ListenConfig) (transports.Server, error) {
	inner, err := sockopt.Listen(ctx, config.Address, config.CongestionControl)
	if err != nil {
		return nil, fmt.Errorf("connect: listen at %s: %w", config.Address, err)
	}
	return serve(inner, gateway, config), nil
}

// serve starts a server that accepts from inner, which belongs to it from then on.
//
// Memory of a connection is bounded by MaxStreams x (largest body + largest answer): buffers grow with the bytes that came, never with the
// length that a header or an envelope claims.
func serve(inner net.Listener, gateway transports.Gateway, config transports.ListenConfig) transports.Server {
	limits := config.Limits.WithDefaults()
	h := newHandler(gateway, limits, config.Logger)
	return httpserver.Serve(inner, h, httpserver.Config{Limits: limits, TLS: config.TLS, Logger: h.logger, Stop: h.stop, HTTP2: true})
}

func newHandler(gateway transports.Gateway, limits transports.Limits, logger *slog.Logger) *handler {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{
		gateway: gateway, limits: limits, logger: logger.With("transport", Name),
		methods: make(map[string]http.Handler), errors: connect.NewErrorWriter(), drain: make(chan struct{}),
	}
	options := connect.WithHandlerOptions(
		connect.WithCodec(protobufCodec(limits.MaxRequestBytes)),
		connect.WithCodec(jsonCodec("json", limits.MaxRequestBytes)),
		connect.WithCodec(jsonCodec("json; charset=utf-8", limits.MaxRequestBytes)),
		connect.WithCompression("gzip", nil, nil), // a compressed message has no bound before it was read
		connect.WithRequestGate(h.gate),
	)
	for _, op := range transports.Operations() {
		h.methods[path(op)] = h.unary(op, options)
	}
	h.methods[path(transports.StreamExecutions)] = h.stream(options)
	return h
}

// path is where a method is called, in all three protocols.
func path(op transports.Operation) string {
	return "/" + pb.OrderEntryService_ServiceDesc.ServiceName + "/" + op.String()
}

// stop refuses new requests and ends the streams. It is called once.
func (h *handler) stop() {
	h.draining.Store(true)
	close(h.drain)
}
