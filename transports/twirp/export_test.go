package twirp

import (
	"net/http"

	"tailgate/transports"
)

// NewHandler is the server without sockets, for benchmarks.
func NewHandler(gateway transports.Gateway) http.Handler {
	return newHandler(gateway, transports.Limits{}.WithDefaults(), nil)
}
