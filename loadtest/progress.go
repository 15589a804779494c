package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
)

// progress is the live line. It exists only on a terminal; its zero value says nothing.
type progress struct {
	terminal io.Writer
	budget   *budget // nil where none was given
}

func newProgress(stderr io.Writer) progress {
	file, ok := stderr.(*os.File)
	if !ok {
		return progress{}
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return progress{}
	}
	return progress{terminal: file}
}

// cell announces the n-th cell and returns what shows its progress, nil without a terminal, so that nobody pays for it.
func (l progress) cell(p *plan, n int, c cell) func(runner.Progress) {
	if l.terminal == nil {
		return nil
	}
	head := fmt.Sprintf("[%d/%d] %s, %s x %d", n+1, len(p.cells), c.spec, p.sizeText(c), c.clients)
	left := func(elapsed time.Duration) string {
		if l.budget != nil {
			return fmt.Sprintf(", %v left of %v", l.budget.remaining(time.Now()).Round(time.Second), l.budget.total)
		}
		rest := p.estimate(n) - p.options.Warmup - elapsed
		if rest <= 0 {
			return ""
		}
		return fmt.Sprintf(", about %v left", rest.Round(time.Second))
	}
	l.show(head + left(0))
	return func(now runner.Progress) {
		p99 := ""
		if now.P99.State == stats.Known {
			p99 = ", p99 " + report.Microseconds(float64(now.P99.Duration)/float64(time.Microsecond))
		}
		rate := float64(now.Done) / now.Elapsed.Seconds()
		l.show(fmt.Sprintf("%s: %d done, %.0f/s%s%s", head, now.Done, rate, p99, left(now.Elapsed)))
	}
}

// trial tells of one that has ended.
func (l progress) trial(c cell, rc report.Cell) {
	if l.terminal != nil {
		l.show(fmt.Sprintf("%s at %.0f/s: p99 %s", c.spec, *rc.OfferedRate, rc.Row().P99))
	}
}

func (p *plan) sizeText(c cell) string {
	if len(p.mix) > 0 {
		return p.options.SizeMix
	}
	return report.SizeText(c.size)
}

// show overwrites the line. A terminal that has gone away is no reason to stop measuring.
func (l progress) show(text string) { _, _ = fmt.Fprintf(l.terminal, "\r\x1b[K%s", text) }

func (l progress) clear() {
	if l.terminal != nil {
		_, _ = io.WriteString(l.terminal, "\r\x1b[K")
	}
}
