package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"tailgate/loadtest/report"
)

// resume takes over what an earlier process has measured into the same folder: every cell but those that failed, were interrupted or had no time left. It is an
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
	differing, err := differ(before.Command, result.Command)
	if err != nil {
		return fmt.Errorf("--resume: %s: its command line %q is not this program's: %w; use another --out", path, strings.Join(before.Command, " "), err)
	}
	if a, b := before.Method.Accounts, result.Method.Accounts; a != b && len(differing) == 0 {
		differing = append(differing, fmt.Sprintf("--key for %d accounts, now %d", a, b))
	}
	if a, b := before.Method.Repeat, result.Method.Repeat; a > b {
		differing = append(differing, fmt.Sprintf("--repeat %d, now %d, which would lose runs", a, b))
	}
	if len(differing) > 0 {
		return fmt.Errorf("--resume: %s was begun with %s; use the same flags, or another --out", path, strings.Join(differing, ", "))
	}
	for _, d := range []struct{ what, before, now string }{
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

// indifferent are the flags that do not decide on what a cell measures. The keys are redacted in the results; how many there are is compared. Runs may be
// added, which lets two builds take turns.
var indifferent = []string{"help", "out", "format", "json", "resume", "budget", "key", "admin", "admin-key", "repeat"}

// differ names the flags whose values are not the same in two command lines, however they are written, with both values.
func differ(before, now []string) ([]string, error) {
	a, err := flagValues(before)
	if err != nil {
		return nil, err
	}
	b, err := flagValues(now)
	if err != nil {
		return nil, err
	}
	if a[""] != b[""] { // the commands have flags of their own
		return []string{fmt.Sprintf("the command %s, now %s", a[""], b[""])}, nil
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name] != b[name] {
			list = append(list, fmt.Sprintf("--%s %s, now %s", name, cmp.Or(a[name], "unset"), cmp.Or(b[name], "unset")))
		}
	}
	return list, nil
}

// flagValues are the flags of a command line, defaults included, and under no name the command.
func flagValues(args []string) (map[string]string, error) {
	var o options
	parser, err := newParser(&o, io.Discard, io.Discard, func(int) {})
	if err != nil {
		return nil, err
	}
	context, err := parser.Parse(args)
	if err != nil {
		return nil, err
	}
	command, _, _ := strings.Cut(context.Command(), " ")
	list := map[string]string{"": command}
	for _, flag := range context.Flags() {
		if slices.Contains(indifferent, flag.Name) {
			continue
		}
		text := fmt.Sprint(flag.Target.Interface())
		if kind := flag.Target.Kind(); kind == reflect.Slice {
			text = strings.Trim(text, "[]")
		}
		list[flag.Name] = text
	}
	return list, nil
}
