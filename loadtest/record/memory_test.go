package record_test

import (
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/record"
	"tailgate/loadtest/stats"
)

// residentMB is what of this process is in memory; 0 where the system does not tell.
func residentMB() float64 {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kb, _ := strconv.ParseFloat(fields[1], 64)
			return kb / 1024
		}
	}
	return 0
}

// requests are of many kinds, so that every part of a recorder has something to keep: response times around 100 µs with a tail to seconds, lost ones, notes.
func requests(rng *rand.Rand) []record.Times {
	list := make([]record.Times, 1<<16)
	for i := range list {
		response := time.Duration(1e5 * math.Exp(rng.NormFloat64()))
		if i%1000 == 0 {
			response = time.Duration(1e6 * math.Exp(8*rng.Float64()))
		}
		list[i] = record.Times{Response: response, Service: response * 9 / 10, Lag: response / 10, CreditWait: response / 20, Server: response / 3, HasServer: true}
	}
	return list
}

// TestMemoryOfAnHour records an hour of 500 clients and looks at the memory every minute: after the first it does not grow. By default it is 500 requests a second, with
// LOADTEST_HOUR=1 in the environment 100,000, which is 360 million. Once the recorder knows how long the interval is, once it does not.
func TestMemoryOfAnHour(t *testing.T) {
	const clients, shards, minutes = 500, 4, 60
	rate := 500
	if os.Getenv("LOADTEST_HOUR") != "" {
		rate = 100_000
	}
	for name, expected := range map[string]bool{"by time": true, "by requests": false} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			times := requests(rng)
			r := record.New(clients, shards)
			if expected {
				r.Expect(minutes * time.Minute)
			}
			var first, last, most [2]float64 // MB on the heap and resident
			n := 0
			for minute := range minutes {
				for second := range 60 {
					at := time.Duration(minute*60+second) * time.Second
					for i := range rate {
						e := times[rng.Uint32()&(1<<16-1)]
						e.Due = at + time.Duration(i)*time.Second/time.Duration(rate)
						switch c := r.Client(n % clients); {
						case n%5000 == 0:
							c.Lost(record.TimedOut, e.Due, 10*time.Second, "REASON_DEADLINE_EXCEEDED")
						case n%7000 == 0:
							c.Answered(record.Rejected, e, "REASON_"+strconv.Itoa(n%100))
						default:
							c.Answered(record.OK, e, "")
						}
						n++
					}
				}
				debug.FreeOSMemory()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				last = [2]float64{float64(m.HeapAlloc) / (1 << 20), residentMB()}
				if minute == 0 {
					first = last
				}
				most = [2]float64{max(most[0], last[0]), max(most[1], last[1])}
				if minute%10 == 0 || minute == minutes-1 {
					t.Logf("minute %2d: %9d requests, heap %.2f MB, resident %.2f MB", minute+1, n, last[0], last[1])
				}
			}
			for i := range clients {
				r.Client(i).Flush()
			}
			got, err := r.Result()
			if err != nil || got.Counts.Offered() != int64(n) || n != rate*3600 {
				t.Fatalf("%d of %d requests, %v", got.Counts.Offered(), n, err)
			}
			var inBlocks int64
			for _, b := range got.Series.Blocks {
				inBlocks += b.Lost
				for _, bucket := range b.Buckets {
					inBlocks += bucket.Count
				}
			}
			if inBlocks != int64(n) || len(got.Series.Blocks) < 64 || got.Response.At(stats.P999).State != stats.Known {
				t.Errorf("%d of %d requests stand in %d blocks of time", inBlocks, n, len(got.Series.Blocks))
			}
			// A percent, and half a megabyte of what a runtime and its tests do beside it.
			for i, what := range []string{"heap", "resident"} {
				if i == 1 && !residentCounts {
					continue
				}
				if grown := most[i] - first[i]; grown > first[i]/100+0.5 {
					t.Errorf("%s: %.2f MB after the first minute, %.2f MB at most: it grows", what, first[i], most[i])
				}
			}
		})
	}
}
