package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tailgate/loadtest/report"
)

// TestRepeatResumeCompare: runs are interleaved, each with a gateway of its own; a run that was cut short is completed without measuring anything twice;
// two files can be compared.
func TestRepeatResumeCompare(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "out")
	args := []string{"matrix", "--transports", name(), "--sizes", "64", "--clients", "1,2", "--repeat", "2", "--requests", "300", "--warmup", "10ms", "--out", folder}
	path := filepath.Join(folder, report.FileName)
	measure := func(args ...string) report.Run {
		t.Helper()
		p := loadtest(t, args...)
		r, err := report.Read(path)
		if err != nil {
			t.Fatalf("%v: %s", err, p.stderr)
		}
		return r
	}
	whole := measure(args...)
	rounds := map[int]map[string]bool{}
	for _, c := range whole.Cells {
		round := (c.Order - 1) / 3 // two cells and the floor
		if rounds[round] == nil {
			rounds[round] = map[string]bool{}
		}
		rounds[round][c.Key()] = true
		if c.Run != round+1 {
			t.Errorf("run %d of %s is number %d", c.Run, c.Key(), c.Order)
		}
	}
	if len(whole.Cells) != 6 || len(rounds) != 2 || len(rounds[0]) != 3 || whole.Method.Repeat != 2 {
		t.Errorf("%d cells in rounds %v", len(whole.Cells), rounds)
	}

	// As if it had been cut short: two cells are missing, one was interrupted.
	short := whole
	short.Cells = append([]report.Cell(nil), whole.Cells[:4]...)
	short.Cells[2].Interrupted = true
	if _, err := short.Write(folder); err != nil {
		t.Fatal(err)
	}
	resumed := measure(append(args, "--resume")...)
	if len(resumed.Cells) != 6 || resumed.Resumed != 3 {
		t.Fatalf("%d cells, %d of them kept; want 6 and 3", len(resumed.Cells), resumed.Resumed)
	}
	for i := range 4 {
		if same := reflect.DeepEqual(resumed.Cells[i].Started, whole.Cells[i].Started); same != (i != 2) {
			t.Errorf("cell %d was kept: %t", i, same)
		}
	}
	if again := measure(append(args, "--resume")...); again.Resumed != 6 || len(again.Cells) != 6 {
		t.Errorf("%d of %d kept of a run that was complete", again.Resumed, len(again.Cells))
	}
	// Runs can be added, and none taken away.
	more := slices.Clone(args)
	more[slices.Index(more, "--repeat")+1] = "3"
	if longer := measure(append(more, "--resume")...); longer.Resumed != 6 || len(longer.Cells) != 9 || longer.Method.Repeat != 3 {
		t.Errorf("%d of %d kept where a third run was added to two", longer.Resumed, len(longer.Cells))
	}
	var stdout, stderr strings.Builder
	if status := run(append(more, "--resume", "--seed", "9"), nil, &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), "--resume: "+path+" was begun with --seed 1, now 9; use the same flags") {
		t.Errorf("status %d, %q; want 2 and what differs", status, stderr.String())
	}

	stdout.Reset()
	if status := run([]string{"compare", path, path}, nil, &stdout, &stderr); status != exitOK || !strings.Contains(stdout.String(), name()+", 64 B x 2") {
		t.Errorf("status %d, %q\n%s", status, stderr.String(), stdout.String())
	}
	stdout.Reset()
	var c report.Comparison
	if status := run([]string{"compare", "--format", "json", path, path}, nil, &stdout, &stderr); status != exitOK || json.Unmarshal([]byte(stdout.String()), &c) != nil || len(c.Cells) != 3 {
		t.Errorf("status %d, %d cells", status, len(c.Cells))
	}
	stderr.Reset()
	if status := run(append(args, "--resume"), nil, &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), "--repeat 3, now 2") {
		t.Errorf("status %d, %q; want 2 and that a run would be lost", status, stderr.String())
	}
	stderr.Reset()
	if status := run([]string{"compare", path}, nil, &stdout, &stderr); status != exitFailure || !strings.Contains(stderr.String(), "has no two transports") {
		t.Errorf("one transport alone: status %d, %q", status, stderr.String())
	}
	long := stdout.String()
	stdout.Reset()
	if status := run([]string{"compare", "--json", path, path}, nil, &stdout, &stderr); status != exitOK || stdout.String() != long {
		t.Errorf("--json: status %d, and it is not what --format json prints", status)
	}
	for _, wrong := range []string{"/does/not/exist", os.Args[0]} {
		stderr.Reset()
		if status := run([]string{"compare", path, wrong}, nil, &stdout, &stderr); status != exitFailure || !strings.Contains(stderr.String(), wrong) {
			t.Errorf("%s: status %d, %q", wrong, status, stderr.String())
		}
	}
}
