// Command loadtest measures order-entry transports by their tail.
//
// It hosts the gateway itself, pinned to a core of its own, or drives one that runs elsewhere, and judges each transport by the response time
// that a client sees. METHOD.md says how every number is made.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"tailgate/loadtest/host"
	"tailgate/loadtest/machine"
	"tailgate/loadtest/speed"
)

// Exit statuses. Where several hold, the order is usage, failure, missed, invalid.
const (
	exitOK      = 0
	exitFailure = 1  // a cell could not be measured because of an error, the results could not be written, or the run was interrupted
	exitUsage   = 2  // wrong flag or value
	exitInvalid = 3  // a measurement is INVALID, or carries no verdict on an SLO that was given
	exitMissed  = 99 // an SLO given by --slo was missed
)

// childCommand makes this binary the gateway of a run, speedCommand what watches the cores. They are started by the load tester alone, so they are no part of the help.
const (
	childCommand = "host-child"
	speedCommand = "speed-child"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is main without the process: it returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == childCommand {
		if err := host.Child(stdin, stdout, stderr); err != nil {
			fmt.Fprintln(stderr, err)
			return exitFailure
		}
		return exitOK
	}
	if len(args) > 0 && args[0] == speedCommand {
		if err := speed.Child(args[1:], stdin, stdout); err != nil {
			fmt.Fprintln(stderr, err)
			return exitFailure
		}
		return exitOK
	}
	o, status := parse(args, stdout, stderr)
	if o == nil {
		return status
	}
	if o.command == "compare" || o.command == "version" {
		if o.Format != "table" && o.Format != "json" {
			return usage(stderr, fmt.Errorf("--format %s: %s prints table or json", o.Format, o.command))
		}
		if o.command == "version" {
			return o.version(stdout, stderr)
		}
		return o.compare(stdout, stderr)
	}
	p, err := o.plan()
	if err != nil {
		return usage(stderr, err)
	}
	ctx, stop := interruptible(stderr, os.Exit)
	defer stop()
	if o.command == "capacity" {
		return p.searchCapacity(ctx, args, stdout, stderr)
	}
	return p.execute(ctx, args, stdout, stderr)
}

// build is what the build recorded of this program.
type build struct {
	Version   string `json:"version"`  // empty where the build recorded none
	Revision  string `json:"revision"` // the same
	GoVersion string `json:"go_version"`
	OS        string `json:"os"`
}

// version prints it.
func (o *options) version(stdout, stderr io.Writer) int {
	e := machine.ReadEnvironment()
	b := build{Version: e.Version, Revision: e.Revision, GoVersion: e.GoVersion, OS: e.OS}
	var err error
	if o.Format == "json" {
		err = writeJSON(stdout, b)
	} else {
		_, err = fmt.Fprintf(stdout, "tailgate loadtest %s (%s, %s, %s)\n", cmp.Or(b.Version, "of an unknown version"), cmp.Or(b.Revision, "unknown revision"), b.GoVersion, b.OS)
	}
	if err != nil {
		fmt.Fprintln(stderr, "loadtest: standard output:", err)
		return exitFailure
	}
	return exitOK
}

// writeJSON prints a value for a program.
func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// usage reports what is wrong with the command line.
func usage(stderr io.Writer, err error) int {
	fmt.Fprintf(stderr, "loadtest: %v\nRun \"loadtest --help\" for every flag.\n", err)
	return exitUsage
}
