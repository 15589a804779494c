package telemetry

import (
	"golang.org/x/sys/unix"

	pb "tailgate/proto/gen/orderentry/v1"
)

// readUsage adds what the kernel knows.
func readUsage(c *pb.ProcessCounters) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return // it is left out
	}
	c.UserCpuNs, c.SystemCpuNs = new(uint64(usage.Utime.Nano())), new(uint64(usage.Stime.Nano()))
	c.VoluntarySwitches, c.InvoluntarySwitches = new(uint64(usage.Nvcsw)), new(uint64(usage.Nivcsw))
	c.MinorFaults, c.MajorFaults = new(uint64(usage.Minflt)), new(uint64(usage.Majflt))
	const kilobyte = 1024 // the unit of ru_maxrss on Linux
	c.PeakResidentBytes = new(uint64(usage.Maxrss) * kilobyte)
}
