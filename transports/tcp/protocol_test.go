package tcp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/credit"
	"tailgate/transports/tcp/internal/wire"
)

// TestFramesThatEndTheConnection sends one bad frame after a good one, behind which a good one comes again: the first is answered, the bad one gets
// ERROR, and the last is never handled.
func TestFramesThatEndTheConnection(t *testing.T) {
	const submit = uint16(transports.SubmitOrder)
	for name, test := range map[string]struct {
		frame  func(p *peer) []byte
		reason pb.Reason
		text   string
	}{
		"an unknown type":  {func(*peer) []byte { return wire.Frame(wire.Header{Type: 0x40}, nil) }, pb.Reason_REASON_MALFORMED, "type 0x40"},
		"type 0":           {func(*peer) []byte { return wire.Frame(wire.Header{}, nil) }, pb.Reason_REASON_MALFORMED, "type 0x00"},
		"a second HELLO":   {func(*peer) []byte { return hello(nil) }, pb.Reason_REASON_MALFORMED, "HELLO"},
		"a server's frame": {func(*peer) []byte { return wire.Frame(wire.Header{Type: wire.Response}, nil) }, pb.Reason_REASON_MALFORMED, "RESPONSE"},
		"a request too large": {func(p *peer) []byte {
			return header(wire.Header{Type: wire.Request, Code: submit, Correlation: p.next, Length: 4097})
		}, pb.Reason_REASON_TOO_LARGE, "4097 bytes, at most 4096"},
		"a request of 4 GiB": {func(p *peer) []byte {
			return header(wire.Header{Type: wire.Request, Code: submit, Correlation: p.next, Length: 1<<32 - 1})
		}, pb.Reason_REASON_TOO_LARGE, "4294967295 bytes"},
		"a PING too large":          {func(p *peer) []byte { return header(wire.Header{Type: wire.Ping, Aux: p.used, Length: 4097}) }, pb.Reason_REASON_TOO_LARGE, "PING has 4097 bytes"},
		"an unknown type too large": {func(*peer) []byte { return header(wire.Header{Type: 0x80, Length: 4097}) }, pb.Reason_REASON_TOO_LARGE, "4097 bytes"},
		"a repeated request": {func(p *peer) []byte {
			return wire.Frame(wire.Header{Type: wire.Request, Code: submit, Correlation: p.next - 1}, nil)
		}, pb.Reason_REASON_MALFORMED, "it has to be 2"},
		"a request left out": {func(p *peer) []byte {
			return wire.Frame(wire.Header{Type: wire.Request, Code: submit, Correlation: p.next + 1}, nil)
		}, pb.Reason_REASON_MALFORMED, "it has to be 2"},
		"another count of what was given back": {func(p *peer) []byte { return wire.Frame(wire.Header{Type: wire.Ping, Credit: 1, Aux: p.used}, nil) }, pb.Reason_REASON_MALFORMED, "given back"},
		"another count of credit":              {func(p *peer) []byte { return wire.Frame(wire.Header{Type: wire.Ping, Aux: p.used + 1}, nil) }, pb.Reason_REASON_MALFORMED, "PING says"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gateway{}
			p := greet(t, listen(t, g, transports.ListenConfig{Limits: transports.Limits{MaxRequestBytes: 4096}}), wire.FeatureCredit)
			first := p.order("first", 10)
			bad := test.frame(p)
			p.send(append(append(first, bad...), p.order("last", 10)...))
			if _, m := p.response(); m.ClientOrderId != "first" {
				t.Errorf("answered %q", m.ClientOrderId)
			}
			_, fault := p.expect(wire.Error)
			checkFault(t, fault, test.reason, pb.Outcome_OUTCOME_NOT_PROCESSED, test.text)
			p.expectEnd()
			if ids := g.ids(); len(ids) != 1 {
				t.Errorf("handled %v, want the first order only", ids)
			}
		})
	}
}

// TestFramesThatDoNotEndTheConnection sends one odd frame and checks that everything still works.
func TestFramesThatDoNotEndTheConnection(t *testing.T) {
	const never = pb.Outcome_OUTCOME_NOT_PROCESSED
	raw := func(op uint16, payload []byte) func(p *peer) []byte {
		return func(p *peer) []byte {
			p.used += p.model.Cost(transports.Operation(op), uint32(len(payload)))
			p.next++
			return wire.Frame(wire.Header{Type: wire.Request, Code: op, Correlation: p.next - 1}, payload)
		}
	}
	plain := func(t wire.Type, payload string) func(p *peer) []byte {
		return func(*peer) []byte { return wire.Frame(wire.Header{Type: t, Flags: 0xff, X: 7, Y: 7}, []byte(payload)) }
	}
	for name, test := range map[string]struct {
		frame  func(p *peer) []byte
		reason pb.Reason // of the REJECT; 0 = no answer
		text   string
	}{
		"a type to be ignored":        {frame: plain(0x80, "whatever")},
		"the last type to be ignored": {frame: plain(0xff, "")},
		"DEMAND":                      {frame: plain(wire.Demand, "")},
		"an operation of the future":  {raw(99, nil), pb.Reason_REASON_UNIMPLEMENTED, "operation 99"},
		"operation 0":                 {raw(0, nil), pb.Reason_REASON_UNIMPLEMENTED, "operation 0"},
		"an order that is none":       {raw(uint16(transports.SubmitOrder), []byte{0x0a, 5, 'x'}), pb.Reason_REASON_MALFORMED, "not a SubmitOrderRequest"},
		"a cancel that is none":       {raw(uint16(transports.CancelOrder), []byte{0x0a, 5, 'x'}), pb.Reason_REASON_MALFORMED, "not a request of CancelOrder"},
		"an order that breaks a rule": {raw(uint16(transports.SubmitOrder), nil), pb.Reason_REASON_MALFORMED, "client_order_id: it is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := greet(t, listen(t, &gateway{}, transports.ListenConfig{}), wire.FeatureCredit)
			p.send(test.frame(p))
			if test.reason != 0 {
				h, fault := p.expect(wire.Reject)
				checkFault(t, fault, test.reason, never, test.text)
				if h.Correlation != p.next-1 || h.Credit != p.used+p.floor {
					t.Errorf("REJECT %+v, want correlation %d and the cost given back, up to %d", h, p.next-1, p.used+p.floor)
				}
			}
			p.alive()
			p.send(p.order("after", 10))
			if _, m := p.response(); m.ClientOrderId != "after" {
				t.Errorf("answered %q", m.ClientOrderId)
			}
		})
	}
}

func TestClientThatCannotTakeTheAnswerIsToldBefore(t *testing.T) {
	g := &gateway{}
	p := connect(t, listen(t, g, transports.ListenConfig{}))
	p.send(hello(func(m *wire.HelloMessage) { m.MaxPayload = 2000 }))
	h, payload := p.read()
	ack, err := wire.DecodeAck(payload)
	if err != nil {
		t.Fatal(err)
	}
	p.used, p.model = h.Aux, ack.Model
	p.send(p.order("large", 1000))
	_, fault := p.expect(wire.Reject)
	checkFault(t, fault, pb.Reason_REASON_TOO_LARGE, pb.Outcome_OUTCOME_NOT_PROCESSED, "the client takes at most 2000")
	p.send(p.order("small", 10))
	p.response()
	if ids := g.ids(); len(ids) != 1 {
		t.Errorf("handled %v, want the small order only", ids)
	}
}

func TestFrameInPieces(t *testing.T) {
	p := greet(t, listenWith(t, &gateway{}, transports.ListenConfig{}, wide), wire.FeatureCredit)
	b := append(p.order("pieces", 100), p.order("more", 40<<10)...)
	for _, cut := range []int{1, 3, 20, 1, 24, 90, 1, 2, 1000, 16 << 10} {
		p.send(b[:cut])
		b = b[cut:]
	}
	p.send(b)
	p.response()
	if _, m := p.response(); len(m.ClientTag) != 40<<10 {
		t.Errorf("tag of %d bytes", len(m.ClientTag))
	}
}

func TestHalfFrameTimesOut(t *testing.T) {
	limits := transports.Limits{RequestTimeout: 100 * time.Millisecond}
	for name, cut := range map[string]int{"header": 10, "payload": 40} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gateway{}
			p := greet(t, listen(t, g, transports.ListenConfig{Limits: limits}), wire.FeatureCredit)
			p.send(p.order("whole", 100))
			p.response()
			p.send(p.order("half", 100)[:cut])
			_, fault := p.expect(wire.Error)
			checkFault(t, fault, pb.Reason_REASON_DEADLINE_EXCEEDED, pb.Outcome_OUTCOME_NOT_PROCESSED, fmt.Sprintf("%d bytes of a frame", cut))
			p.expectEnd()
		})
	}
}

// TestDribbledFrameTimesOut sends a byte again and again: the limit is for the whole frame, not for the next byte.
func TestDribbledFrameTimesOut(t *testing.T) {
	p := greet(t, listenWith(t, &gateway{}, transports.ListenConfig{Limits: transports.Limits{RequestTimeout: 100 * time.Millisecond}}, wide), wire.FeatureCredit)
	b := p.order("dribble", 60<<10)
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for len(b) > 0 {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if _, err := p.conn.Write(b[:1]); err != nil {
				return
			}
			b = b[1:]
		}
	}()
	_, fault := p.expect(wire.Error)
	close(stop)
	<-stopped
	checkFault(t, fault, pb.Reason_REASON_DEADLINE_EXCEEDED, pb.Outcome_OUTCOME_NOT_PROCESSED, "of a frame and no more")
}

func TestIdleConnectionIsSentAway(t *testing.T) {
	t.Parallel()
	p := greet(t, listen(t, &gateway{}, transports.ListenConfig{Limits: transports.Limits{IdleTimeout: 200 * time.Millisecond}}), wire.FeatureCredit)
	p.send(p.order("a", 10))
	p.response()
	h, fault := p.expect(wire.GoAway)
	checkFault(t, fault, pb.Reason_REASON_DEADLINE_EXCEEDED, pb.Outcome_OUTCOME_NOT_PROCESSED, "no frame for 200ms")
	if h.Correlation != 1 {
		t.Errorf("the last request accepted is said to be %d, want 1", h.Correlation)
	}
	p.expectEnd()
}

func TestClientKeepsAnIdleConnectionAlive(t *testing.T) {
	t.Parallel()
	client := dial(t, listen(t, &gateway{}, transports.ListenConfig{Limits: transports.Limits{IdleTimeout: 3 * time.Second}}), transports.DialConfig{})
	if err := client.Do(t.Context(), order("first", 10)); err != nil {
		t.Fatal(err)
	}
	<-time.After(6500 * time.Millisecond) // twice the idle time: this is what the test is about
	if err := client.Do(t.Context(), order("last", 10)); err != nil {
		t.Errorf("after 6.5 s of silence, 3 s allowed without a frame: %v", err)
	}
}

// TestCountersCrossTheWrap sends more than 1,024 requests and units, after which both counters have wrapped.
func TestCountersCrossTheWrap(t *testing.T) {
	p := greet(t, listen(t, &gateway{}, transports.ListenConfig{}), wire.FeatureCredit)
	if p.used < 1<<32-1<<16 {
		t.Fatalf("credit starts at %d, far from the wrap", p.used)
	}
	wrapped := false
	for i := range 200 {
		p.send(p.order("a", i))
		if h, _ := p.response(); h.Correlation != p.next-1 || h.Credit != p.used+p.floor {
			t.Fatalf("RESPONSE %+v, want correlation %d and credit up to %d", h, p.next-1, p.used+p.floor)
		}
		wrapped = wrapped || p.used < 1<<16
	}
	if !wrapped {
		t.Errorf("the credit used is %d after 200 requests: it has not wrapped", p.used)
	}
	p.alive()

	client := dial(t, listen(t, &gateway{handle: acknowledgeOnly}, transports.ListenConfig{}), transports.DialConfig{})
	call := order("a", 10)
	for range 1200 { // its correlation ids start 1,024 before the wrap
		if err := client.Do(context.Background(), call); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCorrelationIDsStartAnywhere uses a client's right to choose.
func TestCorrelationIDsStartAnywhere(t *testing.T) {
	for _, first := range []uint32{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		p := connect(t, listen(t, &gateway{}, transports.ListenConfig{}))
		b := hello(nil)
		h := wire.Parse(b)
		h.Correlation = first
		h.Put(b)
		p.send(b)
		ackHeader, payload := p.read()
		ack, err := wire.DecodeAck(payload)
		if err != nil {
			t.Fatal(err)
		}
		p.next, p.used, p.model = first, ackHeader.Aux, ack.Model
		p.send(append(p.order("a", 1), p.order("b", 1)...))
		for i := range uint32(2) {
			if h, _ := p.response(); h.Correlation != first+i {
				t.Errorf("first id %d: answer %d has correlation id %d", first, i, h.Correlation)
			}
		}
	}
}

// TestCreditIsHeldTo sends a request that the floor does not cover, behind one that it does: the first is answered, and the second is proven wrong by its header alone.
func TestCreditIsHeldTo(t *testing.T) {
	for name, whole := range map[string]bool{"the whole request": true, "its header": false} {
		t.Run(name, func(t *testing.T) {
			g := &gateway{}
			p := greet(t, listenWith(t, g, transports.ListenConfig{}, credit.Config{Floor: credit.DefaultFloor}), wire.FeatureCredit)
			p.send(p.order("covered", 10))
			p.response()
			b := p.order("dear", 60<<10)
			if !whole {
				b = b[:wire.HeaderSize]
			}
			p.send(b)
			h, fault := p.expect(wire.Error)
			checkFault(t, fault, pb.Reason_REASON_NO_CREDIT, pb.Outcome_OUTCOME_NOT_PROCESSED, "granted")
			if h.Correlation != 2 {
				t.Errorf("ERROR names request %d, want 2", h.Correlation)
			}
			p.expectEnd()
			if ids := g.ids(); len(ids) != 1 {
				t.Errorf("handled %v, want the first order only", ids)
			}
		})
	}
}

// waitHandled waits until n orders were handled.
func (g *gateway) waitHandled(t testing.TB, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); len(g.ids()) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d orders were handled, want %d", len(g.ids()), n)
		}
		<-time.After(time.Millisecond)
	}
}

// TestDeadlinePassed: the second request's deadline passes while the first is being handled.
func TestDeadlinePassed(t *testing.T) {
	g := &gateway{}
	g.handle = func(x *transports.Exchange) error {
		for until := transports.Now() + int64(2*time.Millisecond); transports.Now() < until; {
		}
		return g.acknowledge(x)
	}
	p := greet(t, listen(t, g, transports.ListenConfig{}), wire.FeatureCredit)
	first, second, third := p.order("slow", 10), p.order("late", 10), p.order("in time", 10)
	for frame, us := range map[*[]byte]uint32{&second: 1000, &third: 60_000_000} {
		h := wire.Parse(*frame)
		h.Aux = us
		h.Put(*frame)
	}
	p.send(append(append(first, second...), third...))
	p.response()
	h, fault := p.expect(wire.Reject)
	checkFault(t, fault, pb.Reason_REASON_DEADLINE_EXCEEDED, pb.Outcome_OUTCOME_NOT_PROCESSED, "before its turn came")
	if h.Correlation != 2 {
		t.Errorf("REJECT is for request %d, want 2", h.Correlation)
	}
	if _, m := p.response(); m.ClientOrderId != "in time" {
		t.Errorf("answered %q", m.ClientOrderId)
	}
	if ids := g.ids(); len(ids) != 2 {
		t.Errorf("handled %v", ids)
	}
}

func TestPanicCostsTheRequestOnly(t *testing.T) {
	g := &gateway{}
	g.handle = func(x *transports.Exchange) error {
		if x.Request.(*pb.SubmitOrderRequest).ClientOrderId == "bomb" {
			panic("boom")
		}
		return g.acknowledge(x)
	}
	log := &logged{}
	p := greet(t, listen(t, g, transports.ListenConfig{Logger: log.logger()}), wire.FeatureCredit)
	p.send(append(append(p.order("before", 1), p.order("bomb", 1)...), p.order("after", 1)...))
	p.response()
	_, fault := p.expect(wire.Reject)
	checkFault(t, fault, pb.Reason_REASON_INTERNAL, pb.Outcome_OUTCOME_UNKNOWN, "")
	if strings.Contains(fault.Error(), "boom") {
		t.Errorf("the peer reads about the gateway's inside: %v", fault)
	}
	if _, m := p.response(); m.ClientOrderId != "after" {
		t.Errorf("answered %q", m.ClientOrderId)
	}
	if text := log.String(); !strings.Contains(text, "boom") || !strings.Contains(text, "conn.go") && !strings.Contains(text, "handle.go") {
		t.Errorf("the log has no panic with its stack: %s", text)
	}
}

func TestAnswersThatCannotBe(t *testing.T) {
	g := &gateway{}
	g.handle = func(x *transports.Exchange) error {
		response := x.Response.(*pb.SubmitOrderResponse)
		switch x.Request.(*pb.SubmitOrderRequest).ClientOrderId {
		case "huge":
			response.ClientTag = make([]byte, 5000)
		case "not UTF-8":
			response.Text = "\xff"
		case "no fault":
			return errors.New("some error")
		default:
			return g.acknowledge(x)
		}
		return nil
	}
	p := greet(t, listen(t, g, transports.ListenConfig{}), wire.FeatureCredit)
	for _, id := range []string{"huge", "not UTF-8", "no fault"} {
		p.send(p.order(id, 1))
		_, fault := p.expect(wire.Reject)
		checkFault(t, fault, pb.Reason_REASON_INTERNAL, pb.Outcome_OUTCOME_UNKNOWN, "may have been entered")
	}
	p.send(p.order("good", 1))
	p.response()
}

func TestPeerKilledWithinAFrame(t *testing.T) {
	g := &gateway{}
	log := &logged{}
	server := listen(t, g, transports.ListenConfig{Logger: log.logger()})
	healthy := dial(t, server, transports.DialConfig{})
	for i, reset := range []bool{false, true} {
		p := greet(t, server, wire.FeatureCredit)
		p.send(append(p.order(fmt.Sprint("accepted-", i), 10), p.order("half", 100)[:50]...))
		g.waitHandled(t, 2*i+1)
		if !reset {
			p.response()
		} else if err := p.conn.(*net.TCPConn).SetLinger(0); err != nil { // as the close of a killed process is with an unread answer
			t.Fatal(err)
		}
		_ = p.conn.Close()
		if err := healthy.Do(t.Context(), order(fmt.Sprint("healthy-", i), 10)); err != nil {
			t.Error(err)
		}
	}
	if err := server.Shutdown(bounded(t)); err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "ended within a frame") || !strings.Contains(text, "connection reset") {
		t.Errorf("the log does not tell of the half frame: %s", text)
	}
	for _, id := range g.ids() {
		if id == "half" {
			t.Error("half a frame was handled")
		}
	}
}

// TestHalfClosedPeerGetsItsAnswers: a client may end its sending half and still read what it asked for.
func TestHalfClosedPeerGetsItsAnswers(t *testing.T) {
	h := newHeld()
	p := greet(t, listen(t, &gateway{commit: h.commit}, transports.ListenConfig{}), wire.FeatureCredit)
	p.send(p.order("a", 10))
	<-h.came
	_ = p.conn.(*net.TCPConn).CloseWrite()
	h.release(nil)
	p.response()
	p.expectEnd()
}

func TestErrorOfAClientIsLogged(t *testing.T) {
	log := &logged{}
	server := listen(t, &gateway{}, transports.ListenConfig{Logger: log.logger()})
	p := greet(t, server, wire.FeatureCredit)
	p.send(wire.Frame(wire.Header{Type: wire.Error, Code: 13}, []byte("\x08\x0d\x2a\x05hello")))
	if _, _, err := p.tryRead(); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v, want the end", err)
	}
	if !strings.Contains(log.String(), "REASON_INTERNAL: hello") {
		t.Errorf("logged: %s", log)
	}
}

// TestEndWithinAFrameIsTold: a client that closes its own direction in mid-frame can still read, so it hears what was wrong.
func TestEndWithinAFrameIsTold(t *testing.T) {
	t.Parallel()
	p := greet(t, listen(t, &gateway{}, transports.ListenConfig{}), wire.FeatureCredit)
	p.send(p.order("half", 100)[:50])
	if err := p.conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	h, payload := p.read()
	if h.Type != wire.Error || !bytes.Contains(payload, []byte("ended within a frame, after 50 bytes")) {
		t.Errorf("got %v: %q", h.Type, payload)
	}
}
