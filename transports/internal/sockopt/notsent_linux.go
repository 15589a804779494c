package sockopt

import "golang.org/x/sys/unix"

func setNotSent(fd, bytes int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
}

func notSent(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.SIOCOUTQNSD) }
