package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
)

// ignoredAtStart are the signals that whoever started this process had it ignore, and which those that it starts ignore too. Later this cannot be told.
var ignoredAtStart = slices.DeleteFunc([]syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}, func(s syscall.Signal) bool { return !signal.Ignored(s) })

// lines is a standard error that can be waited for.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// interrupted starts a matrix, sends it a signal when its first cell is there, and returns what it came to.
func interrupted(t *testing.T, signal syscall.Signal, args ...string) *process {
	t.Helper()
	cmd, p, stdout, stderr := command(t, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the first cell", func() bool { _, err := os.Stat(filepath.Join(p.out, report.FileName)); return err == nil })
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	p.finish(t, cmd, stdout, stderr)
	return p
}

// TestInterrupted: each of the signals in mid-matrix ends the cell under way, which is kept in part and marked; the finished ones are kept, the file is whole and says so, and so does the table, in
// a line.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			p := interrupted(t, signal, "matrix", "--transports", name(), "--sizes", "64", "--clients", "1,2,3", "--duration", "400ms", "--warmup", "10ms")
			path := filepath.Join(p.out, report.FileName)
			validate(t, path)
			r := p.run(t)
			whole, part := 0, 0
			for _, c := range r.Cells {
				if sum := c.OK + c.Rejected + c.Refused + c.TimedOut + c.Errors + c.Unsent; sum != c.Requests {
					t.Errorf("%d requests, %d by fate", c.Requests, sum)
				}
				if !c.Interrupted {
					whole++
					continue
				}
				if part++; c.Validity == runner.Valid || !strings.Contains(strings.Join(c.Reasons, "; "), "interrupted after") {
					t.Errorf("a cell that was measured in part is %s because of %v", c.Validity, c.Reasons)
				}
			}
			// With the floor there are four. The signal may have come between two of them.
			line := fmt.Sprintf("INTERRUPTED: %d of 4 cells were measured whole, %d in part, %d not at all.", whole, part, 4-whole-part)
			if p.status != exitFailure || !r.Interrupted || r.Planned != 4 || whole < 1 || whole > 3 || part > 1 || !strings.Contains(p.stdout, line) || !strings.Contains(p.stderr, "once more ends this process at once") || !strings.Contains(p.stderr, "--resume measures the rest") {
				t.Fatalf("status %d, interrupted: %t, %d of %d whole, %d in part, %q:\n%s", p.status, r.Interrupted, whole, r.Planned, part, p.stderr, p.stdout)
			}
			if signal == syscall.SIGINT {
				resume(t, p, whole)
			}
		})
	}
}

// resume measures the rest of an interrupted run of which so many cells were measured whole: then it is what one that nobody interrupted is.
func resume(t *testing.T, p *process, whole int) {
	t.Helper()
	// Written otherwise, it is the same command.
	again := loadtest(t, "matrix", "--transports="+name(), "--sizes=64", "--clients", "1,2", "--clients=3", "--duration", "0.4s", "--warmup", "10ms", "--timeout=10s", "--out", p.out, "--resume", "--json")
	again.out = p.out
	validate(t, filepath.Join(p.out, report.FileName))
	resumed := again.run(t)
	if again.status == exitFailure || again.status == exitUsage || resumed.Interrupted || resumed.Resumed != whole || resumed.Planned != 4 {
		t.Fatalf("status %d, interrupted: %t, %d kept: %s", again.status, resumed.Interrupted, resumed.Resumed, again.stderr)
	}
	// However long its cells are, they are the same ones.
	once := loadtest(t, "matrix", "--transports", name(), "--sizes", "64", "--clients", "1,2,3", "--duration", "50ms", "--warmup", "10ms").run(t)
	structure := func(r report.Run) (list []string) {
		for _, c := range r.Cells {
			list = append(list, fmt.Sprintf("%s, run %d, number %d, interrupted %t, measured %t", c.Key(), c.Run, c.Order, c.Interrupted, c.Client != nil))
		}
		return list
	}
	if got, want := strings.Join(structure(resumed), "\n"), strings.Join(structure(once), "\n"); got != want {
		t.Errorf("resumed:\n%s\nin one go:\n%s", got, want)
	}
}

// TestFirstSignalDoesNotWait: a gateway that does not answer keeps nobody, though each of its requests may take ten minutes.
func TestFirstSignalDoesNotWait(t *testing.T) {
	t.Parallel()
	gateway := doomed(t, name())
	cmd, p, stdout, stderr := command(t, "--target", gateway.Address(name()), "--transport", name(), "--key", gateway.Keys()[0], "--clients", "5", "--timeout", "10m", "--duration", "1h", "--warmup", "10ms")
	before := processor(gateway.Ready.PID)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "load", func() bool { return processor(gateway.Ready.PID) > before+50*time.Millisecond })
	if err := syscall.Kill(gateway.Ready.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	p.finish(t, cmd, stdout, stderr)
	if !kill.Stop() || p.status != exitFailure || !strings.Contains(p.stderr, "once more ends this process at once") || !p.run(t).Interrupted {
		t.Errorf("status %d, %s; want its end in order, within %v", p.status, p.stderr, patience)
	}
}

// full is the end of a pipe that is full, so that whoever writes to it waits.
func full(t *testing.T) *os.File {
	t.Helper()
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	in, out := os.NewFile(uintptr(ends[0]), "in"), os.NewFile(uintptr(ends[1]), "out")
	t.Cleanup(func() {
		_ = out.Close()
		_ = in.Close()
	})
	var err error
	for page := make([]byte, os.Getpagesize()); err == nil; { // as a pipe keeps them, so that nothing is left of the last
		_, err = syscall.Write(ends[1], page)
	}
	if err != syscall.EAGAIN {
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(ends[1], false); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSecondSignal: the first ends what is under way in order; the second ends the process at once, here while it waits for ever for somebody to read what it prints. A shell without
// job control starts what is in the background with SIGINT ignored; that changes nothing.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		signal           syscall.Signal
		stderr, ignoring bool // standard error is full too; the signal was ignored before
	}{
		{"nobody reads standard output", syscall.SIGINT, false, false},
		{"nobody reads standard error either", syscall.SIGINT, true, false},
		{"SIGTERM", syscall.SIGTERM, true, false},
		{"SIGHUP", syscall.SIGHUP, true, false},
		{"SIGINT was ignored", syscall.SIGINT, false, true},
		{"SIGINT was ignored, and nobody reads standard error", syscall.SIGINT, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ignored := c.ignoring || slices.Contains(ignoredAtStart, c.signal)
			if ignored && c.signal == syscall.SIGHUP {
				t.Skip("SIGHUP is ignored, and stays so")
			}
			cmd, p, _, _ := command(t, "--transport", name(), "--clients", "1", "--duration", "1h", "--warmup", "10ms")
			if c.ignoring {
				cmd.Args = append([]string{"sh", "-c", `trap "" INT; exec "$@"`, "sh"}, cmd.Args...)
				cmd.Path = "/bin/sh"
			}
			var stderr lines
			cmd.Stdout, cmd.Stderr = full(t), &stderr
			if c.stderr {
				cmd.Stderr = full(t)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// A gateway that starts has one socket, it listens; then it has a client.
			until(t, "a client", func() bool { return sockets(child(cmd.Process.Pid)) > 1 })
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			// They are kept before anything is printed.
			until(t, "the results", func() bool {
				text, _ := os.ReadFile(filepath.Join(p.out, report.FileName))
				return bytes.Contains(text, []byte(`"interrupted": true`))
			})
			if !c.stderr {
				until(t, "what it says", func() bool { return stderr.has("once more ends this process at once") })
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait() // its status is looked at
			if !kill.Stop() {
				t.Fatalf("the process went on for %v", patience)
			}
			status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
			switch {
			case !ok:
				t.Fatalf("%v", cmd.ProcessState)
			case ignored && status.ExitStatus() != 128+int(c.signal), !ignored && !(status.Signaled() && status.Signal() == c.signal):
				t.Errorf("%v, want its end by %v", cmd.ProcessState, c.signal)
			}
			if left, err := os.ReadDir(p.tmp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
