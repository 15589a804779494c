package speed

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// aim is about how long the arithmetic takes: long enough for the clock's own cost (some 50 ns) not to count, and 2 x aim in Every is 0.1 % of a core.
	aim = 5 * time.Microsecond
	// tries of the calibration: some of them are not interrupted.
	tries = 200
	// lifetime bounds the samples from which the full speed is told, the first ones.
	lifetime = MaxSamples / 2
)

// rounds of a multiplication that waits for the one before it.
func rounds(n int, x uint64) uint64 {
	for range n {
		x = x*6364136223846793005 + 1442695040888963407 // Knuth's MMIX constants; any odd ones would do
	}
	return x
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail for this clock
	return t.Nano()
}

// calibrate returns how many rounds take about aim at the best speed seen.
func calibrate() (n int, x uint64) {
	const probe = 10_000
	best := int64(1 << 62)
	x = 1
	for range tries {
		begin := monotonic()
		x = rounds(probe, x)
		best = min(best, monotonic()-begin)
	}
	return max(int(probe*int64(aim)/max(best, 1)), 1), x
}

// watched is one core. Its samples have a lock: the sampler holds it for some nanoseconds, the reader while it copies.
type watched struct {
	id int

	mu      sync.Mutex
	samples []Sample
	every   int64 // looks that make one sample
	looks   int64
	worst   int64
	first   []int64 // times of the first samples of its life
	full    int64
	x       uint64 // so that no compiler leaves the arithmetic out
}

func (w *watched) add(s Sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.first) < cap(w.first) {
		w.first = append(w.first, s.Took)
		w.full = 0
	}
	w.worst = max(w.worst, s.Took)
	if w.looks++; w.looks < w.every {
		return
	}
	s.Took = w.worst
	w.looks, w.worst = 0, 0
	if len(w.samples) == MaxSamples {
		for i := range MaxSamples / 2 {
			a, b := w.samples[2*i], w.samples[2*i+1]
			w.samples[i] = Sample{b.At, max(a.Took, b.Took)}
		}
		w.samples = w.samples[:MaxSamples/2]
		w.every *= 2
	}
	w.samples = append(w.samples, s)
}

func (w *watched) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples, w.every, w.looks, w.worst = w.samples[:0], 1, 0, 0
}

func (w *watched) read() Core {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full == 0 && len(w.first) > 0 {
		sorted := slices.Sorted(slices.Values(w.first))
		w.full = sorted[int(fullShare*float64(len(sorted)-1))]
	}
	return Core{ID: w.id, Full: w.full, Samples: slices.Clone(w.samples)}
}

// watch looks at the core until the process ends. It needs its thread for itself.
func (w *watched) watch(started func(error)) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(w.id)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		started(fmt.Errorf("speed: core %d: %w", w.id, err))
		return
	}
	n, x := calibrate()
	started(nil)
	pause := unix.NsecToTimespec(int64(Every))
	for {
		_ = unix.Nanosleep(&pause, nil) // one that is cut short looks earlier
		a := monotonic()
		x = rounds(n, x)
		b := monotonic()
		x = rounds(n, x)
		c := monotonic()
		w.x = x
		w.add(Sample{c, min(b-a, c-b)})
	}
}

// Child is the process that watches: args are the cores' numbers. It answers every line of in with a line of out: "begin" forgets what was seen, "end" returns it as a
// Trace. It ends when in does.
func Child(args []string, in io.Reader, out io.Writer) error {
	// One thread each, and one to talk; a thread in its pause holds none of them.
	runtime.GOMAXPROCS(len(args) + 1)
	var cores []*watched
	for _, arg := range args {
		id, err := strconv.Atoi(arg)
		if err != nil {
			return fmt.Errorf("speed: core %q: %w", arg, err)
		}
		w := &watched{id: id, every: 1, samples: make([]Sample, 0, MaxSamples), first: make([]int64, 0, lifetime)}
		started := make(chan error, 1)
		go w.watch(func(err error) { started <- err })
		if err := <-started; err != nil {
			return err
		}
		cores = append(cores, w)
	}
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(Trace{}); err != nil { // it watches
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var t Trace
		for _, w := range cores {
			switch strings.TrimSpace(lines.Text()) {
			case "begin":
				w.clear()
			case "end":
				t.Cores = append(t.Cores, w.read())
			}
		}
		if err := encoder.Encode(t); err != nil {
			return err
		}
	}
	return lines.Err()
}
