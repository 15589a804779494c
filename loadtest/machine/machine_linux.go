package machine

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cores returns the cores that this process may use now.
func Cores() ([]Core, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("machine: which cores this process may use: %w", err)
	}
	var cores []Core
	for id := range len(set) * 64 {
		if !set.IsSet(id) {
			continue
		}
		folder := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/", id)
		core := Core{ID: id, Siblings: parseList(readText(folder + "topology/thread_siblings_list"))}
		core.Capacity, _ = strconv.Atoi(readText(folder + "cpu_capacity")) // absent where all cores are equal
		cores = append(cores, core)
	}
	return cores, nil
}

// parseList reads the kernel's lists, "0-3,8". What it cannot read is left out.
func parseList(text string) []int {
	var list []int
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(low)
		if err != nil {
			continue
		}
		to := from
		if isRange {
			if to, err = strconv.Atoi(high); err != nil {
				continue
			}
		}
		for id := from; id <= to && len(list) < 4096; id++ {
			list = append(list, id)
		}
	}
	return list
}

func cpuSet(cores []int) *unix.CPUSet {
	var set unix.CPUSet
	for _, id := range cores {
		set.Set(id)
	}
	return &set
}

// PinProcess binds every thread of this process, and those to come, to the cores. A thread inherits from the one that makes it, so once a
// look at all threads finds no new one, none can escape.
func PinProcess(cores []int) error {
	set := cpuSet(cores)
	pinned := map[int]bool{}
	for fresh := true; fresh; {
		fresh = false
		entries, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("machine: pin to cores %v: %w", cores, err)
		}
		for _, entry := range entries {
			id, err := strconv.Atoi(entry.Name())
			if err != nil || pinned[id] {
				continue
			}
			if err := unix.SchedSetaffinity(id, set); err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: that thread has ended
				return fmt.Errorf("machine: pin to cores %v: %w", cores, err)
			}
			pinned[id], fresh = true, true
		}
	}
	return nil
}

// StartOn starts a process that runs on the cores from its first instruction: a locked thread binds itself, starts the child, which
// inherits the binding, and goes back to where it was.
func StartOn(cores []int, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("machine: start on cores %v: %w", cores, err)
	}
	if err := unix.SchedSetaffinity(0, cpuSet(cores)); err != nil {
		return fmt.Errorf("machine: start on cores %v: %w", cores, err)
	}
	startErr := cmd.Start()
	if err := unix.SchedSetaffinity(0, &before); err != nil {
		// This thread cannot be trusted to run clients any more. Ending the goroutine while it is locked would end the thread, but the
		// caller is this goroutine, so the failure is reported instead.
		return errors.Join(startErr, fmt.Errorf("machine: a thread stays on cores %v: %w", cores, err))
	}
	return startErr
}

func (c *Counters) readUsage() error {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return fmt.Errorf("machine: resource usage: %w", err)
	}
	c.UserCPU, c.SystemCPU = time.Duration(usage.Utime.Nano()), time.Duration(usage.Stime.Nano())
	c.VoluntarySwitches, c.InvoluntarySwitches = usage.Nvcsw, usage.Nivcsw
	c.MinorFaults, c.MajorFaults = usage.Minflt, usage.Majflt
	c.PeakRSS = usage.Maxrss * 1024
	// VmHWM follows ResetPeak, ru_maxrss does not.
	for line := range strings.Lines(readText("/proc/self/status")) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64); err == nil {
				c.PeakRSS = kilobytes * 1024
			}
		}
	}
	return nil
}

// ResetPeak makes the resident memory of now the peak, so that the next reading tells of one cell alone.
func ResetPeak() error {
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return fmt.Errorf("machine: reset peak memory: %w", err)
	}
	return nil
}

// tick is the unit of /proc/stat: the kernel's USER_HZ is 100 on every architecture that Go supports.
const tick = 10 * time.Millisecond

// ReadCoreTimes reads what the cores did.
func ReadCoreTimes(cores []int) (CoreTimes, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return CoreTimes{}, fmt.Errorf("machine: core times: %w", err)
	}
	return parseCoreTimes(string(text), cores)
}

func parseCoreTimes(text string, cores []int) (CoreTimes, error) {
	wanted := map[string]bool{}
	for _, id := range cores {
		wanted["cpu"+strconv.Itoa(id)] = true
	}
	var total CoreTimes
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 9 || !wanted[fields[0]] {
			continue
		}
		delete(wanted, fields[0])
		var n [8]time.Duration // user nice system idle iowait irq softirq steal; guest time is inside user
		for i := range n {
			v, err := strconv.ParseInt(fields[i+1], 10, 64)
			if err != nil {
				return CoreTimes{}, fmt.Errorf("machine: core times: %q: %w", line, err)
			}
			n[i] = time.Duration(v) * tick
		}
		total.Busy += n[0] + n[1] + n[2] + n[5] + n[6]
		total.Idle += n[3] + n[4]
		total.Steal += n[7]
	}
	if len(wanted) > 0 {
		return CoreTimes{}, fmt.Errorf("machine: core times: /proc/stat does not show all of the cores %v", cores)
	}
	return total, nil
}

// EnsureFiles makes sure that this process may hold n open files, raising its soft limit where it can. Children inherit it.
func EnsureFiles(n int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("machine: limit of open files: %w", err)
	}
	if limit.Cur >= uint64(n) {
		return nil
	}
	wanted := unix.Rlimit{Cur: uint64(n), Max: max(limit.Max, uint64(n))}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &wanted); err != nil {
		return fmt.Errorf("machine: %d open files are needed, %d are allowed (hard limit %d): raise it with ulimit -n, or use fewer clients: %w", n, limit.Cur, limit.Max, err)
	}
	return nil
}

// readText returns a small file of /proc or /sys without its last line feed, empty where it cannot be read.
func readText(path string) string {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (e *Environment) readSystem() {
	for line := range strings.Lines(readText("/proc/cpuinfo")) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			if e.CPU == "" {
				e.CPU = strings.TrimSpace(value)
			}
		case "flags":
			for flag := range strings.FieldsSeq(value) {
				e.Virtualized = e.Virtualized || flag == "hypervisor"
			}
		}
	}
	e.OnlineCores = len(parseList(readText("/sys/devices/system/cpu/online")))
	e.Kernel = readText("/proc/sys/kernel/osrelease")
	e.Hypervisor = readText("/sys/class/dmi/id/sys_vendor")
	e.Governor = readText("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	e.SMT = readText("/sys/devices/system/cpu/smt/control")
	e.CongestionControl = readText("/proc/sys/net/ipv4/tcp_congestion_control")
	e.LoadAverage = readText("/proc/loadavg")
	for line := range strings.Lines(readText("/proc/meminfo")) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			if kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64); err == nil {
				e.MemoryBytes = kilobytes * 1024
			}
		}
	}
	e.Sysctls = map[string]string{}
	for _, name := range []string{"net/core/somaxconn", "net/core/rmem_max", "net/core/wmem_max", "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", "net/ipv4/tcp_autocorking"} {
		if value := readText("/proc/sys/" + name); value != "" {
			e.Sysctls[strings.ReplaceAll(name, "/", ".")] = strings.Join(strings.Fields(value), " ")
		}
	}
}

// OpenConnections counts this process's established TCP connections to any of the remote addresses: what the kernel says, not what a client
// believes. It is an error where the kernel shows no connections at all, or where no address is given.
func OpenConnections(remotes []netip.AddrPort) (int, error) {
	if len(remotes) == 0 {
		return 0, errors.New("machine: open connections: no address to look for")
	}
	own := map[string]bool{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, fmt.Errorf("machine: open connections: %w", err)
	}
	for _, entry := range entries {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil {
			continue // closed since
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	open, tables := 0, 0
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text := readText(file) // absent where the kernel has no IPv6; where it is there, it has a heading
		if text != "" {
			tables++
		}
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			const established = "01"
			if len(fields) < 10 || fields[3] != established || !own[fields[9]] {
				continue
			}
			if address, ok := parseHexAddress(fields[2]); ok && slices.Contains(remotes, address) {
				open++
			}
		}
	}
	if tables == 0 {
		return 0, errors.New("machine: open connections: /proc/net/tcp cannot be read")
	}
	return open, nil
}

// parseHexAddress reads "0100007F:1B59": the address in words of the machine's byte order, and the port.
func parseHexAddress(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	address, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(address.Unmap(), uint16(n)), ok && err == nil
}
