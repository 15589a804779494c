package tcp

import (
	"context"
	"sync"
	"time"

	"tailgate/transports"
)

// requestContext is the context that the session gets with a request that has a deadline. A connection has one and uses it for every such request, so
// that a deadline costs no allocation: the timer behind Done exists only when somebody has asked for it. It is good until Handle returns, like the
// exchange beside it, and safe for concurrent use until then.
type requestContext struct {
	parent context.Context
	due    int64 // by transports.Now

	mu       sync.Mutex
	deadline time.Time // due as the caller's clock has it, made when it is asked for and the same from then on
	timed    context.Context
	cancel   context.CancelFunc
}

// begin makes it the context of a request that is due at the given time.
func (c *requestContext) begin(parent context.Context, due int64) context.Context {
	c.parent, c.due, c.deadline = parent, due, time.Time{}
	return c
}

// end is called when Handle has returned.
func (c *requestContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
		c.timed, c.cancel = nil, nil
	}
}

// Deadline implements context.Context.
func (c *requestContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until(), true
}

func (c *requestContext) until() time.Time {
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(time.Duration(c.due - transports.Now()))
	}
	return c.deadline
}

// withTimer returns the context that ends by itself.
func (c *requestContext) withTimer() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(c.parent, c.until())
	}
	return c.timed
}

// Done implements context.Context.
func (c *requestContext) Done() <-chan struct{} { return c.withTimer().Done() }

// Err implements context.Context.
func (c *requestContext) Err() error {
	c.mu.Lock()
	early := c.timed == nil && transports.Now() < c.due
	c.mu.Unlock()
	if early {
		return c.parent.Err()
	}
	return c.withTimer().Err()
}

// Value implements context.Context. It is the timer's where there is one, so that a context derived from this one finds it and needs no goroutine.
func (c *requestContext) Value(key any) any {
	c.mu.Lock()
	timed := c.timed
	c.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return c.parent.Value(key)
}
