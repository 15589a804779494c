package twirp_test

import (
	"testing"

	"go.uber.org/goleak"

	"tailgate/transports/internal/rpctest"
	"tailgate/transports/twirp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAtBothEnds(t *testing.T) { rpctest.Run(t, twirp.Transport()) }
