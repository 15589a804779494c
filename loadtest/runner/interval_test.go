package runner_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tailgate/loadtest/record"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// TestDuration: the interval is what was asked, warm-up is not recorded, throughput follows from the interval, and Little's law holds.
func TestDuration(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{async: async, do: work(time.Millisecond)}
			c := cell(p, func(c *runner.Cell) {
				c.Clients, c.Requests, c.Duration, c.Warmup = 5, 0, 300*time.Millisecond, 100*time.Millisecond
			})
			out := mustRun(t, c)
			if out.Seconds != 0.3 || out.Counts.Offered() != 5*300 || p.orders.Load() != 5*400 || math.Round(out.Throughput) != 5000 || out.Busy != 1500*time.Millisecond {
				t.Errorf("%v s, %d recorded of %d orders, %v/s, busy %v; want 0.3 s, 1500 of 2000, 5000/s, 1.5 s", out.Seconds, out.Counts.Offered(), p.orders.Load(), out.Throughput, out.Busy)
			}
			if want := (record.Counts{record.OK: 5 * 100}); out.WarmupFates != want || len(out.IDPrefix) != workload.PrefixLength {
				t.Errorf("warm-up %v, ids with %q; want %v", out.WarmupFates, out.IDPrefix, want)
			}
			if v := runner.Judge(c, out); strings.Contains(strings.Join(v.Reasons, ";"), "Little") {
				t.Errorf("five clients without a pause, but %v", v.Reasons)
			}
		})
	})
}

// TestWarmupFates: the warm-up's requests have accounts of their own.
func TestWarmupFates(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{async: async, do: func(ctx context.Context, n int64, call *transports.Call) error {
				if err := work(time.Millisecond)(ctx, n, call); err != nil {
					return err
				}
				response, _ := call.Response.(*pb.SubmitOrderResponse)
				switch n {
				case 1:
					response.ClientOrderId = "wrong"
				case 2:
					response.Status, response.Reason = pb.OrderStatus_ORDER_STATUS_REJECTED, pb.Reason_REASON_PRICE_COLLAR
				case 3:
					return transports.Refuse(pb.Reason_REASON_OVERLOADED, "full")
				case 4:
					return transports.InDoubt(pb.Reason_REASON_INTERNAL, nil, "broken")
				}
				return nil
			}}
			out := mustRun(t, cell(p, func(c *runner.Cell) {
				c.Clients, c.Requests, c.Warmup = 1, 10, 20*time.Millisecond
			}))
			want := record.Counts{record.OK: 16, record.Rejected: 1, record.Refused: 1, record.Errors: 2}
			if out.WarmupFates != want || out.Counts != (record.Counts{record.OK: 10}) {
				t.Errorf("warm-up %v and %v, want %v and 10 ok", out.WarmupFates, out.Counts, want)
			}
		})
	})
}

// TestWarmupWaitsForEveryClient: the interval does not begin while a request of the first wave is under way, but not for ever.
func TestWarmupWaitsForEveryClient(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		for slowest, want := range map[time.Duration]time.Duration{
			10 * time.Millisecond: 100 * time.Millisecond,
			2 * time.Second:       2 * time.Second,
			9 * time.Second:       5100 * time.Millisecond,
		} {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{async: async, do: func(ctx context.Context, n int64, call *transports.Call) error {
					if n == 1 {
						return work(slowest)(ctx, n, call)
					}
					return work(time.Millisecond)(ctx, n, call)
				}}
				out := mustRun(t, cell(p, func(c *runner.Cell) {
					c.Clients, c.Requests, c.Duration, c.Warmup, c.Timeout = 3, 0, time.Second, 100*time.Millisecond, time.Minute
				}))
				if out.Warmup != want || out.Seconds != 1 {
					t.Errorf("slowest first answer %v: warm-up %v, interval %v s; want %v and 1 s", slowest, out.Warmup, out.Seconds, want)
				}
				if clients := out.Busy.Seconds(); slowest < 5*time.Second && math.Abs(clients-3) > 0.01 || slowest > 5*time.Second && math.Abs(clients-2) > 0.01 {
					t.Errorf("slowest first answer %v: %v requests under way", slowest, clients)
				}
			})
		}
	})
}

// TestInFlightAtTheEnd: a request that is due within the interval is waited for and counted, however late its answer.
func TestInFlightAtTheEnd(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{async: async, do: work(900 * time.Millisecond)}
			out := mustRun(t, cell(p, func(c *runner.Cell) { c.Clients, c.Requests, c.Duration = 3, 0, time.Second }))
			if out.Counts[record.OK] != 6 || !is(out.Response, 900*time.Millisecond) || out.Seconds != 1 {
				t.Errorf("counts %v, response %v, %v s; want the second request of each of three clients too, whole", out.Counts, out.Response.Max(), out.Seconds)
			}
		})
	})
}

// TestMinSamples: an interval that is too short for the samples asked for goes on, but not for longer than allowed.
func TestMinSamples(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		for _, c := range []struct {
			samples  int64
			extra    time.Duration
			from, to float64
		}{
			{1 << 40, 200 * time.Millisecond, 0.25, 0.25},
			{60, 100 * time.Millisecond, 0.06, 0.07},
			{10, time.Second, 0.05, 0.05},
		} {
			synctest.Test(t, func(t *testing.T) {
				out := mustRun(t, cell(&peer{async: async, do: work(time.Millisecond)}, func(cell *runner.Cell) {
					cell.Clients, cell.Requests, cell.Duration, cell.MinSamples, cell.MaxExtra = 1, 0, 50*time.Millisecond, c.samples, c.extra
				}))
				// A request that is due in the very moment in which the interval ends may fall on either side.
				if out.Seconds < c.from || out.Seconds > c.to || math.Abs(out.Seconds*1000-float64(out.Counts.Offered())) > 1.01 {
					t.Errorf("%d samples wanted: %d in %v s, want %v to %v s of one a millisecond", c.samples, out.Counts.Offered(), out.Seconds, c.from, c.to)
				}
			})
		}
	})
}

// TestInterrupt: what was measured until then is kept, marked, and requests that hang are given up after a grace time.
func TestInterrupt(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := &peer{async: async, do: func(ctx context.Context, n int64, call *transports.Call) error {
				switch n {
				case 500:
					cancel()
				case 490:
					<-ctx.Done() // hangs until its time, or until it is given up
					return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, ctx.Err(), "given up")
				}
				return work(time.Millisecond)(ctx, n, call)
			}}
			c := cell(p, func(c *runner.Cell) { c.Requests, c.Duration, c.Timeout = 0, time.Hour, time.Hour/2 })
			begun := time.Now()
			out, err := runner.Run(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("it took %v to stop, want the grace of 2 s", took)
			}
			if !out.Interrupted || out.Counts.Offered() < 499 || out.Counts[record.TimedOut] != 1 || out.Seconds < 0.12 || out.Seconds > 0.13 {
				t.Errorf("interrupted: %t, counts %v in %v s; want 500 orders of 4 clients at one a millisecond", out.Interrupted, out.Counts, out.Seconds)
			}
			if v := runner.Judge(c, out); v.Verdict == runner.Valid || !strings.Contains(strings.Join(v.Reasons, ";"), "interrupted after") {
				t.Errorf("%+v, want to be told of the interrupt", v)
			}
		})
	})
}

// TestStuckTransport: a transport that ignores its context does not hold the run for ever.
func TestStuckTransport(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			p := &peer{async: async, do: func(_ context.Context, n int64, call *transports.Call) error {
				if n == 10 {
					<-release
					return acknowledge(call)
				}
				return work(time.Millisecond)(t.Context(), n, call)
			}}
			_, err := runner.Run(t.Context(), cell(p, func(c *runner.Cell) { c.Requests, c.Duration = 0, time.Second }))
			if err == nil || !strings.Contains(err.Error(), "ignores its context") {
				t.Errorf("got %v, want to be told that the transport is broken", err)
			}
			close(release)
		})
	})
}
