package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// interruptible returns a context that the first SIGINT, SIGTERM or SIGHUP ends, so that the measurement under way ends in order. A second one ends the process at once,
// whatever it is doing: also where it waits for somebody to read its standard output or error. The returned function gives the signals back; it may be called more than once. exit ends the process.
//
// SIGHUP stays ignored where it was, which is what nohup wants. SIGINT does not, though a shell without job control ignores it for what it starts in the background: whoever
// sends it to this process means it.
func interruptible(stderr io.Writer, exit func(status int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	over, end := context.WithCancel(context.Background()) // the signals are given back
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	fatal := slices.DeleteFunc(slices.Clone(signals), signal.Ignored) // without a handler
	arrived := make(chan os.Signal, 2)                                // the two that matter
	signal.Notify(arrived, signals...)
	go func() {
		select {
		case first := <-arrived:
			// From here on the second ends the process by its default, in no need of anything that runs. Only where the default is to ignore it, or it came before this line,
			// it is still to be taken here. So nothing that may block stands before either.
			for _, s := range fatal {
				signal.Reset(s)
			}
			go func() {
				select {
				case second := <-arrived:
					exit(statusOf(second))
				case <-over.Done():
				}
			}()
			cancel(fmt.Errorf("%v signal received", first))
			fmt.Fprintf(stderr, "loadtest: %v: the measurement under way ends now, what is known is kept; once more ends this process at once\n", context.Cause(ctx))
		case <-over.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(arrived)
		end()
		cancel(nil)
	}
}

// statusOf is what a shell reports for a process that a signal has ended.
func statusOf(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return exitFailure
}
