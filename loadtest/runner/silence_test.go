package runner_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tailgate/loadtest/record"
	"tailgate/loadtest/runner"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// TestSilentEnd: a gateway that dies in mid-run costs each client one request of thousands, and the measurement is INVALID all the same.
func TestSilentEnd(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		const clients = 20
		for _, c := range []struct {
			name         string
			dies, wakes  time.Duration // by the clock of the cell; wakes 0 = never
			refuses      bool          // from its death on, instead of keeping silent
			duration     time.Duration
			silence      time.Duration
			deserted     bool
			lost         int64
			want, unlike string
		}{
			{name: "it lives", dies: time.Hour, duration: 4 * time.Second, unlike: "answer"},
			{name: "dead from the middle on", dies: 2 * time.Second, duration: 4 * time.Second, silence: 2 * time.Second, deserted: true, lost: clients, want: "no answer came in the last 2 s of 4 s"},
			{name: "dead at the very end", dies: 3900 * time.Millisecond, duration: 4 * time.Second, silence: 100 * time.Millisecond, deserted: true, lost: clients, want: "every client's last request ended without an answer"},
			{name: "it wakes when the interval is over", dies: 2 * time.Second, wakes: 4500 * time.Millisecond, duration: 4 * time.Second, silence: 2 * time.Second, want: "no answer came in the last 2 s of 4 s"},
			{name: "it wakes in time", dies: 2 * time.Second, wakes: 2500 * time.Millisecond, duration: 4 * time.Second, unlike: "answer"},
			{name: "dead from the start", dies: -time.Second, duration: 2 * time.Second, silence: 2 * time.Second, deserted: true, lost: clients, want: "no answer came in the whole interval of 2 s"},
			{name: "it refuses from the middle on", dies: 2 * time.Second, refuses: true, duration: 4 * time.Second, silence: 2 * time.Second, lost: 2 * clients, want: "no answer came in the last 2 s of 4 s"},
			{name: "it refuses at the very end", dies: 3900 * time.Millisecond, refuses: true, duration: 4 * time.Second, silence: 100 * time.Millisecond, lost: clients, unlike: "answer"},
		} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begun := time.Now()
					p := &peer{async: async, perClient: true, do: func(ctx context.Context, n int64, call *transports.Call) error {
						at := time.Since(begun)
						switch {
						case at < c.dies || c.wakes > 0 && at >= c.wakes:
							return work(10*time.Millisecond)(ctx, n, call)
						case c.refuses:
							f := transports.Refuse(pb.Reason_REASON_THROTTLED, "slower")
							f.RetryAfter = time.Second
							return f
						case c.wakes > 0:
							return work(c.wakes-at)(ctx, n, call)
						}
						<-ctx.Done()
						return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, ctx.Err(), "no answer")
					}}
					cell := cell(p, func(cell *runner.Cell) {
						cell.Clients, cell.Requests, cell.Duration, cell.Timeout = clients, 0, c.duration, 3*time.Second
					})
					out := mustRun(t, cell)
					if out.Silence != c.silence || out.Deserted != c.deserted || out.Counts.Lost() != c.lost {
						t.Errorf("silent for %v, deserted: %t, counts %v; want %v, %t, %d lost", out.Silence, out.Deserted, out.Counts, c.silence, c.deserted, c.lost)
					}
					v := runner.Judge(cell, out)
					reasons := strings.Join(v.Reasons, "; ")
					if !strings.Contains(reasons, c.want) || c.want != "" && v.Verdict != runner.Invalid || c.unlike != "" && strings.Contains(reasons, c.unlike) {
						t.Errorf("%s because of %q, want %q", v.Verdict, reasons, c.want)
					}
				})
			})
		}
	})
}

// TestSilentEndByRequests: the interval of a cell that goes by requests ends with the last of them, answered or not.
func TestSilentEndByRequests(t *testing.T) {
	ways(t, func(t *testing.T, async bool) {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{async: async, do: func(ctx context.Context, n int64, call *transports.Call) error {
				if n <= 990 {
					return work(time.Millisecond)(ctx, n, call)
				}
				<-ctx.Done()
				return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, ctx.Err(), "no answer")
			}}
			c := cell(p, func(c *runner.Cell) { c.Clients, c.Requests = 1, 991 })
			out := mustRun(t, c)
			if v := runner.Judge(c, out); out.Counts[record.TimedOut] != 1 || out.Silence < 10*time.Millisecond || !out.Deserted || v.Verdict != runner.Invalid || !strings.Contains(strings.Join(v.Reasons, "; "), "no answer came in the last ") {
				t.Errorf("counts %v, silent for %v, deserted: %t, %+v; want one timed out, silent, and INVALID", out.Counts, out.Silence, out.Deserted, v)
			}
		})
	})
}
