package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"tailgate/loadtest/report"
)

// resume takes over what an earlier process has measured into the same folder: every cell but those that failed or were interrupted. It is an
// error, and nothing is measured, where the flags, the build or the machine are not the same: their cells do not belong into one run.
func (p *plan) resume(result *report.Run, measured []*report.Cell) error {
	path := filepath.Join(p.options.Out, report.FileName)
	before, err := report.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is nothing yet, so this is the beginning
	}
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	for _, d := range []struct{ what, before, now string }{
		{"flags", strings.Join(significant(before.Command), " "), strings.Join(significant(result.Command), " ")},
		{"build", before.Environment.Revision, result.Environment.Revision},
		{"Go", before.Environment.GoVersion, result.Environment.GoVersion},
		{"machine", before.Environment.Host, result.Environment.Host},
		{"processor", before.Environment.CPU, result.Environment.CPU},
		{"kernel", before.Environment.Kernel, result.Environment.Kernel},
	} {
		if d.before != d.now {
			return fmt.Errorf("--resume: %s in %s: %q, now %q; nothing can be added to it: use the same, or another --out", d.what, path, d.before, d.now)
		}
	}
	for order, index := range p.order {
		c := p.reportCell(p.cells[index], order+1)
		at := slices.IndexFunc(before.Cells, func(b report.Cell) bool {
			return b.Key() == c.Key() && b.Run == c.Run && b.Client != nil && !b.Interrupted
		})
		if at >= 0 {
			measured[index] = &before.Cells[at]
			result.Resumed++
		}
	}
	result.Started = before.Started
	return nil
}

// significant are the arguments that decide on what is measured.
func significant(args []string) []string {
	var list []string
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(args[i], "=")
		switch name {
		case "--resume":
		case "--out", "--format":
			if !joined {
				i++
			}
		default:
			list = append(list, args[i])
		}
	}
	return list
}
