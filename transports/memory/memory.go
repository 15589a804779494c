// Package memory is the transport without a network: a client calls the gateway in its own process.
//
// It exists so that tests need no ports and so that a fault of a real transport can be told from a fault of the gateway. It encodes
// and decodes every message, so that ownership and sizes are those of a real transport, and keeps the same contract.
// It must never know more about an order than the other transports do.
package memory

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Transport returns a fresh in-memory network: its servers can be dialed only through the value that listened.
func Transport() transports.Transport {
	n := &network{servers: make(map[string]*server)}
	return transports.Transport{
		Name: "memory", Encodings: []string{"protobuf"}, PerClient: true,
		Listen: n.listen, Dial: n.dial, Trade: n.trade, Executions: n.executions,
	}
}

// network maps addresses to servers. Locks are taken network first, server second.
type network struct {
	mu      sync.Mutex
	last    int
	servers map[string]*server
}

// address is a made-up net.Addr.
type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }

func (n *network) listen(_ context.Context, gateway transports.Gateway, config transports.ListenConfig) (transports.Server, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	s := &server{
		network: n, gateway: gateway, address: address(fmt.Sprintf("memory:%d", n.last)),
		limits: config.Limits.WithDefaults(), drain: make(chan struct{}), idle: make(chan struct{}), stopped: make(chan struct{}),
	}
	n.servers[s.address.String()] = s
	return s, nil
}

func (n *network) dial(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
	c, err := n.connect(ctx, config)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (n *network) connect(ctx context.Context, config transports.DialConfig) (*client, error) {
	n.mu.Lock()
	s := n.servers[config.Address]
	n.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("memory: nobody listens at %q", config.Address)
	}
	session, err := s.gateway.Open(ctx, transports.Peer{Transport: "memory", Key: config.Key})
	if err != nil {
		return nil, fmt.Errorf("memory: dial %s: %w", config.Address, err)
	}
	if s.connections.Add(1) > int64(s.limits.MaxConnections) {
		s.connections.Add(-1)
		session.Close()
		return nil, transports.Refuse(pb.Reason_REASON_OVERLOADED, "memory: %d connections are open already", s.limits.MaxConnections)
	}
	return &client{server: s, session: session, closed: make(chan struct{})}, nil
}

type server struct {
	network     *network
	gateway     transports.Gateway
	address     address
	limits      transports.Limits
	connections atomic.Int64

	mu       sync.Mutex
	draining bool
	inFlight int           // requests, and streams that are open
	drain    chan struct{} // closed with draining: the streams end
	idle     chan struct{} // closed when draining and nothing is in flight
	stopped  chan struct{} // closed when Shutdown gave up waiting: calls under way end in doubt
	stopOnce sync.Once
}

// Addr implements transports.Server.
func (s *server) Addr() net.Addr { return s.address }

// Shutdown implements transports.Server.
func (s *server) Shutdown(ctx context.Context) error {
	s.network.mu.Lock()
	delete(s.network.servers, s.address.String())
	s.network.mu.Unlock()

	s.mu.Lock()
	if !s.draining {
		s.draining = true
		close(s.drain)
		if s.inFlight == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
		s.stopOnce.Do(func() { close(s.stopped) })
		return ctx.Err()
	}
}

// enter counts a request in, or refuses it while draining.
func (s *server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return drained()
	}
	s.inFlight++
	return nil
}

func (s *server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	if s.draining && s.inFlight == 0 {
		close(s.idle)
	}
}

type client struct {
	server    *server
	session   transports.Session
	closeOnce sync.Once
	closed    chan struct{}
}

// Close implements transports.Client.
func (c *client) Close() error {
	c.closeOnce.Do(func() {
		close(c.closed)
		c.session.Close()
		c.server.connections.Add(-1)
	})
	return nil
}

// Do implements transports.Client.
func (c *client) Do(ctx context.Context, call *transports.Call) error {
	if call.Operation.OfSession() {
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%v is a step of a session, see Trade", call.Operation)
	}
	return c.exchange(ctx, call)
}

// exchange is Do for the steps of a session too.
func (c *client) exchange(ctx context.Context, call *transports.Call) error {
	select {
	case <-c.closed:
		return transports.Refuse(pb.Reason_REASON_CONNECTION_LOST, "this client is closed")
	default:
	}
	if err := ctx.Err(); err != nil {
		return &transports.Fault{
			Reason: pb.Reason_REASON_DEADLINE_EXCEEDED, Outcome: pb.Outcome_OUTCOME_NOT_PROCESSED,
			Message: "the request was over before it was sent", Err: err,
		}
	}
	request, err := proto.Marshal(call.Request)
	if err != nil {
		return transports.Malformed("", "the request cannot be encoded: %v", err)
	}
	if len(request) > c.server.limits.MaxRequestBytes {
		return transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the request has %d bytes, at most %d are taken", len(request), c.server.limits.MaxRequestBytes)
	}
	if err := c.server.enter(); err != nil {
		return err
	}
	type result struct {
		response []byte
		err      error
	}
	// The server's half runs on its own goroutine, so that a caller whose context ends is not held by the journal.
	done := make(chan result, 1)
	go func() {
		defer c.server.leave()
		response, err := c.serve(ctx, call.Operation, request)
		done <- result{response, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return r.err
		}
		return proto.Unmarshal(r.response, call.Response)
	case <-ctx.Done():
		return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, ctx.Err(), "the deadline passed before the answer came; the same id again tells")
	case <-c.closed:
		return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, nil, "the connection was closed before the answer came; the same id again tells")
	case <-c.server.stopped:
		return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, nil, "the server stopped before the answer came; the same id again tells")
	}
}

// serve is the server's half: bytes in, bytes out. A panic of the gateway costs this request only.
func (c *client) serve(ctx context.Context, op transports.Operation, request []byte) (response []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = transports.AsFault(fmt.Errorf("panic: %v", cause))
		}
	}()
	x := transports.Exchange{Operation: op, ReceivedNs: transports.Now(), Request: op.NewRequest(), Response: op.NewResponse()}
	if x.Request == nil {
		return nil, transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "operation %d is not part of the contract", uint16(op))
	}
	if err := proto.Unmarshal(request, x.Request); err != nil {
		return nil, transports.Malformed("", "not a %s: %v", x.Request.ProtoReflect().Descriptor().FullName(), err)
	}
	if err := transports.Do(ctx, c.session, &x); err != nil {
		return nil, err
	}
	return proto.Marshal(x.Response)
}
