package twirp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/httpserver"
	"tailgate/transports/internal/sockopt"
)

// handler implements http.Handler: it admits, reads and decodes a request, and leaves the rest to the generated server, which calls it back as
// pb.OrderEntryService.
type handler struct {
	gateway   transports.Gateway
	limits    transports.Limits
	logger    *slog.Logger
	methods   map[string]transports.Operation // by path; never changed
	generated http.Handler                    // what Twirp made of the contract: it routes, encodes and writes errors
	draining  atomic.Bool
}

func listen(ctx context.Context, gateway transports.Gateway, config transports.ListenConfig) (transports.Server, error) {
	inner, err := sockopt.Listen(ctx, config.Address, config.CongestionControl)
	if err != nil {
		return nil, fmt.Errorf("twirp: listen at %s: %w", config.Address, err)
	}
	return serve(inner, gateway, config), nil
}

// serve starts a server that accepts from inner, which belongs to it from then on.
//
// Memory of a connection is bounded by MaxStreams x (largest body + largest answer): buffers grow with the bytes that came, never with the
// length that a header claims.
func serve(inner net.Listener, gateway transports.Gateway, config transports.ListenConfig) transports.Server {
	limits := config.Limits.WithDefaults()
	h := newHandler(gateway, limits, config.Logger)
	return httpserver.Serve(inner, h, httpserver.Config{Limits: limits, TLS: config.TLS, Logger: h.logger, HTTP2: true, Stop: func() { h.draining.Store(true) }})
}

func newHandler(gateway transports.Gateway, limits transports.Limits, logger *slog.Logger) *handler {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{gateway: gateway, limits: limits, logger: logger.With("transport", Name), methods: make(map[string]transports.Operation)}
	h.generated = pb.NewOrderEntryServiceServer(service{})
	for _, op := range transports.Operations() {
		h.methods[pb.OrderEntryServicePathPrefix+op.String()] = op
	}
	return h
}
