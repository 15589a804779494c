package main

import (
	"context"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"tailgate/loadtest/host"
	"tailgate/loadtest/pacer"
	"tailgate/loadtest/record"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/loadtest/workload"
	"tailgate/transports"
	"tailgate/transports/all"
)

// stallEnv asks for the test below, which takes some 12 s a transport.
const stallEnv = "LOADTEST_STALL"

// TestStall stops a gateway for a second (SIGSTOP) within ten at a constant 1,000/s and compares the response times with the analytic ones.
//
// At rate r, with a stop of length S and a capacity c of the pair, a request that is due at time u of the stop waits S-u for its end, and then for the
// drain. Where the backlog is served first come, first served, that is u*r/c, for those before it: S-u(1-r/c) in all, until that is nothing at u =
// S/(1-r/c). So r(S-x)/(1-r/c) requests take longer than x, and the response time with m requests above it is x = S - m(1-r/c)/r. Where it is served all at
// once, as by a goroutine for each request, everybody gets its answer at the end of the drain, S*r/c later: x = S(1+r/c) - m/r. A transport may do
// anything between, so a response time is held against both, with 3 % beyond. The capacity is measured beforehand, in a closed loop.
func TestStall(t *testing.T) {
	if testing.Short() || os.Getenv(stallEnv) == "" {
		t.Skip("takes some 12 s a transport: set " + stallEnv + "=1")
	}
	for _, transport := range all.All() {
		t.Run(transport.Name, func(t *testing.T) { stall(t, transport, gateway(t, transport.Name)) })
	}
}

func stall(t *testing.T, transport transports.Transport, gateway *host.Process) {
	const rate, length, seconds, connections = 1000.0, time.Second, 10, 10
	cell := runner.Cell{
		Transport: transport, Dial: transports.DialConfig{Address: gateway.Address(transport.Name), Limits: dialLimits(transport.Name)}, Keys: gateway.Keys(),
		Clients: 10 * connections, Connections: connections, Flow: workload.Config{Seed: 1, Size: 64},
		Duration: time.Second, Warmup: 200 * time.Millisecond, Timeout: 5 * time.Second,
	}
	closed, err := runner.Run(t.Context(), cell)
	if err != nil {
		t.Fatal(err)
	}
	cell.Duration = seconds * time.Second
	cell.Open = &runner.OpenLoop{Pace: pacer.Config{Rate: rate, Arrivals: pacer.Constant}}
	var stop sync.WaitGroup
	var stopped time.Duration
	stop.Go(func() {
		time.Sleep(4 * time.Second)
		stopped = stopFor(t, gateway, length)
	})
	out, err := runner.Run(t.Context(), cell)
	stop.Wait()
	if err != nil {
		t.Fatal(err)
	}
	n := float64(rate * seconds)
	if out.Counts != (record.Counts{record.OK: int64(n)}) || out.Scheduled != int64(n) {
		t.Errorf("counts %v (%v) of %d that were due, want %v acknowledged", out.Counts, out.Notes, out.Scheduled, n)
	}
	load := rate / closed.Throughput
	for _, p := range []stats.Percentile{stats.P95, stats.P99, stats.P999} {
		beyond := n - float64(p.Rank(int64(n)))
		inTurn, atOnce := stopped.Seconds()-beyond*(1-load)/rate, stopped.Seconds()*(1+load)-beyond/rate
		got := out.Response.At(p).Duration.Seconds()
		t.Logf("stopped for %v, load %.3f: response %s %.1f ms, analytic %.1f to %.1f ms; service %.1f ms; lag p99 %v",
			stopped, load, p, 1e3*got, 1e3*inTurn, 1e3*atOnce, float64(out.Service.At(p).Duration)/1e6, out.Lag.At(stats.P99).Duration)
		if got < 0.97*min(inTurn, atOnce) || got > 1.03*max(inTurn, atOnce) {
			t.Errorf("%s is %.1f ms, the analytic one %.1f to %.1f ms", p, 1e3*got, 1e3*inTurn, 1e3*atOnce)
		}
	}
}

// stopFor stops the gateway's process and lets it go on, and returns for how long it stood still.
func stopFor(t *testing.T, gateway *host.Process, length time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), length)
	defer cancel()
	if err := syscall.Kill(gateway.Ready.PID, syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	begun := time.Now()
	<-ctx.Done()
	if err := syscall.Kill(gateway.Ready.PID, syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	return time.Since(begun)
}
