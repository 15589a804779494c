package pacer

import "time"

// Sleeper waits for short times. It is for one goroutine at a time.
type Sleeper interface {
	// Sleep returns when the time has passed, seldom earlier; the caller looks at its clock again.
	Sleep(d time.Duration)
	// Close frees what it holds.
	Close() error
}

// Coarse sleeps by the runtime's timers. With nothing else to do the runtime waits for them in whole milliseconds, so they are late by up to
// one: enough where nothing finer can be had, and for clocks of a test.
type Coarse struct{}

// Sleep implements Sleeper.
func (Coarse) Sleep(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // to let time pass is its task

// Close implements Sleeper.
func (Coarse) Close() error { return nil }
