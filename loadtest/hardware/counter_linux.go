package hardware

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// event is what one counter counts.
type event struct {
	kind   uint32 // PERF_TYPE_*
	config uint64
}

// events are those of a Reading, in the order of its fields.
var events = []event{
	{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS},
	{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES},
	{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_BRANCH_MISSES},
}

// opener opens a counter for a thread and all that come from it; perfOpen but for tests.
type opener func(attr *unix.PerfEventAttr, thread int) (fd int, err error)

func perfOpen(attr *unix.PerfEventAttr, thread int) (int, error) {
	const anyCore, noGroup = -1, -1
	return unix.PerfEventOpen(attr, thread, anyCore, noGroup, unix.PERF_FLAG_FD_CLOEXEC)
}

// Counter counts for this process. One goroutine at a time uses it.
type Counter struct {
	files    [][]int // descriptors by event, one for each thread
	userOnly bool
	reason   string // why there are none
}

// Count begins to count for all threads of this process, those to come and child processes included. It never fails: where counting cannot be had, Read has
// the reason.
func Count() *Counter { return count(events, perfOpen) }

// attempts bounds how often the threads are listed again because one was born or died meanwhile.
const attempts = 20

func count(events []event, open opener) *Counter {
	c := &Counter{}
	err := c.begin(events, open)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		c.userOnly = true
		err = c.begin(events, open)
	}
	if err != nil {
		c.reason = why(err)
	}
	return c
}

// begin opens a counter for each thread. Threads inherit from the one that makes them, so those of a moment in which no thread was born are all
// that need one; where one was born while they were opened, nobody knows whether it has inherited, and they are opened anew.
func (c *Counter) begin(events []event, open opener) error {
	before, err := threads()
	for range attempts {
		if err != nil {
			return err
		}
		if err := c.openAll(events, before, open); err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: a thread has ended
			c.Close()
			return err
		}
		var after []int
		after, err = threads()
		if slices.Equal(before, after) {
			return nil
		}
		c.Close()
		before = after
	}
	return errors.New("this process makes threads faster than counters can be opened for them")
}

func (c *Counter) openAll(events []event, threads []int, open opener) error {
	c.files = make([][]int, len(events))
	for i, e := range events {
		attr := unix.PerfEventAttr{
			Type: e.kind, Config: e.config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Bits: unix.PerfBitInherit,
			Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
		}
		if c.userOnly {
			attr.Bits |= unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv
		}
		for _, thread := range threads {
			fd, err := open(&attr, thread)
			if err != nil {
				return err
			}
			c.files[i] = append(c.files[i], fd)
		}
	}
	return nil
}

// threads lists this process's, in order.
func threads() ([]int, error) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	var list []int
	for _, entry := range entries {
		if id, err := strconv.Atoi(entry.Name()); err == nil {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list, nil
}

// why says what a failure to open a counter means.
func why(err error) string {
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP):
		return "this machine shows no hardware counters, as most virtual machines do not"
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		level, _ := os.ReadFile("/proc/sys/kernel/perf_event_paranoid") // empty where it cannot be read
		return fmt.Sprintf("the system does not let this process count (kernel.perf_event_paranoid is %s): set it to 2 or lower, or run with CAP_PERFMON", strings.TrimSpace(string(level)))
	case errors.Is(err, unix.ENOSYS):
		return "this kernel has no perf_event_open, or a sandbox hides it"
	case errors.Is(err, unix.EMFILE):
		return "too few open files are allowed for the counters: raise the limit with ulimit -n"
	default:
		return "hardware counters cannot be opened: " + err.Error()
	}
}

// Read returns what was counted since Count.
func (c *Counter) Read() Reading {
	if c.reason != "" {
		return Reading{NotAvailable: c.reason}
	}
	r := Reading{UserOnly: c.userOnly, Counted: 1}
	for i, total := range []*uint64{&r.Cycles, &r.Instructions, &r.CacheMisses, &r.BranchMisses} {
		if i == len(c.files) {
			break
		}
		ran := false
		for _, fd := range c.files[i] {
			var b [24]byte
			if n, err := unix.Read(fd, b[:]); err != nil || n != len(b) {
				return Reading{NotAvailable: fmt.Sprintf("a hardware counter cannot be read: %d bytes, %v", n, err)}
			}
			enabled, running := binary.NativeEndian.Uint64(b[8:]), binary.NativeEndian.Uint64(b[16:])
			value, counted := scale(binary.NativeEndian.Uint64(b[:]), enabled, running)
			*total += value
			if enabled > 0 {
				r.Counted = min(r.Counted, counted)
			}
			ran = ran || running > 0
		}
		if !ran {
			return Reading{NotAvailable: "the hardware counters never ran: the processor has none free"}
		}
	}
	return r
}

// Close ends the counting.
func (c *Counter) Close() {
	for _, files := range c.files {
		for _, fd := range files {
			_ = unix.Close(fd) // nothing was written that could be lost
		}
	}
	c.files = nil
}

// scale extrapolates a count to the time for which the counter was wanted, from the time for which it ran.
func scale(count, enabled, running uint64) (value uint64, counted float64) {
	switch {
	case running == 0:
		return 0, 0
	case running >= enabled:
		return count, 1
	default:
		return uint64(math.Round(float64(count) * float64(enabled) / float64(running))), float64(running) / float64(enabled)
	}
}
