package transportstest

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// probe decorates the gateway under test: it watches what arrives, and it can hold or fail the commits of one key. Where the
// real gateway's answers matter it changes nothing.
type probe struct {
	inner transports.Gateway
	// intercept, when set before the server starts, runs in place of Handle; next is the gateway's own.
	intercept func(ctx context.Context, x *transports.Exchange, next func() error) error

	mu      sync.Mutex
	peers   []transports.Peer
	open    int            // sessions that were opened and not closed
	readers int            // of events, likewise
	handled map[string]int // orders that reached the gateway and were answered by it, by client order id
	gates   map[string]*gate
}

func newProbe(inner transports.Gateway) *probe {
	return &probe{inner: inner, handled: make(map[string]int), gates: make(map[string]*gate)}
}

// Open implements transports.Gateway.
func (p *probe) Open(ctx context.Context, peer transports.Peer) (transports.Session, error) {
	inner, err := p.inner.Open(ctx, peer)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peers = append(p.peers, peer)
	if err != nil {
		return nil, err
	}
	p.open++
	return &probeSession{Session: inner, probe: p, gate: p.gateOf(peer.Key)}, nil
}

// gateOf returns the gate of all sessions with this key. The lock is held.
func (p *probe) gateOf(key string) *gate {
	g := p.gates[key]
	if g == nil {
		g = &gate{arrivals: make(chan struct{}, 1<<16)}
		p.gates[key] = g
	}
	return g
}

// hold keeps back every release of the key's sessions from now on, until the gate opens.
func (p *probe) hold(key string) *gate {
	p.mu.Lock()
	g := p.gateOf(key)
	p.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	return g
}

// fail ends every commit of the key's sessions with err from now on.
func (p *probe) fail(key string, err error) {
	p.mu.Lock()
	g := p.gateOf(key)
	p.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failure = err
}

// handledOrders returns how often an order was answered by the gateway, by client order id.
func (p *probe) handledOrders() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.handled)
}

func (p *probe) openSessions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

func (p *probe) openReaders() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readers
}

func (p *probe) seenPeers() []transports.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]transports.Peer(nil), p.peers...)
}

type probeSession struct {
	transports.Session
	probe  *probe
	gate   *gate
	closed sync.Once
}

// Handle implements transports.Session.
func (s *probeSession) Handle(ctx context.Context, x *transports.Exchange) error {
	next := func() error { return s.Session.Handle(ctx, x) }
	var err error
	if s.probe.intercept != nil {
		err = s.probe.intercept(ctx, x, next)
	} else {
		err = next()
	}
	if order, ok := x.Request.(*pb.SubmitOrderRequest); ok && err == nil {
		id := strings.Clone(order.GetClientOrderId()) // the request's memory is the transport's, and may be used again
		s.probe.mu.Lock()
		s.probe.handled[id]++
		s.probe.mu.Unlock()
	}
	return err
}

// Commit implements transports.Session.
func (s *probeSession) Commit(r transports.Releaser, mark uint64) {
	s.Session.Commit(gated{to: r, gate: s.gate}, mark)
}

// Close implements transports.Session.
func (s *probeSession) Close() {
	s.closed.Do(func() {
		s.probe.mu.Lock()
		s.probe.open--
		s.probe.mu.Unlock()
	})
	s.Session.Close()
}

// Subscribe implements transports.Session.
func (s *probeSession) Subscribe(ctx context.Context, request *pb.StreamExecutionsRequest) (transports.Events, error) {
	events, err := s.Session.Subscribe(ctx, request)
	if err != nil {
		return nil, err
	}
	s.probe.mu.Lock()
	defer s.probe.mu.Unlock()
	s.probe.readers++
	return &probeEvents{Events: events, probe: s.probe}, nil
}

type probeEvents struct {
	transports.Events
	probe  *probe
	closed sync.Once
}

// Close implements transports.Events.
func (e *probeEvents) Close() {
	e.closed.Do(func() {
		e.probe.mu.Lock()
		e.probe.readers--
		e.probe.mu.Unlock()
	})
	e.Events.Close()
}

// gate stands between the gateway's releases and the transport, for all sessions of one key. Releases pass it under its lock,
// so that those of one releaser keep their order; a release may not block, so the lock is held for moments only.
type gate struct {
	arrivals chan struct{} // one token for each release that was held

	mu      sync.Mutex
	closed  bool
	failure error
	waiting []release
}

type release struct {
	to   transports.Releaser
	mark uint64
	err  error
}

type gated struct {
	to   transports.Releaser
	gate *gate
}

// Release implements transports.Releaser.
func (r gated) Release(mark uint64, err error) {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if r.gate.failure != nil {
		err = r.gate.failure
	}
	if !r.gate.closed {
		r.to.Release(mark, err)
		return
	}
	r.gate.waiting = append(r.gate.waiting, release{r.to, mark, err})
	select {
	case r.gate.arrivals <- struct{}{}:
	default: // nobody waits for so many
	}
}

// await returns when one more release is held than at the last call.
func (g *gate) await(t testing.TB) {
	t.Helper()
	select {
	case <-g.arrivals:
	case <-time.After(bound):
		t.Fatalf("no commit reached the gateway within %v", bound)
	}
}

// open lets everything through that was held, in its order, and what comes later. It may be called more than once.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
	for _, held := range g.waiting {
		held.to.Release(held.mark, held.err)
	}
	g.waiting = nil
}
