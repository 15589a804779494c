package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tailgate/loadtest/report"
)

// TestClientMix measures clients of two sizes: how equally those of each were served is told, and the file keeps to the schema.
func TestClientMix(t *testing.T) {
	t.Parallel()
	p := loadtest(t, "--transport", name(), "--client-mix", "64:1,4KB:1", "--clients", "10", "--duration", "400ms", "--warmup", "50ms")
	c := p.run(t).Cells[0]
	if c.MixBy != "client" || len(c.SizeMix) != 2 || len(c.Fairness) != 2 {
		t.Fatalf("mixed by %q, sizes %+v, fairness %+v", c.MixBy, c.SizeMix, c.Fairness)
	}
	total := 0.0
	for i, f := range c.Fairness {
		if f.Size != c.SizeMix[i].Size || f.Clients != 5 || !(f.Jain > 0.2 && f.Jain <= 1+1e-9) || f.Min > f.Mean || f.Mean > f.Max {
			t.Errorf("%+v", f)
		}
		total += f.Mean * float64(f.Clients) * c.Seconds
	}
	// What came after the end of the interval is answered, and no client's share of it.
	if answered := float64(c.OK + c.Rejected); total > answered+0.5 || total < answered-10.5 {
		t.Errorf("%v answers by client, %v in all", math.Round(total), answered)
	}
	if !strings.Contains(p.stdout, "clients of 4 KB: Jain's index ") {
		t.Errorf("it printed\n%s", p.stdout)
	}
	validate(t, filepath.Join(p.out, report.FileName))
}

// TestChoicesOnTheCommandLine: what cannot be had is refused by name, with what is allowed.
func TestChoicesOnTheCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"--transport tcp --client-mix 64":                   `--client-mix "64": write sizes`,
		"--transport tcp --client-mix 64:1,64:2":            "--client-mix: size 64 B stands twice",
		"--transport tcp --client-mix 64:1 --size 64":       "--client-mix: takes the place of",
		"--transport tcp --client-mix 64:1 --size-mix 64:1": "--client-mix: takes the place of",
		"--transport tcp --client-mix 64:1 --rate 100":      "--client-mix: is about a closed loop",
		"--transport tcp --client-mix 9:1":                  "--client-mix: size 9: the smallest order has",
	} {
		var stderr strings.Builder
		if status := run(append(strings.Fields(args), "--out", t.TempDir()), nil, os.Stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: status %d, %q; want 2 and %q", args, status, stderr.String(), want)
		}
	}
}
