package tcp_test

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"tailgate/transports"
	"tailgate/transports/tcp"
	"tailgate/transports/tcp/internal/wire"
)

// FuzzServer sends arbitrary bytes behind a handshake, or in its place, and closes its half. The server must end the connection by itself, with whole
// frames only, and without handling more requests than there are whole ones.
func FuzzServer(f *testing.F) {
	g := &gateway{handle: acknowledgeOrNot}
	server, err := tcp.Transport().Listen(context.Background(), g, transports.ListenConfig{Address: "127.0.0.1:0"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = server.Shutdown(context.Background()) })
	order := wire.Frame(wire.Header{Type: wire.Request, Code: 1, Correlation: 1}, []byte("\x0a\x01a"))
	f.Add(true, []byte{})
	f.Add(true, order)
	f.Add(true, append(append([]byte{}, order...), order[:25]...))
	f.Add(true, wire.Frame(wire.Header{Type: wire.Ping, Aux: 1<<32 - 1<<10}, nil))
	f.Add(true, wire.Frame(wire.Header{Type: 0x80}, []byte("later")))
	f.Add(false, hello(nil))
	f.Add(false, append(hello(nil), order...))
	f.Add(false, []byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, greeted bool, b []byte) {
		var p *peer
		if greeted {
			p = greet(t, server, wire.FeatureCredit)
		} else {
			p = connect(t, server)
		}
		defer p.conn.Close()
		_, _ = p.conn.Write(b) // fails when the server has had enough
		_ = p.conn.(interface{ CloseWrite() error }).CloseWrite()
		_ = p.conn.SetReadDeadline(time.Now().Add(patience))
		answers := 0
		for {
			h, _, err := p.tryRead()
			if err != nil {
				if errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal("the server ended within a frame")
				}
				if !errors.Is(err, io.EOF) {
					t.Logf("end: %v", err) // a reset, where it left bytes unread
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatal("the server does not end the connection")
					}
				}
				break
			}
			if h.Type == wire.Response || h.Type == wire.Reject {
				answers++
			}
		}
		if most := len(b) / wire.HeaderSize; answers > most {
			t.Fatalf("%d answers to at most %d requests", answers, most)
		}
	})
}

// acknowledgeOrNot answers orders and leaves other answers empty.
func acknowledgeOrNot(x *transports.Exchange) error {
	if x.Operation == transports.SubmitOrder {
		return acknowledgeOnly(x)
	}
	return nil
}
