package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/export"
	"tailgate/loadtest/report"
)

// TestOutIsProbedFirst: where the results cannot be kept, nothing is measured. A run of an hour would not come back within the test's time.
func TestOutIsProbedFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a-file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := loadtest(t, "--transport", name(), "--duration", "1h", "--out", file)
	if p.status != exitFailure || p.stdout != "" || !strings.Contains(p.stderr, "a-file") || !strings.Contains(p.stderr, "--out: ") || !strings.Contains(p.stderr, "nothing was measured") {
		t.Errorf("status %d, %q, %q; want 1, nothing and the folder's name", p.status, p.stdout, p.stderr)
	}
}

// TestResultsThatCannotBeKept: when the folder goes away during the measurement, the table is printed all the same.
func TestResultsThatCannotBeKept(t *testing.T) {
	t.Parallel()
	cmd, p, stdout, stderr := command(t, "matrix", "--transports", name(), "--sizes", "64", "--clients", "1,2", "--duration", "400ms", "--warmup", "10ms")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The file comes with the first cell; while the second runs, a file takes the folder's place.
	deadline, look := time.After(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer look.Stop()
	for err := os.ErrNotExist; err != nil; {
		select {
		case <-look.C:
			if _, err = os.Stat(filepath.Join(p.out, report.FileName)); err == nil {
				err = os.Rename(p.out, p.out+".gone")
			}
		case <-deadline:
			_ = cmd.Process.Kill()
			t.Fatal("no results after 30 s")
		}
	}
	if err := os.WriteFile(p.out, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.finish(t, cmd, stdout, stderr)
	if p.status != exitFailure || !strings.Contains(p.stdout, "64 B x 1 client ") || !strings.Contains(p.stdout, "64 B x 2 clients ") || strings.Contains(p.stdout, "Results: ") || !strings.Contains(p.stderr, "standard output alone: report: output folder: ") {
		t.Errorf("status %d, %q, %q; want 1, the table, and why there is no %s", p.status, p.stdout, p.stderr, report.FileName)
	}
}

// TestSomethingBesideTheResults: what cannot be written beside run.json is told as that; run.json stands, and no half of a file does.
func TestSomethingBesideTheResults(t *testing.T) {
	cmd, p, stdout, stderr := command(t, "--transport", name(), "--clients", "1", "--requests", "10", "--warmup", "0s")
	if err := os.MkdirAll(filepath.Join(p.out, export.MetricsFile), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.finish(t, cmd, stdout, stderr)
	if p.status != exitFailure || !strings.Contains(p.stdout, "Results: ") || !strings.Contains(p.stderr, "run.json is kept, but not all that belongs beside it: ") || !strings.Contains(p.stderr, export.MetricsFile) {
		t.Errorf("status %d, %q, %q; want 1, where run.json is, and what is missing", p.status, p.stdout, p.stderr)
	}
	p.run(t)
	if half, _ := filepath.Glob(filepath.Join(p.out, "*.*.[0-9]*")); len(half) > 0 {
		t.Errorf("left behind: %v", half)
	}
}

// TestTwoRunsIntoOneFolder: the second is refused before it has measured anything, and the folder is free again when the first has ended.
func TestTwoRunsIntoOneFolder(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no locks of folders")
	}
	folder := t.TempDir()
	release, err := report.Lock(folder)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--transport", name(), "--clients", "1", "--requests", "10", "--warmup", "0s", "--out", folder}
	p := loadtest(t, args...)
	if p.status != exitFailure || p.stdout != "" || !strings.Contains(p.stderr, "another run is writing into") {
		t.Errorf("status %d, %q, %q; want 1 and that the folder is taken", p.status, p.stdout, p.stderr)
	}
	release()
	if p := loadtest(t, args...); strings.Contains(p.stderr, "another run") || p.stdout == "" {
		t.Errorf("status %d, %q, %q; want a run", p.status, p.stdout, p.stderr)
	}
}
