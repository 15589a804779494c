package fiber_test

import (
	"net"
	"testing"

	bare "github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"tailgate/transports/fiber"
	"tailgate/transports/internal/resttest"
)

// BenchmarkOverhead compares the transport with Fiber alone.
func BenchmarkOverhead(b *testing.B) {
	resttest.Bench(b, fiber.Transport(), func(inner net.Listener, contentType string, answer []byte) {
		app := bare.New()
		app.Post("/v1/orders", func(c bare.Ctx) error {
			c.Set("Content-Type", contentType)
			return c.Send(answer)
		})
		server := &fasthttp.Server{NoDefaultDate: true, Handler: app.Handler()}
		resttest.Accept(inner, func(conn net.Conn) { _ = server.ServeConn(conn) }) // ends with the connection
	})
}
