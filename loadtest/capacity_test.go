package main

import (
	"path/filepath"
	"strings"
	"testing"

	"tailgate/loadtest/report"
)

// TestCapacity searches for two objectives at once, one that every rate up to the highest keeps and one that none does; the trials are in the
// results, and the same rates served both.
func TestCapacity(t *testing.T) {
	t.Parallel()
	p := loadtest(t, "capacity", "--transport", name(), "--slo", "p50<9s", "--slo", "max<1ns", "--min-rate", "100", "--max-rate", "400",
		"--duration", "200ms", "--sum", "400ms", "--warmup", "20ms", "--width", "0.5", "--clients", "5")
	r := p.run(t)
	validate(t, filepath.Join(p.out, report.FileName))
	if p.status != exitOK || len(r.Capacity) != 2 || len(r.Cells) == 0 {
		t.Fatalf("status %d, %d results from %d trials: %s", p.status, len(r.Capacity), len(r.Cells), p.stderr)
	}
	kept, missed := r.Capacity[0], r.Capacity[1]
	// On a machine whose cores are taken the tester may be its own limit before the highest rate is reached.
	if kept.SLO != "p50<9s" || kept.LossRatio != 0.5 || kept.Upper != nil || kept.Rate == nil || kept.Limit != "maximum" && kept.Limit != "tester" || kept.Limit == "maximum" && *kept.Rate != 400 {
		t.Errorf("%+v, want the highest rate", kept)
	}
	if missed.SLO != "max<1ns" || missed.LossRatio != 0 || missed.Rate != nil || missed.Limit != "minimum" && missed.Limit != "tester" {
		t.Errorf("%+v, want not even the lowest rate", missed)
	}
	for _, c := range r.Cells {
		if c.Mode != "open" || c.OfferedRate == nil || *c.OfferedRate < 100 || *c.OfferedRate > 400 || c.Requests == 0 {
			t.Errorf("a trial of %d requests at %v: %v", c.Requests, c.OfferedRate, c.Reasons)
		}
	}
	if text := strings.Join(strings.Fields(p.stdout), " "); !strings.Contains(text, "RFC 9971") || !strings.Contains(text, name()+" p50<9s") {
		t.Errorf("it printed\n%s", p.stdout)
	}
}
