package journaltest

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
)

// Failure makes calls of a Disk fail. The zero value of every field but N is usable.
type Failure struct {
	// N is which call fails, from 1, among those that Ops and Match let through.
	N int
	// Lasting makes every later one of them fail too.
	Lasting bool
	// Err is the errno; zero is EIO.
	Err syscall.Errno
	// Short lets a write take half of its bytes before it fails.
	Short bool
	// Ops are the kinds of call that may fail; nil means all.
	Ops []Op
	// Match, when set, says whether a call may fail.
	Match func(Call) bool

	mu    sync.Mutex
	seen  int
	first *Call
}

// Before is what Disk.Intercept wants.
func (f *Failure) Before(c Call) *Fault {
	if f.Ops != nil && !slices.Contains(f.Ops, c.Op) || f.Match != nil && !f.Match(c) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
	if f.seen < f.N || f.seen > f.N && !f.Lasting {
		return nil
	}
	if f.first == nil {
		f.first = &Call{N: c.N, Op: c.Op, Path: c.Path, Off: c.Off}
	}
	err := f.Err
	if err == 0 {
		err = syscall.EIO
	}
	kept := 0
	if f.Short {
		kept = len(c.Data) / 2
	}
	return &Fault{fmt.Errorf("%s %s: %w", c.Op, c.Path, err), kept}
}

// Hit returns the first call that failed, without its data, or nil.
func (f *Failure) Hit() *Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first
}
