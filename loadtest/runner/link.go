package runner

import (
	"context"
	"errors"
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
	redials *atomic.Int64

	mu     sync.Mutex    // held while dialing; the fields below belong to it
	latest *holder       // the connection opened last; nil when its loss is known to have been the loss of a useful one
	wait   time.Duration // from one attempt to the next; it grows until a connection has brought an answer
	next   time.Time     // of the next attempt, whoever needs it
}

// holder makes an interface value comparable by identity, and knows whether an answer ever came on it.
type holder struct {
	transports.Client
	async  transports.AsyncClient // the same, where it is one
	useful atomic.Bool
}

func hold(client transports.Client) *holder {
	async, _ := client.(transports.AsyncClient)
	return &holder{Client: client, async: async}
}

func (h *holder) answered() {
	if !h.useful.Load() { // so that clients that share it do not all write to one cache line
		h.useful.Store(true)
	}
}

// open dials for the first time.
func (l *link) open(ctx context.Context) error {
	client, err := l.dial(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = hold(client)
	l.client.Store(l.latest)
	return nil
}

// get returns the connection, and opens it again where it was lost: at once where it had been of use, otherwise after a wait that doubles, since a
// gateway that is stopping may accept a connection and refuse everything on it. It waits no longer than the context.
func (l *link) get(ctx context.Context) (*holder, error) {
	if h := l.client.Load(); h != nil {
		return h, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.client.Load(); h != nil {
		return h, nil
	}
	if l.latest != nil && l.latest.useful.Load() {
		l.latest, l.wait, l.next = nil, 0, time.Time{}
	}
	why := errUseless
	for {
		if err := sleep(ctx, time.Until(l.next)); err != nil {
			return nil, fmt.Errorf("the connection was lost and could not be opened again: %w", why)
		}
		client, err := l.dial(ctx)
		l.wait = min(max(2*l.wait, firstRedialWait), lastRedialWait)
		l.next = time.Now().Add(l.wait)
		if err == nil {
			l.redials.Add(1)
			l.latest = hold(client)
			l.client.Store(l.latest)
			return l.latest, nil
		}
		why = err
	}
}

// errUseless: the time was over before a new attempt was due.
var errUseless = errors.New("the one before brought no answer, so it is not dialed at once")

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drop gives up a connection that was found broken. It returns true once, however many clients find it: to the one that has to close it.
func (l *link) drop(h *holder) bool { return l.client.CompareAndSwap(h, nil) }

// close ends it.
func (l *link) close() {
	if h := l.client.Swap(nil); h != nil {
		_ = h.Close() // what could not be closed in order is closed by the end of the process
	}
}
