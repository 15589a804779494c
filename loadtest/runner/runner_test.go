package runner_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tailgate/loadtest/record"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// TestAccounting: each way a request can end is counted once, in its own account, with its note, and nothing is lost or made up.
func TestAccounting(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		reject := func(call *transports.Call) error {
			if err := acknowledge(call); err != nil {
				return err
			}
			response, _ := call.Response.(*pb.SubmitOrderResponse)
			response.Status, response.Reason = pb.OrderStatus_ORDER_STATUS_REJECTED, pb.Reason_REASON_PRICE_COLLAR
			return nil
		}
		refuse := func(reason pb.Reason) func(*transports.Call) error {
			return func(*transports.Call) error { return transports.Refuse(reason, "no") }
		}
		doubt := func(reason pb.Reason) func(*transports.Call) error {
			return func(*transports.Call) error { return transports.InDoubt(reason, nil, "who knows") }
		}
		wrongID := func(call *transports.Call) error {
			if err := acknowledge(call); err != nil {
				return err
			}
			response, _ := call.Response.(*pb.SubmitOrderResponse)
			response.ClientOrderId = "somebody"
			return nil
		}
		ends := []struct {
			end  func(*transports.Call) error
			fate record.Fate
			note string
		}{
			{acknowledge, record.OK, ""},
			{reject, record.Rejected, "REASON_PRICE_COLLAR"},
			{refuse(pb.Reason_REASON_THROTTLED), record.Refused, "REASON_THROTTLED"},
			{refuse(pb.Reason_REASON_NO_CREDIT), record.Refused, "REASON_NO_CREDIT"},
			{refuse(pb.Reason_REASON_CONNECTION_LOST), record.Unsent, "REASON_CONNECTION_LOST"},
			{refuse(pb.Reason_REASON_DEADLINE_EXCEEDED), record.TimedOut, "REASON_DEADLINE_EXCEEDED"},
			{doubt(pb.Reason_REASON_DEADLINE_EXCEEDED), record.TimedOut, "REASON_DEADLINE_EXCEEDED"},
			{doubt(pb.Reason_REASON_INTERNAL), record.Errors, "REASON_INTERNAL"},
			{doubt(pb.Reason_REASON_CONNECTION_LOST), record.Errors, "REASON_CONNECTION_LOST"},
			{func(*transports.Call) error { return errors.New("odd") }, record.Errors, "no fault: odd"},
			{func(*transports.Call) error { return fmt.Errorf("x: %w", context.DeadlineExceeded) }, record.TimedOut, "context ended"},
			{wrongID, record.Errors, ""},
		}
		const rounds = 25
		p := &peer{async: async, do: func(_ context.Context, n int64, call *transports.Call) error {
			return ends[n%int64(len(ends))].end(call)
		}}
		total := int64(rounds * len(ends))
		out := mustRun(t, cell(p, func(c *runner.Cell) { c.Requests = total }))

		var want record.Counts
		notes := map[string]int64{}
		for _, e := range ends {
			want[e.fate] += rounds
			if e.note != "" {
				notes[e.note] += rounds
			}
		}
		if out.Counts != want || out.Counts.Offered() != total {
			t.Errorf("counts %v, want %v", out.Counts, want)
		}
		var noted int64
		for _, n := range out.Notes {
			noted += n
		}
		if noted != total-2*rounds {
			t.Errorf("%d notes, want one for each of the %d requests that did not simply succeed: %v", noted, total-2*rounds, out.Notes)
		}
		for _, text := range slices.Sorted(maps.Keys(out.Notes)) {
			if text != "other" && out.Notes[text] > notes[text] {
				t.Errorf("note %q %d times, want at most %d", text, out.Notes[text], notes[text])
			}
		}
		if out.Wrong != rounds || !strings.Contains(out.FirstWrong, "somebody") {
			t.Errorf("%d wrong answers, the first %q; want %d about %q", out.Wrong, out.FirstWrong, rounds, "somebody")
		}
		if out.Server.Count() != want[record.OK]+want[record.Rejected] || out.Server.Min().Duration != 2*time.Microsecond {
			t.Errorf("%d server times from %+v, want %d of 2 µs", out.Server.Count(), out.Server.Min(), want[record.OK]+want[record.Rejected])
		}
		if p.open.Load() != 0 {
			t.Errorf("%d connections are left open", p.open.Load())
		}
		if v := runner.Judge(cell(p, func(c *runner.Cell) { c.Requests = total }), out); v.Verdict != runner.Invalid || !strings.Contains(v.Reasons[0], "25 answers were wrong") {
			t.Errorf("%+v, want INVALID because of the wrong answers", v)
		}
	})
}

// The tests below run on the clock of testing/synctest, which moves only when everybody waits: a peer's work takes exactly its time, and
// what the runner itself does takes none. So every stamp can be checked to the nanosecond.

// work is a peer whose answer takes a time.
func work(d time.Duration) func(context.Context, int64, *transports.Call) error {
	return func(_ context.Context, _ int64, call *transports.Call) error {
		<-time.NewTimer(d).C
		return acknowledge(call)
	}
}

// is reports whether all of a distribution is one value.
func is(d stats.Distribution, want time.Duration) bool {
	known := stats.Value{State: stats.Known, Duration: want}
	return d.Min() == known && d.Max() == known
}

// TestTimeouts: a request that is never answered ends at its time, as timed out, and its client goes on.
func TestTimeouts(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) { testTimeouts(t, async) })
	})
}

func testTimeouts(t *testing.T, async bool) {
	p := &peer{async: async, do: func(ctx context.Context, n int64, call *transports.Call) error {
		if n%4 == 0 {
			<-ctx.Done()
			return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, ctx.Err(), "no answer")
		}
		return acknowledge(call)
	}}
	out := mustRun(t, cell(p, func(c *runner.Cell) { c.Requests, c.Timeout = 40, 50*time.Millisecond }))
	if out.Counts[record.TimedOut] != 10 || out.Counts[record.OK] != 30 {
		t.Errorf("counts %v, want 30 ok and 10 timed out", out.Counts)
	}
	if out.Response.At(stats.P50).State != stats.Known || out.Response.Max().State != stats.Infinite {
		t.Errorf("p50 %+v, max %+v; want a number and infinity", out.Response.At(stats.P50), out.Response.Max())
	}
	if least := 10 * 50 * time.Millisecond; out.Busy < least || out.Busy > least*11/10 {
		t.Errorf("clients were busy for %v, want %v to a tenth more: each request has its whole time", out.Busy, least)
	}
}

// TestInFlight: the cap holds over all clients, first come, first served; the wait counts as credit wait and not as service time.
func TestInFlight(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{async: async, perClient: true, do: work(time.Millisecond)}
			out := mustRun(t, cell(p, func(c *runner.Cell) {
				c.Clients, c.InFlight, c.Requests, c.Duration, c.Warmup = 8, 2, 0, 400*time.Millisecond, 40*time.Millisecond
			}))
			if most := p.mostInFlight.Load(); most != 2 {
				t.Errorf("%d requests were in flight at the same time, want 2", most)
			}
			// Two places of a millisecond each for eight clients in turn: everybody waits three milliseconds.
			if out.Counts[record.OK] != 800 || !is(out.CreditWait, 3*time.Millisecond) || !is(out.Service, time.Millisecond) || !is(out.Response, 4*time.Millisecond) || !is(out.Lag, 0) {
				t.Errorf("%d ok, wait %v to %v, service up to %v, response up to %v; want 800, 3, 1 and 4 ms",
					out.Counts[record.OK], out.CreditWait.Min(), out.CreditWait.Max(), out.Service.Max(), out.Response.Max())
			}
		})
	})
}

// TestNoPlaceInFlight: a request whose time passes while it waits for a place was never sent.
func TestNoPlaceInFlight(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{async: async, do: work(time.Second)}
			out := mustRun(t, cell(p, func(c *runner.Cell) { c.Clients, c.InFlight, c.Requests, c.Timeout = 2, 1, 2, 100*time.Millisecond }))
			if out.Counts[record.OK] != 1 || out.Counts[record.Unsent] != 1 || p.orders.Load() != 1 || out.Notes["no place in flight"] != 1 {
				t.Errorf("counts %v, notes %v, %d orders arrived; want one unsent", out.Counts, out.Notes, p.orders.Load())
			}
		})
	})
}

// TestCreditWait: what a transport says it waited for credit is taken out of the service time, not out of the response time.
func TestCreditWait(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{async: async, do: func(ctx context.Context, n int64, call *transports.Call) error {
				call.CreditWait = 2 * time.Millisecond
				return work(5*time.Millisecond)(ctx, n, call)
			}}
			out := mustRun(t, cell(p, func(c *runner.Cell) { c.Clients, c.Requests = 1, 50 }))
			if !is(out.CreditWait, 2*time.Millisecond) || !is(out.Service, 3*time.Millisecond) || !is(out.Response, 5*time.Millisecond) {
				t.Errorf("credit wait %v, service %v, response %v; want 2, 3 and 5 ms", out.CreditWait.Max(), out.Service.Max(), out.Response.Max())
			}
		})
	})
}

// TestLostConnections: a lost connection is opened again by one of the clients that share it, and each loss is counted.
func TestLostConnections(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		p := &peer{async: async, do: func(_ context.Context, n int64, call *transports.Call) error {
			if n == 100 || n == 200 {
				return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, nil, "gone")
			}
			return acknowledge(call)
		}}
		c := cell(p, func(c *runner.Cell) { c.Connections = 2; c.Requests = 500 })
		out := mustRun(t, c)
		if out.Counts[record.Errors] != 2 || out.Counts[record.OK] != 498 || out.Connections.Redials != 2 || p.dials.Load() != 4 {
			t.Errorf("counts %v, redials %d, dials %d; want 2 errors, 2, 4", out.Counts, out.Connections.Redials, p.dials.Load())
		}
		if v := runner.Judge(c, out); v.Verdict != runner.Suspect || !strings.Contains(strings.Join(v.Reasons, "; "), "2 times a connection was lost") {
			t.Errorf("%+v, want SUSPECT because of the lost connections", v)
		}
		if p.open.Load() != 0 {
			t.Errorf("%d connections are left open", p.open.Load())
		}
	})
}

// TestGatewayGone: while nobody listens, requests are unsent, at the pace of their own time, and dialing keeps its distance.
func TestGatewayGone(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) { testGatewayGone(t, async) })
	})
}

func testGatewayGone(t *testing.T, async bool) {
	p := &peer{
		async: async,
		do: func(_ context.Context, n int64, call *transports.Call) error {
			if n > 10 {
				return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, nil, "gone")
			}
			return acknowledge(call)
		},
		dial: func(n int64) error {
			if n > 1 {
				return errors.New("nobody listens")
			}
			return nil
		},
	}
	out := mustRun(t, cell(p, func(c *runner.Cell) { c.Clients, c.Requests, c.Timeout = 1, 13, 150*time.Millisecond }))
	if out.Counts[record.OK] != 10 || out.Counts[record.Errors] != 1 || out.Counts[record.Unsent] != 2 {
		t.Errorf("counts %v, want 10 ok, 1 error, 2 unsent", out.Counts)
	}
	// One at the start; then, for the first of the two, one at once and one after 100 ms, and 200 ms later one for the second.
	if n := p.dials.Load(); n != 4 {
		t.Errorf("%d dials, want 4", n)
	}
}

// TestDraining: a gateway that is stopping may refuse on an open connection for ever, and accept new ones only to refuse on them. No transport
// makes the clients spin on that: what was refused is unsent, dialing keeps its distance, and when the gateway is back, so are they.
func TestDraining(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		for _, c := range []struct {
			name    string
			accepts bool // new connections while it is stopping
			timeout time.Duration
			dials   int64
			unsent  int64 // by one client
		}{
			// Lost at 1 s; attempts at 1.0, 1.1, 1.3, 1.7 and 2.5 s, when it is back.
			{"new connections are refused", false, 10 * time.Second, 5, 1},
			{"new connections are accepted and refused on", true, 10 * time.Second, 5, 5},
			// Requests that end before the next attempt is due do not put it off.
			{"requests shorter than the wait", false, 50 * time.Millisecond, 5, 30},
		} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begun := time.Now()
					draining := func() bool { return time.Since(begun) >= time.Second && time.Since(begun) < 2*time.Second }
					refusal := transports.Refuse(pb.Reason_REASON_DRAINING, "stopping")
					const clients = 3
					p := &peer{
						async:     async,
						perClient: true,
						do: func(ctx context.Context, n int64, call *transports.Call) error {
							if draining() {
								return refusal
							}
							return work(10*time.Millisecond)(ctx, n, call)
						},
						dial: func(int64) error {
							if draining() && !c.accepts {
								return refusal
							}
							return nil
						},
					}
					out := mustRun(t, cell(p, func(cell *runner.Cell) {
						cell.Clients, cell.Requests, cell.Duration, cell.Timeout = clients, 0, 3*time.Second, c.timeout
					}))
					if got := p.dials.Load(); got != clients*(1+c.dials) || out.Connections.Redials < clients {
						t.Errorf("%d dials, %d connections opened again; want %d and at least %d", got, out.Connections.Redials, clients*(1+c.dials), clients)
					}
					least, most := clients*c.unsent, clients*c.unsent
					if c.timeout < time.Second {
						least -= clients * 4 // a request has up to a tenth more than its time
					}
					if unsent := out.Counts[record.Unsent]; unsent < least || unsent > most || out.Counts.Lost() != unsent {
						t.Errorf("counts %v, want %d to %d unsent and nothing else lost", out.Counts, least, most)
					}
					if ok := out.Counts[record.OK]; ok < clients*140 {
						t.Errorf("%d acknowledged, want one every 10 ms before it stopped and after", ok)
					}
				})
			})
		}
	})
}

// TestRetryAfter: a refusal that names a time is waited out before the next request, and the pause is not latency.
func TestRetryAfter(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{async: async, do: func(_ context.Context, n int64, call *transports.Call) error {
				if n%2 == 0 {
					f := transports.Refuse(pb.Reason_REASON_THROTTLED, "slower")
					f.RetryAfter = 20 * time.Millisecond
					return f
				}
				return acknowledge(call)
			}}
			begun := time.Now()
			out := mustRun(t, cell(p, func(c *runner.Cell) { c.Clients, c.Requests = 1, 21 }))
			if took := time.Since(begun); took != 200*time.Millisecond {
				t.Errorf("21 requests with 10 refusals took %v, want 20 ms after each refusal", took)
			}
			if out.Counts[record.Refused] != 10 || out.Busy != 0 {
				t.Errorf("counts %v, busy %v: want 10 refused, and no latency", out.Counts, out.Busy)
			}
		})
	})
}

// TestKeysAndConnections: connections are spread over the accounts, clients over the connections.
func TestKeysAndConnections(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		for _, c := range []struct {
			perClient            bool
			clients, connections int
			want                 map[string]int
		}{
			{true, 7, 0, map[string]int{"a": 3, "b": 2, "c": 2}},
			{false, 7, 0, map[string]int{"a": 1}},
			{false, 7, 4, map[string]int{"a": 2, "b": 1, "c": 1}},
			{true, 1, 0, map[string]int{"a": 1}},
		} {
			p := &peer{async: async, perClient: c.perClient}
			out := mustRun(t, cell(p, func(cell *runner.Cell) {
				cell.Clients, cell.Connections, cell.Keys = c.clients, c.connections, []string{"a", "b", "c"}
			}))
			if !maps.Equal(p.keys, c.want) {
				t.Errorf("%+v: connections by key %v", c, p.keys)
			}
			if sum := int64(out.Connections.Asked); sum != p.dials.Load() {
				t.Errorf("%+v: %d connections asked for, %d dialed", c, sum, p.dials.Load())
			}
		}
	})
}

// TestCannotStart: what keeps a cell from running is an error that says so.
func TestCannotStart(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		for want, change := range map[string]func(*peer, *runner.Cell){
			"connection 3 of 4 to nowhere: refused": func(p *peer, c *runner.Cell) {
				c.Connections = 4
				p.dial = func(n int64) error {
					if n == 3 {
						return errors.New("refused")
					}
					return nil
				}

			},
			"the smallest order has 31 bytes": func(_ *peer, c *runner.Cell) { c.Flow.Size = 30 },
			"0 clients":                       func(_ *peer, c *runner.Cell) { c.Clients = 0 },
			"5 connections for 4 clients":     func(_ *peer, c *runner.Cell) { c.Connections = 5 },
			"with a timeout of 0s":            func(_ *peer, c *runner.Cell) { c.Timeout = 0 },
		} {
			p := &peer{async: async}
			c := cell(p, nil)
			change(p, &c)
			_, err := runner.Run(t.Context(), c)
			if strings.HasPrefix(want, "connection 3") && err != nil {
				// Which connection is the third to be dialed is chance.
				if !strings.Contains(err.Error(), " of 4 to nowhere: refused") {
					t.Errorf("got %v, want %q", err, want)
				}
			} else if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if p.open.Load() != 0 {
				t.Errorf("%s: %d connections are left open", want, p.open.Load())
			}
		}
	})
}

// TestProgress: somebody who looks is told, about every second.
func TestProgress(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			var looks []runner.Progress
			mustRun(t, cell(&peer{async: async, do: work(time.Millisecond)}, func(c *runner.Cell) {
				c.Clients, c.Requests, c.Duration, c.Warmup = 2, 0, 3500*time.Millisecond, time.Second
				c.Progress = func(p runner.Progress) { looks = append(looks, p) }
			}))
			if len(looks) != 3 {
				t.Fatalf("%d looks in 3.5 s, want 3", len(looks))
			}
			for i, p := range looks {
				second := time.Duration(i+1) * time.Second
				if p.Elapsed != second || p.Total != 3500*time.Millisecond || math.Abs(float64(p.Done)-2000*second.Seconds()) > 2 || p.P99.State != stats.Known {
					t.Errorf("after %v: %+v, want 2000 a second", second, p)
				}
			}
		})
	})
}

// TestHotLoopDoesNotAllocate: what the tester adds to a request is next to nothing.
func TestHotLoopDoesNotAllocate(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		p := &peer{async: async, inline: true}
		c := cell(p, func(c *runner.Cell) { c.Clients, c.Requests, c.Duration = 1, 0, 200*time.Millisecond })
		out := mustRun(t, c)
		if per := float64(out.ClientUse.AllocatedObjects) / float64(out.Counts.Offered()); per > 0.1 {
			t.Errorf("%.2f objects a request over %d requests, want almost none", per, out.Counts.Offered())
		}
	})
}

func BenchmarkRequest(b *testing.B) {
	p := &peer{}
	b.ReportAllocs()
	out, err := runner.Run(b.Context(), cell(p, func(c *runner.Cell) { c.Clients, c.Requests = 1, int64(max(b.N, 1)) }))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(out.Lag.At(stats.P50).Duration), "lag-p50-ns")
}
