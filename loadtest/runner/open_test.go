package runner_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tailgate/loadtest/pacer"
	"tailgate/loadtest/record"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/transports"
)

// openCell is a small open loop on the clock of testing/synctest, where a sleep takes exactly its time.
func openCell(p *peer, rate float64, change func(*runner.Cell)) runner.Cell {
	return cell(p, func(c *runner.Cell) {
		c.Requests, c.Duration = 0, time.Second
		c.Open = &runner.OpenLoop{
			Pace:       pacer.Config{Rate: rate, Arrivals: pacer.Constant, Seed: 1},
			Generators: 1,
			NewSleeper: func() (pacer.Sleeper, error) { return pacer.Coarse{}, nil },
		}
		if change != nil {
			change(c)
		}
	})
}

// TestOpenLoopKeepsItsSchedule: requests are sent when they are due, whatever became of those before, and every one is counted.
func TestOpenLoopKeepsItsSchedule(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		for _, generators := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{async: async, perClient: true, do: work(35 * time.Millisecond)}
				c := openCell(p, 1000, func(c *runner.Cell) { c.Warmup, c.Open.Generators = 100*time.Millisecond, generators })
				out := mustRun(t, c)
				if out.Counts != (record.Counts{record.OK: 1000}) || out.WarmupFates != (record.Counts{record.OK: 100}) || out.Scheduled != 1000 || out.Seconds != 1 {
					t.Errorf("counts %v, warm-up %v, %d due in %v s; want 1000, 100, 1000 in 1 s", out.Counts, out.WarmupFates, out.Scheduled, out.Seconds)
				}
				if !is(out.Response, 35*time.Millisecond) || !is(out.Service, 35*time.Millisecond) || !is(out.Lag, 0) {
					t.Errorf("response %v, service %v, lag up to %v; want 35 ms, 35 ms, none", out.Response.Max(), out.Service.Max(), out.Lag.Max())
				}
				if most := p.mostInFlight.Load(); most != 35 && most != 36 {
					t.Errorf("%d in flight at the same time, want 35: a request does not wait for the one before", most)
				}
				if v := runner.Judge(c, out); strings.Contains(strings.Join(v.Reasons, ";"), "schedule") || strings.Contains(strings.Join(v.Reasons, ";"), "keep up") {
					t.Errorf("%+v", v)
				}
			})
		}
	})
}

// TestOpenLoopShowsAStall: a server that stands still for a second makes everybody wait that was due meanwhile, by the time that is left of it.
func TestOpenLoopShowsAStall(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			p := &peer{async: async, perClient: true, do: func(context.Context, int64, *transports.Call) error { return nil }}
			p.do = func(ctx context.Context, n int64, call *transports.Call) error {
				if at := time.Since(begun); at >= 4*time.Second && at < 5*time.Second {
					return work(5*time.Second-at)(ctx, n, call)
				}
				return acknowledge(call)
			}
			out := mustRun(t, openCell(p, 1000, func(c *runner.Cell) { c.Duration = 10 * time.Second }))
			for q, want := range map[stats.Percentile]time.Duration{stats.P50: 0, stats.P95: 500 * time.Millisecond, stats.P99: 900 * time.Millisecond, stats.P999: 990 * time.Millisecond} {
				if got := out.Response.At(q).Duration; math.Abs(float64(got-want)) > 2.5e6 {
					t.Errorf("%s is %v, want %v", q, got, want)
				}
			}
			if out.Counts[record.OK] != 10_000 {
				t.Errorf("counts %v, want all of 10000", out.Counts)
			}
		})
	})
}

// TestOpenLoopCap: with a cap the wait for a place is no service time and no lag, but it is response time.
func TestOpenLoopCap(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			// One place of 2 ms for a request every millisecond: the n-th waits n ms.
			p := &peer{async: async, do: work(2 * time.Millisecond)}
			c := openCell(p, 1000, func(c *runner.Cell) { c.InFlight, c.Timeout = 1, 10*time.Second })
			out := mustRun(t, c)
			if out.Counts[record.OK] != 1000 || p.mostInFlight.Load() != 1 {
				t.Errorf("counts %v, %d in flight; want 1000 and 1", out.Counts, p.mostInFlight.Load())
			}
			if !is(out.Service, 2*time.Millisecond) || !is(out.Lag, 0) || out.CreditWait.Max().Duration != 999*time.Millisecond || out.Response.Max().Duration != 1001*time.Millisecond {
				t.Errorf("service %v, lag %v, wait up to %v, response up to %v; want 2 ms, 0, 999 and 1001 ms", out.Service.Max(), out.Lag.Max(), out.CreditWait.Max(), out.Response.Max())
			}
			if out.Behind != 0 || math.Round(out.Throughput) != 500 {
				t.Errorf("%d behind, %v/s; a place that does not come free is no fault of the generator, and 500 a second came back in time", out.Behind, out.Throughput)
			}
		})
	})
}

// TestOpenLoopMaxWait: what cannot be sent in its time is unsent and infinitely late; the schedule goes on.
func TestOpenLoopMaxWait(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{async: async, do: work(100 * time.Millisecond)}
			c := openCell(p, 100, func(c *runner.Cell) { c.InFlight, c.Open.MaxWait = 1, 50*time.Millisecond })
			out := mustRun(t, c)
			if out.Counts.Offered() != 100 || out.Counts[record.OK] < 10 || out.Counts[record.OK] > 11 || out.Counts[record.OK]+out.Counts[record.Unsent] != 100 {
				t.Errorf("counts %v, want ten or eleven answered, one every 100 ms, and the rest of 100 unsent", out.Counts)
			}
			if out.Behind != 0 || out.Response.Max().State != stats.Infinite {
				t.Errorf("%d behind, maximum %+v", out.Behind, out.Response.Max())
			}
		})
	})
}

// slow sleeps longer than it is asked to, but for the shortest sleeps, which only let others run.
type slow struct{ extra time.Duration }

func (s slow) Sleep(d time.Duration) {
	if d > 10*time.Microsecond {
		d += s.extra
	}
	time.Sleep(d)
}
func (slow) Close() error { return nil }

// TestOpenLoopLag: a generator that is late sends late, drops nothing, and says so.
func TestOpenLoopLag(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{async: async, perClient: true, do: work(time.Millisecond)}
			c := openCell(p, 1000, func(c *runner.Cell) {
				c.Open.NewSleeper = func() (pacer.Sleeper, error) { return slow{200 * time.Millisecond}, nil }
			})
			out := mustRun(t, c)
			lag, response := out.Lag.At(stats.P50).Duration, out.Response.At(stats.P50).Duration
			if out.Counts[record.OK] != 1000 || lag < 90*time.Millisecond || response-lag > 2*time.Millisecond || response < lag || !is(out.Service, time.Millisecond) {
				t.Errorf("counts %v, lag %v, response %v, service %v; want all, about 100 ms, 1 ms more, 1 ms", out.Counts, lag, response, out.Service.Max())
			}
			if v := runner.Judge(c, out); v.Verdict != runner.Invalid || !strings.Contains(strings.Join(v.Reasons, "; "), "the tester's own lag") {
				t.Errorf("%+v, want INVALID because of the lag", v)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			p := &peer{async: async, perClient: true, do: work(time.Millisecond)}
			c := openCell(p, 100, func(c *runner.Cell) {
				c.Open.MaxWait = 300 * time.Millisecond
				c.Open.NewSleeper = func() (pacer.Sleeper, error) { return slow{3 * time.Second}, nil }
			})
			out := mustRun(t, c)
			if out.Counts.Offered() != 100 || out.Behind < 95 {
				t.Errorf("counts %v, %d behind; want 100 accounted for and nearly all behind", out.Counts, out.Behind)
			}
			if v := runner.Judge(c, out); v.Verdict != runner.Invalid || !strings.Contains(strings.Join(v.Reasons, "; "), "the generator cannot keep up: 100/s were due") {
				t.Errorf("%+v, want INVALID because the generator cannot keep up", v)
			}
		})
	})
}

// TestOpenLoopRequests: an interval that goes by requests ends where the next one would be due.
func TestOpenLoopRequests(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			out := mustRun(t, openCell(&peer{async: async, do: work(time.Millisecond)}, 1000, func(c *runner.Cell) {
				c.Requests, c.Duration, c.Warmup, c.Open.Pace.Arrivals = 500, 0, 100*time.Millisecond, pacer.Poisson
			}))
			if out.Counts[record.OK] != 500 || out.Scheduled != 500 || math.Abs(out.Seconds-0.5) > 0.1 {
				t.Errorf("counts %v, %d due in %v s; want 500 in about half a second", out.Counts, out.Scheduled, out.Seconds)
			}
		})
	})
}

// TestOpenLoopSteps: a change of the rate counts from the beginning of the measured interval.
func TestOpenLoopSteps(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			out := mustRun(t, openCell(&peer{async: async, do: work(time.Millisecond)}, 100, func(c *runner.Cell) {
				c.Warmup = 500 * time.Millisecond
				c.Open.Pace.Steps = []pacer.Step{{At: 500 * time.Millisecond, Rate: 1000}}
			}))
			if n := out.Counts[record.OK]; n != 550 || out.WarmupFates[record.OK] != 50 {
				t.Errorf("%d and %v in the warm-up, want 550 and 50", n, out.WarmupFates)
			}
		})
	})
}

// TestOpenLoopInterrupt: it stops in time, and what was due until then is accounted for.
func TestOpenLoopInterrupt(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(700*time.Millisecond, cancel)
			begun := time.Now()
			c := openCell(&peer{async: async, do: work(time.Millisecond)}, 1000, func(c *runner.Cell) { c.Duration = time.Hour })
			out, err := runner.Run(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > time.Second || !out.Interrupted || out.Counts.Offered() < 600 || out.Counts.Offered() > 700 {
				t.Errorf("it took %v, interrupted: %t, counts %v", took, out.Interrupted, out.Counts)
			}
		})
	})
}

// TestOpenLoopWithRealTimers runs on the system's own clock and timers.
func TestOpenLoopWithRealTimers(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		p := &peer{async: async, perClient: true}
		out := mustRun(t, openCell(p, 20_000, func(c *runner.Cell) {
			c.Duration, c.Open.NewSleeper, c.Open.Generators, c.Open.Pace.Arrivals = 200*time.Millisecond, nil, 2, pacer.Poisson
		}))
		if out.Counts.Offered() != out.Scheduled || out.Counts[record.OK] != out.Scheduled || math.Abs(float64(out.Scheduled)-4000) > 400 {
			t.Errorf("counts %v, %d due; want all of about 4000", out.Counts, out.Scheduled)
		}
		t.Logf("lag p50 %v, p99 %v, %d workers", out.Lag.At(stats.P50).Duration, out.Lag.At(stats.P99).Duration, out.Workers)
	})
}
