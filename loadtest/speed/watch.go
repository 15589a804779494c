package speed

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// Bounds of the parent's waits.
const (
	answerTimeout = 5 * time.Second // from a line to its answer, the first one from the start of the process
	endTimeout    = time.Second     // from the end of its input to its own; then it is killed
)

// Watch is a process that watches cores. One goroutine at a time uses it.
type Watch struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan Trace
	done    sync.WaitGroup
}

// Start starts one: command makes a program call Child, cores are appended to it.
func Start(ctx context.Context, command []string, cores []int) (*Watch, error) {
	args := command[1:len(command):len(command)]
	for _, core := range cores {
		args = append(args, strconv.Itoa(core))
	}
	w := &Watch{cmd: exec.CommandContext(context.WithoutCancel(ctx), command[0], args...), answers: make(chan Trace)}
	w.cmd.WaitDelay = endTimeout
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		w.in, err = w.cmd.StdinPipe()
	}
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("speed: start: %w", err)
	}
	w.done.Go(func() {
		defer close(w.answers)
		decoder := json.NewDecoder(out)
		for {
			var t Trace
			if decoder.Decode(&t) != nil { // its end
				return
			}
			w.answers <- t
		}
	})
	if _, err := w.answer(ctx); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

func (w *Watch) answer(ctx context.Context) (Trace, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	select {
	case t, ok := <-w.answers:
		if !ok {
			return Trace{}, fmt.Errorf("speed: the process that watches the cores has ended")
		}
		return t, nil
	case <-ctx.Done():
		return Trace{}, fmt.Errorf("speed: no answer of the process that watches the cores: %w", context.Cause(ctx))
	}
}

func (w *Watch) ask(ctx context.Context, line string) (Trace, error) {
	if _, err := io.WriteString(w.in, line+"\n"); err != nil {
		return Trace{}, fmt.Errorf("speed: the process that watches the cores: %w", err)
	}
	return w.answer(ctx)
}

// Begin forgets what was seen until now.
func (w *Watch) Begin(ctx context.Context) error {
	_, err := w.ask(ctx, "begin")
	return err
}

// End returns what was seen since Begin.
func (w *Watch) End(ctx context.Context) (Trace, error) { return w.ask(ctx, "end") }

// Stop ends the process. What it says about its end does not matter any more.
func (w *Watch) Stop() {
	_ = w.in.Close()
	kill := time.AfterFunc(endTimeout, func() { _ = w.cmd.Process.Kill() })
	defer kill.Stop()
	for range w.answers { // an answer that nobody waited for
	}
	w.done.Wait()
	_ = w.cmd.Wait()
}

// Now is the clock of a trace.
func Now() int64 { return monotonic() }
