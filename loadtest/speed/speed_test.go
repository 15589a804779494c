package speed_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/machine"
	"tailgate/loadtest/speed"
)

// asChild in the environment makes the test binary the process that watches.
const asChild = "SPEED_TEST_AS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		if err := speed.Child(os.Args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestSlow: blocks of 10 ms, a sample in the middle of each but where said otherwise.
func TestSlow(t *testing.T) {
	const width = 10 * time.Millisecond
	at := func(block float64) int64 { return int64(1000) + int64(block*float64(width)) }
	core := func(took ...int64) speed.Core {
		c := speed.Core{Full: 100}
		for i, v := range took {
			if v > 0 {
				c.Samples = append(c.Samples, speed.Sample{At: at(float64(i) + 0.5), Took: v})
			}
		}
		return c
	}
	for _, c := range []struct {
		name         string
		cores        []speed.Core
		want         string // a letter a block: s is slow
		share, worst float64
	}{
		{"none", []speed.Core{core(100, 149, 90, 150)}, "....", 0, 1.5},
		{"one", []speed.Core{core(100, 151, 90, 100)}, ".s..", 0.25, 1.51},
		{"another core", []speed.Core{core(100, 100, 100, 100), core(100, 100, 1200, 100)}, "..s.", 0.25, 12},
		{"unseen after slow is slow", []speed.Core{core(100, 300, 0, 100)}, ".ss.", 1. / 3, 3},
		{"unseen to the end after slow is slow", []speed.Core{core(100, 100, 300, 0)}, "..ss", 1. / 3, 3},
		{"unseen after fast is fast", []speed.Core{core(100, 0, 0, 400)}, "...s", 0.5, 4},
	} {
		blocks, sum, ok := speed.Trace{Cores: c.cores}.Slow(at(0), width, 4)
		got := ""
		for _, slow := range blocks {
			got += map[bool]string{false: ".", true: "s"}[slow]
		}
		if !ok || got != c.want || sum.Share != c.share || sum.Worst != c.worst {
			t.Errorf("%s: %t, %q, %+v; want %q, %v, %v", c.name, ok, got, sum, c.want, c.share, c.worst)
		}
	}
	// What lies before and after the interval does not count.
	outside := speed.Core{Full: 100, Samples: []speed.Sample{{At: at(-0.5), Took: 900}, {At: at(4), Took: 900}}}
	if _, _, ok := (speed.Trace{Cores: []speed.Core{outside}}).Slow(at(0), width, 4); ok {
		t.Error("nothing was seen in the interval, and it has a verdict")
	}
}

// TestAround against the obvious way.
func TestAround(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		blocks := make([]bool, rng.IntN(20))
		for i := range blocks {
			blocks[i] = rng.IntN(5) == 0
		}
		margin := rng.IntN(4)
		for i, got := range speed.Around(blocks, margin) {
			want := slices.Contains(blocks[max(0, i-margin):min(len(blocks), i+margin+1)], true)
			if got != want {
				t.Fatalf("%v, margin %d: block %d is %t, want %t", blocks, margin, i, got, want)
			}
		}
	}
}

// TestWatch: a process that watches sees what was after Begin, every ten milliseconds or so, and ends when it is told to.
func TestWatch(t *testing.T) {
	cores, err := machine.Cores()
	if err != nil || len(cores) == 0 {
		t.Skip("threads cannot be bound to cores here:", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asChild, "1")
	w, err := speed.Start(t.Context(), []string{self}, []int{cores[0].ID})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var seen speed.Trace
	for range 2 {
		begun := speed.Now()
		if err := w.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(10 * time.Second)
		for seen = (speed.Trace{}); len(seen.Cores) == 0 || len(seen.Cores[0].Samples) < 10; {
			if time.Now().After(deadline) {
				t.Fatalf("not ten looks in ten seconds: %+v", seen)
			}
			if seen, err = w.End(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		core := seen.Cores[0]
		if core.ID != cores[0].ID || core.Full <= 0 || core.Samples[0].At < begun || core.Samples[9].At > speed.Now() {
			t.Errorf("seen %+v, asked at %d", seen, begun)
		}
		for i := 1; i < len(core.Samples); i++ {
			if core.Samples[i].At-core.Samples[i-1].At < int64(speed.Every) {
				t.Errorf("two looks within %d ns", core.Samples[i].At-core.Samples[i-1].At)
			}
		}
	}
}

// TestChildRefuses what is no core.
func TestChildRefuses(t *testing.T) {
	for _, core := range []string{"x", "1023"} {
		var out bytes.Buffer
		if err := speed.Child([]string{core}, strings.NewReader("end\n"), &out); err == nil {
			t.Errorf("core %s: no error; it said %s", core, out.String())
		}
	}
}

// TestTraceAsJSON: what the processes say to each other comes back.
func TestTraceAsJSON(t *testing.T) {
	want := speed.Trace{Cores: []speed.Core{{ID: 3, Full: 7, Samples: []speed.Sample{{At: 1, Took: 2}}}}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got speed.Trace
	if err := json.Unmarshal(text, &got); err != nil || !slices.EqualFunc(got.Cores, want.Cores, func(a, b speed.Core) bool {
		return a.ID == b.ID && a.Full == b.Full && slices.Equal(a.Samples, b.Samples)
	}) {
		t.Errorf("%s became %+v: %v", text, got, err)
	}
}
