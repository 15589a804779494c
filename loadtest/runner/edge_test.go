package runner_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tailgate/loadtest/machine"
	"tailgate/loadtest/runner"
)

// readings makes the function that gives one reading after the other.
func readings(list ...func() (runner.Reading, error)) func(context.Context) (runner.Reading, error) {
	var n atomic.Int64
	return func(context.Context) (runner.Reading, error) { return list[min(int(n.Add(1)), len(list))-1]() }
}

func good(r runner.Reading) func() (runner.Reading, error) {
	return func() (runner.Reading, error) { return r, nil }
}

// TestServerCounters: the server's readings at both edges are subtracted, whatever its process and its cores; where that cannot be done the cell stands and says why.
func TestServerCounters(t *testing.T) {
	first := runner.Reading{
		Counters: machine.Counters{At: time.Second, UserCPU: time.Second, MutexWait: 5, SchedulerLatency: machine.Histogram{{From: 0, Until: 64, Count: 7}, {From: 64, Until: 128, Count: 2}}},
		Process:  "a", Cores: 4,
	}
	last := runner.Reading{
		Counters: machine.Counters{At: 3 * time.Second, UserCPU: 5 * time.Second, MutexWait: 9, SchedulerLatency: machine.Histogram{{From: 0, Until: 64, Count: 7}, {From: 64, Until: 128, Count: 5}, {From: 128, Until: machine.Endless, Count: 1}}},
		Process:  "a", Cores: 4,
	}
	out := mustRun(t, cell(&peer{}, func(c *runner.Cell) { c.ServerCounters = readings(good(first), good(last)) }))
	use := out.ServerUse
	if use == nil || out.ServerUnknown != nil {
		t.Fatalf("%+v because of %v", use, out.ServerUnknown)
	}
	if use.At != 2*time.Second || use.UserCPU != 4*time.Second || use.Share != 0.5 || use.MutexWait != 4 || use.CoresKnown {
		t.Errorf("%+v, want 4 s of CPU time in 2 s on 4 cores", use)
	}
	if want := (machine.Histogram{{From: 64, Until: 128, Count: 3}, {From: 128, Until: machine.Endless, Count: 1}}); !reflect.DeepEqual(use.SchedulerLatency, want) {
		t.Errorf("scheduler latency %v, want %v", use.SchedulerLatency, want)
	}

	other := last
	other.Process = "b"
	dead := func() (runner.Reading, error) { return runner.Reading{}, errors.New("dead") }
	for _, c := range []struct {
		read func(context.Context) (runner.Reading, error)
		why  string
	}{
		{nil, "<nil>"},
		{readings(dead), "dead"},
		{readings(good(first), dead), "dead"},
		{readings(dead, good(last)), "dead"},
		{readings(good(first), good(other)), "started anew"},
	} {
		out := mustRun(t, cell(&peer{}, func(c2 *runner.Cell) { c2.ServerCounters = c.read }))
		if out.ServerUse != nil || !strings.Contains(fmt.Sprint(out.ServerUnknown), c.why) || out.Counts.Answered() != 1000 {
			t.Errorf("%+v because of %v, %d answered; want the reason %q", out.ServerUse, out.ServerUnknown, out.Counts.Answered(), c.why)
		}
	}
}

// TestNoSockets: a transport without sockets has reasons in the place of TCP's figures.
func TestNoSockets(t *testing.T) {
	out := mustRun(t, cell(&peer{}, nil))
	if out.ClientTCP.NotAvailable == "" || out.ServerTCP.NotAvailable == "" {
		t.Errorf("client %+v, server %+v", out.ClientTCP, out.ServerTCP)
	}
}
