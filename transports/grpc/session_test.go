package grpc_test

import (
	"testing"

	"tailgate/transports/grpc"
	"tailgate/transports/internal/sessiontest"
)

func TestSessions(t *testing.T) { sessiontest.Run(t, grpc.Transport) }
