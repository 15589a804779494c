package transportstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Keys of the accounts that cases trade for. A key is a secret in the field; these are none.
const (
	alphaKey  = "key-of-account-alpha-0123456789abcdef"
	alpha2Key = "second-key-of-alpha-0123456789abcdef"
	betaKey   = "key-of-account-beta-0123456789abcdef"
)

func twoAccounts() GatewayOptions {
	return GatewayOptions{Keys: map[string]string{alphaKey: "alpha", alpha2Key: "alpha", betaKey: "beta"}}
}

// rig is one gateway with one listener of the transport, for one case.
type rig struct {
	*suite
	t      *testing.T
	probe  *probe
	server transports.Server
	listen transports.ListenConfig
	dialed transports.DialConfig // what every client starts from

	symbol string // of an open instrument
	price  int64  // its reference price, in ticks
	second string // of another open instrument
	halted string // of one that takes no orders; only with the whole order path
	dear   string // of one with a least notional, likewise

	decrements bool // orders may lose quantity to self-trade prevention, see verify
}

// setup changes a rig before its server starts.
type setup func(r *rig)

func withLimits(limits transports.Limits) setup { return func(r *rig) { r.listen.Limits = limits } }

// start runs the transport's server over a new gateway. At the end of the test the server is shut down, and every session
// that it opened must be closed.
func (s *suite) start(t *testing.T, options GatewayOptions, setups ...setup) *rig {
	t.Helper()
	r := &rig{suite: s, t: t, probe: newProbe(s.newGateway(t, options)), dialed: s.variant}
	r.listen = transports.ListenConfig{Address: "127.0.0.1:0", Engine: s.variant.Engine}
	for _, change := range setups {
		change(r)
	}
	r.findInstruments(options)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	server, err := s.transport.Listen(ctx, r.probe, r.listen)
	if err != nil {
		t.Fatalf("listen on %s: %v", r.listen.Address, err)
	}
	r.server = server
	r.dialed.Address = server.Addr().String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound) // the test's own context has ended
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("shutdown at the end: %v", err)
		}
		eventually(t, "every session and every reader is closed after the shutdown", func() bool {
			return r.probe.openSessions() == 0 && r.probe.openReaders() == 0
		})
	})
	return r
}

func (r *rig) findInstruments(options GatewayOptions) {
	r.t.Helper()
	var key string
	for key = range options.Keys {
		break
	}
	session, err := r.probe.inner.Open(r.t.Context(), transports.Peer{Transport: r.transport.Name, Remote: loopback, Key: key})
	if err != nil {
		r.t.Fatalf("the gateway refuses a configured key: %v", err)
	}
	defer session.Close()
	x := transports.Exchange{
		Operation: transports.ListInstruments, ReceivedNs: transports.Now(),
		Request: &pb.ListInstrumentsRequest{}, Response: &pb.ListInstrumentsResponse{},
	}
	if err := transports.Do(r.t.Context(), session, &x); err != nil {
		r.t.Fatalf("the gateway lists no instruments: %v", err)
	}
	for _, i := range x.Response.(*pb.ListInstrumentsResponse).GetInstruments() {
		switch {
		case i.GetState() == pb.InstrumentState_INSTRUMENT_STATE_HALTED:
			r.halted = i.GetSymbol()
		case i.GetMinNotional() > 0:
			r.dear = i.GetSymbol()
		case i.GetState() != pb.InstrumentState_INSTRUMENT_STATE_OPEN || i.GetReferencePrice() < 1000:
		case r.symbol == "":
			r.symbol, r.price = i.GetSymbol(), i.GetReferencePrice()
		case r.second == "":
			r.second = i.GetSymbol()
		}
	}
	if r.second == "" {
		r.t.Fatal("the suite needs two open instruments with reference prices of 1,000 ticks or more")
	}
}

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

// hasSockets: a transport without a port is one without a network.
func (s *suite) hasSockets() bool { return s.transport.Port != 0 }

// networked skips a case that needs sockets.
func (s *suite) networked(t *testing.T) {
	t.Helper()
	if !s.hasSockets() {
		t.Skip("this transport has no sockets")
	}
}

// tryDial opens a connection, which the end of the test closes.
func (r *rig) tryDial(key string, changes ...func(*transports.DialConfig)) (*client, error) {
	config := r.dialed
	config.Key = key
	for _, change := range changes {
		change(&config)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	c, err := r.transport.Dial(ctx, config)
	if err != nil {
		if ctx.Err() != nil {
			r.t.Errorf("dialing %s did not end by itself within %v: %v", config.Address, bound, err)
		}
		return nil, err
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return &client{Client: c, rig: r}, nil
}

func (r *rig) dial(key string, changes ...func(*transports.DialConfig)) *client {
	r.t.Helper()
	c, err := r.tryDial(key, changes...)
	if err != nil {
		r.t.Fatalf("dial: %v", err)
	}
	return c
}

// direct speaks with the gateway without the transport, for what has to be seen when the transport is closed.
func (r *rig) direct(key string) *client {
	r.t.Helper()
	session, err := r.probe.inner.Open(r.t.Context(), transports.Peer{Transport: r.transport.Name, Remote: loopback, Key: key})
	if err != nil {
		r.t.Fatalf("open a session without the transport: %v", err)
	}
	r.t.Cleanup(session.Close)
	return &client{Client: directClient{session}, rig: r, direct: true}
}

type directClient struct{ session transports.Session }

func (d directClient) Do(ctx context.Context, call *transports.Call) error {
	proto.Reset(call.Response)
	return transports.Do(ctx, d.session, &transports.Exchange{
		Operation: call.Operation, ReceivedNs: transports.Now(), Request: call.Request, Response: call.Response,
	})
}

func (directClient) Close() error { return nil }

// named logs on beside the transport, for what streams of a transport without sessions have to say of one.
func (c *client) named(logon *pb.Logon) {
	c.rig.t.Helper()
	x := transports.Exchange{Operation: transports.Logon, ReceivedNs: transports.Now(), Request: logon, Response: &pb.LogonAck{}}
	if err := transports.Do(c.rig.t.Context(), c.Client.(directClient).session, &x); err != nil {
		c.rig.t.Fatalf("logon beside the transport: %v", err)
	}
}

// lose ends a session that speaks with the gateway beside the transport.
func (c *client) lose() { c.Client.(directClient).session.Close() }

// client is a connection whose every call is checked against what the contract promises of any call.
type client struct {
	transports.Client
	rig    *rig
	direct bool // its calls do not come into the transport's table, usually because they do not go through it
}

// try makes one call and checks it: the request is as it was, an error is a complete *transports.Fault, an answer belongs to
// its request. Exactly one of its results is nil. It may be called from any goroutine.
func (c *client) try(ctx context.Context, request proto.Message) (proto.Message, *transports.Fault) {
	t := c.rig.t
	t.Helper()
	op := operationOf(request)
	before := proto.Clone(request)
	call := transports.Call{Operation: op, Request: request, Response: stale(op)}
	began, started := time.Now(), transports.Now()
	err := c.Do(ctx, &call)
	ended := transports.Now()
	if call.CreditWait < 0 || call.CreditWait > time.Duration(ended-started) {
		t.Errorf("%v waited %v for credit in a call of %v", op, call.CreditWait, time.Duration(ended-started))
	}
	if at := call.FirstWrite; !at.IsZero() && (at.Before(began) || time.Since(at) < 0) {
		t.Errorf("%v was first written at %v, the call began at %v", op, at, began)
	}
	if !proto.Equal(before, request) {
		t.Errorf("%v changed its caller's request: %s", op, text(request))
	}
	var fault *transports.Fault
	if err != nil {
		fault = checkFault(t, op, err)
	} else if problem := verify(request, call.Response, started, ended, c.rig.decrements); problem != nil {
		t.Errorf("%v %s\nanswered %s\n%v", op, text(request), text(call.Response), problem)
	}
	if fault != nil && !c.direct {
		c.rig.see(fault.Reason)
	} else if fault == nil && !c.direct {
		c.rig.see(reasonOf(call.Response))
	}
	if c.rig.rows != nil && !c.direct {
		c.rig.rows.add(Row{Case: c.rig.caseName, Call: op.String() + " " + text(request), Answer: observed(call.Response, fault)})
	}
	if fault != nil {
		return nil, fault
	}
	return call.Response, nil
}

// checkFault finds the fault that every error of a call is, and makes sure that it is whole.
func checkFault(t testing.TB, what any, err error) *transports.Fault {
	t.Helper()
	fault, ok := errors.AsType[*transports.Fault](err)
	switch {
	case !ok:
		t.Errorf("%v ended with a %T and not a *transports.Fault: %v", what, err, err)
		return transports.AsFault(err)
	case fault.Reason < 1 || fault.Reason > 99:
		t.Errorf("%v: reason %v is not of the session layer: %v", what, fault.Reason, err)
	case fault.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED && fault.Outcome != pb.Outcome_OUTCOME_UNKNOWN:
		t.Errorf("%v: a fault with outcome %v: %v", what, fault.Outcome, err)
	case fault.Message == "" || len(fault.Message) > transports.MaxFaultMessage:
		t.Errorf("%v: a fault whose message has %d bytes: %v", what, len(fault.Message), err)
	}
	return fault
}

// ask makes a call that must be answered. For the test's own goroutine.
func ask[R proto.Message](c *client, request proto.Message) R {
	c.rig.t.Helper()
	ctx, cancel := context.WithTimeout(c.rig.t.Context(), bound)
	defer cancel()
	response, fault := c.try(ctx, request)
	if fault != nil {
		c.rig.t.Fatalf("%v %s: %v", operationOf(request), text(request), fault)
	}
	typed, ok := response.(R)
	if !ok {
		c.rig.t.Fatalf("%v was answered by a %T", operationOf(request), response)
	}
	return typed
}

// submit enters an order that must be answered.
func (c *client) submit(request *pb.SubmitOrderRequest) *pb.SubmitOrderResponse {
	c.rig.t.Helper()
	return ask[*pb.SubmitOrderResponse](c, request)
}

// refuse makes a call that must end in a fault.
func (c *client) refuse(request proto.Message) *transports.Fault {
	c.rig.t.Helper()
	ctx, cancel := context.WithTimeout(c.rig.t.Context(), bound)
	defer cancel()
	response, fault := c.try(ctx, request)
	if fault == nil {
		c.rig.t.Fatalf("%v %s was answered %s, want a fault", operationOf(request), text(request), text(response))
	}
	return fault
}

// pending is a call on a goroutine of its own.
type pending struct {
	done     chan struct{}
	response proto.Message
	fault    *transports.Fault
}

// begin starts a call. Its goroutine ends with the call.
func (c *client) begin(ctx context.Context, request proto.Message) *pending {
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.response, p.fault = c.try(ctx, request)
	}()
	return p
}

// over reports whether the call has ended.
func (p *pending) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait returns the end of the call.
func (p *pending) wait(t testing.TB) (proto.Message, *transports.Fault) {
	t.Helper()
	await(t, "the call ends", p.done)
	return p.response, p.fault
}

// keepAsking makes one call after the other, which all must be answered, until the returned function is called. They are cancels of
// orders that nobody has, so that they can be told apart and leave nothing behind.
func (c *client) keepAsking() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over := run(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, fault := c.try(c.rig.t.Context(), cancelOrder("", id("nobody-%d", i))); fault != nil {
				c.rig.t.Errorf("a call while others misbehave: %v", fault)
				return
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		await(c.rig.t, "the last call ends", over)
	})
	c.rig.t.Cleanup(stop) // where the case fails before it stops it
	return stop
}

// await waits for a channel to close, and fails with the stacks of all goroutines when it does not.
func await(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(bound):
		stacks := make([]byte, 1<<20)
		t.Fatalf("not within %v: %s\n%s", bound, what, stacks[:runtime.Stack(stacks, true)])
	}
}

// run returns a channel that closes when f has returned.
func run(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// eventually polls for what nobody announces.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := time.Now().Add(bound)
	for !holds() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
		<-time.After(time.Millisecond)
	}
}

// wantFault fails the test on a fault that has not this reason and outcome.
func wantFault(t testing.TB, fault *transports.Fault, reason pb.Reason, outcome pb.Outcome) {
	t.Helper()
	if fault == nil {
		t.Errorf("answered, want %v with %v", reason, outcome)
	} else if fault.Reason != reason || fault.Outcome != outcome {
		t.Errorf("%v with %v, want %v with %v: %v", fault.Reason, fault.Outcome, reason, outcome, fault)
	}
}

// wantOutcome fails the test on a fault that has not this outcome.
func wantOutcome(t testing.TB, fault *transports.Fault, outcome pb.Outcome) {
	t.Helper()
	if fault == nil {
		t.Errorf("answered, want a fault with %v", outcome)
	} else if fault.Outcome != outcome {
		t.Errorf("%v, want %v: %v", fault.Outcome, outcome, fault)
	}
}

// id returns a client order id that names its place.
func id(format string, args ...any) string { return fmt.Sprintf(format, args...) }
