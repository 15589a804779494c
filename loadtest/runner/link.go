package runner

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tailgate/transports"
)

// Waits between attempts to open a lost connection again, so that a gateway that is gone is not dialed in a loop.
const (
	firstRedialWait = 100 * time.Millisecond
	lastRedialWait  = time.Second
)

// link is one connection, opened again when it is lost. It may be shared by clients.
type link struct {
	dial    func(ctx context.Context) (transports.Client, error)
	client  atomic.Pointer[holder]
	mu      sync.Mutex // held while dialing
	redials *atomic.Int64
}

// holder makes an interface value comparable by identity.
type holder struct{ transports.Client }

// open dials for the first time.
func (l *link) open(ctx context.Context) error {
	client, err := l.dial(ctx)
	if err != nil {
		return err
	}
	l.client.Store(&holder{client})
	return nil
}

// get returns the connection, and opens it again where it was lost. It waits no longer than the context.
func (l *link) get(ctx context.Context) (*holder, error) {
	if h := l.client.Load(); h != nil {
		return h, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for wait := firstRedialWait; ; wait = min(2*wait, lastRedialWait) {
		if h := l.client.Load(); h != nil {
			return h, nil
		}
		client, err := l.dial(ctx)
		if err == nil {
			l.redials.Add(1)
			h := &holder{client}
			l.client.Store(h)
			return h, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("the connection was lost and could not be opened again: %w", err)
		}
	}
}

// lose closes a connection that was found broken, once, however many clients find it.
func (l *link) lose(h *holder) {
	if l.client.CompareAndSwap(h, nil) {
		_ = h.Close() // it is broken already
	}
}

// close ends it.
func (l *link) close() {
	if h := l.client.Swap(nil); h != nil {
		_ = h.Close() // what could not be closed in order is closed by the end of the process
	}
}
