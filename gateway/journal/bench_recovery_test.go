package journal_test

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"tailgate/gateway/journal"
)

// BenchmarkAck has committers append one entry of 96 bytes each and wait for its release,
// again and again: one operation is one acked order. Percentiles are of the time from the
// append to the release, the wait for the sequencer's lock not included.
func BenchmarkAck(b *testing.B) {
	for _, mode := range modes {
		for _, committers := range []int{1, 50} {
			b.Run(fmt.Sprintf("%v/%d", mode, committers), func(b *testing.B) {
				j := benchOpen(b, mode)
				var sequencer sync.Mutex
				var all sync.WaitGroup
				took := make([][]time.Duration, committers)
				for id := range committers {
					took[id] = make([]time.Duration, 0, b.N/committers+1)
				}
				b.ReportAllocs()
				b.ResetTimer()
				for id := range committers {
					all.Go(func() {
						p, s := payload(1, 96), &signal{}
						for range cap(took[id]) {
							sequencer.Lock()
							start := time.Now()
							appendWait(b, j, p)
							sequencer.Unlock()
							s.wg.Add(1)
							j.Commit(s, 0)
							s.wg.Wait()
							took[id] = append(took[id], time.Since(start))
						}
					})
				}
				all.Wait()
				b.StopTimer()
				times := slices.Concat(took...)
				slices.Sort(times)
				b.ReportMetric(float64(len(times))/b.Elapsed().Seconds(), "orders/s")
				b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "p50-µs")
				b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1e3, "p99-µs")
			})
		}
	}
}

// recoveryRecords is how many records the log of BenchmarkRecovery has. Set
// TAILGATE_JOURNAL_RECORDS for another number, 10000000 for a busy day.
func recoveryRecords(b *testing.B) int {
	text := os.Getenv("TAILGATE_JOURNAL_RECORDS")
	if text == "" {
		return 100_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1000 {
		b.Fatalf("TAILGATE_JOURNAL_RECORDS is %q, want a number from 1000 on", text)
	}
	return n
}

// BenchmarkRecovery opens a log of small records (60 bytes of payload) that was closed
// cleanly, from the page cache: all of it, and from a snapshot of 64 bytes for each tenth
// record with the last hundredth of the log above it. What the caller does with entries
// and snapshot is not in it.
func BenchmarkRecovery(b *testing.B) {
	n := recoveryRecords(b)
	for _, snapshot := range []bool{false, true} {
		b.Run(fmt.Sprintf("snapshot=%v", snapshot), func(b *testing.B) {
			opts := journal.Options{Dir: b.TempDir()}
			j, _, err := journal.Open(opts, nil)
			if err != nil {
				b.Fatal(err)
			}
			p, s := payload(1, 60), &signal{}
			for i := range n {
				appendWait(b, j, p)
				if i%100 == 0 {
					s.wg.Add(1)
					j.Commit(s, 0)
				}
			}
			s.wg.Add(1)
			j.Commit(s, 0)
			if snapshot {
				state := make([]byte, n/10*64)
				if err := j.Snapshot(uint64(n-n/100), func(w io.Writer) error { _, err := w.Write(state); return err }); err != nil {
					b.Fatal(err)
				}
				opts.Restore = func(_ uint64, r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
			}
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				replayed := 0
				j, report, err := journal.Open(opts, func(journal.Entry) error { replayed++; return nil })
				if err != nil || int(report.Restored)+replayed != n || snapshot == (report.Restored == 0) {
					b.Fatal(report, err)
				}
				b.StopTimer()
				if err := j.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(n), "records")
		})
	}
}
