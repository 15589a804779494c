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
		server := &bare.Server{NoDefaultDate: true, Handler: func(c *bare.RequestCtx) {
			c.SetContentType(contentType)
			c.SetBody(answer)
		}}
		resttest.Accept(inner, func(conn net.Conn) { _ = server.ServeConn(conn) }) // ends with the connection
	})
}
