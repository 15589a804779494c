package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	cmd, p, stdout, stderr := command(t, "matrix", "--transports", name(), "--sizes", "64", "--clients", "1,2", "--duration", "1s", "--warmup", "10ms")
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
