//go:build !linux

package tcp

import "errors"

// engines are the I/O engines of this system, the first is the default.
var engines = []string{engineNet}

// loop is what reads many connections on one thread; here there is none.
type loop struct{ done chan struct{} }

func newLoop(*server, bool) (*loop, error) { return nil, errors.ErrUnsupported }

func (l *loop) take(*conn) bool { return false }

func (l *loop) stop() {}

// looped is a connection's place in it.
type looped struct{}

func (p *looped) wake() {}
