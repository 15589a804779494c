//go:build !linux

package tcp

import (
	"errors"
	"syscall"
)

// clientEngines are the client's I/O engines, the first is the default. The others need Linux.
var clientEngines = []string{engineNet}

// poller is never there.
type poller struct{}

type ownSocket struct{}

func (c *client) leaveRuntime(string) (syscall.RawConn, error) { return nil, errors.ErrUnsupported }

func (l *poller) join(*client) error { return nil }

func (l *poller) leave(*client) {}

func (l *poller) poke(*client) {}

func (l *poller) tells() {}
