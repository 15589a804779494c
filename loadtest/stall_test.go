package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tailgate/loadtest/host"
	"tailgate/loadtest/record"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/transports"
	"tailgate/transports/all"
)

// stallEnv asks for the test below, which takes some 12 s a transport.
const stallEnv = "LOADTEST_STALL"

// How the gateway is stopped, and how far a percentile may lie beyond the analytic ones.
const (
	stallRate   = 1000.0 // requests a second
	stallLength = time.Second
	stallAfter  = 4 * time.Second
	stallBeyond = 0.03
)

// TestStall stops a gateway for a second (SIGSTOP) within ten at a constant 1,000/s and compares the response times with the analytic ones.
//
// At rate r, with a stop of length S and a pair that works off what has heaped up at a rate c, a request that is due at time u of the stop waits S-u for
// its end, and then for the drain. Where the backlog is served first come, first served, that is u*r/c, for those before it: S-u(1-r/c) in all, until that is
// nothing at u = S/(1-r/c). So r(S-x)/(1-r/c) requests take longer than x, and the response time with m requests above it is x = S - m(1-r/c)/r. Where
// it is served all at once, as by a goroutine for each request, everybody gets its answer at the end of the drain, S*r/c later: x = S(1+r/c) - m/r. A
// transport may do anything between, so a response time is held against both, with 3 % beyond.
//
// What is held against the arithmetic is the tester's schedule, recorder and percentiles. So c comes from another instrument: the times at which the
// transport's client returned from its calls in this very drain, since a capacity that was measured at another moment, and without a backlog, is another.
func TestStall(t *testing.T) {
	if testing.Short() || os.Getenv(stallEnv) == "" {
		t.Skip("takes some 12 s a transport: set " + stallEnv + "=1")
	}
	rows := []string{"| transport | stopped for | drain | p95, in turn to all at once | p99 | p99.9 |", "|---|---|---|---|---|---|"}
	for _, name := range all.Names() {
		t.Run(name, func(t *testing.T) { rows = append(rows, stall(t, name)) })
	}
	fmt.Fprintf(t.Output(), "\n%s\n", strings.Join(rows, "\n"))
}

func stall(t *testing.T, transport string) (row string) {
	p := bench(t, "--transport", transport, "--rate", fmt.Sprint(stallRate), "--arrivals", "constant", "--duration", "10s", "--warmup", "200ms", "--timeout", "5s", "--connections", "10")
	gateway, err := p.host(t.Context(), p.cells[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gateway.Stop(); err != nil {
			t.Error(err)
		}
	})
	var answers observer
	cell := p.runnerCell(p.cells[0])
	cell.Transport, cell.Dial.Address, cell.Keys = answers.watch(cell.Transport), gateway.Address(transport), gateway.Keys()
	var wait sync.WaitGroup
	var stopped, resumed time.Time
	wait.Go(func() {
		<-time.After(stallAfter)
		stopped, resumed = stopFor(t, gateway, stallLength)
	})
	out, err := runner.Run(t.Context(), cell)
	wait.Wait()
	if err != nil {
		t.Fatal(err)
	}
	n := stallRate * cell.Duration.Seconds()
	if out.Counts != (record.Counts{record.OK: int64(n)}) || out.Scheduled != int64(n) {
		t.Errorf("counts %v (%v) of %d that were due, want %v acknowledged", out.Counts, out.Notes, out.Scheduled, n)
	}
	length, drain := resumed.Sub(stopped).Seconds(), answers.drain(stopped, resumed, stallRate)
	load := stallRate / drain
	row = fmt.Sprintf("| %s | %.3f s | %.0f/s |", transport, length, drain)
	for _, p := range []stats.Percentile{stats.P95, stats.P99, stats.P999} {
		beyond := n - float64(p.Rank(int64(n)))
		inTurn, atOnce := length-beyond*(1-load)/stallRate, length*(1+load)-beyond/stallRate
		got := out.Response.At(p).Duration.Seconds()
		row += fmt.Sprintf(" %.1f ms (%.1f to %.1f) |", 1e3*got, 1e3*inTurn, 1e3*atOnce)
		if got < (1-stallBeyond)*min(inTurn, atOnce) || got > (1+stallBeyond)*max(inTurn, atOnce) {
			t.Errorf("%s is %.1f ms, the analytic one %.1f to %.1f ms; lag p99 %v", p, 1e3*got, 1e3*inTurn, 1e3*atOnce, out.Lag.At(stats.P99).Duration)
		}
	}
	return row
}

// stopFor stops the gateway's process and lets it go on, and returns when it did so.
func stopFor(t *testing.T, gateway *host.Process, length time.Duration) (stopped, resumed time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), length)
	defer cancel()
	if err := syscall.Kill(gateway.Ready.PID, syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	stopped = time.Now()
	<-ctx.Done()
	resumed = time.Now() // before: what the signal takes belongs to the drain
	if err := syscall.Kill(gateway.Ready.PID, syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	return stopped, resumed
}

// observer notes when calls return, beside the tester's own recorder.
type observer struct {
	mu sync.Mutex
	at []time.Time
}

// watch returns the transport with clients that tell the observer.
func (o *observer) watch(transport transports.Transport) transports.Transport {
	dial := transport.Dial
	transport.Dial = func(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
		client, err := dial(ctx, config)
		if err != nil {
			return nil, err
		}
		return observed{client, o}, nil
	}
	return transport
}

type observed struct {
	transports.Client
	observer *observer
}

// Do implements transports.Client.
func (c observed) Do(ctx context.Context, call *transports.Call) error {
	err := c.Client.Do(ctx, call)
	now := time.Now()
	c.observer.mu.Lock()
	c.observer.at = append(c.observer.at, now)
	c.observer.mu.Unlock()
	return err
}

// drain is the rate of the answers from when the gateway goes on until as many have come as were due since it was stopped.
func (o *observer) drain(stopped, resumed time.Time, rate float64) float64 {
	slices.SortFunc(o.at, time.Time.Compare)
	answered := 0.0
	for _, at := range o.at {
		if at.Before(stopped) {
			continue
		}
		// The last one that is due may still be under way.
		if answered++; at.After(resumed) && answered >= rate*at.Sub(stopped).Seconds()-1 {
			return answered / at.Sub(resumed).Seconds()
		}
	}
	return rate // it never caught up
}
