package server

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// cores is how many cores the gateway shares with its neighbors at most: those of the machine, or of its container. A process that was pinned to one of several
// is no reason to refuse anything: its clients may have the others.
func cores() int {
	n := runtime.NumCPU()
	if b, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		n = max(n, listed(string(b)))
	}
	if b, err := os.ReadFile("/sys/fs/cgroup/cpu.max"); err == nil {
		n = quota(string(b), n)
	}
	return n
}

// listed counts the cores of a list as the kernel writes it: 0-3,6.
func listed(list string) (n int) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		if err != nil || last < first {
			return 0
		}
		n += last - first + 1
	}
	return n
}

// quota limits n by a control group's cpu.max, "QUOTA PERIOD" in microseconds or "max PERIOD". Part of a core is none.
func quota(text string, n int) int {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return n
	}
	time, err := strconv.Atoi(fields[0])
	period, wrong := strconv.Atoi(fields[1])
	if err != nil || wrong != nil || period <= 0 {
		return n
	}
	return min(n, time/period)
}
