package report_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
)

// TestDamagedFiles: what no run writes is refused by name, so that it is neither compared nor added to.
func TestDamagedFiles(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*report.Cell)
		want   string // empty = nothing is wrong
	}{
		{name: "as written", change: func(*report.Cell) {}},
		{"a verdict that there is not", func(c *report.Cell) { c.Validity = "LOVELY" }, `cell 2 of 2: validity "LOVELY"`},
		{"requests without a fate", func(c *report.Cell) { c.Requests++ }, "cell 2 of 2: 11 requests, of which 10 are accounted for"},
		{"fewer than none", func(c *report.Cell) { c.OK, c.Errors = c.OK+1, -1 }, "10 requests, of which 10"},
		{"no clients", func(c *report.Cell) { c.Clients = 0 }, "0 clients"},
		{"no run", func(c *report.Cell) { c.Run = 0 }, "run 0"},
		{"a terminal's commands", func(c *report.Cell) { c.Spec = "tcp\x1b[2J" }, "control characters"},
	} {
		t.Run(c.name, func(t *testing.T) {
			good := report.Cell{Transport: "tcp", Spec: "tcp", Clients: 1, Run: 1, Validity: runner.Valid, Fates: report.Fates{Requests: 10, OK: 9, TimedOut: 1}}
			cells := []report.Cell{good, good}
			c.change(&cells[1])
			r := report.Run{Schema: report.Schema, Cells: cells}
			path, err := r.Write(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			got, err := report.Read(path)
			switch {
			case c.want == "" && (err != nil || len(got.Cells) != 2):
				t.Errorf("%d cells, %v", len(got.Cells), err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)):
				t.Errorf("%v; want %q and the file", err, c.want)
			}
		})
	}
}

// TestWriteFile: a file that cannot take its place leaves nothing behind, and what was there stays.
func TestWriteFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "name")
	if err := os.Mkdir(path, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := report.WriteFile(path, []byte("text")); err == nil {
		t.Error("a folder was replaced")
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v; want the folder alone", entries, err)
	}
	path = filepath.Join(folder, "other.json")
	for _, want := range []string{"1", "22"} {
		if err := report.WriteFile(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		var got json.Number
		if text, err := os.ReadFile(path); err != nil || json.Unmarshal(text, &got) != nil || got.String() != want {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
	}
}
