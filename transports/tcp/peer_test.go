package tcp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/wire"
)

// patience bounds what a test waits for; it is reached only when something is broken.
const patience = 20 * time.Second

// peer is a client made of bytes, for what the client library never does.
type peer struct {
	t     testing.TB
	conn  net.Conn
	next  uint32 // correlation id of the next request
	used  uint32
	floor uint32

	released uint32
	model    wire.CostModel
}

// connect opens a connection without a handshake.
func connect(t testing.TB, server transports.Server) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &peer{t: t, conn: conn, next: 1}
}

// greet opens a connection and shakes hands.
func greet(t testing.TB, server transports.Server, features uint32) *peer {
	t.Helper()
	p := connect(t, server)
	p.greet(features)
	return p
}

// greet shakes hands.
func (p *peer) greet(features uint32) {
	p.t.Helper()
	t := p.t
	hello := wire.HelloMessage{Lowest: 1, Highest: 1, Features: features, MaxPayload: 1<<32 - 1}
	p.send(wire.Frame(wire.Header{Type: wire.Hello, Correlation: p.next}, hello.Encode()))
	h, payload := p.read()
	if h.Type != wire.HelloAck {
		t.Fatalf("HELLO is answered with %v: %q", h.Type, payload)
	}
	ack, err := wire.DecodeAck(payload)
	if err != nil {
		t.Fatal(err)
	}
	if features != 0 && h.Credit != h.Aux+ack.Floor {
		t.Fatalf("HELLO_ACK grants up to %d from %d, the floor is %d", h.Credit, h.Aux, ack.Floor)
	}
	p.used, p.floor, p.model = h.Aux, ack.Floor, ack.Model
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatalf("write: %v", err)
	}
}

// request makes the next REQUEST.
func (p *peer) request(op transports.Operation, m proto.Message) []byte {
	p.t.Helper()
	payload, err := proto.Marshal(m)
	if err != nil {
		p.t.Fatal(err)
	}
	p.used += p.model.Cost(op, uint32(len(payload)))
	p.next++
	return wire.Frame(wire.Header{Type: wire.Request, Code: uint16(op), Correlation: p.next - 1}, payload)
}

// order makes the next REQUEST of an order.
func (p *peer) order(id string, tag int) []byte {
	p.t.Helper()
	return p.request(transports.SubmitOrder, order(id, tag).Request)
}

// read returns the next frame that is not CREDIT, which may come at any time.
func (p *peer) read() (wire.Header, []byte) {
	p.t.Helper()
	for {
		h, payload, err := p.tryRead()
		if err != nil {
			p.t.Fatalf("read: %v", err)
		}
		if h.Type != wire.Credit {
			return h, payload
		}
	}
}

func (p *peer) tryRead() (h wire.Header, payload []byte, err error) {
	var head [wire.HeaderSize]byte
	if _, err = io.ReadFull(p.conn, head[:]); err != nil {
		return h, nil, err
	}
	h = wire.Parse(head[:])
	payload = make([]byte, h.Length)
	_, err = io.ReadFull(p.conn, payload)
	return h, payload, err
}

// expect reads a frame of type t and returns its fault, nil for a RESPONSE.
func (p *peer) expect(t wire.Type) (wire.Header, *transports.Fault) {
	p.t.Helper()
	h, payload := p.read()
	if h.Type != t {
		p.t.Fatalf("read %v %q, want %v", h.Type, payload, t)
	}
	if t != wire.Reject && t != wire.Error && t != wire.GoAway {
		return h, nil
	}
	var detail pb.ErrorDetail
	if err := proto.Unmarshal(payload, &detail); err != nil {
		p.t.Fatal(err)
	}
	if h.Code != uint16(detail.Reason) || h.Aux != detail.RetryAfterMs && t != wire.GoAway {
		p.t.Fatalf("%v: header says reason %d and %d ms, payload %v", t, h.Code, h.Aux, &detail)
	}
	return h, transports.FaultFromDetail(&detail)
}

// response reads the RESPONSE to an order.
func (p *peer) response() (wire.Header, *pb.SubmitOrderResponse) {
	p.t.Helper()
	h, payload := p.read()
	if h.Type != wire.Response {
		p.t.Fatalf("read %v %q, want RESPONSE", h.Type, payload)
	}
	var m pb.SubmitOrderResponse
	if err := proto.Unmarshal(payload, &m); err != nil {
		p.t.Fatal(err)
	}
	return h, &m
}

// expectEnd checks that the server has closed.
func (p *peer) expectEnd() {
	p.t.Helper()
	if h, payload, err := p.tryRead(); !errors.Is(err, io.EOF) {
		p.t.Fatalf("read %v %q (%v), want the end", h.Type, payload, err)
	}
}

// alive checks that the connection still works, by PING.
func (p *peer) alive() {
	p.t.Helper()
	p.send(wire.Frame(wire.Header{Type: wire.Ping, Correlation: 77, Credit: p.released, Aux: p.used}, nil))
	h, _ := p.expect(wire.Pong)
	if h.Correlation != 77 || h.Aux != p.used || h.Credit != p.used+p.floor {
		p.t.Fatalf("PONG %+v, want correlation 77, used %d, granted %d", h, p.used, p.used+p.floor)
	}
}

// logged is a log that a test can read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// checkFault compares a fault with what is wanted of it.
func checkFault(t testing.TB, err error, reason pb.Reason, outcome pb.Outcome, contains string) {
	t.Helper()
	f, ok := errors.AsType[*transports.Fault](err)
	if !ok || f.Reason != reason || f.Outcome != outcome || !strings.Contains(f.Error(), contains) {
		t.Errorf("got %v, want %v, %v and a text with %q", err, reason, outcome, contains)
	}
}

// syncer is a journal with an fsync of its own: marks are released by another goroutine, in order, when it gets to them.
type syncer struct {
	queue chan func()
	done  chan struct{}
}

func newSyncer(t testing.TB) *syncer {
	s := &syncer{queue: make(chan func(), 1<<16), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for release := range s.queue {
			release()
		}
	}()
	t.Cleanup(func() { close(s.queue); <-s.done })
	return s
}

func (s *syncer) commit(r transports.Releaser, mark uint64) {
	s.queue <- func() { r.Release(mark, nil) }
}

// held keeps marks back until they are let go.
type held struct {
	mu    sync.Mutex
	marks []func(error)
	came  chan struct{} // one token for each commit
}

func newHeld() *held { return &held{came: make(chan struct{}, 1<<16)} }

func (h *held) commit(r transports.Releaser, mark uint64) {
	h.mu.Lock()
	h.marks = append(h.marks, func(err error) { r.Release(mark, err) })
	h.mu.Unlock()
	h.came <- struct{}{}
}

// release lets everything go that came so far, and what comes later at once where the caller has changed the gateway.
func (h *held) release(err error) {
	h.mu.Lock()
	marks := h.marks
	h.marks = nil
	h.mu.Unlock()
	for _, release := range marks {
		release(err)
	}
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// header is a header alone, with whatever length it says.
func header(h wire.Header) []byte {
	b := make([]byte, wire.HeaderSize)
	h.Put(b)
	return b
}
