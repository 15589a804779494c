package tcp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/tcp"
	"tailgate/transports/tcp/internal/wire"
)

// event is an EVENT frame of the fake feed, for the stream of the client library's first request.
func event(t testing.TB, epoch uint32, sequence uint64, change func(*wire.Header)) []byte {
	t.Helper()
	payload, err := proto.Marshal(fake.Report(epoch, sequence))
	if err != nil {
		t.Fatal(err)
	}
	h := wire.Header{Type: wire.Event, Correlation: 1<<32 - 1<<10, Aux: uint32(sequence), X: uint16(epoch)}
	if change != nil {
		change(&h)
	}
	return wire.Frame(h, payload)
}

// serveTrade is a server made of bytes that answers the handshake and the Logon of one connection, with the place that ack has, and then does as it is told. A
// nil ack leaves the Logon without an answer.
func serveTrade(t testing.TB, idle time.Duration, ack *pb.LogonAck, then func(p *peer)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		p := &peer{t: t, conn: conn}
		if _, _, err := p.tryRead(); err != nil {
			return
		}
		hello := wire.AckMessage{Version: 1, Features: wire.FeatureCredit, MaxRequest: 1 << 20, Floor: 100, Largest: 100, IdleTimeout: idle, Model: wire.Model()}
		_, _ = conn.Write(wire.Frame(wire.Header{Type: wire.HelloAck, Credit: 100}, hello.Encode()))
		request, _, err := p.tryRead()
		if err != nil {
			return
		}
		if ack != nil {
			payload, err := proto.Marshal(ack)
			if err != nil {
				t.Error(err)
			}
			_, _ = conn.Write(wire.Frame(wire.Header{Type: wire.Response, Code: request.Code, Correlation: request.Correlation, Credit: 117}, payload))
		}
		then(p)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	}()
	t.Cleanup(func() { _ = listener.Close(); <-served })
	return listener.Addr().String()
}

// saying writes bytes, as far as the client takes them.
func saying(b []byte) func(p *peer) { return func(p *peer) { _, _ = p.conn.Write(b) } }

// TestEventsThatBreakTheProtocol: a gap is never passed on. What came before it is.
func TestEventsThatBreakTheProtocol(t *testing.T) {
	for name, test := range map[string]struct {
		frame  []byte
		text   string
		reason pb.Reason // CONNECTION_LOST where it is not said
	}{
		"a gap":                       {event(t, 3, 8, nil), "event 8 of epoch 3 came where 7 of epoch 3 was due", pb.Reason_REASON_INTERNAL},
		"a repetition":                {event(t, 3, 6, nil), "event 6 of epoch 3 came where 7 of", pb.Reason_REASON_INTERNAL},
		"an epoch that is over":       {event(t, 2, 1, nil), "event 1 of epoch 2", pb.Reason_REASON_INTERNAL},
		"an epoch from its second on": {event(t, 4, 2, nil), "event 2 of epoch 4", pb.Reason_REASON_INTERNAL},
		"another number":              {event(t, 3, 7, func(h *wire.Header) { h.Aux = 6 }), "the header of event 7", 0},
		"another epoch":               {event(t, 3, 7, func(h *wire.Header) { h.X = 4 }), "the header of event 7", 0},
		"another request":             {event(t, 3, 7, func(h *wire.Header) { h.Correlation++ }), "the header of event 7", 0},
		"no report":                   {wire.Frame(wire.Header{Type: wire.Event}, []byte{0xff}), "cannot be read", 0},
		"too large":                   {header(wire.Header{Type: wire.Event, Length: 4097}), "EVENT has 4097 bytes of payload, at most 4096", 0},
		"the end of the stream":       {nil, "the gateway closed it", 0},
		"an end within an event":      {event(t, 3, 7, nil)[:30], "the gateway closed it", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if test.reason == 0 {
				test.reason = pb.Reason_REASON_CONNECTION_LOST
			}
			address := serveTrade(t, time.Minute, &pb.LogonAck{Epoch: 3, NextSequence: 5}, saying(append(append(event(t, 3, 5, nil), event(t, 3, 6, nil)...), test.frame...)))
			h := hear()
			trader, err := tcp.Transport().Trade(bounded(t), transports.DialConfig{Address: address}, &pb.Logon{SessionId: "s"}, h.receive)
			if err != nil { // the violation may be read together with the ack
				checkFault(t, err, test.reason, pb.Outcome_OUTCOME_UNKNOWN, test.text)
				return
			}
			h.expect(t, 3, 5, 6)
			await(t, trader.Done(), "Done")
			checkFault(t, trader.Err(), test.reason, pb.Outcome_OUTCOME_UNKNOWN, test.text)
			if len(h) != 0 {
				t.Errorf("receive got %v", <-h)
			}
		})
	}
}

// TestEventsOfALaterEpoch: an epoch may end before the place of the ack is reached, and one without an event of the account leaves no trace.
func TestEventsOfALaterEpoch(t *testing.T) {
	var b []byte
	for _, place := range [][2]uint64{{4, 1}, {4, 2}, {7, 1}, {1 << 16, 1}, {1 << 16, 2}} {
		b = append(b, event(t, uint32(place[0]), place[1], nil)...)
	}
	h := hear()
	err := tcp.Transport().Executions(bounded(t), transports.DialConfig{Address: serveTrade(t, time.Minute, &pb.LogonAck{Epoch: 3, NextSequence: 5}, saying(b))}, &pb.StreamExecutionsRequest{}, h.receive)
	checkFault(t, err, pb.Reason_REASON_CONNECTION_LOST, pb.Outcome_OUTCOME_UNKNOWN, "the gateway closed it")
	h.expect(t, 4, 1, 2)
	h.expect(t, 7, 1, 1)
	h.expect(t, 1<<16, 1, 2)
}

func TestEventBeforeTheAnswer(t *testing.T) {
	_, err := tcp.Transport().Trade(bounded(t), transports.DialConfig{Address: serveTrade(t, time.Minute, nil, saying(event(t, 1, 1, nil)))}, &pb.Logon{SessionId: "s"}, hear().receive)
	checkFault(t, err, pb.Reason_REASON_CONNECTION_LOST, pb.Outcome_OUTCOME_UNKNOWN, "nobody asked for")
}

// TestIdleTraderShowsThatItIsThere: events are no frames of the client, whose goroutine only reads, so PINGs must come beside it.
func TestIdleTraderShowsThatItIsThere(t *testing.T) {
	t.Parallel()
	address := serveTrade(t, 300*time.Millisecond, &pb.LogonAck{Epoch: 1, NextSequence: 1}, func(p *peer) {
		for n := range uint64(3) {
			h, _, err := p.tryRead()
			if err != nil || h.Type != wire.Ping || h.Aux != 17 { // the Logon has cost 16 + 1
				t.Errorf("read %+v (%v), want a PING that says what the Logon has cost", h, err)
				return
			}
			pong := wire.Frame(wire.Header{Type: wire.Pong, Correlation: h.Correlation, Credit: 117, Aux: h.Aux}, nil)
			_, _ = p.conn.Write(append(pong, event(t, 1, n+1, nil)...))
		}
	})
	h := hear()
	trader, err := tcp.Transport().Trade(bounded(t), transports.DialConfig{Address: address}, &pb.Logon{}, h.receive)
	if err != nil {
		t.Fatal(err)
	}
	h.expect(t, 1, 1, 3)
	_ = trader.Close()
	await(t, trader.Done(), "Done")
}

// TestTradeThatIsNotAnswered ends with its context.
func TestTradeThatIsNotAnswered(t *testing.T) {
	h := newHeld()
	g := &fake.Gateway{Feed: &fake.Feed{}, OnCommit: func(func(error)) { h.came <- struct{}{} }}
	server := listen(t, g, transports.ListenConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-h.came; cancel() }()
	_, err := tcp.Transport().Trade(ctx, transports.DialConfig{Address: server.Addr().String()}, &pb.Logon{SessionId: "s"}, hear().receive)
	checkFault(t, err, pb.Reason_REASON_DEADLINE_EXCEEDED, pb.Outcome_OUTCOME_UNKNOWN, "before its answer came")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not wrap the context's error", err)
	}
	over, cancelOver := context.WithCancel(t.Context())
	cancelOver()
	_ = server.Shutdown(over) // the journal of this test never answers
}

// FuzzTrade sends arbitrary bytes behind the answer to a Logon and closes. The client must end, and what it passes on must be numbered without a gap.
func FuzzTrade(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(event(f, 1, 1, nil), event(f, 1, 2, nil)...))
	f.Add(append(event(f, 1, 1, nil), event(f, 2, 1, nil)...))
	f.Add(append(event(f, 1, 1, nil), event(f, 1, 3, nil)...))
	f.Add(event(f, 1, 1, nil)[:40])
	f.Add(wire.Frame(wire.Header{Type: wire.GoAway, Code: 7, Correlation: 1<<32 - 1<<10}, nil))
	f.Add(wire.Frame(wire.Header{Type: wire.Error, Code: 16}, []byte("\x08\x10")))
	f.Add(append(wire.Frame(wire.Header{Type: 0x80}, []byte("later")), event(f, 1, 1, nil)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		epoch, next := uint32(1), uint64(1)
		address := serveTrade(t, time.Minute, &pb.LogonAck{Epoch: epoch, NextSequence: next}, saying(b))
		trader, err := tcp.Transport().Trade(bounded(t), transports.DialConfig{Address: address}, &pb.Logon{SessionId: "s"}, func(report *pb.ExecutionReport) {
			if e, n := report.GetEpoch(), report.GetSequence(); !(e == epoch && n == next || e > epoch && n == 1) {
				t.Errorf("event %d of epoch %d is passed on where event %d of epoch %d is due", n, e, next, epoch)
			}
			epoch, next = report.GetEpoch(), report.GetSequence()+1
		})
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
				t.Fatal("the client does not end")
			}
			return
		}
		await(t, trader.Done(), "Done")
		if trader.Err() == nil {
			t.Error("the session ended and Err does not say why")
		}
	})
}
