package hardware_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tailgate/loadtest/hardware"
)

// cpu is what this process has used, by the kernel's accounts.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// work uses a processor for a while, on threads that may be new.
func work(n int) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			runtime.LockOSThread() // the thread ends with the goroutine: what it did must not be lost
			x := uint64(1)
			for i := range uint64(20_000_000) {
				x = x*6364136223846793005 + i
			}
			if x == 42 {
				panic("this does not happen")
			}
		})
	}
	wg.Wait()
}

// TestAllThreadsCount: threads that were there and threads that come and go are all counted, once: the sum is the CPU time that the kernel says.
func TestAllThreadsCount(t *testing.T) {
	c := hardware.CountSoftware()
	defer c.Close()
	first := c.Read()
	if first.NotAvailable != "" {
		t.Skipf("no counters of the kernel's here: %s", first.NotAvailable)
	}
	before := cpu(t)
	work(8)
	used := cpu(t) - before
	r := c.Read().Since(first)
	for _, counted := range []uint64{r.Cycles, r.Instructions} {
		if ratio := float64(counted) / float64(used); ratio < 0.9 || ratio > 1.1 {
			t.Errorf("%v of CPU time were counted, the kernel says %v", time.Duration(counted), used)
		}
	}
	if r.BranchMisses == 0 || r.Counted != 1 {
		t.Errorf("context switches in the last place, and all of the time: %+v", r)
	}
}

// TestHere: this machine has counters or a reason, never zeros without one.
func TestHere(t *testing.T) {
	c := hardware.Count()
	defer c.Close()
	first := c.Read()
	work(1)
	r := c.Read().Since(first)
	t.Logf("%+v", r)
	if counts := r.Cycles > 0 && r.Instructions > 0; counts == (r.NotAvailable != "") {
		t.Errorf("%+v", r)
	}
}

// TestWithout: each machine without counters says why, and one that keeps the kernel's mode for itself still counts the process's own.
func TestWithout(t *testing.T) {
	always := func(err error) func(bool) error { return func(bool) error { return err } }
	for _, c := range []struct {
		name   string
		refuse func(kernelToo bool) error
		want   string
	}{
		{"a virtual machine", always(unix.ENOENT), "no hardware counters"},
		{"another", always(unix.EOPNOTSUPP), "no hardware counters"},
		{"paranoid", always(unix.EACCES), "perf_event_paranoid"},
		{"a sandbox", always(unix.ENOSYS), "perf_event_open"},
		{"few files", always(unix.EMFILE), "ulimit -n"},
		{"something else", always(unix.EIO), "input/output error"},
		{"a processor without one free", always(nil), "never ran"},
		{"only its own mode", func(kernelToo bool) error {
			if kernelToo {
				return unix.EACCES
			}
			return nil
		}, "never ran"}, // opened the second time
	} {
		counter := hardware.CountOn(c.refuse)
		r := counter.Read()
		counter.Close()
		if !strings.Contains(r.NotAvailable, c.want) || r.Cycles+r.Instructions+r.CacheMisses+r.BranchMisses != 0 {
			t.Errorf("%s: %+v, want the reason %q", c.name, r, c.want)
		}
		if later := (hardware.Reading{Cycles: 5}).Since(r); later.NotAvailable == "" {
			t.Errorf("%s: a difference to nothing is %+v", c.name, later)
		}
	}
}

func TestScale(t *testing.T) {
	for _, c := range []struct {
		count, enabled, running, want uint64
		counted                       float64
	}{{100, 10, 10, 100, 1}, {100, 10, 5, 200, 0.5}, {0, 0, 0, 0, 0}, {100, 10, 0, 0, 0}} {
		if got, counted := hardware.Scale(c.count, c.enabled, c.running); got != c.want || counted != c.counted {
			t.Errorf("%d in %d of %d: %d, %v", c.count, c.running, c.enabled, got, counted)
		}
	}
}
