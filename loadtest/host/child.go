package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"tailgate/loadtest/floor"
	"tailgate/loadtest/machine"
	"tailgate/transports"
)

// startTimeout bounds the start of a child's server.
const startTimeout = 10 * time.Second

// Child is the whole life of a child process: it reads its task from in, runs it, answers on out, and returns when in ends. Its error is for
// the standard error, which the parent keeps.
func Child(in io.Reader, out, stderr io.Writer) error {
	// An interrupt from the terminal goes to parent and child; the parent decides. A termination is meant for this process.
	signal.Ignore(os.Interrupt)
	// When the parent has died, what the gateway has to say about it goes to a pipe that nobody reads. By default that would end this
	// process on the spot, with its journal left behind.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	lines := make(chan []byte)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			select {
			case lines <- bytes.Clone(scanner.Bytes()):
			case <-ctx.Done():
				return
			}
		}
	}()
	line, ok := <-lines
	if !ok {
		return errors.New("host: no task on the standard input: this command is for the load tester's own use")
	}
	var task Task
	if err := json.Unmarshal(line, &task); err != nil {
		return fmt.Errorf("host: the task cannot be read: %w", err)
	}
	if task.Folder != "" {
		defer func() {
			if err := os.RemoveAll(task.Folder); err != nil {
				fmt.Fprintln(stderr, "host: the journal's folder stays behind:", err)
			}
		}()
	}
	ready, s, err := start(ctx, task, stderr)
	if err != nil {
		return err
	}
	defer func() {
		if err := s.end(); err != nil {
			fmt.Fprintln(stderr, "host: stop:", err)
		}
	}()
	if _, err := out.Write(encode(ready)); err != nil {
		return fmt.Errorf("host: ready line: %w", err)
	}
	return answer(ctx, lines, out, s.metrics)
}

// served is a server that runs.
type served struct {
	address net.Addr
	end     func() error
	metrics func() []transports.Metric // nil where it has none
}

// answer serves requests until the input ends or the process is told to.
func answer(ctx context.Context, lines <-chan []byte, out io.Writer, metrics func() []transports.Metric) error {
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			var r reply
			switch string(line) {
			case countersRequest:
				counters, err := machine.ReadCounters()
				r.Counters = counters
				if err != nil {
					r.Error = err.Error()
				}
			case metricsRequest:
				if metrics != nil {
					r.Metrics = finite(metrics())
				}
			default:
				r.Error = fmt.Sprintf("unknown request %q", line)
			}
			if _, err := out.Write(encode(r)); err != nil {
				return fmt.Errorf("host: answer: %w", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// finite leaves out what JSON cannot carry.
func finite(list []transports.Metric) []transports.Metric {
	return slices.DeleteFunc(list, func(m transports.Metric) bool { return math.IsNaN(m.Value) || math.IsInf(m.Value, 0) })
}

// LeastProcs is how many threads the runtime may run with an engine that spins, even on one core: with one alone, everything beside the spinning
// loop waits for the scheduler's time slice of 10 ms.
const LeastProcs = 2

func start(ctx context.Context, task Task, stderr io.Writer) (Ready, served, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if task.Engine == transports.EngineSpin {
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), LeastProcs))
	}
	ready := Ready{PID: os.Getpid(), GoVersion: runtime.Version(), Gomaxprocs: runtime.GOMAXPROCS(0), Sync: task.Sync}
	cores, err := machine.Cores()
	if err != nil {
		return Ready{}, served{}, err
	}
	for _, c := range cores {
		ready.Cores = append(ready.Cores, c.ID)
	}
	if err := machine.EnsureFiles(task.MaxConnections + 64); err != nil {
		return Ready{}, served{}, err
	}
	var s served
	if task.Transport == floor.Name {
		listener, err := floor.Listen(ctx, task.CongestionControl)
		if err != nil {
			return Ready{}, served{}, fmt.Errorf("host: bare echo: %w", err)
		}
		ready.Sync = "none"
		serve := floor.Serve
		if task.Spin {
			serve = floor.SpinServe
		}
		s.address = listener.Addr()
		if task.Engine == "" {
			s.end = serve(listener).Close
		} else {
			turns, err := floor.ServeInTurn(listener, task.Engine == floor.EngineSpin)
			if err != nil {
				return Ready{}, served{}, fmt.Errorf("host: bare echo: %w", err)
			}
			s.end = turns.Close
		}
	} else {
		logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		run := startGateway
		if task.Null {
			run, ready.Sync = startNull, "none"
		}
		if s, err = run(ctx, task, logger); err != nil {
			return Ready{}, served{}, err
		}
	}
	ready.Addresses = map[string]string{task.Transport: s.address.String()}
	return ready, s, nil
}
