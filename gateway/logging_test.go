package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFloodOfOneMessageIsCutAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := newLogger(&out)
		for i := range 10_000 {
			logger.With("transport", "tcp").Warn("handshake failed", "remote", i)
		}
		logger.Warn("something else")
		time.Sleep(interval) // the bubble's clock
		logger.Warn("handshake failed", "remote", "later")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != burst+2 {
			t.Fatalf("%d lines, want %d of the flood and two more", len(lines), burst)
		}
		if !strings.Contains(lines[burst], "something else") {
			t.Errorf("another message was held back: %s", lines[burst])
		}
		if last := lines[burst+1]; !strings.Contains(last, `"left_out_before":9950`) || !strings.Contains(last, `"later"`) {
			t.Errorf("the next line does not say what was left out: %s", last)
		}
	})
}
