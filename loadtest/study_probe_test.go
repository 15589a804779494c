package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"tailgate/loadtest/machine"
)

// studyProbeEnv makes TestStudyProbe the probe.
const studyProbeEnv = "LOADTEST_STUDY_PROBE"

// A probe wakes every probeEvery and times probeSteps steps of arithmetic, some 10 µs: 0.3 % of its core.
const (
	probeEvery = 4 * time.Millisecond
	probeSteps = 6_000
	// probeCut is what is left out, as a multiple of the fastest one: somebody else ran in the middle of it.
	probeCut = 4
)

// probe is a process of its own on one core, which measures how fast that core runs while others work on it. A hypervisor that has two guests on the two
// threads of a core, or lowers its frequency, steals no time by its own account, and everything takes up to twice as long.
type probe struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func startProbe(t *testing.T, core int) *probe {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{cmd: exec.CommandContext(t.Context(), self, "-test.run=^TestStudyProbe$")}
	p.cmd.Env = append(os.Environ(), studyProbeEnv+"=1", asMain+"=")
	p.stdin, err = p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(stdout)
	if err := machine.StartOn([]int{core}, p.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.stdin.Close()
		_ = p.cmd.Wait() // it may have been ended by the test's context
	})
	return p
}

// read returns the mean time of a probe since the last reading, in nanoseconds.
func (p *probe) read(t *testing.T) (ns float64) {
	t.Helper()
	if _, err := fmt.Fprintln(p.stdin); err != nil || !p.lines.Scan() {
		t.Fatalf("the probe of a core's speed has ended: %v, %v", err, p.lines.Err())
	}
	if _, err := fmt.Sscan(p.lines.Text(), &ns); err != nil {
		t.Fatalf("the probe of a core's speed says %q: %v", p.lines.Text(), err)
	}
	return ns
}

// TestStudyProbe is the probe's process: for every line that it reads it writes the mean since the last one, and it ends with its input.
func TestStudyProbe(t *testing.T) {
	if os.Getenv(studyProbeEnv) == "" {
		t.Skip("the probe of the study")
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); {
			asked <- struct{}{}
		}
	}()
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	fastest, x := time.Hour, uint64(1)
	var times []time.Duration
	for {
		select {
		case <-ticker.C:
			begun := time.Now()
			for range probeSteps {
				x = x*6364136223846793005 + 1442695040888963407
			}
			took := time.Since(begun)
			fastest, times = min(fastest, took), append(times, took)
		case _, more := <-asked:
			if !more {
				return
			}
			sum, n := 0.0, 0.0
			for _, took := range times {
				if took < probeCut*fastest {
					sum, n = sum+float64(took), n+1
				}
			}
			times = times[:0]
			if x == 0 { // never: the arithmetic has to have a use
				return
			}
			fmt.Println(sum / max(n, 1))
		}
	}
}
