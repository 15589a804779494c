package record_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"tailgate/loadtest/record"
	"tailgate/loadtest/stats"
)

// TestEveryFateIsCounted: offered is the sum of the fates, and what has no answer is infinitely late.
func TestEveryFateIsCounted(t *testing.T) {
	r := record.New(3)
	for i := range 100 {
		s := r.Shard(i)
		switch {
		case i < 90:
			s.Answered(record.OK, record.Times{Response: time.Millisecond, Service: 900 * time.Microsecond, Lag: 100 * time.Microsecond, Server: time.Microsecond, HasServer: true})
		case i < 92:
			s.Answered(record.Rejected, record.Times{Response: 2 * time.Millisecond})
			s.Note("REASON_TOO_LATE")
		case i < 94:
			s.Lost(record.Refused, time.Millisecond)
		case i < 96:
			s.Lost(record.TimedOut, time.Second)
		case i < 99:
			s.Lost(record.Errors, time.Millisecond)
		default:
			s.Lost(record.Unsent, 3*time.Second)
		}
	}
	got, err := r.Result()
	if err != nil {
		t.Fatal(err)
	}
	if offered, p50, err := r.Peek(stats.P50); offered != 100 || p50 != got.Response.At(stats.P50) || err != nil {
		t.Errorf("a look while it runs: %d offered, p50 %+v, %v; want 100 and %+v", offered, p50, err, got.Response.At(stats.P50))
	}
	if want := (record.Counts{90, 2, 2, 2, 3, 1}); got.Counts != want {
		t.Errorf("counts %v, want %v", got.Counts, want)
	}
	if got.Counts.Offered() != 100 || got.Counts.Answered() != 92 || got.Counts.Lost() != 8 || r.Offered() != 100 {
		t.Errorf("offered %d (live %d), answered %d, lost %d; want 100, 92, 8", got.Counts.Offered(), r.Offered(), got.Counts.Answered(), got.Counts.Lost())
	}
	if want := 90*time.Millisecond + 4*time.Millisecond + 2*time.Millisecond + 2*time.Second + 3*time.Millisecond + 3*time.Second; got.Busy != want {
		t.Errorf("busy %v, want %v", got.Busy, want)
	}
	if got.Response.Max().State != stats.Infinite || got.Response.Lost() != 8 || got.Response.At(stats.P50).Duration < time.Millisecond {
		t.Errorf("response: max %+v, lost %d, p50 %+v; want infinite, 8, 1 ms", got.Response.Max(), got.Response.Lost(), got.Response.At(stats.P50))
	}
	if got.Admitted.Max() != (stats.Value{State: stats.Known, Duration: 2 * time.Millisecond}) || got.Admitted.Count() != 92 {
		t.Errorf("admitted: max %+v of %d, want 2 ms of 92", got.Admitted.Max(), got.Admitted.Count())
	}
	if got.Server.Count() != 90 {
		t.Errorf("%d server times, want the 90 that were stamped", got.Server.Count())
	}
	if got.Notes["REASON_TOO_LATE"] != 2 {
		t.Errorf("notes %v, want REASON_TOO_LATE twice", got.Notes)
	}
}

// TestResolution: what comes out differs from what went in by less than a part in a thousand, or 8 ns; extremes and mean are exact.
func TestResolution(t *testing.T) {
	for v := time.Duration(1); v <= record.MaxValue; v = v*3 + 1 {
		r := record.New(1)
		for range 20 {
			r.Shard(0).Answered(record.OK, record.Times{Response: v})
		}
		r.Shard(0).Answered(record.OK, record.Times{Response: record.MaxValue}) // so that the maximum does not cap the bucket's edge
		got, err := r.Result()
		if err != nil {
			t.Fatal(err)
		}
		p50 := got.Response.At(stats.P50).Duration
		if diff := math.Abs(float64(p50 - v)); diff > max(8, float64(v)/1000) {
			t.Errorf("%v recorded, %v read", v, p50)
		}
		if got.Response.Min().Duration != v || got.Response.Max().Duration != record.MaxValue {
			t.Errorf("min %v max %v, want %v and %v", got.Response.Min().Duration, got.Response.Max().Duration, v, record.MaxValue)
		}
	}
}

func TestOutOfRangeFailsTheRecording(t *testing.T) {
	for _, c := range []struct {
		times record.Times
		want  string
	}{
		{record.Times{Response: record.MaxValue + 1}, "response time"},
		{record.Times{Service: -1}, "service time"},
		{record.Times{Lag: -time.Second}, "lag"},
		{record.Times{CreditWait: -1}, "credit wait"},
		{record.Times{Server: -1, HasServer: true}, "server time"},
	} {
		r := record.New(2)
		r.Shard(0).Answered(record.OK, record.Times{Response: 1})
		r.Shard(1).Answered(record.OK, c.times)
		if _, err := r.Result(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want an error about the %s", c.times, err, c.want)
		}
	}
}

// TestShardsMergeToTheWhole: many shards say the same as one, while being read.
func TestShardsMergeToTheWhole(t *testing.T) {
	one, many := record.New(1), record.New(7)
	const clients, each = 20, 2000
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(c)))
			for range each {
				t := record.Times{Response: time.Duration(rng.ExpFloat64() * 1e5)}
				one.Shard(c).Answered(record.OK, t)
				many.Shard(c).Answered(record.OK, t)
			}
		})
	}
	for range 3 {
		if r, err := many.Result(); err != nil || r.Counts.Offered() > clients*each {
			t.Errorf("while recording: %d offered, %v", r.Counts.Offered(), err)
		}
	}
	wg.Wait()
	a, errA := one.Result()
	b, errB := many.Result()
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	for _, p := range stats.Percentiles {
		if a.Response.At(p) != b.Response.At(p) {
			t.Errorf("%s: %+v from one shard, %+v merged", p, a.Response.At(p), b.Response.At(p))
		}
	}
	if a.Busy != b.Busy || a.Response.Min() != b.Response.Min() || a.Response.Max() != b.Response.Max() || a.Counts != b.Counts {
		t.Errorf("one shard %+v, merged %+v", a.Counts, b.Counts)
	}
}

func TestNotesAreBounded(t *testing.T) {
	r := record.New(1)
	for i := range 1000 {
		r.Shard(0).Note(strings.Repeat("x", i%100))
	}
	got, err := r.Result()
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, n := range got.Notes {
		sum += n
	}
	if len(got.Notes) > record.MaxNotes+1 || sum != 1000 || got.Notes["other"] == 0 {
		t.Errorf("%d texts with %d counted, %d as other; want at most %d, 1000, some", len(got.Notes), sum, got.Notes["other"], record.MaxNotes+1)
	}
}

// TestRecordingDoesNotAllocate: memory is flat however long a cell runs.
func TestRecordingDoesNotAllocate(t *testing.T) {
	r := record.New(1)
	s := r.Shard(0)
	times := record.Times{Response: 20_000, Service: 19_000, Lag: 1000, Server: 2000, HasServer: true}
	if n := testing.AllocsPerRun(1000, func() { s.Answered(record.OK, times); s.Lost(record.TimedOut, 1) }); n != 0 {
		t.Errorf("%v allocations a request, want none", n)
	}
}

func BenchmarkAnswered(b *testing.B) {
	s := record.New(1).Shard(0)
	rng := rand.New(rand.NewPCG(1, 2))
	times := make([]record.Times, 1024)
	for i := range times {
		v := time.Duration(15_000 + rng.ExpFloat64()*3000)
		times[i] = record.Times{Response: v, Service: v - 300, Lag: 300, Server: 1500, HasServer: true}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s.Answered(record.OK, times[i&1023])
		i++
	}
}
