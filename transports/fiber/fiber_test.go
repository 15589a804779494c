package fiber_test

import (
	"testing"

	"go.uber.org/goleak"

	"tailgate/transports/fiber"
	"tailgate/transports/internal/resttest"
	"tailgate/transports/internal/sessiontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAPI holds the transport to what HTTP can see of the API.
func TestAPI(t *testing.T) { resttest.Run(t, fiber.Transport()) }

// TestStreams holds it to what every transport's streams of events show.
func TestStreams(t *testing.T) { sessiontest.RunStreams(t, fiber.Transport) }

// TestWhatDiffersFromRest holds the README's table.
func TestWhatDiffersFromRest(t *testing.T) { resttest.Fasthttp(t, fiber.Transport()) }
