package fiber_test

import (
	"net"
	"testing"

	bare "github.com/gofiber/fiber/v3"

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
		app.Listener(inner, bare.ListenConfig{DisableStartupMessage: true}) //nolint:errcheck // ends with the listener
	})
}
