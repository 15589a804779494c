package record

import (
	"sync/atomic"
	"time"
)

// A client tries to hand over its records from flushFrom on and waits for its turn only when it holds bufferSize of them. Clients that
// lock a shard for every request would form a convoy: one of them taken off its core while it holds the lock makes every other stand in
// line, and the line is then served in the order of the scheduler's queue for a long time. That wait would be measured as latency.
const (
	flushFrom  = 16
	bufferSize = 32
)

// entry is one request.
type entry struct {
	fate  Fate
	wrong bool
	note  string
	times Times // of a lost request only Due, and Response, the time until that was known
}

// Client records the requests of one client. It is for one goroutine at a time.
type Client struct {
	shard   *shard
	n       int
	buffer  [bufferSize]entry
	offered atomic.Int64
}

// Answered records a request with an answer; fate is OK or Rejected, and a note, where there is one, is counted beside it: the reason of a
// rejection. A time out of range (negative, or above [MaxValue]) fails the whole recording, see [Recorder.Result].
func (c *Client) Answered(fate Fate, t Times, note string) {
	c.put(entry{fate: fate, times: t, note: note})
}

// Lost records a request without an answer, when it was due, how long it took to know, and why.
func (c *Client) Lost(fate Fate, due, took time.Duration, note string) {
	c.put(entry{fate: fate, times: Times{Due: due, Response: took}, note: note})
}

// Wrong records a request whose answer was wrong, as one of the Errors, and how it was wrong.
func (c *Client) Wrong(due, took time.Duration, text string) {
	c.put(entry{fate: Errors, times: Times{Due: due, Response: took}, note: text, wrong: true})
}

func (c *Client) put(e entry) {
	c.buffer[c.n] = e
	c.n++
	c.offered.Add(1)
	switch {
	case c.n == bufferSize:
		c.shard.mu.Lock()
	case c.n < flushFrom || !c.shard.mu.TryLock():
		return
	}
	c.handOver()
	c.shard.mu.Unlock()
}

// Flush hands over what the client still holds. It is called once the client has ended.
func (c *Client) Flush() {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	c.handOver()
}

func (c *Client) handOver() {
	for i := range c.buffer[:c.n] {
		c.shard.add(&c.buffer[i])
	}
	c.n = 0
}
