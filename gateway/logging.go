package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// newLogger writes text to a terminal and JSON elsewhere, and keeps one message from flooding it.
func newLogger(w io.Writer) *slog.Logger {
	var inner slog.Handler = slog.NewJSONHandler(w, nil)
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			inner = slog.NewTextHandler(w, nil)
		}
	}
	return slog.New(&floodHandler{inner: inner, budget: &budget{now: time.Now, left: make(map[string]*allowance)}})
}

// Bounds of the log: a peer that connects and resets in a loop must not be able to fill the disk that the journal is on.
const (
	burst       = 50          // lines with one message in one interval
	interval    = time.Second // after which the message has its whole burst again
	maxMessages = 1024        // messages told apart; they come from the code, so there are far fewer
)

// floodHandler passes at most burst lines of one message in an interval. The next one that passes says how many were left out.
type floodHandler struct {
	inner  slog.Handler
	budget *budget // shared by all handlers derived from one
}

// budget is the allowance of every message. Safe for concurrent use.
type budget struct {
	now  func() time.Time
	mu   sync.Mutex
	left map[string]*allowance
}

type allowance struct {
	since   time.Time
	passed  int
	dropped int
}

// take says whether a line may pass, and how many before it did not.
func (b *budget) take(message string) (ok bool, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	a := b.left[message]
	if a == nil {
		if len(b.left) == maxMessages {
			clear(b.left)
		}
		a = &allowance{since: now}
		b.left[message] = a
	}
	if now.Sub(a.since) >= interval {
		dropped = a.dropped
		*a = allowance{since: now}
	}
	if a.passed == burst {
		a.dropped++
		return false, 0
	}
	a.passed++
	return true, dropped
}

// Enabled implements slog.Handler.
func (h *floodHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.inner.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *floodHandler) Handle(ctx context.Context, r slog.Record) error {
	ok, dropped := h.budget.take(r.Message)
	if !ok {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out_before", dropped))
	}
	return h.inner.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *floodHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &floodHandler{inner: h.inner.WithAttrs(attrs), budget: h.budget}
}

// WithGroup implements slog.Handler.
func (h *floodHandler) WithGroup(name string) slog.Handler {
	return &floodHandler{inner: h.inner.WithGroup(name), budget: h.budget}
}
