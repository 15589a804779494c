package record_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"tailgate/loadtest/record"
)

// TestSeries: whatever is recorded stands in the block of its time, to 0.4 %, by whichever client, and however often the blocks had to be
// made wider.
func TestSeries(t *testing.T) {
	type request struct {
		due, response time.Duration
		lost          bool
	}
	rapid.Check(t, func(t *rapid.T) {
		r := record.New(3, 2)
		if rapid.Bool().Draw(t, "expected") {
			r.Expect(time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "length")))
		}
		requests := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) request {
			return request{
				due:      time.Duration(rapid.Int64Range(0, int64(time.Hour)>>rapid.IntRange(0, 20).Draw(t, "shift")).Draw(t, "due")),
				response: time.Duration(rapid.Int64Range(0, int64(time.Hour)>>rapid.IntRange(0, 40).Draw(t, "small")).Draw(t, "response")),
				lost:     rapid.IntRange(0, 9).Draw(t, "lost") == 0,
			}
		}), 1, 100).Draw(t, "requests")
		for i, q := range requests {
			if c := r.Client(i % 3); q.lost {
				c.Lost(record.TimedOut, q.due, q.response, "")
			} else {
				c.Answered(record.OK, record.Times{Due: q.due, Response: q.response}, "")
			}
		}
		for i := range 3 {
			r.Client(i).Flush()
		}
		result, err := r.Result()
		if err != nil {
			t.Fatal(err)
		}
		s := result.Series
		if len(s.Blocks) > 128 {
			t.Fatalf("%d blocks", len(s.Blocks))
		}
		for _, q := range requests {
			b := &s.Blocks[q.due/s.Width]
			if q.lost {
				b.Lost--
				continue
			}
			found := false
			for i := range b.Buckets {
				// A bucket is named by its upper edge.
				if v := b.Buckets[i].Value; !found && v >= q.response && v <= q.response+q.response/255 && b.Buckets[i].Count > 0 {
					b.Buckets[i].Count--
					found = true
				}
			}
			if !found {
				t.Fatalf("%v, due at %v, does not stand in its block of %v: %v", q.response, q.due, s.Width, b.Buckets)
			}
		}
		for i, b := range s.Blocks {
			for _, bucket := range b.Buckets {
				if bucket.Count != 0 || b.Lost != 0 {
					t.Fatalf("block %d has %d more of %v, and %d more lost", i, bucket.Count, bucket.Value, b.Lost)
				}
			}
		}
	})
}
