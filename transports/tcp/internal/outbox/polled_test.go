package outbox_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tailgate/transports/tcp/internal/outbox"
)

// polled is a box whose socket an owner polls, until the box is done. It judges the peer by a clock that runs so many times as fast as others.
func polled(t testing.TB, near *net.TCPConn, speed int64, change func(*outbox.Config)) *outbox.Box {
	t.Helper()
	raw := outbox.Raw(near)
	if raw == nil {
		t.Skip("there are no raw sockets on this system")
	}
	ready := make(chan struct{}, 1)
	b := box(near, false, func(c *outbox.Config) {
		c.Polled = true
		c.OnReady = func() {
			select {
			case ready <- struct{}{}:
			default:
			}
		}
		if change != nil {
			change(c)
		}
	})
	begin := time.Now()
	go func() {
		for {
			select {
			case <-b.Done():
				return
			case <-ready:
			default:
				n := 0
				_ = raw.Control(func(fd uintptr) {
					n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 1)
				})
				b.Overdue(speed * int64(time.Since(begin)))
				if n == 0 {
					continue
				}
			}
			b.Writable()
		}
	}()
	return b
}

func TestPolledBoxGivesUpWhoTakesNothing(t *testing.T) {
	near, _ := pair(t)
	died := make(chan error, 1)
	b := polled(t, near, 1000, func(c *outbox.Config) { c.OnDeath = func(err error) { died <- err } })
	answer(b, 1, 1, 64<<20, 1)
	b.Release(b.Mark(), 1)
	if err := <-died; !errors.Is(err, outbox.ErrSlowReader) || !strings.Contains(err.Error(), "no byte for 20s") {
		t.Errorf("died of %v, want %v", err, outbox.ErrSlowReader)
	}
	b.WaitWritten()
	<-b.Done()
}

// TestRoomIsToldOnce: who asks for room that is not there hears when it has come.
func TestRoomIsToldOnce(t *testing.T) {
	near, far := pair(t)
	told := make(chan struct{}, 10)
	b := box(near, false, func(c *outbox.Config) { c.OnReady = func() { told <- struct{}{} } })
	if !b.Room(1) {
		t.Error("an empty box has no room for a byte")
	}
	answer(b, 1, 1, 64<<20, 1)
	mark := b.Mark()
	if b.Room(1000) {
		t.Error("64 MiB wait, and less than 1,000 bytes are said to")
	}
	b.Release(mark, 1)
	go func() { // until near is closed
		buffer := make([]byte, 1<<20)
		for {
			if _, err := far.Read(buffer); err != nil {
				return
			}
		}
	}()
	<-told
	if !b.Room(1000) {
		t.Error("there is no room after there was")
	}
	b.Finish()
	<-b.Done()
	if !b.Room(0) {
		t.Error("a box that takes nothing more lets its owner wait for room")
	}
	if len(told) > 0 {
		t.Errorf("told %d times more", len(told))
	}
}
