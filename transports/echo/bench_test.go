package echo_test

import (
	"net"
	"net/http"
	"testing"

	bare "github.com/labstack/echo/v5"

	"tailgate/transports/echo"
	"tailgate/transports/internal/resttest"
)

// BenchmarkOverhead compares the transport with Echo alone.
func BenchmarkOverhead(b *testing.B) {
	resttest.Bench(b, echo.Transport(), func(inner net.Listener, contentType string, answer []byte) {
		e := bare.New()
		e.POST("/v1/orders", func(c *bare.Context) error { return c.Blob(http.StatusOK, contentType, answer) })
		http.Serve(inner, e) //nolint:errcheck // ends with the listener
	})
}
