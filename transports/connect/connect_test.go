package connect_test

import (
	"testing"

	"go.uber.org/goleak"

	"tailgate/transports/connect"
	"tailgate/transports/internal/rpctest"
	"tailgate/transports/internal/sessiontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStreams(t *testing.T) { sessiontest.RunStreams(t, connect.Transport) }

func TestAtBothEnds(t *testing.T) { rpctest.Run(t, connect.Transport()) }
