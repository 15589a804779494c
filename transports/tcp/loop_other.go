package tcp

// loop is the engines that read many connections on one thread; this build has none.
type loop struct{}

// take reports whether the loop reads the connection from now on.
func (l *loop) take(*conn) bool { return false }

// looped is a connection's place in it.
type looped struct{}

func (l *looped) wake() {}
