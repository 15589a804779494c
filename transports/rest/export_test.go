package rest

import (
	"net"
	"net/http"
	"time"

	"tailgate/transports"
	"tailgate/transports/internal/httpserver"
	"tailgate/transports/internal/restapi"
	"tailgate/transports/internal/resthttp"
)

// NewHandler is the server without sockets, for benchmarks and fuzzing.
func NewHandler(gateway transports.Gateway, limits transports.Limits) http.Handler {
	return handler(resthttp.New(restapi.New(Name, gateway, limits.WithDefaults(), nil)))
}

// Grace is what a server's Shutdown allows by default.
const Grace = httpserver.Grace

// SetGrace changes it for one server, before its Shutdown.
func SetGrace(s transports.Server, d time.Duration) { s.(*httpserver.Server).Grace = d }

// Serve is Listen with a listener of the caller's.
func Serve(inner net.Listener, gateway transports.Gateway, config transports.ListenConfig) transports.Server {
	return resthttp.Serve(Name, inner, gateway, config, handler)
}
