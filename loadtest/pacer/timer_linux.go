package pacer

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// fine waits by a timer of the kernel that the runtime's poller watches like a socket. So it is as exact as the kernel's high-resolution
// timers, no thread sleeps in it, no core is taken from the answers that arrive meanwhile, and the timer slack of threads has no part in it.
type fine struct {
	file *os.File
	fd   int
	buf  [8]byte
}

// NewSleeper returns the finest that the system has.
func NewSleeper() (Sleeper, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("pacer: a timer of the kernel: %w", err)
	}
	return &fine{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}, nil
}

// Sleep implements Sleeper.
func (t *fine) Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		Coarse{}.Sleep(d) // cannot be: the descriptor is ours and the time is positive
		return
	}
	// Blocks until the timer has expired; there is nothing to learn from the count or an error: the caller looks at its clock.
	_, _ = t.file.Read(t.buf[:])
}

// Close implements Sleeper.
func (t *fine) Close() error { return t.file.Close() }
