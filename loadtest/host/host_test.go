package host_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tailgate/loadtest/floor"
	"tailgate/loadtest/host"
	"tailgate/loadtest/machine"
	"tailgate/loadtest/record"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
)

// The test binary is its own child, as the load tester's binary is.
const (
	childWord  = "child-of-the-test"
	parentWord = "parent-of-the-test"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == childWord:
		if err := host.Child(os.Stdin, os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case len(os.Args) > 1 && os.Args[1] == parentWord:
		parent()
	default:
		goleak.VerifyTestMain(m)
	}
}

func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func options(t testing.TB, transport string) host.Options {
	return host.Options{
		Command: []string{self(t), childWord},
		Task:    host.Task{Transport: transport, Keys: host.NewKeys(3), Sync: "os", MaxConnections: 64},
	}
}

// orders is how many a small cell sends.
const orders = 500

// start runs a child whose temporary folder the test can look into, and stops it at the end.
func start(t testing.TB, o host.Options) (p *host.Process, tmp string) {
	t.Helper()
	tmp = t.TempDir()
	t.Setenv("TMPDIR", tmp)
	p, err := host.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		wantEmpty(t, tmp)
	})
	return p, tmp
}

func wantEmpty(t testing.TB, folder string) {
	t.Helper()
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind in the temporary folder: %v, %v", left, err)
	}
}

func everyTransport(t *testing.T, do func(t *testing.T, transport transports.Transport)) {
	for _, transport := range append(all.All(), floor.Transport()) {
		t.Run(transport.Name, func(t *testing.T) { do(t, transport) })
	}
}

func cell(p *host.Process, transport transports.Transport, keys []string) runner.Cell {
	return runner.Cell{
		Transport: transport, Dial: transports.DialConfig{Address: p.Address(transport.Name)}, Keys: keys,
		Clients: 4, Requests: orders, Timeout: 5 * time.Second,
		Flow: workload.Config{Seed: 1, Size: 64, EchoOnly: transport.Name == floor.Name},
		ServerCounters: func(ctx context.Context) (runner.Reading, error) {
			counters, err := p.Counters(ctx)
			return runner.Reading{Counters: counters}, err
		},
	}
}

// TestHostedCell: every transport's gateway runs in a child, acknowledges what it is sent, and leaves nothing behind.
func TestHostedCell(t *testing.T) {
	everyTransport(t, func(t *testing.T, transport transports.Transport) {
		o := options(t, transport.Name)
		p, tmp := start(t, o)
		if p.Ready.PID == os.Getpid() || p.Ready.PID == 0 || p.Ready.GoVersion == "" || p.Ready.Gomaxprocs < 1 {
			t.Errorf("ready line %+v", p.Ready)
		}
		if folders, err := filepath.Glob(filepath.Join(tmp, "loadtest-*")); err != nil || len(folders) != 1 {
			t.Errorf("folders %v, %v; want one for the journal", folders, err)
		}
		c := cell(p, transport, o.Task.Keys)
		out, err := runner.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if out.Counts != (record.Counts{record.OK: orders}) {
			t.Errorf("counts %v with %v, want all ok; the gateway says: %s", out.Counts, out.Notes, p.Warnings())
		}
		want := 4
		if !transport.PerClient {
			want = 1
		}
		if open := out.Connections.Open; open != want && (open != -1 || out.Connections.Unknown == "") {
			t.Errorf("%d connections are open (%s), want %d", open, out.Connections.Unknown, want)
		}
		if u := out.ServerUse; u == nil || u.At <= 0 || u.UserCPU+u.SystemCPU <= 0 || u.PeakRSS < 1<<20 {
			t.Errorf("the server's counters: %+v", u)
		}
		if transport.Name != floor.Name && out.Server.Count() != orders {
			t.Errorf("%d server times, want one for each answer", out.Server.Count())
		}
	})
}

// TestInstruments: what is known beforehand of a hosted gateway is what it then says.
func TestInstruments(t *testing.T) {
	transport := all.All()[0]
	o := options(t, transport.Name)
	p, _ := start(t, o)
	got, err := runner.Instruments(t.Context(), cell(p, transport, o.Task.Keys))
	if err != nil || len(got) == 0 || !slices.Equal(got, host.Instruments()) {
		t.Errorf("the gateway offers %v, %v; known were %v", got, err, host.Instruments())
	}
}

// TestCancelsAndReplacesAreAnswered: the flow with cancels and replaces holds against the real gateway, whose answers are checked.
func TestCancelsAndReplacesAreAnswered(t *testing.T) {
	everyTransport(t, func(t *testing.T, transport transports.Transport) {
		if transport.Name == floor.Name {
			t.Skip("a bare echo takes new orders only")
		}
		o := options(t, transport.Name)
		p, _ := start(t, o)
		c := cell(p, transport, o.Task.Keys)
		c.Flow.CancelShare, c.Flow.ReplaceShare, c.Flow.Minimal = 0.2, 0.2, true
		out, err := runner.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if out.Counts.Answered() != orders || out.Wrong > 0 {
			t.Errorf("counts %v, %d wrong (%s), notes %v", out.Counts, out.Wrong, out.FirstWrong, out.Notes)
		}
		for note := range out.Notes {
			// An order may have been filled by another client just before its cancel or replace came.
			if !slices.Contains([]string{"REASON_TOO_LATE", "REASON_QUANTITY_FILLED"}, note) {
				t.Errorf("notes %v", out.Notes)
			}
		}
	})
}

// TestHandlerDelay: the delay is in every answer of every transport, on the gateway's side, and changes nothing else.
func TestHandlerDelay(t *testing.T) {
	everyTransport(t, func(t *testing.T, transport transports.Transport) {
		if transport.Name == floor.Name {
			t.Skip("a bare echo has no handler")
		}
		const delay = time.Millisecond
		o := options(t, transport.Name)
		o.Task.HandlerDelay = delay
		p, _ := start(t, o)
		c := cell(p, transport, o.Task.Keys)
		c.Requests = 100
		out, err := runner.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if out.Counts != (record.Counts{record.OK: 100}) || out.Response.Min().Duration < delay || out.Server.Min().Duration < delay {
			t.Errorf("counts %v (%v), shortest response %v, shortest at the gateway %v; want all ok and at least %v", out.Counts, out.Notes, out.Response.Min().Duration, out.Server.Min().Duration, delay)
		}
	})
}

// TestBookOfTheRealEngineStaysBounded is workload's claim against the gateway's own matching: what rests after many orders of many clients
// is within the bound.
func TestBookOfTheRealEngineStaysBounded(t *testing.T) {
	transport := all.All()[0]
	o := options(t, transport.Name)
	p, _ := start(t, o)
	c := cell(p, transport, o.Task.Keys)
	c.Clients, c.Requests = 20, 6_000
	out, err := runner.Run(t.Context(), c)
	if err != nil || out.Counts[record.OK] != 6_000 {
		t.Fatalf("%v, %v: %v", out.Counts, out.Notes, err)
	}
	client, err := transport.Dial(t.Context(), transports.DialConfig{Address: p.Address(transport.Name), Key: o.Task.Keys[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var instruments pb.ListInstrumentsResponse
	if err := client.Do(t.Context(), &transports.Call{Operation: transports.ListInstruments, Request: &pb.ListInstrumentsRequest{}, Response: &instruments}); err != nil {
		t.Fatal(err)
	}
	var rests uint64
	for _, i := range instruments.Instruments {
		var book pb.GetBookResponse
		if err := client.Do(t.Context(), &transports.Call{Operation: transports.GetBook, Request: &pb.GetBookRequest{Symbol: i.Symbol, Depth: 100}, Response: &book}); err != nil {
			t.Fatal(err)
		}
		if len(book.Bids) > 0 && len(book.Asks) > 0 {
			t.Errorf("%s: both sides rest, so the flow does not cross: %v", i.Symbol, &book)
		}
		for _, level := range slices.Concat(book.Bids, book.Asks) {
			rests += level.Quantity
		}
	}
	const surplus = workload.BlockOrders / 2 * workload.QuantitySpread // of one client; the instruments' least quantity is 1
	if bound := uint64(2 * 20 * surplus); rests > bound {
		t.Errorf("%d lots rest after 6,000 orders of 20 clients, the bound is %d", rests, bound)
	}
}

// TestPinned: a child runs on the core it was given, and its runtime knows.
func TestPinned(t *testing.T) {
	cores, err := machine.Cores()
	if err != nil || len(cores) < 2 {
		t.Skip("needs two cores")
	}
	last := cores[len(cores)-1].ID
	o := options(t, floor.Name)
	o.Cores = []int{last}
	p, _ := start(t, o)
	if !slices.Equal(p.Ready.Cores, o.Cores) || p.Ready.Gomaxprocs != 1 {
		t.Errorf("cores %v and GOMAXPROCS %d, want %v and 1", p.Ready.Cores, p.Ready.Gomaxprocs, o.Cores)
	}
}

// TestChildrenThatFail: what went wrong is told with the last words of the child, and nothing is left behind.
func TestChildrenThatFail(t *testing.T) {
	for _, c := range []struct {
		name    string
		command []string
		task    host.Task
		patient time.Duration
		want    []string
	}{
		{name: "dies at once", command: []string{"/bin/sh", "-c", "echo the disk is on fire >&2; exit 3"}, want: []string{"exit status 3", "the disk is on fire"}},
		{name: "says something else", command: []string{"/bin/sh", "-c", "read x; echo hello; read y"}, want: []string{`ready line "hello"`}},
		{name: "never ready", command: []string{"/bin/sh", "-c", "echo still thinking >&2; cat >/dev/null"}, patient: 200 * time.Millisecond, want: []string{"no answer from process", "still thinking"}},
		{name: "does not exist", command: []string{"/does/not/exist"}, want: []string{"start the gateway"}},
		{name: "unknown transport", task: host.Task{Transport: "pigeon", Sync: "os", MaxConnections: 1}, want: []string{"pigeon"}},
		{name: "wrong journal mode", task: host.Task{Transport: all.All()[0].Name, Sync: "perhaps", MaxConnections: 1}, want: []string{"perhaps", "always"}},
		{name: "unknown congestion control", task: host.Task{Transport: all.All()[0].Name, Sync: "os", MaxConnections: 1, CongestionControl: "wishful"}, want: []string{"wishful"}},
		{name: "unknown congestion control of a bare echo", task: host.Task{Transport: floor.Name, MaxConnections: 1, CongestionControl: "wishful"}, want: []string{"wishful"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			o := host.Options{Command: c.command, Task: c.task}
			if o.Command == nil {
				o.Command = []string{self(t), childWord}
			}
			ctx := t.Context()
			if c.patient > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.patient)
				defer cancel()
			}
			p, err := host.Start(ctx, o)
			if err == nil {
				t.Fatalf("it started: %+v, %v", p.Ready, p.Stop())
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want it to say %q", err, want)
				}
			}
			wantEmpty(t, tmp)
		})
	}
}

// TestChildDiesLater: a child that is gone is told from one that is silent.
func TestChildDiesLater(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	p, err := host.Start(t.Context(), options(t, floor.Name))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.Ready.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Counters(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v, want to be told that it was killed", err)
	}
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v, want to be told that it was killed", err)
	}
	wantEmpty(t, tmp)
}

// TestTerminated: a child that is told to end does, in order.
func TestTerminated(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	p, err := host.Start(t.Context(), options(t, all.All()[0].Name))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Kill(p.Ready.PID, syscall.SIGINT), syscall.Kill(p.Ready.PID, syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("an orderly end, but %v", err)
	}
	wantEmpty(t, tmp)
}

// parent is a process that hosts a gateway and is then killed. It says who its child is.
func parent() {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	p, err := host.Start(context.Background(), host.Options{
		Command: []string{path, childWord},
		Task:    host.Task{Transport: all.All()[0].Name, Keys: host.NewKeys(1), Sync: "os", MaxConnections: 8},
	})
	if err != nil {
		panic(err)
	}
	// Under load, so that the gateway has something to say about its clients' end to a parent that no longer listens.
	transport := all.All()[0]
	c := cell(p, transport, p.Keys())
	c.Requests, c.Duration = 0, time.Hour
	c.Progress = func(now runner.Progress) {
		if now.Done > 0 {
			fmt.Println(p.Ready.PID)
		}
	}
	_, err = runner.Run(context.Background(), c) // until it is killed
	panic(err)
}

// TestParentKilled: the child of a parent that was killed ends by itself and removes its journal.
func TestParentKilled(t *testing.T) {
	tmp := t.TempDir()
	cmd := exec.Command(self(t), parentWord)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the parent was killed, but ended well")
	}
	// The child now belongs to the system's first process, so its end can only be looked for.
	gone := func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || isZombie(pid) }
	deadline, look := time.After(10*time.Second), time.NewTicker(10*time.Millisecond)
	defer look.Stop()
	for !gone() {
		select {
		case <-look.C:
		case <-deadline:
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the child outlives its parent")
		}
	}
	wantEmpty(t, tmp)
}

// isZombie tells an ended process that nobody has waited for.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(after, "Z")
}

// TestNotForPeople: the command without a task says what it is.
func TestNotForPeople(t *testing.T) {
	if err := host.Child(strings.NewReader(""), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "own use") {
		t.Errorf("got %v", err)
	}
	if err := host.Child(strings.NewReader("{\n"), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "task") {
		t.Errorf("got %v", err)
	}
}

func TestNewKeys(t *testing.T) {
	keys := host.NewKeys(100)
	slices.Sort(keys)
	if len(slices.Compact(keys)) != 100 || len(keys[0]) != 64 {
		t.Errorf("%d different keys of %d characters, want 100 of 64", len(slices.Compact(keys)), len(keys[0]))
	}
}
