package admin

import (
	"container/list"
	"context"
	"net"
	"sync"
	"time"
)

// door is a listener that no number of connections without a key can shut: a connection is a stranger until it has had an authorized
// request. A stranger is closed when patience has passed, and the oldest one at once when there is one connection more than there may be.
// Where none is a stranger, that is the new one.
type door struct {
	net.Listener

	most     int
	patience time.Duration

	mu        sync.Mutex // guards all below, and what guests have
	open      int
	strangers list.List // of *guest, the oldest first
	shut      bool      // whoever comes is closed at once
}

// guest is a connection that came through the door.
type guest struct {
	net.Conn

	door     *door
	stranger *list.Element // nil = authorized, or gone
	gone     bool
	late     *time.Timer
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: c, door: d}
	d.mu.Lock()
	d.open++
	g.stranger = d.strangers.PushBack(g)
	g.late = time.AfterFunc(d.patience, g.expire)
	var out *guest
	if d.open > d.most || d.shut {
		out = d.oldest()
	}
	d.mu.Unlock()
	if out != nil {
		_ = out.Close() // nothing that it was sent is waited for
	}
	return g, nil
}

// oldest is the stranger who has been there longest, nil = there is none. mu is held.
func (d *door) oldest() *guest {
	first := d.strangers.Front()
	if first == nil {
		return nil
	}
	return first.Value.(*guest) // the list holds nothing else
}

// turnAway closes all strangers, those to come included: a stop waits for requests, and they have none that counts.
func (d *door) turnAway() {
	for {
		d.mu.Lock()
		d.shut = true
		g := d.oldest()
		d.mu.Unlock()
		if g == nil {
			return
		}
		_ = g.Close() // as above
	}
}

// authorize says that the connection has shown a key. It is false when the connection is closed already, so that its request must not
// do anything: its answer would reach nobody.
func (g *guest) authorize() bool {
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	g.known()
	return !g.gone
}

// known takes a guest from the strangers. mu is held.
func (g *guest) known() {
	if g.stranger != nil {
		g.door.strangers.Remove(g.stranger)
		g.stranger = nil
		g.late.Stop()
	}
}

func (g *guest) expire() {
	g.door.mu.Lock()
	stranger := g.stranger != nil
	if stranger {
		g.leave()
	}
	g.door.mu.Unlock()
	if stranger {
		_ = g.Conn.Close() // as above
	}
}

// leave gives the place back. mu is held.
func (g *guest) leave() {
	g.known()
	if !g.gone {
		g.gone = true
		g.door.open--
	}
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.door.mu.Lock()
	g.leave()
	g.door.mu.Unlock()
	return g.Conn.Close()
}

type guestKey struct{}

// withGuest is http.Server.ConnContext: it lets a request find its connection, also behind TLS.
func withGuest(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, guestKey{}, c)
}

// guestOf is the connection of a request, nil where the handler is not behind a door.
func guestOf(ctx context.Context) *guest {
	g, _ := ctx.Value(guestKey{}).(*guest)
	return g
}
