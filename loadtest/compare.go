package main

import (
	"encoding/json"
	"fmt"
	"io"

	"tailgate/loadtest/report"
)

// compare holds the runs of two files against each other.
func (o *options) compare(stdout, stderr io.Writer) int {
	var runs [2]report.Run
	for i, path := range []string{o.Compare.A, o.Compare.B} {
		run, err := report.Read(path)
		if err != nil {
			fmt.Fprintln(stderr, "loadtest: compare:", err)
			return exitFailure
		}
		runs[i] = run
	}
	comparison := report.Compare(runs[0], runs[1])
	if len(comparison.Cells) == 0 {
		fmt.Fprintf(stderr, "loadtest: compare: no cell of %s (%s) is in %s too: they need the same transport, size, clients and loop\n", o.Compare.A, runs[0].Schema, o.Compare.B)
		return exitFailure
	}
	var err error
	if o.Format == "json" {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(comparison)
	} else {
		err = report.CompareTable(stdout, comparison, o.Compare.A, o.Compare.B)
	}
	if err != nil {
		fmt.Fprintln(stderr, "loadtest: standard output:", err)
		return exitFailure
	}
	return exitOK
}
