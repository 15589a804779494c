package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tailgate/loadtest/report"
	"tailgate/transports/all"
)

// TestCalibrate: every transport answers from a null server, both echoes echo, and the timer is measured; nobody claims that an objective was
// kept.
func TestCalibrate(t *testing.T) {
	p := loadtest(t, "calibrate", "--requests", "500", "--warmup", "10ms")
	r := p.run(t)
	p.want(t, exitOK)
	validate(t, filepath.Join(p.out, report.FileName))
	var peers []string
	for _, c := range r.Cells {
		peers = append(peers, c.Peer)
		if c.OK != 500 || len(c.SLO) != 1 || c.SLO[0].Met != nil {
			t.Errorf("%s: %d ok, objectives %+v", c.Name(), c.OK, c.SLO)
		}
		if c.Peer != report.PeerSpin && c.FloorMultiple == nil {
			t.Errorf("%s: no multiple of the echo", c.Name())
		}
	}
	slices.Sort(peers)
	if want := len(all.All()) + 2; len(peers) != want || peers[0] != report.PeerEcho || peers[1] != report.PeerSpin || peers[2] != report.PeerNull {
		t.Errorf("%v, want two echoes and %d null servers", peers, want-2)
	}
	if r.Timer == nil || r.Timer.Count != sleeps || r.Timer.Values["p99"] < r.Timer.Values["p50"] {
		t.Errorf("timer %+v", r.Timer)
	}
	if text := strings.Join(strings.Fields(p.stdout), " "); !strings.Contains(text, name()+" (null)") || !strings.Contains(text, "A sleep of 500 µs ends") || !strings.Contains(text, "floor (spinning)") {
		t.Errorf("it printed\n%s", p.stdout)
	}
}
