package runner_test

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tailgate/loadtest/pacer"
	"tailgate/loadtest/record"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// loop is a transport whose connections have one goroutine together: it answers what was sent, in order, from there.
type loop struct {
	peer
	queue chan sent
	calls atomic.Int64 // of Go
	most  atomic.Int64 // goroutines, where it looked
}

type sent struct {
	call *transports.Call
	done func(error)
}

func newLoop(t *testing.T) *loop {
	t.Helper()
	l := &loop{peer: peer{async: true, perClient: true}, queue: make(chan sent, 4096)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			s, more := <-l.queue
			if !more {
				return
			}
			if n%1000 == 0 {
				raise(&l.most, int64(runtime.NumGoroutine()))
			}
			s.done(acknowledge(s.call))
		}
	}()
	t.Cleanup(func() {
		close(l.queue)
		<-ended
	})
	return l
}

func (l *loop) transport() transports.Transport {
	transport := l.peer.transport()
	dial := transport.Dial
	transport.Dial = func(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
		client, err := dial(ctx, config)
		if err != nil {
			return nil, err
		}
		return &looped{Client: client, loop: l}, nil
	}
	return transport
}

type looped struct {
	transports.Client
	loop *loop
}

func (c *looped) Go(_ context.Context, call *transports.Call, done func(error)) {
	c.loop.calls.Add(1)
	c.loop.queue <- sent{call, done}
}

func (c *looped) TryDo(ctx context.Context, call *transports.Call) error { return c.Do(ctx, call) }

// TestAsyncNeedsNoGoroutine: however many requests are under way, neither loop has a goroutine for one, nor memory.
func TestAsyncNeedsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for name, change := range map[string]func(*runner.Cell){
		"closed":       func(c *runner.Cell) { c.Clients = 500 },
		"with a bound": func(c *runner.Cell) { c.Clients, c.InFlight = 500, 50 },
		"open": func(c *runner.Cell) {
			c.Connections = 500
			c.Open = &runner.OpenLoop{Pace: pacer.Config{Rate: 5_000, Seed: 1}, Generators: 1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t)
			c := cell(&l.peer, func(c *runner.Cell) {
				c.Transport, c.Requests, c.Duration, c.Warmup = l.transport(), 0, 400*time.Millisecond, 200*time.Millisecond
				c.Timeout = time.Minute // a machine with other work may be late
				change(c)
			})
			out := mustRun(t, c)
			if out.Counts[record.OK] == 0 || out.Counts[record.OK] != out.Counts.Offered() || l.calls.Load() < out.Counts.Offered() {
				t.Errorf("counts %v with %d calls of Go; want all ok, and sent by it", out.Counts, l.calls.Load())
			}
			if most := l.most.Load(); most > int64(before+20) {
				t.Errorf("%d goroutines, %d before", most, before)
			}
			if per := float64(out.ClientUse.AllocatedObjects) / float64(out.Counts.Offered()); per > 0.1 {
				t.Errorf("%.2f objects a request over %d requests, want almost none", per, out.Counts.Offered())
			}
		})
	}
}

// TestFirstEngineWaits: with a transport's first engine, clients wait in Do, asynchronous or not.
func TestFirstEngineWaits(t *testing.T) {
	for _, engine := range []string{"", "net"} {
		l := newLoop(t)
		out := mustRun(t, cell(&l.peer, func(c *runner.Cell) { c.Transport, c.Dial.Engine, c.Requests = l.transport(), engine, 100 }))
		if n := l.calls.Load(); n != 0 || out.Counts[record.OK] != 100 {
			t.Errorf("engine %q: %d calls of Go, counts %v", engine, n, out.Counts)
		}
	}
}

// TestRefusedFromWithin: a transport that refuses before Go returns makes no client go ever deeper into itself, nor into another that waits for its place.
func TestRefusedFromWithin(t *testing.T) {
	var deepest atomic.Int64
	p := &peer{async: true, inline: true, do: func(_ context.Context, n int64, _ *transports.Call) error {
		if n%100 == 0 {
			raise(&deepest, int64(runtime.Callers(0, make([]uintptr, 4096))))
		}
		return transports.Refuse(0, "no")
	}}
	out := mustRun(t, cell(p, func(c *runner.Cell) { c.Clients, c.InFlight, c.Requests = 50, 3, 20_000 }))
	if out.Counts[record.Refused] != 20_000 || deepest.Load() > 50 {
		t.Errorf("counts %v, a stack of %d; want 20000 refused, and a flat one", out.Counts, deepest.Load())
	}
}

// TestFairness: a client that is served less often than the others of its size shows, whatever those of other sizes get.
func TestFairness(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			var slow atomic.Pointer[transports.Call] // of the client that is
			p := &peer{async: async, perClient: true, do: func(ctx context.Context, n int64, call *transports.Call) error {
				request, _ := call.Request.(*pb.SubmitOrderRequest)
				took := 2 * time.Millisecond
				if len(request.ClientTag) > 1024 {
					took = 4 * time.Millisecond
				} else if slow.CompareAndSwap(nil, call); slow.Load() == call {
					took = 10 * time.Millisecond
				}
				return work(took)(ctx, n, call)
			}}
			out := mustRun(t, cell(p, func(c *runner.Cell) {
				c.Clients, c.Requests, c.Duration = 10, 0, time.Second
				c.Flow.Size, c.Flow.Mix, c.Flow.ByClient = 0, []workload.Share{{Size: 64, Weight: 1}, {Size: 64 << 10, Weight: 1}}, true
			}))
			// Four with 500 and one with 100 a second: 2100 squared by five times the sum of the squares.
			want := []runner.Fairness{
				{Size: 64, Clients: 5, Jain: 2100. * 2100 / (5 * (4*500*500 + 100*100)), Min: 100, Mean: 420, Max: 500},
				{Size: 64 << 10, Clients: 5, Jain: 1, Min: 250, Mean: 250, Max: 250},
			}
			if !slices.Equal(out.Fairness, want) {
				t.Errorf("%+v, want %+v", out.Fairness, want)
			}
			out = mustRun(t, cell(&peer{async: async, do: work(time.Millisecond)}, nil))
			if len(out.Fairness) != 1 || out.Fairness[0].Size != 64 || out.Fairness[0].Clients != 4 {
				t.Errorf("%+v, want one entry of all clients", out.Fairness)
			}
		})
	})
}

// TestServerMetrics: counters are differences between the edges, states what they were at the end, and what came in between is left out.
func TestServerMetrics(t *testing.T) {
	readings := 0
	out := mustRun(t, cell(&peer{}, func(c *runner.Cell) {
		c.ServerMetrics = func(context.Context) ([]transports.Metric, error) {
			readings++
			list := []transports.Metric{{Name: "grants", Counter: true, Value: 100 * float64(readings)}, {Name: "pool", Value: float64(readings)}}
			if readings > 1 {
				list = append(list, transports.Metric{Name: "new", Counter: true, Value: 7})
			}
			return list, nil
		}
	}))
	want := []transports.Metric{{Name: "grants", Counter: true, Value: 100}, {Name: "pool", Value: 2}}
	if readings != 2 || !slices.Equal(out.Metrics, want) {
		t.Errorf("%d readings, %+v, want %+v", readings, out.Metrics, want)
	}
}
