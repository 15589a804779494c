package machine_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tailgate/loadtest/machine"
)

func cores(list ...machine.Core) []machine.Core { return list }

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name        string
		cores       []machine.Core
		serverCores int
		want        machine.Plan
	}{
		{"one core", cores(machine.Core{ID: 3}), 1, machine.Plan{Server: []int{3}, Clients: []int{3}, Note: "not pinned: 1 core(s) for 1 of the server and at least one of the clients"}},
		{"two cores", cores(machine.Core{ID: 0, Siblings: []int{0}}, machine.Core{ID: 1, Siblings: []int{1}}), 1, machine.Plan{Pinned: true, Server: []int{1}, Clients: []int{0}}},
		{"two threads of one core", cores(machine.Core{ID: 0, Siblings: []int{0, 1}}, machine.Core{ID: 1, Siblings: []int{0, 1}}), 1,
			machine.Plan{Pinned: true, Server: []int{1}, Clients: []int{0}, Note: "server and clients share a physical core (its hardware threads)"}},
		{"two cores of two threads", cores(
			machine.Core{ID: 0, Siblings: []int{0, 2}}, machine.Core{ID: 1, Siblings: []int{1, 3}},
			machine.Core{ID: 2, Siblings: []int{0, 2}}, machine.Core{ID: 3, Siblings: []int{1, 3}}), 1,
			machine.Plan{Pinned: true, Server: []int{3}, Clients: []int{0, 2}, Note: "left idle: [1], hardware threads beside the server's"}},
		{"hybrid", cores(machine.Core{ID: 0, Capacity: 1024}, machine.Core{ID: 1, Capacity: 1024}, machine.Core{ID: 2, Capacity: 500}), 1,
			machine.Plan{Pinned: true, Server: []int{1}, Clients: []int{0, 2}}},
		{"two for the server", cores(machine.Core{ID: 4}, machine.Core{ID: 5}, machine.Core{ID: 6}), 2,
			machine.Plan{Pinned: true, Server: []int{5, 6}, Clients: []int{4}}},
		{"too many for the server", cores(machine.Core{ID: 4}, machine.Core{ID: 5}), 2,
			machine.Plan{Server: []int{4, 5}, Clients: []int{4, 5}, Note: "not pinned: 2 core(s) for 2 of the server and at least one of the clients"}},
	} {
		if got := machine.NewPlan(c.cores, c.serverCores); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestStartOn: a child runs on the cores it was given from the start, and the parent stays where it was.
func TestStartOn(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are pinned on Linux only")
	}
	all, err := machine.Cores()
	if err != nil {
		t.Fatal(err)
	}
	last := all[len(all)-1].ID
	cmd := exec.Command("grep", "Cpus_allowed_list", "/proc/self/status")
	var out strings.Builder
	cmd.Stdout = &out
	if err := machine.StartOn([]int{last}, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if fields := strings.Fields(out.String()); len(fields) != 2 || fields[1] != strconv.Itoa(last) {
		t.Errorf("the child may run on %q, want core %d", out.String(), last)
	}
	after, err := machine.Cores()
	if err != nil || len(after) != len(all) {
		t.Errorf("this process may use %d cores now, %d before: %v", len(after), len(all), err)
	}
}

// TestCountersRise: work shows up in the counters that stand for it.
func TestCountersRise(t *testing.T) {
	before, err := machine.ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	var keep [][]byte
	for range 200 {
		keep = append(keep, make([]byte, 64<<10))
	}
	for i := range keep {
		for j := range keep[i] {
			keep[i][j] = byte(j)
		}
	}
	runtime.GC()
	after, err := machine.ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	used := after.Since(before)
	if used.AllocatedBytes < 200*64<<10 || used.AllocatedObjects < 200 || used.GCCycles < 1 || used.GCPause <= 0 || used.At <= 0 {
		t.Errorf("200 blocks of 64 KiB and a collection, but the counters say %+v", used)
	}
	if runtime.GOOS == "linux" && (used.UserCPU+used.SystemCPU <= 0 || used.PeakRSS < 1<<20) {
		t.Errorf("CPU time and memory are not counted: %+v", used)
	}
	runtime.KeepAlive(keep)
}

// TestWaitingIsCounted: goroutines that wait for a mutex, and for their turn to run, show up in the counters that stand for it.
func TestWaitingIsCounted(t *testing.T) {
	before, err := machine.ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				mu.Lock()
				runtime.Gosched() // the others meet the lock
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	after, err := machine.ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	used := after.Since(before)
	p50, ok := used.SchedulerLatency.AtMost(0.5)
	p99, _ := used.SchedulerLatency.AtMost(0.99)
	if used.MutexWait <= 0 || used.SchedulerLatency.Count() == 0 || !ok || p50 <= 0 || p99 < p50 {
		t.Errorf("mutex wait %v, scheduler latency p50 %v and p99 %v of %d", used.MutexWait, p50, p99, used.SchedulerLatency.Count())
	}
	if used.Hardware.NotAvailable == "" && used.Hardware.Cycles == 0 {
		t.Errorf("%+v: neither counted nor a reason", used.Hardware)
	}
}

// TestHistogram: differences by range, and percentiles as the end of the range in which they lie.
func TestHistogram(t *testing.T) {
	before := machine.Histogram{{From: 0, Until: 64, Count: 5}, {From: 128, Until: 192, Count: 1}}
	after := machine.Histogram{{From: 0, Until: 64, Count: 5}, {From: 64, Until: 128, Count: 98}, {From: 128, Until: 192, Count: 2}, {From: 1000, Until: machine.Endless, Count: 1}}
	h := after.Since(before)
	if h.Count() != 100 {
		t.Errorf("%d times in %v, want 100", h.Count(), h)
	}
	for q, want := range map[float64]time.Duration{0: 128, 0.5: 128, 0.98: 128, 0.99: 192, 0.995: 1000, 1: 1000} {
		if got, ok := h.AtMost(q); !ok || got != want {
			t.Errorf("%v of the times are at most %v, want %v", q, got, want)
		}
	}
	if d, ok := (machine.Histogram{}).AtMost(0.5); ok {
		t.Errorf("half of no times are at most %v", d)
	}
}

func TestCoreTimes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("known on Linux only")
	}
	all, err := machine.Cores()
	if err != nil {
		t.Fatal(err)
	}
	times, err := machine.ReadCoreTimes([]int{all[0].ID})
	if err != nil || times.Busy <= 0 || times.Idle <= 0 {
		t.Errorf("core %d: %+v, %v", all[0].ID, times, err)
	}
	if _, err := machine.ReadCoreTimes([]int{100_000}); err == nil {
		t.Error("a core that does not exist has times")
	}
}

func TestEnsureFiles(t *testing.T) {
	if err := machine.EnsureFiles(64); err != nil {
		t.Error(err)
	}
	if runtime.GOOS == "linux" {
		if err := machine.EnsureFiles(1 << 30); err == nil || !strings.Contains(err.Error(), "ulimit -n") {
			t.Errorf("a thousand million files: got %v, want an error that says what to do", err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	e := machine.ReadEnvironment()
	if e.GoVersion != runtime.Version() || e.OS != runtime.GOOS+"/"+runtime.GOARCH || e.OnlineCores < 1 || len(e.AllowedCores) < 1 {
		t.Errorf("%+v", e)
	}
	if runtime.GOOS == "linux" {
		if _, err := os.Stat("/proc/cpuinfo"); err == nil && (e.Kernel == "" || e.MemoryBytes == 0 || e.LoadAverage == "") {
			t.Errorf("kernel %q, memory %d, load %q", e.Kernel, e.MemoryBytes, e.LoadAverage)
		}
	}
}

// TestPlanFor: beside the clients nothing is pinned, and the plan says why; on another machine the clients have their cores to themselves.
func TestPlanFor(t *testing.T) {
	cores := []machine.Core{{ID: 3}, {ID: 1}}
	for _, beside := range []bool{false, true} {
		p := machine.PlanFor(cores, "gw:7001", beside)
		if p.Pinned == beside || p.Beside != beside || len(p.Server) > 0 || !slices.Equal(p.Clients, []int{1, 3}) {
			t.Errorf("beside: %t: %+v", beside, p)
		}
		if said := strings.Contains(p.Note, "gw:7001 runs on this machine"); said != beside {
			t.Errorf("beside: %t: the note is %q", beside, p.Note)
		}
	}
}

// TestResolve: names and addresses of this machine are known as its own, others are not, and nonsense is an error.
func TestResolve(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:7001": true, "127.9.9.9:7001": true, "[::1]:7001": true, "[::ffff:127.0.0.1]:7001": true, "localhost:7001": true, "203.0.113.77:7001": false, "[2001:db8::1]:7001": false} {
		list, own, err := machine.Resolve(t.Context(), address)
		if err != nil || own != want || len(list) == 0 {
			t.Errorf("%s: %v, own: %t, %v; want own: %t", address, list, own, err, want)
		}
		for _, a := range list {
			if a.Port() != 7001 || a.Addr().Is4In6() {
				t.Errorf("%s: %v", address, a)
			}
		}
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		prefix := netip.MustParsePrefix(i.String())
		address := netip.AddrPortFrom(prefix.Addr(), 7001).String()
		if _, own, err := machine.Resolve(t.Context(), address); err != nil || !own {
			t.Errorf("%s is this machine's: own: %t, %v", address, own, err)
		}
	}
	for _, address := range []string{"nowhere", "127.0.0.1:no-such-service", "127.0.0.1:99999"} {
		if list, _, err := machine.Resolve(t.Context(), address); err == nil {
			t.Errorf("%s: %v", address, list)
		}
	}
}

// TestOpenConnectionsOfNothing: where there is nothing to look for, zero would be a lie.
func TestOpenConnectionsOfNothing(t *testing.T) {
	if n, err := machine.OpenConnections(nil); err == nil {
		t.Errorf("%d connections to no address", n)
	}
}

func TestOpenConnections(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("known on Linux only")
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err) // a machine without IPv6
			continue
		}
		remote := netip.MustParseAddrPort(listener.Addr().String())
		for want := range 4 {
			if n, err := machine.OpenConnections([]netip.AddrPort{remote}); err != nil || n != want {
				t.Errorf("%s: %d connections are open, want %d: %v", address, n, want, err)
			}
			conn, err := net.Dial("tcp", remote.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	}
}
