package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"tailgate/loadtest/runner"
	"tailgate/loadtest/speed"
)

// mostWatched bounds the cores whose speed is watched: the server's first, since there are fewer.
const mostWatched = 8

// watcher asks for the cores' speed. The nil pointer, and one whose process has failed, knows nothing: the figures are no worse for it, they only cannot be told from those
// of a slow machine.
type watcher struct {
	process *speed.Watch
	stderr  io.Writer // hears once why nothing is known
}

// newWatcher starts the process that watches, where a core is somebody's.
func (p *plan) newWatcher(ctx context.Context, stderr io.Writer) *watcher {
	if !p.cores.Pinned && p.options.Target == "" {
		return nil
	}
	w := &watcher{stderr: stderr}
	self, err := os.Executable()
	if err == nil {
		cores := slices.Concat(p.cores.Server, p.cores.Clients)
		w.process, err = speed.Start(ctx, []string{self, speedCommand}, cores[:min(len(cores), mostWatched)])
	}
	w.check(ctx, err)
	return w
}

// check gives up at the first error. One of an interrupt is none.
func (w *watcher) check(ctx context.Context, err error) {
	if err == nil {
		return
	}
	w.stop()
	if ctx.Err() == nil {
		fmt.Fprintf(w.stderr, "loadtest: %v; going on without the cores' speed\n", err)
	}
}

func (w *watcher) begin(ctx context.Context) {
	if w != nil && w.process != nil {
		w.check(ctx, w.process.Begin(context.WithoutCancel(ctx)))
	}
}

func (w *watcher) end(ctx context.Context, out *runner.Outcome) {
	if w == nil || w.process == nil {
		return
	}
	trace, err := w.process.End(context.WithoutCancel(ctx))
	if err == nil {
		out.SetSpeed(trace)
	}
	w.check(ctx, err)
}

// stop ends the process.
func (w *watcher) stop() {
	if w != nil && w.process != nil {
		w.process.Stop()
		w.process = nil
	}
}
