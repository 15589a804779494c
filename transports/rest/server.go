package rest

import (
	"context"
	"fmt"
	"net"

	"tailgate/transports"
	"tailgate/transports/internal/httpserver"
	"tailgate/transports/internal/sockopt"
)

// maxHeaderBytes bounds the headers of an answer, as httpserver does those of a request.
const maxHeaderBytes = httpserver.MaxHeaderBytes

func listen(ctx context.Context, gateway transports.Gateway, config transports.ListenConfig) (transports.Server, error) {
	inner, err := sockopt.Listen(ctx, config.Address, config.CongestionControl)
	if err != nil {
		return nil, fmt.Errorf("rest: listen at %s: %w", config.Address, err)
	}
	return serve(inner, gateway, config), nil
}

// serve starts a server that accepts from inner, which belongs to it from then on. A stream of events has its connection to itself.
//
// Memory is bounded by MaxConnections x (largest body + largest answer): buffers grow with the bytes that came, never with the
// length that a header claims.
func serve(inner net.Listener, gateway transports.Gateway, config transports.ListenConfig) *httpserver.Server {
	limits := config.Limits.WithDefaults()
	h := newHandler(gateway, limits, config.Logger)
	return httpserver.Serve(inner, h, httpserver.Config{Limits: limits, TLS: config.TLS, Logger: h.logger, Stop: h.stop})
}
