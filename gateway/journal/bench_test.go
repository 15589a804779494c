package journal_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"tailgate/gateway/journal"
)

// signal is a Waiter that only counts down.
type signal struct{ wg sync.WaitGroup }

func (s *signal) Release(_ uint64, err error) {
	if err != nil {
		panic(err)
	}
	s.wg.Done()
}

// appendWait appends, and lets the background prepare the next segment when the
// benchmark outruns it.
func appendWait(tb testing.TB, j *journal.Journal, p []byte) {
	for {
		_, err := j.Append(1, p)
		if err == nil {
			return
		}
		if !errors.Is(err, journal.ErrBacklog) {
			tb.Fatal(err)
		}
		runtime.Gosched()
	}
}

func benchOpen(b *testing.B, mode journal.SyncMode) *journal.Journal {
	j, _, err := journal.Open(journal.Options{Dir: b.TempDir(), Sync: mode}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := j.Close(); err != nil {
			b.Error(err)
		}
	})
	return j
}

// BenchmarkAppend is the part under the sequencer's lock: one record into memory.
// The writes between are taken out of the time, not out of the bytes.
func BenchmarkAppend(b *testing.B) {
	j := benchOpen(b, journal.SyncOS)
	p, s := payload(1, 96), &signal{}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n++; n%4096 == 0 {
			b.StopTimer()
			s.wg.Add(1)
			j.Commit(s, 0)
			b.StartTimer()
		}
		appendWait(b, j, p)
	}
}

// BenchmarkCommit appends a batch of 96-byte payloads and waits for its release.
// One operation is one batch; ns/entry is for each entry of it.
func BenchmarkCommit(b *testing.B) {
	for _, mode := range modes {
		for _, batch := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%v/%d", mode, batch), func(b *testing.B) {
				j := benchOpen(b, mode)
				p, s := payload(1, 96), &signal{}
				b.ReportAllocs()
				b.SetBytes(int64(batch * (96 + recordHeader)))
				for b.Loop() {
					for range batch {
						appendWait(b, j, p)
					}
					s.wg.Add(1)
					j.Commit(s, 0)
					s.wg.Wait()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/entry")
			})
		}
	}
}

// BenchmarkGroupCommit has many callers wait at once, each for one entry: what one
// sync then carries.
func BenchmarkGroupCommit(b *testing.B) {
	for _, mode := range promising {
		b.Run(mode.String(), func(b *testing.B) {
			j := benchOpen(b, mode)
			var sequencer sync.Mutex
			b.ReportAllocs()
			b.SetParallelism(64)
			before := j.Stats()
			b.RunParallel(func(pb *testing.PB) {
				p, s := payload(1, 96), &signal{}
				for pb.Next() {
					sequencer.Lock()
					appendWait(b, j, p)
					sequencer.Unlock()
					s.wg.Add(1)
					j.Commit(s, 0)
					s.wg.Wait()
				}
			})
			after := j.Stats()
			b.ReportMetric(float64(b.N)/float64(max(1, after.Writes-before.Writes)), "entries/write")
		})
	}
}

// TestAllocations: nothing is allocated for an entry in steady state.
func TestAllocations(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			j, _, err := journal.Open(journal.Options{Dir: t.TempDir(), Sync: mode}, nil)
			if err != nil {
				t.Fatal(err)
			}
			p, s := payload(1, 96), &signal{}
			batch := func() {
				for range 16 {
					appendWait(t, j, p)
				}
				s.wg.Add(1)
				j.Commit(s, 0)
				s.wg.Wait()
			}
			for range 10 {
				batch()
			}
			if n := testing.AllocsPerRun(200, batch); n != 0 {
				t.Errorf("%v allocations a batch, want none", n)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// BenchmarkReplay reads a closed log of 100,000 entries of 96 bytes, from the page
// cache: what a restart costs without a snapshot.
func BenchmarkReplay(b *testing.B) {
	const entries = 100_000
	opts := journal.Options{Dir: b.TempDir()}
	j, _, err := journal.Open(opts, nil)
	if err != nil {
		b.Fatal(err)
	}
	p, s := payload(1, 96), &signal{}
	for range entries {
		appendWait(b, j, p)
		s.wg.Add(1)
		j.Commit(s, 0)
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(entries * (96 + recordHeader))
	for b.Loop() {
		report, err := journal.Verify(opts.Dir, nil, nil)
		if err != nil || report.Records != entries {
			b.Fatal(report, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*entries), "ns/entry")
}
