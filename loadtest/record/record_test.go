package record_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"tailgate/loadtest/record"
	"tailgate/loadtest/stats"
)

func flush(r *record.Recorder, clients int) {
	for i := range clients {
		r.Client(i).Flush()
	}
}

// TestEveryFateIsCounted: offered is the sum of the fates, and what has no answer is infinitely late.
func TestEveryFateIsCounted(t *testing.T) {
	r := record.New(10, 3)
	for i := range 100 {
		s := r.Client(i % 10)
		switch {
		case i < 90:
			s.Answered(record.OK, record.Times{Response: time.Millisecond, Service: 900 * time.Microsecond, Lag: 100 * time.Microsecond, Server: time.Microsecond, HasServer: true}, "")
		case i < 92:
			s.Answered(record.Rejected, record.Times{Response: 2 * time.Millisecond}, "REASON_TOO_LATE")
		case i < 94:
			s.Lost(record.Refused, 0, time.Millisecond, "REASON_THROTTLED")
		case i < 96:
			s.Lost(record.TimedOut, 0, time.Second, "REASON_DEADLINE_EXCEEDED")
		case i < 98:
			s.Lost(record.Errors, 0, time.Millisecond, "REASON_INTERNAL")
		case i < 99:
			s.Wrong(0, time.Millisecond, "another id")
		default:
			s.Lost(record.Unsent, 0, 3*time.Second, "no connection")
		}
	}
	if r.Offered() != 100 {
		t.Errorf("%d offered before the clients have flushed, want 100", r.Offered())
	}
	flush(r, 10)
	got, err := r.Result()
	if err != nil {
		t.Fatal(err)
	}
	if p50, err := r.Peek(stats.P50); p50 != got.Response.At(stats.P50) || err != nil {
		t.Errorf("a look: p50 %+v, %v; want %+v", p50, err, got.Response.At(stats.P50))
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
	want := map[string]int64{"REASON_TOO_LATE": 2, "REASON_THROTTLED": 2, "REASON_DEADLINE_EXCEEDED": 2, "REASON_INTERNAL": 2, "no connection": 1}
	if !maps.Equal(got.Notes, want) {
		t.Errorf("notes %v, want %v", got.Notes, want)
	}
	if got.Wrong != 1 || got.FirstWrong != "another id" {
		t.Errorf("%d wrong answers, the first %q; want one with another id", got.Wrong, got.FirstWrong)
	}
}

// TestResolution: what comes out differs from what went in by less than a part in a thousand, or 8 ns; extremes and mean are exact.
func TestResolution(t *testing.T) {
	for v := time.Duration(1); v <= record.MaxValue; v = v*3 + 1 {
		r := record.New(1, 1)
		for range 20 {
			r.Client(0).Answered(record.OK, record.Times{Response: v}, "")
		}
		r.Client(0).Answered(record.OK, record.Times{Response: record.MaxValue}, "") // so that the maximum does not cap the bucket's edge
		flush(r, 1)
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
		r := record.New(2, 2)
		r.Client(0).Answered(record.OK, record.Times{Response: 1}, "")
		r.Client(1).Answered(record.OK, c.times, "")
		flush(r, 2)
		if _, err := r.Result(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want an error about the %s", c.times, err, c.want)
		}
	}
}

// TestShardsMergeToTheWhole: many shards say the same as one, while being read.
func TestShardsMergeToTheWhole(t *testing.T) {
	const clients, each = 20, 2000
	one, many := record.New(clients, 1), record.New(clients, 7)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(c)))
			for range each {
				t := record.Times{Response: time.Duration(rng.ExpFloat64() * 1e5)}
				one.Client(c).Answered(record.OK, t, "")
				many.Client(c).Answered(record.OK, t, "")
			}
			one.Client(c).Flush()
			many.Client(c).Flush()
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
	r := record.New(1, 1)
	for i := range 1000 {
		r.Client(0).Lost(record.Errors, 0, 1, strings.Repeat("x", 1+i%100))
	}
	flush(r, 1)
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
	s := record.New(1, 1).Client(0)
	times := record.Times{Response: 20_000, Service: 19_000, Lag: 1000, Server: 2000, HasServer: true}
	if n := testing.AllocsPerRun(1000, func() { s.Answered(record.OK, times, ""); s.Lost(record.TimedOut, 0, 1, "x") }); n != 0 {
		t.Errorf("%v allocations a request, want none", n)
	}
}

func BenchmarkAnswered(b *testing.B) {
	s := record.New(1, 1).Client(0)
	rng := rand.New(rand.NewPCG(1, 2))
	times := make([]record.Times, 1024)
	for i := range times {
		v := time.Duration(15_000 + rng.ExpFloat64()*3000)
		times[i] = record.Times{Response: v, Service: v - 300, Lag: 300, Server: 1500, HasServer: true}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s.Answered(record.OK, times[i&1023], "")
		i++
	}
}

// TestBuffersAreFlushedInTime: a client that runs for long does not keep its records to itself.
func TestBuffersAreFlushedInTime(t *testing.T) {
	r := record.New(2, 1)
	for range 1000 {
		r.Client(0).Answered(record.OK, record.Times{Response: 1}, "")
	}
	got, err := r.Result()
	if err != nil {
		t.Fatal(err)
	}
	// What one client may hold back is far below what a percentile turns on.
	if held := 1000 - got.Counts.Offered(); held < 0 || held > 32 {
		t.Errorf("%d of 1000 records are held back by the client, want at most 32", held)
	}
}
