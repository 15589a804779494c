package main

import (
	"fmt"
	"io"

	"tailgate/loadtest/report"
)

// compare holds the runs of two files against each other, or the transports of one.
func (o *options) compare(stdout, stderr io.Writer) int {
	a, err := report.Read(o.Compare.A)
	var b report.Run
	if err == nil && o.Compare.B != "" {
		b, err = report.Read(o.Compare.B)
	}
	if err != nil {
		fmt.Fprintln(stderr, "loadtest: compare:", err)
		return exitFailure
	}
	var comparison report.Comparison
	var none string // what to say where there is nothing to compare
	nameA, nameB := o.Compare.A, o.Compare.B
	if o.Compare.B == "" {
		comparison, nameA = report.Within(a)
		nameB = "the transport of the row"
		none = fmt.Sprintf("%s has no two transports with the same size, clients and loop; to compare two runs, name both files", o.Compare.A)
	} else {
		comparison = report.Compare(a, b)
		none = fmt.Sprintf("no cell of %s (%s) is in %s too: they need the same transport, size, clients and loop", o.Compare.A, a.Schema, o.Compare.B)
	}
	if len(comparison.Cells) == 0 {
		fmt.Fprintln(stderr, "loadtest: compare:", none)
		return exitFailure
	}
	if o.Format == "json" {
		err = writeJSON(stdout, comparison)
	} else {
		err = report.CompareTable(stdout, comparison, nameA, nameB)
	}
	if err != nil {
		fmt.Fprintln(stderr, "loadtest: standard output:", err)
		return exitFailure
	}
	return exitOK
}
