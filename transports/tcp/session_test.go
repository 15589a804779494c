package tcp_test

import (
	"testing"

	"tailgate/transports/internal/sessiontest"
	"tailgate/transports/tcp"
)

func TestSessions(t *testing.T) { sessiontest.Run(t, tcp.Transport) }
