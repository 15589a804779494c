package runner_test

import (
	"testing"
	"time"

	"tailgate/loadtest/runner"
	"tailgate/loadtest/speed"
	"tailgate/loadtest/stats"
)

// TestSetSpeed: an interval of a second in blocks of 10 ms. Requests that were due in a slow time, or so near to one that they met it, took twenty times as long; the figures of
// the full speed do not have them.
func TestSetSpeed(t *testing.T) {
	const width, blocks, each = 10 * time.Millisecond, 100, 200
	began := time.Now().Add(-time.Second)
	out := runner.Outcome{Began: began, Seconds: 1}
	out.Series = stats.Series{Width: width}
	core := speed.Core{ID: 0, Full: 1000}
	zero := speed.Now() - int64(time.Since(began))
	var all []stats.Bucket
	slowAt := func(i int) bool { return i >= 40 && i < 50 }
	counts := map[time.Duration]int64{}
	for i := range blocks {
		response, took := time.Millisecond, int64(1000)
		if slowAt(i) {
			took = 12_000
		}
		if slowAt(i) || i == 39 || i == 50 { // those before and after wait for it
			response = 20 * time.Millisecond
		}
		out.Series.Blocks = append(out.Series.Blocks, stats.Block{Buckets: []stats.Bucket{{Value: response, Count: each}}})
		counts[response] += each
		core.Samples = append(core.Samples, speed.Sample{At: zero + int64(width)*int64(i) + int64(width)/2, Took: took})
	}
	for _, v := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
		all = append(all, stats.Bucket{Value: v, Count: counts[v]})
	}
	var err error
	if out.Response, err = stats.NewDistribution(all, stats.Exact{Min: time.Millisecond, Max: 20 * time.Millisecond}, 0); err != nil {
		t.Fatal(err)
	}
	out.Admitted = out.Response
	out.SetSpeed(speed.Trace{Cores: []speed.Core{core}})
	s := out.Speed
	if s == nil || s.Share < 0.09 || s.Share > 0.11 || s.Worst != 12 {
		t.Fatalf("%+v, want 10 %% slow, at worst 12 times", s)
	}
	// One p99, two blocks, is left out on either side.
	if s.Kept < 0.85 || s.Kept > 0.87 {
		t.Errorf("%.3f of the interval are kept, want 0.86", s.Kept)
	}
	if p99 := s.Response.At(stats.P99); p99.Duration != time.Millisecond || s.Response.Count() != 86*each {
		t.Errorf("p99 %v of %d requests, want 1 ms of %d", p99, s.Response.Count(), 86*each)
	}
	if s.Throughput < 0.98*each*blocks || s.Throughput > 1.02*each*blocks {
		t.Errorf("%.0f answers a second, want %d", s.Throughput, each*blocks)
	}

	// A p99 that reaches over everything leaves nothing, and where nobody looked there is no verdict.
	for _, trace := range []speed.Trace{{}, {Cores: []speed.Core{{Full: 1, Samples: []speed.Sample{{At: zero - 1, Took: 1}}}}}} {
		unknown := out
		unknown.Speed = nil
		if unknown.SetSpeed(trace); unknown.Speed != nil {
			t.Errorf("%+v of a trace without samples in the interval", unknown.Speed)
		}
	}
	slow := out
	for i := range core.Samples {
		core.Samples[i].Took = 5000
	}
	if slow.SetSpeed(speed.Trace{Cores: []speed.Core{core}}); slow.Speed == nil || slow.Speed.Share != 1 || slow.Speed.Kept != 0 {
		t.Errorf("%+v, want all slow and nothing kept", slow.Speed)
	}
}
