package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tailgate/gateway/journal"
)

// BenchmarkMedium measures what gateway/adr/0001-journal-writes.md decides about:
// one record of 140 bytes after the other into a fresh preallocated segment, by
// pwrite or by a copy into a mapping of it. A new segment is taken, outside of the
// time, whenever one is full, so that the first touch of each page counts as it does
// in a log. Percentiles are of single writes and include about 40 ns for the clock.
func BenchmarkMedium(b *testing.B) {
	const size, record = journal.DefaultSegmentBytes, 140
	p := payload(1, record)
	newSegment := func(b *testing.B, n int) *os.File {
		f, err := os.Create(filepath.Join(b.TempDir(), fmt.Sprint(n)))
		if err == nil {
			err = unix.Fallocate(int(f.Fd()), 0, 0, size)
		}
		if err != nil {
			b.Fatal(err)
		}
		return f
	}
	run := func(b *testing.B, begin func(f *os.File) (write func(off int), end func())) {
		var took []time.Duration
		var write func(int)
		var unmap func()
		var f *os.File
		end := func() {
			if f != nil {
				unmap()
				if err := f.Close(); err != nil {
					b.Fatal(err)
				}
			}
		}
		off, n := size, 0
		for b.Loop() {
			if off+record > size {
				b.StopTimer()
				end()
				f = newSegment(b, n)
				write, unmap = begin(f)
				off = 0
				n++
				b.StartTimer()
			}
			start := time.Now()
			write(off)
			took = append(took, time.Since(start))
			off += record
		}
		end()
		slices.Sort(took)
		for _, q := range []struct {
			name string
			q    float64
		}{{"p50-ns", 0.5}, {"p99-ns", 0.99}, {"p99.9-ns", 0.999}, {"p99.99-ns", 0.9999}} {
			b.ReportMetric(float64(took[int(q.q*float64(len(took)-1))]), q.name)
		}
	}
	b.Run("pwrite", func(b *testing.B) {
		run(b, func(f *os.File) (func(int), func()) {
			return func(off int) {
				if _, err := f.WriteAt(p, int64(off)); err != nil {
					b.Fatal(err)
				}
			}, func() {}
		})
	})
	b.Run("mapped", func(b *testing.B) {
		run(b, func(f *os.File) (func(int), func()) {
			m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				b.Fatal(err)
			}
			return func(off int) { copy(m[off:], p) }, func() {
				if err := unix.Munmap(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// BenchmarkSync is one group of the given bytes into a segment, and fdatasync: the
// segment allocated only, or written with zeros before.
func BenchmarkSync(b *testing.B) {
	const size = 16 << 20
	for _, zeroed := range []bool{false, true} {
		for _, group := range []int{140, 16 * 140, 256 * 140} {
			b.Run(fmt.Sprintf("zeroed=%v/%d", zeroed, group), func(b *testing.B) {
				f, err := os.Create(filepath.Join(b.TempDir(), "x"))
				if err == nil {
					err = unix.Fallocate(int(f.Fd()), 0, 0, size)
				}
				if err == nil && zeroed {
					_, err = f.Write(make([]byte, size))
				}
				if err == nil {
					err = f.Sync()
				}
				if err != nil {
					b.Fatal(err)
				}
				p := payload(1, group)
				off := 0
				for b.Loop() {
					if off+group > size {
						b.Fatalf("segment full: run it for less than %d groups", size/group)
					}
					if _, err := f.WriteAt(p, int64(off)); err != nil {
						b.Fatal(err)
					}
					if err := unix.Fdatasync(int(f.Fd())); err != nil {
						b.Fatal(err)
					}
					off += group
				}
				if err := f.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
