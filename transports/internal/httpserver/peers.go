package httpserver

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tailgate/transports"
	"tailgate/transports/internal/guard"
)

// Grace is how long a draining server keeps connections open for one more request, and how recently such a connection must have
// carried one. HTTP/1.1 has no way to say goodbye on an idle connection: a request that crosses with the close is in doubt to its
// client, one that is answered with Connection: close is not. A client in a closed loop sends its next request within a
// round trip and its own work, far less than this; and no stop should take noticeably longer for the sake of the others.
const Grace = 250 * time.Millisecond

// peers knows the open connections of a server, and since when each has waited for its next request. Safe for concurrent use. The
// two changes of state that every request makes take no lock.
type peers struct {
	open      sync.Map      // net.Conn -> *peer
	handshake time.Duration // from accept to a peer's first request, or its preface of HTTP/2; 0 = net/http sees to it

	mu     sync.Mutex
	single int           // open connections that are not known to speak HTTP/2, bounded by the listener
	none   chan struct{} // closed when single becomes 0; nil while it is
}

// peer is one open connection.
type peer struct {
	conn      *guard.Conn  // nil where the listener's connections are not those of package guard
	idleSince atomic.Int64 // transports.Now of its last answer; 0 = before the first, or within a request
	http2     atomic.Bool  // it says goodbye by itself (GOAWAY), and needs no grace
	late      *time.Timer  // closes it unless it speaks in time; nil where nothing is to be timed
}

// add takes a connection that was accepted, before net/http reads from it.
func (p *peers) add(conn net.Conn) *peer {
	one := &peer{conn: guard.Of(conn.RemoteAddr())}
	if p.handshake > 0 {
		one.late = time.AfterFunc(p.handshake, func() { _ = conn.Close() }) // the peer sees it
	}
	p.open.Store(conn, one)
	p.count(1)
	return one
}

// change is the server's http.Server.ConnState.
func (p *peers) change(conn net.Conn, state http.ConnState) {
	v, ok := p.open.Load(conn)
	if !ok {
		return
	}
	one := v.(*peer)
	switch state {
	case http.StateActive:
		if one.idleSince.Swap(0) == 0 && one.late != nil {
			one.late.Stop()
		}
	case http.StateIdle: // the answer has left net/http's buffers
		one.idleSince.Store(transports.Now())
	case http.StateClosed, http.StateHijacked:
		if one.late != nil {
			one.late.Stop()
		}
		p.open.Delete(conn)
		p.multiplexed(one)
	}
}

// multiplexed says that the connection speaks HTTP/2, or is closed: either way it is none that a stop has to wait for with patience.
func (p *peers) multiplexed(one *peer) {
	if !one.http2.Load() && !one.http2.Swap(true) { // a load first: every request comes by here
		p.count(-1)
	}
}

func (p *peers) count(change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.none == nil {
		p.none = make(chan struct{})
	}
	if p.single += change; p.single == 0 {
		close(p.none)
		p.none = nil
	}
}

// closeIdle has the connections closed that have waited for a request for so long. It ends their waiting and leaves the close to
// the goroutine that serves the connection: where a request has just come in, that one overrules the deadline and answers, and
// a peer that takes no close_notify of TLS holds up nobody else. HTTP/2 is left to net/http, whose shutdown says GOAWAY.
func (p *peers) closeIdle(longer time.Duration) {
	before := transports.Now() - int64(longer)
	p.open.Range(func(conn, v any) bool {
		one := v.(*peer)
		if since := one.idleSince.Load(); since != 0 && since <= before && !one.http2.Load() {
			conn.(net.Conn).SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // fails only on a closed connection
		}
		return true
	})
}

// wait returns when no connection of HTTP/1.1 is open, at the latest after atMost or with the context.
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
