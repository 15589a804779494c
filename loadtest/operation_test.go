package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"tailgate/loadtest/export"
	"tailgate/loadtest/report"
	"tailgate/transports/all"
)

// TestGetBook: over every transport in a closed loop, and over one of every kind in an open one, every request is answered with a right book, of a hosted gateway with
// all its levels, and table and files call it by its name.
func TestGetBook(t *testing.T) {
	for _, args := range [][]string{
		{"matrix", "--operation", "get-book", "--clients", "2", "--requests", "200", "--warmup", "10ms"},
		{"matrix", "--transports", strings.Join(kinds(), ","), "--operation", "get-book", "--clients", "2", "--rate", "500", "--duration", "200ms", "--warmup", "10ms"},
	} {
		transports := all.Names()
		if args[1] == "--transports" {
			transports = kinds()
		}
		p := loadtest(t, args...)
		p.want(t, exitOK)
		validate(t, filepath.Join(p.out, report.FileName))
		r := p.run(t)
		if len(r.Cells) != len(transports) { // no floor: a bare echo has no book
			t.Errorf("%v: %d cells, want one for each of %v", args, len(r.Cells), transports)
		}
		for _, c := range r.Cells {
			if c.Operation != "get-book" || c.Size != 0 || c.Ack != "" || c.OK != c.Requests || c.Wrong != 0 || c.Server.Count != 0 {
				t.Errorf("%s: operation %q, size %d, ack %q, %d of %d ok, %d wrong, %d with stamps: %v", c.Spec, c.Operation, c.Size, c.Ack, c.OK, c.Requests, c.Wrong, c.Server.Count, c.Notes)
			}
			if !strings.Contains(export.FileName(c), "get-book") {
				t.Errorf("file name %q", export.FileName(c))
			}
		}
		if !strings.Contains(p.stdout, "get-book x 2 clients") {
			t.Errorf("table: %s", p.stdout)
		}
	}
}

// TestGetBookOfATarget reads what is there and enters nothing.
func TestGetBookOfATarget(t *testing.T) {
	gateway := gateway(t, name())
	key := gateway.Keys()[0]
	p := loadtest(t, "--target", gateway.Address(name()), "--transport", name(), "--key", key, "--operation", "get-book", "--requests", "100", "--clients", "2", "--warmup", "10ms")
	p.want(t, exitOK)
	if c := p.run(t).Cells[0]; c.OK != 100 {
		t.Errorf("%d of 100 ok: %v", c.OK, c.Notes)
	}
	if n := ordersWith(t, "", gateway.Address(name()), key); n != 0 {
		t.Errorf("%d orders were entered", n)
	}
}

// TestGetBookRefusals: what is about orders is refused beside it, with the reason.
func TestGetBookRefusals(t *testing.T) {
	for _, args := range []string{
		"--size 64", "--size-mix 64:1", "--ack minimal", "--cancel-share 0.1", "--replace-share 0.1",
	} {
		var out, stderr bytes.Buffer
		status := run(append([]string{"--operation", "get-book", "--out", t.TempDir()}, strings.Fields(args)...), nil, &out, &stderr)
		flag, _, _ := strings.Cut(args, " ")
		if status != exitUsage || !strings.Contains(stderr.String(), flag+": not with --operation get-book") {
			t.Errorf("%s: status %d, %s", args, status, stderr.String())
		}
	}
	for args, want := range map[string]string{
		"matrix --operation get-book --sizes 64": "--sizes: not with --operation get-book",
		"calibrate --operation get-book":         "--operation: not with calibrate",
		"--operation mass-cancel":                `must be one of "submit-order","get-book"`,
	} {
		var out, stderr bytes.Buffer
		if status := run(append(strings.Fields(args), "--out", t.TempDir()), nil, &out, &stderr); status != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: status %d, %s, want %q", args, status, stderr.String(), want)
		}
	}
}
