package hardware

import "golang.org/x/sys/unix"

// CountSoftware counts what every kernel counts, in the places of the hardware's events: the CPU time in ns, twice, page faults, context switches.
func CountSoftware() *Counter {
	return count([]event{
		{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK}, {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK},
		{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS}, {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES},
	}, perfOpen)
}

// CountOn counts on a machine that refuses with the error, or, where it is nil in the kernel's mode, lets a process count in its own mode alone.
func CountOn(refuse func(kernelToo bool) error) *Counter {
	return count(events, func(attr *unix.PerfEventAttr, _ int) (int, error) {
		if err := refuse(attr.Bits&unix.PerfBitExcludeKernel == 0); err != nil {
			return -1, err
		}
		return unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0) // a counter that never ran
	})
}

// Scale is scale.
func Scale(count, enabled, running uint64) (uint64, float64) { return scale(count, enabled, running) }
