package fasthttp_test

import (
	"net"
	"testing"

	bare "github.com/valyala/fasthttp"

	"tailgate/transports/fasthttp"
	"tailgate/transports/internal/resttest"
)

// BenchmarkOverhead compares the transport with fasthttp alone.
func BenchmarkOverhead(b *testing.B) {
	resttest.Bench(b, fasthttp.Transport(), func(inner net.Listener, contentType string, answer []byte) {
		bare.Serve(inner, func(c *bare.RequestCtx) { //nolint:errcheck // ends with the listener
			c.SetContentType(contentType)
			c.SetBody(answer)
		})
	})
}
