package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tailgate/loadtest/host"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/transports/all"
)

// patience bounds how long a test waits for what has to come.
const patience = 30 * time.Second

// until looks again and again for what has to come.
func until(t *testing.T, what string, there func() bool) {
	t.Helper()
	deadline, look := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer look.Stop()
	for !there() {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// processor is the CPU time of a process, to 10 ms; 0 where there is none.
func processor(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// written is how many bytes a process has written to files and sockets; 0 where there is none.
func written(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	_, rest, _ := strings.Cut(string(text), "wchar: ")
	number, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.Atoi(number)
	return n
}

// child is the gateway that a load tester has started; 0 where there is none.
func child(parent int) int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, _ := os.ReadFile(stat)
		head, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(stat), "cmdline"))
		if slices.Contains(strings.Split(string(command), "\x00"), childCommand) {
			pid, _ := strconv.Atoi(strings.Fields(head)[0])
			return pid
		}
	}
	return 0
}

// sockets is how many a process has open.
func sockets(pid int) (n int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, file := range files {
		if target, _ := os.Readlink(file); strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// doomed starts a gateway that need not end well.
func doomed(t *testing.T, transport string) *host.Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := host.Start(t.Context(), host.Options{
		Command: []string{"env", asMain + "=1", self, childCommand},
		Task:    host.Task{Transport: transport, Keys: host.NewKeys(1), Sync: "os", MaxConnections: 32},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(p) })
	return p
}

// end ends a gateway, one that is stopped or dead too.
func end(p *host.Process) {
	_ = syscall.Kill(p.Ready.PID, syscall.SIGCONT) // the one that was stopped has to hear of its end
	_ = p.Stop()
}

// peer accepts connections and does to each what is wanted.
func peer(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			running.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return listener.Addr().String()
}

// drain reads until the other side has gone.
func drain(conn net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		if _, err := conn.Read(buffer); err != nil {
			return
		}
	}
}

// TestPeersThatAreNoGateway: over every transport, whatever else may listen at the address: the message has transport, address and what to do, the status is 1, the cells
// stand in the results as not measured, and nobody waits longer than a request may take and a little. Without that bound a silent peer alone would take the dial's ten seconds.
func TestPeersThatAreNoGateway(t *testing.T) {
	t.Parallel()
	respond := func(answer string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 64<<10))
			_, _ = conn.Write([]byte(answer))
			drain(conn)
		}
	}
	nobody := peer(t, drain)
	for _, p := range []struct {
		name, address string
		serve         func(net.Conn)
		want          string
	}{
		{"nobody", "127.0.0.1:1", nil, "nobody listens there: start the gateway, or check the port in --target"},
		{"silent", nobody, nil, "Something takes the connection and says nothing: if it is the gateway, it is stopped or stuck"},
		{"random bytes", "", func(conn net.Conn) {
			garbage := make([]byte, 4096)
			_, _ = rand.Read(garbage)
			_, _ = conn.Write(garbage)
			drain(conn)
		}, ""},
		{"random answers", "", func(conn net.Conn) {
			buffer := make([]byte, 64<<10)
			for {
				if _, err := conn.Read(buffer); err != nil {
					return
				}
				garbage := make([]byte, 300)
				_, _ = rand.Read(garbage)
				if _, err := conn.Write(garbage); err != nil {
					return
				}
			}
		}, ""},
		{"a web server that refuses", "", respond("HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nbad"), ""},
		{"a web server with a page", "", respond("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"), ""},
		{"an HTTP/2 server that says no more", "", respond("\x00\x00\x00\x04\x00\x00\x00\x00\x00"), ""},
		{"closes at once", "", func(conn net.Conn) { _ = conn.Close() }, ""},
	} {
		if p.serve != nil {
			p.address = peer(t, p.serve)
		}
		for _, transport := range all.Names() {
			t.Run(p.name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				cmd, process, stdout, stderr := command(t, "matrix", "--target", p.address, "--transports", transport, "--key", "k", "--sizes", "64", "--clients", "1,40", "--timeout", "1s", "--duration", "500ms")
				began := time.Now()
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				process.finish(t, cmd, stdout, stderr)
				if took := time.Since(began); took > 9*time.Second {
					t.Errorf("it took %v", took)
				}
				want := p.want
				if want == "" {
					want = "does this port speak " + transport + "?"
				}
				for _, want := range []string{"loadtest: " + transport + " at " + p.address + ": ", want, "2 of 2 cells could not be measured"} {
					if process.status != exitFailure || !strings.Contains(process.stderr, want) {
						t.Errorf("status %d, %q; want 1 and %q", process.status, process.stderr, want)
					}
				}
				for _, c := range process.run(t).Cells {
					if reasons := strings.Join(c.Reasons, ""); c.Validity != runner.Invalid || !strings.HasPrefix(reasons, "not measured: "+transport+" at "+p.address) {
						t.Errorf("%s because of %q", c.Validity, reasons)
					}
				}
				validate(t, filepath.Join(process.out, report.FileName))
			})
		}
	}
}

// waitingAtOnce bounds how many gateways that were stopped, each with its memory, and load testers that have noticed wait at the same time.
const waitingAtOnce = 12

// struck is a load tester whose gateway has just been struck; check waits for its end.
type struck struct {
	name  string
	check func(t *testing.T)
}

// inTurn strikes one gateway after the other, since gateways that have to wait for a core answer so slowly that nobody could say when they stop, and looks at what came of
// it when all of a batch wait.
func inTurn(t *testing.T, strikes []func() struck) {
	t.Helper()
	for batch := range slices.Chunk(strikes, waitingAtOnce) {
		var waiting []struck
		for _, strike := range batch {
			waiting = append(waiting, strike())
		}
		for _, s := range waiting {
			t.Run(s.name, s.check)
		}
	}
}

// TestGatewayGoesAway: a gateway that runs elsewhere dies, or stops answering, while it is measured, in a closed loop over every transport, and in an open one, which is the
// same for all clients of a kind. The figures up to then are kept, the measurement is INVALID and says why, the message has transport and address, the status is 3, and
// it ends by itself.
func TestGatewayGoesAway(t *testing.T) {
	t.Parallel()
	var strikes []func() struck
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		for _, transport := range all.Names() {
			strikes = append(strikes, func() struck { return goesAway(t, transport, signal) })
		}
		for _, transport := range kinds() {
			strikes = append(strikes, func() struck { return goesAway(t, transport, signal, "--rate", "500") })
		}
	}
	inTurn(t, strikes)
}

// goesAway measures a gateway that gets a signal when it has begun to work.
func goesAway(t *testing.T, transport string, signal syscall.Signal, loop ...string) struck {
	t.Helper()
	gateway := doomed(t, transport)
	address := gateway.Address(transport)
	args := append([]string{"--target", address, "--transport", transport, "--key", gateway.Keys()[0], "--clients", "5", "--timeout", "1s", "--duration", "3s", "--warmup", "10ms", "--inflight", "100"}, loop...)
	cmd, p, stdout, stderr := command(t, args...)
	pid := gateway.Ready.PID
	worked, wrote := processor(pid), written(pid)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// An order and its answer are at least 128 bytes in the journal and on the socket, so this is past the 5 requests that the warm-up of an open loop has at this rate, however
	// slow the machine is; the time is for the closed loop, which does many in its warm-up.
	least := 40 * time.Millisecond
	if len(loop) > 0 {
		least = 0
	}
	until(t, "load", func() bool { return processor(pid) >= worked+least && written(pid) > wrote+32<<10 })
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
	return struck{fmt.Sprint(transport, " ", signal, " ", strings.Join(loop, " ")), func(t *testing.T) {
		p.finish(t, cmd, stdout, stderr)
		end(gateway)
		c := p.run(t).Cells[0]
		reasons := strings.Join(c.Reasons, "; ")
		if p.status != exitInvalid || c.Validity != runner.Invalid || c.OK == 0 || c.Response.Count != c.Requests || c.Client == nil {
			t.Errorf("status %d, %s because of %q, %d ok of %d: %s", p.status, c.Validity, reasons, c.OK, c.Requests, p.stderr)
		}
		if !strings.Contains(reasons, "no answer") || signal == syscall.SIGKILL && !strings.Contains(reasons, "the gateway has ended or closed them") {
			t.Errorf("it is INVALID because of %q", reasons)
		}
		if want := "loadtest: " + transport + " at " + address + ", 64 B x 5: INVALID: "; !strings.Contains(p.stderr, want) {
			t.Errorf("it said %q, want %q", p.stderr, want)
		}
		validate(t, filepath.Join(p.out, report.FileName))
	}}
}

// TestHostedGatewayDies: the same for the load tester's own, over every transport.
func TestHostedGatewayDies(t *testing.T) {
	t.Parallel()
	var strikes []func() struck
	for _, transport := range all.Names() {
		strikes = append(strikes, func() struck { return hostedDies(t, transport) })
	}
	inTurn(t, strikes)
}

func hostedDies(t *testing.T, transport string) struck {
	t.Helper()
	cmd, p, stdout, stderr := command(t, "--transport", transport, "--clients", "5", "--timeout", "1s", "--duration", "2s", "--warmup", "10ms")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A gateway that starts has one socket, it listens; then it has clients, and then it works for them.
	until(t, "clients", func() bool { return sockets(child(cmd.Process.Pid)) > 1 })
	gateway := child(cmd.Process.Pid)
	before := processor(gateway)
	until(t, "load", func() bool { return processor(gateway) > before+80*time.Millisecond })
	if err := syscall.Kill(gateway, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return struck{transport, func(t *testing.T) {
		p.finish(t, cmd, stdout, stderr)
		c := p.run(t).Cells[0]
		if reasons := strings.Join(c.Reasons, "; "); p.status != exitInvalid || c.Validity != runner.Invalid || c.OK == 0 || !strings.Contains(reasons, "the gateway did not end well: ") || !strings.Contains(reasons, "signal: killed") {
			t.Errorf("status %d, %s because of %q, %d ok of %d: %s", p.status, c.Validity, reasons, c.OK, c.Requests, p.stderr)
		}
		if want := "loadtest: " + transport + ", 64 B x 5: INVALID: the gateway did not end well"; !strings.Contains(p.stderr, want) {
			t.Errorf("it said %q, want %q", p.stderr, want)
		}
	}}
}

// TestBudgetIsKept: what cells cannot take in time is cut or left out, and said. The gateway stops answering when the first cell is there; by its own time a request would be waited for
// for ten minutes, so this test ends because the budget does.
func TestBudgetIsKept(t *testing.T) {
	t.Parallel()
	gateway := doomed(t, name())
	args := []string{"matrix", "--target", gateway.Address(name()), "--transports", name(), "--key", gateway.Keys()[0], "--sizes", "64", "--clients", "1,2,3,4", "--timeout", "10m", "--warmup", "10ms"}
	cmd, p, stdout, stderr := command(t, append(args, "--budget", "5s")...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the first cell", func() bool { _, err := os.Stat(filepath.Join(p.out, report.FileName)); return err == nil })
	if err := syscall.Kill(gateway.Ready.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.finish(t, cmd, stdout, stderr)
	validate(t, filepath.Join(p.out, report.FileName))
	r := p.run(t)
	whole, cut, left := 0, 0, 0
	for _, c := range r.Cells {
		switch reasons := strings.Join(c.Reasons, "; "); {
		case c.Interrupted && strings.HasSuffix(reasons, "the --budget of 5s was used up"):
			cut++
		case reasons == "not measured: the --budget of 5s was used up":
			left++
		case c.Client != nil && !c.Interrupted:
			whole++
		default:
			t.Errorf("%s because of %q", c.Validity, reasons)
		}
	}
	if want := fmt.Sprintf("%d of 4 cells were not measured, since the --budget of 5s was used up; the same command with --resume measures them", left); p.status != exitFailure || r.Interrupted || whole < 1 || left < 1 || whole+cut+left != 4 || !strings.Contains(p.stderr, want) {
		t.Fatalf("status %d, %d whole, %d cut short, %d left out: %s", p.status, whole, cut, left, p.stderr)
	}
	// With more of a budget the rest is measured.
	if err := syscall.Kill(gateway.Ready.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	again := loadtest(t, append(args, "--budget", "14s", "--resume", "--out", p.out)...)
	again.out = p.out
	resumed := again.run(t)
	if len(resumed.Cells) != 4 || resumed.Resumed != whole {
		t.Errorf("%d cells, %d of them kept, want 4 and %d: %s", len(resumed.Cells), resumed.Resumed, whole, again.stderr)
	}
	for _, c := range resumed.Cells {
		if c.Client == nil || c.Interrupted {
			t.Errorf("%d clients: %v", c.Clients, c.Reasons)
		}
	}
}

// TestConnectionsAreCounted: as many as were asked for are really open, over every transport and also where the default is one for all.
func TestConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	p := loadtest(t, "--size", "64", "--clients", "8", "--connections", "3", "--requests", "400", "--warmup", "10ms")
	for _, c := range p.run(t).Cells {
		if c.Connections.Asked != 3 || c.Connections.Open == nil || *c.Connections.Open != 3 || c.Connections.Redials != 0 {
			t.Errorf("%s: %+v because of %v", c.Spec, c.Connections, c.Reasons)
		}
	}
	// A gateway that hangs up, and what is open then is less.
	gateway := doomed(t, name())
	cmd, p, stdout, stderr := command(t, "--target", gateway.Address(name()), "--transport", name(), "--key", gateway.Keys()[0], "--clients", "5", "--duration", "1s", "--timeout", "1s", "--warmup", "10ms")
	before := processor(gateway.Ready.PID)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "load", func() bool { return processor(gateway.Ready.PID) > before+50*time.Millisecond })
	if err := gateway.Stop(); err != nil {
		t.Fatal(err)
	}
	p.finish(t, cmd, stdout, stderr)
	if c := p.run(t).Cells[0]; p.status != exitInvalid || c.Connections.Open == nil || *c.Connections.Open != 0 || !strings.Contains(strings.Join(c.Reasons, "; "), "none of 5 connections was open at the end") {
		t.Errorf("status %d, %+v because of %v", p.status, c.Connections, c.Reasons)
	}
}
