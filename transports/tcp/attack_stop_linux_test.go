package tcp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tailgate/transports"
	"tailgate/transports/tcp"
)

// serverProcess names the variable by which the test binary becomes a server, see TestServerProcess.
const serverProcess = "TCP_SERVER_PROCESS"

// TestServerProcess is no test: it is the process of a server that another test stops and continues. It says where it listens, serves until its input ends, and
// says what its clients did wrong.
func TestServerProcess(t *testing.T) {
	if os.Getenv(serverProcess) == "" {
		t.Skip("started by TestStoppedServer")
	}
	server, err := tcp.Transport().Listen(t.Context(), &gateway{handle: acknowledgeOnly}, transports.ListenConfig{Address: "127.0.0.1:0", Engine: os.Getenv(serverProcess)})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\naddress %v\n", server.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, m := range server.(transports.Metered).Metrics() {
		if m.Name == "credit_violations_total" || m.Name == "connections" {
			fmt.Printf("\n%s %v\n", m.Name, m.Value)
		}
	}
	_ = server.Shutdown(context.Background())
}

// remote is a server in another process.
type remote struct {
	transports.Server
	addr net.Addr
}

func (r remote) Addr() net.Addr { return r.addr }

// child is a process of TestServerProcess.
type child struct {
	remote
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout *bufio.Scanner
}

func startChild(t *testing.T) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerProcess$")
	cmd.Env = append(os.Environ(), serverProcess+"="+engine, "TCP_ENGINE="+engine)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, stdin: stdin, stdout: bufio.NewScanner(stdout)}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	if c.addr, err = net.ResolveTCPAddr("tcp", c.line("address ")); err != nil {
		t.Fatal(err)
	}
	return c
}

// line reads up to the line with a prefix, and returns the rest of that.
func (c *child) line(prefix string) string {
	c.t.Helper()
	for c.stdout.Scan() {
		if rest, ok := strings.CutPrefix(c.stdout.Text(), prefix); ok {
			return rest
		}
	}
	c.t.Fatalf("the server's process ended without a line %q: %v", prefix, c.stdout.Err())
	return ""
}

func (c *child) signal(s syscall.Signal) {
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Error(err)
	}
}

// TestStoppedServer: the server's process stands still for 200 ms in the middle of a load. Every call is answered, nobody is closed for what the server did, and
// afterwards all is as before.
func TestStoppedServer(t *testing.T) {
	if engine == "park" && !longAttacks() {
		t.Skip("as with spin, but for the sleep")
	}
	const pause = 200 * time.Millisecond
	pairs, length := 1, 100*time.Millisecond
	if longAttacks() {
		pairs, length = 9, 400*time.Millisecond
	}
	for _, tag := range []int{64, large} {
		t.Run(fmt.Sprint("tag=", tag), func(t *testing.T) {
			server := startChild(t)
			clients := asyncs(t, server, 32, transports.DialConfig{Engine: lightEngine()})
			var answered atomic.Int64
			round := func(length time.Duration) result {
				times, err := closedLoops(clients, tag, length, &answered)
				if err != nil {
					t.Fatal(err)
				}
				return resultOf(times)
			}
			round(length / 4)
			var ratios []float64
			for range pairs {
				before := round(length)
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					<-time.After(length / 4)
					server.signal(syscall.SIGSTOP)
					<-time.After(pause)
					server.signal(syscall.SIGCONT)
				}()
				during := round(length + pause)
				<-stopped
				after := round(length)
				if during.max < pause-pause/10 { // the signal takes hold some time after it is sent
					t.Errorf("no call took the %v for which the server stood: %v", pause, during)
				}
				ratios = append(ratios, float64(after.p99)/float64(before.p99))
				t.Logf("before %v; with the stop %v; after %v", before, during, after)
			}
			slices.Sort(ratios)
			ratio := ratios[len(ratios)/2]
			t.Logf("engine %s, %d bytes: p99 after the stop is %.2f times that before (median of %d)", engine, tag, ratio, pairs)
			if longAttacks() && ratio > attackRatio {
				t.Errorf("p99 after the stop is %.2f times that before, at most %.1f is allowed; single pairs: %.2f", ratio, attackRatio, ratios)
			}
			_ = server.stdin.Close()
			if n := server.line("connections "); n != fmt.Sprint(len(clients)) {
				t.Errorf("%s connections are left of %d", n, len(clients))
			}
			if n := server.line("credit_violations_total "); n != "0" {
				t.Errorf("clients were blamed for %s violations", n)
			}
		})
	}
}
