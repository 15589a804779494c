package runner_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"tailgate/loadtest/record"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a transport whose server is a function: what do answers the n-th order, from 1. The zero value acknowledges everything.
type peer struct {
	do        func(ctx context.Context, n int64, call *transports.Call) error
	dial      func(n int64) error // nil, or why the n-th dial fails
	perClient bool
	async     bool // its connections are asynchronous, and the cell's engine is the one that uses it
	inline    bool // do never waits, so that an asynchronous answer comes before Go returns

	orders, dials, open, inFlight, mostInFlight atomic.Int64

	mu   sync.Mutex
	keys map[string]int
}

func (p *peer) transport() transports.Transport {
	return transports.Transport{Name: "scripted", PerClient: p.perClient, Engines: []string{"net", "loop"}, Dial: func(_ context.Context, config transports.DialConfig) (transports.Client, error) {
		n := p.dials.Add(1)
		if p.dial != nil {
			if err := p.dial(n); err != nil {
				return nil, err
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.keys == nil {
			p.keys = map[string]int{}
		}
		p.keys[config.Key]++
		p.open.Add(1)
		return &connection{peer: p}, nil
	}}
}

type connection struct {
	peer   *peer
	closed atomic.Bool
}

func (c *connection) Close() error {
	if !c.closed.Swap(true) {
		c.peer.open.Add(-1)
	}
	return nil
}

func (c *connection) Do(ctx context.Context, call *transports.Call) error {
	if call.Operation == transports.ListInstruments {
		response, _ := call.Response.(*pb.ListInstrumentsResponse)
		response.Instruments = []*pb.Instrument{
			{Symbol: "SHUT", State: pb.InstrumentState_INSTRUMENT_STATE_CLOSED, ReferencePrice: 1},
			{Symbol: "ACME", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN, ReferencePrice: 10_000},
		}
		return nil
	}
	p := c.peer
	raise(&p.mostInFlight, p.inFlight.Add(1))
	defer p.inFlight.Add(-1)
	n := p.orders.Add(1)
	if p.do != nil {
		return p.do(ctx, n, call)
	}
	return acknowledge(call)
}

// Go implements transports.AsyncClient. Without work to wait for the answer comes from within, otherwise from another goroutine.
func (c *connection) Go(ctx context.Context, call *transports.Call, done func(error)) {
	if c.peer.do == nil || c.peer.inline {
		done(c.Do(ctx, call))
		return
	}
	go func() { done(c.Do(ctx, call)) }()
}

// TryDo implements transports.AsyncClient.
func (c *connection) TryDo(ctx context.Context, call *transports.Call) error { return c.Do(ctx, call) }

// ways runs a test with clients that wait for their answers and with those that are driven by them: their accounts and stamps are to be the same.
func ways(t *testing.T, test func(t *testing.T, async bool)) {
	t.Helper()
	t.Run("waiting", func(t *testing.T) { test(t, false) })
	t.Run("async", func(t *testing.T) { test(t, true) })
}

func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); n > old && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

func acknowledge(call *transports.Call) error {
	request, _ := call.Request.(*pb.SubmitOrderRequest)
	response, _ := call.Response.(*pb.SubmitOrderResponse)
	proto.Reset(response)
	response.ClientOrderId, response.ClientTag, response.Quantity = request.ClientOrderId, request.ClientTag, request.Quantity
	response.Status, response.OrderId = pb.OrderStatus_ORDER_STATUS_FILLED, 1
	response.ReceivedNs, response.SentNs = 1000, 3000
	return nil
}

// cell is a small cell against the peer.
func cell(p *peer, change func(*runner.Cell)) runner.Cell {
	c := runner.Cell{
		Transport: p.transport(), Dial: transports.DialConfig{Address: "nowhere"}, Clients: 4, Requests: 1000, Timeout: time.Second,
		Flow: workload.Config{Seed: 1, Size: 64},
	}
	if p.async {
		c.Dial.Engine = "loop"
	}
	if change != nil {
		change(&c)
	}
	return c
}

func mustRun(t *testing.T, c runner.Cell) runner.Outcome {
	t.Helper()
	out, err := runner.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if out.Response.Count() != out.Counts.Offered() || out.Admitted.Count() != out.Counts.Answered() {
		t.Errorf("offered %d, in the response times %d; answered %d, in the admitted %d", out.Counts.Offered(), out.Response.Count(), out.Counts.Answered(), out.Admitted.Count())
	}
	return out
}

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
