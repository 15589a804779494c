package main

import (
	"strings"
	"testing"

	"tailgate/loadtest/runner"
	"tailgate/transports/all"
)

// TestOpenLoop measures every transport at a constant rate with a step, and one of each kind at a random one with a mix of sizes: all that was due was offered, and the
// report says what was asked for.
func TestOpenLoop(t *testing.T) {
	for _, args := range [][]string{
		{"matrix", "--arrivals", "constant", "--sizes", "64", "--step", "100ms:4000"},
		{"matrix", "--transports", strings.Join(kinds(), ","), "--size-mix", "64:3,4KB:1", "--connections", "3"},
	} {
		p := loadtest(t, append(args, "--rate", "1000", "--duration", "200ms", "--warmup", "50ms", "--clients", "5")...)
		r := p.run(t)
		open, want := 0, len(all.All())
		if args[1] == "--transports" {
			want = len(kinds())
		}
		for _, c := range r.Cells {
			if c.Mode != "open" || c.OfferedRate == nil || *c.OfferedRate != 1000 || c.Schedule == nil || c.Schedule.Due != c.Requests || c.Requests == 0 || c.Response.Count != c.Requests || c.Lag.Count != c.OK+c.Rejected {
				t.Errorf("%s: %s at %v, schedule %+v, %d requests, %d in the response times: %v", c.Spec, c.Mode, c.OfferedRate, c.Schedule, c.Requests, c.Response.Count, c.Reasons)
			}
			if args[1] == "--arrivals" && (c.Requests != 500 || len(c.Steps) != 1 || c.Arrivals != "constant") {
				t.Errorf("%s: %d requests at 1000/s and then 4000/s for a tenth of a second each, steps %+v (%s)", c.Spec, c.Requests, c.Steps, c.Arrivals)
			}
			if args[1] == "--transports" && (len(c.SizeMix) != 2 || c.Connections.Asked != 3 || c.Arrivals != "poisson") {
				t.Errorf("%s: sizes %+v, %d connections, %s", c.Spec, c.SizeMix, c.Connections.Asked, c.Arrivals)
			}
			open++
		}
		if open < want || !strings.Contains(p.stdout, "Open loop at 1000/s") {
			t.Errorf("%d cells; it printed\n%s", open, p.stdout)
		}
	}
}

// TestGeneratorThatCannotKeepUp: asked for at least ten times what any generator can do, over a transport of every kind, the measurement is INVALID and the process
// ends with 3, and every request that was due is accounted for.
func TestGeneratorThatCannotKeepUp(t *testing.T) {
	for _, transport := range kinds() {
		p := loadtest(t, "--transport", transport, "--rate", "5000000", "--duration", "100ms", "--warmup", "10ms", "--max-wait", "200ms", "--timeout", "2s")
		c := p.run(t).Cells[0]
		reasons := strings.Join(c.Reasons, "; ")
		if p.status != exitInvalid || c.Validity != runner.Invalid || !strings.Contains(reasons, "the generator cannot keep up") && !strings.Contains(reasons, "the tester's own lag") {
			t.Errorf("%s: status %d, %s because of %q", transport, p.status, c.Validity, reasons)
		}
		if c.Schedule.Due != c.Requests || c.Requests < 300_000 || c.Response.Count != c.Requests {
			t.Errorf("%s: %d due, %d accounted for, %d in the response times; want all of about 500000", transport, c.Schedule.Due, c.Requests, c.Response.Count)
		}
	}
}
