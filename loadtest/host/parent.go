package host

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"tailgate/loadtest/machine"
	"tailgate/transports"
)

// Bounds of the parent's waits and of what it keeps.
const (
	readyTimeout = 20 * time.Second // from start to the ready line
	stopTimeout  = 10 * time.Second // from the end of the child's input to its end; then it is killed
	stderrTail   = 16 << 10         // bytes of the child's standard error that are kept, the last ones
)

// Options describe a child.
type Options struct {
	Command []string // program and arguments that make this binary call Child
	Cores   []int    // to bind it to; none = not bound
	Task    Task     // Folder is filled in
}

// Process is a running child. Safe for concurrent use.
type Process struct {
	Ready Ready

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan []byte
	done   chan struct{} // closed when it has ended
	ended  error         // valid then
	stderr *tail
	folder string
	keys   []string

	mu     sync.Mutex // one request at a time
	broken error      // an answer did not come in time, so a later line may be that answer
	stop   sync.Once
	err    error
}

// NewKeys returns n random API keys of 256 bits.
func NewKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		var b [32]byte
		rand.Read(b[:]) // never returns an error
		keys[i] = hex.EncodeToString(b[:])
	}
	return keys
}

// Start runs a child and returns when it can be dialed. The error of a child that ends or does not become ready holds the last of its
// standard error. Stop must be called.
func Start(ctx context.Context, options Options) (*Process, error) {
	folder, err := os.MkdirTemp("", "loadtest-*")
	if err != nil {
		return nil, fmt.Errorf("host: folder for the journal: %w", err)
	}
	p := &Process{
		// Its life is not the context's: it ends in order, by Stop.
		cmd:   exec.CommandContext(context.WithoutCancel(ctx), options.Command[0], options.Command[1:]...),
		lines: make(chan []byte), done: make(chan struct{}), stderr: &tail{}, folder: folder, keys: options.Task.Keys,
	}
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = time.Second
	if err := p.start(options); err != nil {
		return nil, errors.Join(fmt.Errorf("host: start the gateway: %w", err), os.RemoveAll(folder))
	}
	task := options.Task
	task.Folder = folder
	if err := p.becomeReady(ctx, task); err != nil {
		// What the failed child said at its end is part of the reason; how it was stopped is not.
		_ = p.Stop()
		return nil, fmt.Errorf("host: the gateway did not start: %w%s", err, p.stderr.text())
	}
	return p, nil
}

func (p *Process) start(options Options) error {
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.stdin = stdin
	if len(options.Cores) > 0 {
		err = machine.StartOn(options.Cores, p.cmd)
	} else {
		err = p.cmd.Start()
	}
	if err != nil {
		return err
	}
	go func() {
		scanner := bufio.NewScanner(stdout)
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			p.lines <- bytes.Clone(scanner.Bytes())
		}
		// All output is read, so the process can be waited for.
		p.ended = p.cmd.Wait()
		close(p.done)
	}()
	return nil
}

func (p *Process) becomeReady(ctx context.Context, task Task) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	line, err := p.ask(ctx, encode(task))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &p.Ready); err != nil {
		return fmt.Errorf("its ready line %q: %w", line, err)
	}
	return nil
}

// ask writes a line and returns the answer.
func (p *Process) ask(ctx context.Context, request []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return nil, p.broken
	}
	// Only the ready line follows a write larger than a pipe holds, and the child reads that one at once.
	if _, err := p.stdin.Write(request); err != nil {
		select {
		case <-p.done:
			return nil, p.death()
		case <-ctx.Done():
			return nil, err
		}
	}
	select {
	case line := <-p.lines:
		return line, nil
	case <-p.done:
		return nil, p.death()
	case <-ctx.Done():
		p.broken = fmt.Errorf("no answer from process %d: %w", p.cmd.Process.Pid, ctx.Err())
		return nil, p.broken
	}
}

func (p *Process) death() error {
	if p.ended == nil {
		return fmt.Errorf("process %d ended", p.cmd.Process.Pid)
	}
	return fmt.Errorf("process %d ended: %w", p.cmd.Process.Pid, p.ended)
}

// Address is where the transport listens.
func (p *Process) Address(transport string) string { return p.Ready.Addresses[transport] }

// Keys are the accounts' API keys.
func (p *Process) Keys() []string { return p.keys }

// Counters asks the child what it has used.
func (p *Process) Counters(ctx context.Context) (machine.Counters, error) {
	r, err := p.request(ctx, countersRequest)
	return r.Counters, err
}

// Metrics asks the child for the figures of its transport's own flow control; none where the transport has none.
func (p *Process) Metrics(ctx context.Context) ([]transports.Metric, error) {
	r, err := p.request(ctx, metricsRequest)
	return r.Metrics, err
}

func (p *Process) request(ctx context.Context, what string) (reply, error) {
	line, err := p.ask(ctx, []byte(what+"\n"))
	if err != nil {
		return reply{}, fmt.Errorf("host: %w%s", err, p.stderr.text())
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		return reply{}, fmt.Errorf("host: %s %q: %w", what, line, err)
	}
	if r.Error != "" {
		return reply{}, fmt.Errorf("host: %s: %s", what, r.Error)
	}
	return r, nil
}

// Stop ends the child's input, waits for its end, kills it when it takes too long, and removes its folder. The error tells of a child that
// did not end well. It may be called more than once.
func (p *Process) Stop() error {
	p.stop.Do(func() {
		_ = p.stdin.Close() // a child that has ended closed its side already
		timer := time.NewTimer(stopTimeout)
		defer timer.Stop()
		for {
			select {
			case <-p.lines: // late answers are not waited for
				continue
			case <-p.done:
				if p.ended != nil {
					p.err = fmt.Errorf("host: %w%s", p.death(), p.stderr.text())
				}
			case <-timer.C:
				p.err = fmt.Errorf("host: process %d did not end within %v and was killed%s", p.cmd.Process.Pid, stopTimeout, p.stderr.text())
				_ = p.cmd.Process.Kill() // it may have ended meanwhile
				timer.Reset(stopTimeout)
				for killed := false; !killed; {
					select {
					case <-p.lines:
					case <-p.done:
						killed = true
					case <-timer.C:
						killed = true // the system does not let it go: nothing more can be done
					}
				}
			}
			break
		}
		p.err = errors.Join(p.err, os.RemoveAll(p.folder))
	})
	return p.err
}

// Warnings is the last of what the child wrote to its standard error.
func (p *Process) Warnings() string { return p.stderr.last() }

// tail keeps the last bytes written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	if extra := len(t.kept) - stderrTail; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(b), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.kept))
}

// text is the tail as part of an error, empty where nothing was written.
func (t *tail) text() string {
	if last := t.last(); last != "" {
		return "\nits standard error ends with:\n" + last
	}
	return ""
}
