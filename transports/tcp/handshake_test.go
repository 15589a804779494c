package tcp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp"
	"tailgate/transports/tcp/internal/wire"
)

func hello(change func(*wire.HelloMessage)) []byte {
	m := wire.HelloMessage{Lowest: 1, Highest: 1, Features: wire.FeatureCredit, MaxPayload: 1 << 20}
	if change != nil {
		change(&m)
	}
	return wire.Frame(wire.Header{Type: wire.Hello, Correlation: 1}, m.Encode())
}

func TestServerAnswersEveryFirstFrame(t *testing.T) {
	const never = pb.Outcome_OUTCOME_NOT_PROCESSED
	for name, test := range map[string]struct {
		send   []byte
		end    bool // the peer closes its half behind it
		reason pb.Reason
		text   string
	}{
		"an HTTP request":        {send: []byte("GET /v1/instruments HTTP/1.1\r\nHost: x\r\n\r\n"), reason: pb.Reason_REASON_MALFORMED, text: "GET /v1/instruments"},
		"a TLS handshake":        {send: append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, make([]byte, 40)...), reason: pb.Reason_REASON_MALFORMED, text: "another protocol"},
		"a REQUEST":              {send: wire.Frame(wire.Header{Type: wire.Request, Code: 1}, nil), reason: pb.Reason_REASON_MALFORMED, text: "REQUEST"},
		"another magic":          {send: bytes.Replace(hello(nil), []byte("TGOE"), []byte("XXXX"), 1), reason: pb.Reason_REASON_MALFORMED, text: `"XXXX"`},
		"a later version":        {send: hello(func(m *wire.HelloMessage) { m.Lowest, m.Highest = 2, 3 }), reason: pb.Reason_REASON_UNIMPLEMENTED, text: "version 1 of the protocol, the client 2 to 3"},
		"version 0":              {send: hello(func(m *wire.HelloMessage) { m.Lowest, m.Highest = 0, 0 }), reason: pb.Reason_REASON_UNIMPLEMENTED, text: "the client 0 to 0"},
		"a range upside down":    {send: hello(func(m *wire.HelloMessage) { m.Lowest, m.Highest = 3, 1 }), reason: pb.Reason_REASON_MALFORMED, text: "versions 3 to 1"},
		"a payload too large":    {send: header(wire.Header{Type: wire.Hello, Length: wire.MaxHandshake + 1}), reason: pb.Reason_REASON_TOO_LARGE, text: "4097 bytes, at most 4096"},
		"a payload too small":    {send: wire.Frame(wire.Header{Type: wire.Hello}, []byte("TGOE")), reason: pb.Reason_REASON_MALFORMED, text: "4 bytes"},
		"a key that is cut off":  {send: cutKey(), reason: pb.Reason_REASON_MALFORMED, text: "announces a key of 9 bytes and carries 8"},
		"a wrong key":            {send: hello(func(m *wire.HelloMessage) { m.Key = "wrong" }), reason: pb.Reason_REASON_UNAUTHENTICATED, text: "nobody has this key"},
		"nothing":                {reason: pb.Reason_REASON_DEADLINE_EXCEEDED, text: "received 0 bytes"},
		"half a header":          {send: hello(nil)[:11], reason: pb.Reason_REASON_DEADLINE_EXCEEDED, text: "received 11 bytes"},
		"half a payload":         {send: hello(nil)[:30], reason: pb.Reason_REASON_DEADLINE_EXCEEDED, text: "received 6 bytes"},
		"half a header, the end": {send: hello(nil)[:11], end: true, reason: pb.Reason_REASON_MALFORMED, text: "received 11 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gateway{open: func(peer transports.Peer) error {
				if peer.Key != "" {
					return transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "nobody has this key")
				}
				return nil
			}}
			limit := patience
			if test.reason == pb.Reason_REASON_DEADLINE_EXCEEDED {
				limit = 200 * time.Millisecond
			}
			p := connect(t, listen(t, g, transports.ListenConfig{Limits: transports.Limits{HandshakeTimeout: limit}}))
			if len(test.send) > 0 {
				p.send(test.send)
			}
			if test.end {
				_ = p.conn.(*net.TCPConn).CloseWrite()
			}
			_, fault := p.expect(wire.Error)
			checkFault(t, fault, test.reason, never, test.text)
			p.expectEnd()
		})
	}
}

// cutKey is a HELLO that promises one byte of key more than it has.
func cutKey() []byte {
	b := hello(func(m *wire.HelloMessage) { m.Key = "123456789" })
	return wire.Frame(wire.Parse(b), b[wire.HeaderSize:len(b)-1])
}

func TestHelloIgnoresWhatALaterVersionAdds(t *testing.T) {
	b := hello(nil)
	p := connect(t, listen(t, &gateway{}, transports.ListenConfig{}))
	p.send(wire.Frame(wire.Parse(b), append(b[wire.HeaderSize:], "and more"...)))
	if h, _ := p.read(); h.Type != wire.HelloAck {
		t.Errorf("answered with %v", h.Type)
	}
}

func TestPeerIsWhatTheGatewaySees(t *testing.T) {
	seen := make(chan transports.Peer, 1)
	server := listen(t, &gateway{open: func(p transports.Peer) error { seen <- p; return nil }}, transports.ListenConfig{})
	dial(t, server, transports.DialConfig{Key: "secret"})
	p := <-seen
	if p.Transport != "tcp" || p.Key != "secret" || p.TLS != nil || !strings.HasPrefix(p.Remote.String(), "127.0.0.1:") {
		t.Errorf("the gateway sees %+v", p)
	}
}

func TestClientNamesEveryWrongAnswer(t *testing.T) {
	ack := func(change func(*wire.AckMessage)) []byte {
		m := wire.AckMessage{Version: 1, Features: wire.FeatureCredit, MaxRequest: 1 << 20, Floor: 100, Model: wire.Model()}
		change(&m)
		return wire.Frame(wire.Header{Type: wire.HelloAck}, m.Encode())
	}
	for name, test := range map[string]struct {
		answer []byte
		hold   bool // keeps the connection open behind it
		text   string
	}{
		"HTTP":                     {answer: []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), text: `"HTTP/1.1 400 Bad Request"`},
		"a short line":             {answer: []byte("220 mail\r\n"), text: `"220 mail\r\n"`},
		"silence":                  {hold: true, text: "no answer to HELLO in time"},
		"the end":                  {text: "closed the connection without an answer to HELLO"},
		"another frame":            {answer: wire.Frame(wire.Header{Type: wire.Pong}, nil), text: "not this protocol"},
		"half an acknowledgement":  {answer: ack(func(*wire.AckMessage) {})[:50], text: "HELLO_ACK ended after 26 of"},
		"an enormous one":          {answer: header(wire.Header{Type: wire.HelloAck, Length: 1 << 30}), text: "not this protocol"},
		"another magic":            {answer: bytes.Replace(ack(func(*wire.AckMessage) {}), []byte("TGOE"), []byte("XXXX"), 1), text: `"XXXX"`},
		"a version not offered":    {answer: ack(func(m *wire.AckMessage) { m.Version = 9 }), text: "version 9"},
		"an empty cost model":      {answer: ack(func(m *wire.AckMessage) { m.Model.Answer = nil }), text: "0 entries"},
		"a unit of nothing":        {answer: ack(func(m *wire.AckMessage) { m.Model.Unit = 0 }), text: "unit 0 bytes"},
		"no flow control":          {answer: ack(func(m *wire.AckMessage) { m.Features = 0 }), text: `does not offer flow "credit"`},
		"an ERROR without meaning": {answer: wire.Frame(wire.Header{Type: wire.Error}, []byte{0xff}), text: "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			release := make(chan struct{})
			served := make(chan struct{})
			go func() {
				defer close(served)
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = io.ReadFull(conn, make([]byte, len(hello(nil)))) // so that the close sends no reset
				_, _ = conn.Write(test.answer)
				if test.hold {
					<-release
				}
			}()
			limit := patience
			if test.hold {
				limit = 100 * time.Millisecond
			}
			_, err = tcp.Transport().Dial(context.Background(), transports.DialConfig{
				Address: listener.Addr().String(), Limits: transports.Limits{HandshakeTimeout: limit},
			})
			close(release)
			if err == nil || !strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), listener.Addr().String()) {
				t.Errorf("Dial: %v, want an error with the address and %q", err, test.text)
			}
			<-served
		})
	}
}

func TestDialReportsTheGatewaysFault(t *testing.T) {
	g := &gateway{open: func(transports.Peer) error {
		return transports.Refuse(pb.Reason_REASON_PERMISSION_DENIED, "this key may read only")
	}}
	server := listen(t, g, transports.ListenConfig{})
	_, err := tcp.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String()})
	checkFault(t, err, pb.Reason_REASON_PERMISSION_DENIED, pb.Outcome_OUTCOME_NOT_PROCESSED, "this key may read only")
}

func TestDialEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // never accepts: the kernel does, and nobody answers HELLO
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err = tcp.Transport().Dial(ctx, transports.DialConfig{Address: listener.Addr().String()}); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial: %v, want the context's error", err)
	}
}

func TestChoicesThatDoNotExist(t *testing.T) {
	for _, config := range []transports.DialConfig{{Flow: "window"}, {Engine: "uring"}, {Encoding: "json"}} {
		config.Address = "127.0.0.1:1"
		_, err := tcp.Transport().Dial(t.Context(), config)
		value := config.Flow + config.Engine + config.Encoding
		if err == nil || !strings.Contains(err.Error(), `"`+value+`"`) || !strings.Contains(err.Error(), "there is") {
			t.Errorf("%+v: %v, want an error that names the value and the choices", config, err)
		}
	}
	if _, err := tcp.Transport().Listen(t.Context(), &gateway{}, transports.ListenConfig{Address: "127.0.0.1:0", Limits: transports.Limits{MaxRequestBytes: 1 << 30}}); err == nil {
		t.Error("a request of 1 GiB is accepted as a limit, its cost does not fit the header")
	}
}

func TestListenNamesABusyPortAndAnUnknownCongestionControl(t *testing.T) {
	server := listen(t, &gateway{}, transports.ListenConfig{})
	address := server.Addr().String()
	_, err := tcp.Transport().Listen(t.Context(), &gateway{}, transports.ListenConfig{Address: address})
	for _, part := range []string{"tcp", address, "address already in use"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("busy port: %v, want %q in it", err, part)
		}
	}
	_, err = tcp.Transport().Listen(t.Context(), &gateway{}, transports.ListenConfig{Address: "127.0.0.1:0", CongestionControl: "nonsense"})
	if err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("congestion control: %v, want its name", err)
	}
	_, err = tcp.Transport().Dial(t.Context(), transports.DialConfig{Address: address, CongestionControl: "nonsense"})
	if err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("congestion control: %v, want its name", err)
	}
}

func TestMaxConnections(t *testing.T) {
	server := listen(t, &gateway{}, transports.ListenConfig{Limits: transports.Limits{MaxConnections: 2}})
	first := dial(t, server, transports.DialConfig{})
	dial(t, server, transports.DialConfig{})
	_, err := tcp.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String()})
	checkFault(t, err, pb.Reason_REASON_OVERLOADED, pb.Outcome_OUTCOME_NOT_PROCESSED, "2 connections are open")
	_ = first.Close()
	for { // the place is free when the server has seen the end
		client, err := tcp.Transport().Dial(bounded(t), transports.DialConfig{Address: server.Addr().String()})
		if err == nil {
			_ = client.Close()
			return
		}
		checkFault(t, err, pb.Reason_REASON_OVERLOADED, pb.Outcome_OUTCOME_NOT_PROCESSED, "")
		if t.Failed() {
			return
		}
	}
}
