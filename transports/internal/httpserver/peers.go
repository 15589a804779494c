package httpserver

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tailgate/transports"
)

// Grace is how long a draining server keeps connections open for one more request, and how recently such a connection must have
// carried one. HTTP/1.1 has no way to say goodbye on an idle connection: a request that crosses with the close is in doubt to its
// client, one that is answered with Connection: close is not. A client in a closed loop sends its next request within a
// round trip and its own work, far less than this; and no stop should take noticeably longer for the sake of the others.
const Grace = 250 * time.Millisecond

// peers knows the open connections of a server, and since when each has waited for its next request. Safe for concurrent use. The
// two changes of state that every request makes take no lock.
type peers struct {
	idleSince sync.Map // net.Conn -> *atomic.Int64: transports.Now of its last answer; 0 = before the first, or within a request

	mu   sync.Mutex
	open int           // entries of idleSince, bounded by the listener
	none chan struct{} // closed when open becomes 0; nil while it is
}

// change is the server's http.Server.ConnState.
func (p *peers) change(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		p.idleSince.Store(conn, new(atomic.Int64))
		p.count(1)
	case http.StateActive:
		p.mark(conn, 0)
	case http.StateIdle: // the answer has left net/http's buffers
		p.mark(conn, transports.Now())
	case http.StateClosed, http.StateHijacked:
		p.idleSince.Delete(conn)
		p.count(-1)
	}
}

func (p *peers) mark(conn net.Conn, since int64) {
	if v, ok := p.idleSince.Load(conn); ok {
		v.(*atomic.Int64).Store(since)
	}
}

func (p *peers) count(change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.none == nil {
		p.none = make(chan struct{})
	}
	if p.open += change; p.open == 0 {
		close(p.none)
		p.none = nil
	}
}

// closeIdle has the connections closed that have waited for a request for so long. It ends their waiting and leaves the close to
// the goroutine that serves the connection: where a request has just come in, that one overrules the deadline and answers, and
// a peer that takes no close_notify of TLS holds up nobody else.
func (p *peers) closeIdle(longer time.Duration) {
	before := transports.Now() - int64(longer)
	p.idleSince.Range(func(conn, v any) bool {
		if since := v.(*atomic.Int64).Load(); since != 0 && since <= before {
			conn.(net.Conn).SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // fails only on a closed connection
		}
		return true
	})
}

// wait returns when no connection is open, at the latest after atMost or with the context.
func (p *peers) wait(ctx context.Context, atMost time.Duration) {
	p.mu.Lock()
	none := p.none
	p.mu.Unlock()
	if none == nil {
		return
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	case <-ctx.Done():
	}
}
