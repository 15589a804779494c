package sockopt

import (
	"fmt"
	"net"
	"syscall"
)

// LimitNotSent makes the kernel take bytes to write only while less than so many wait in it to be sent for the first time (TCP_NOTSENT_LOWAT);
// by one buffer of its own it may pass that. What was sent and waits for the peer is not counted, so that the way there stays full. It is for
// connections on which something small must not wait behind much that is large. On a system other than Linux it does nothing.
func LimitNotSent(conn net.Conn, bytes int) error {
	_, err := onSocket(conn, func(fd int) (int, error) { return 0, setNotSent(fd, bytes) })
	return err
}

// NotSent returns how many bytes the kernel has taken and not yet sent once (SIOCOUTQNSD). It fails on a system other than Linux.
func NotSent(conn net.Conn) (int, error) { return onSocket(conn, notSent) }

func onSocket(conn net.Conn, do func(fd int) (int, error)) (n int, err error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("a %T has no socket", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	if failed := raw.Control(func(fd uintptr) { n, err = do(int(fd)) }); failed != nil {
		return 0, failed
	}
	return n, err
}
