package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"tailgate/transports/internal/sessiontest"
	"tailgate/transports/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSessions(t *testing.T) { sessiontest.Run(t, memory.Transport) }
