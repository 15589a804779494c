package tcp_test

import (
	"context"
	"errors"
	"io"
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

// FuzzServer sends arbitrary bytes behind a handshake, or in its place, and closes its half. The server must end the connection by itself, with whole
// frames only, without handling more requests than there are whole ones, and with events only where they were asked for, in order.
func FuzzServer(f *testing.F) {
	feed := &fake.Feed{}
	feed.Publish(3)
	g := &fake.Gateway{Feed: feed}
	server, err := tcp.Transport().Listen(context.Background(), g, transports.ListenConfig{Address: "127.0.0.1:0", Engine: engine})
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
	f.Add(true, wire.Frame(wire.Header{Type: wire.Demand, Credit: 21, Aux: 400, Y: 330}, nil))
	f.Add(true, wire.Frame(wire.Header{Type: wire.Request, Flags: wire.Urgent, Code: uint16(transports.CancelOrder), Correlation: 1, X: 18, Y: 18}, []byte("\x12\x01a")))
	logon := wire.Frame(wire.Header{Type: wire.Request, Code: uint16(transports.Logon), Correlation: 1}, []byte("\x0a\x01s\x18\x01"))
	logout := wire.Frame(wire.Header{Type: wire.Request, Code: uint16(transports.Logout), Correlation: 2}, []byte("\x0a\x03bye"))
	dropCopy := wire.Frame(wire.Header{Type: wire.Request, Code: uint16(transports.StreamExecutions), Correlation: 1}, []byte("\x10\x02"))
	f.Add(true, logon)
	f.Add(true, append(append([]byte{}, logon...), logout...))
	f.Add(true, append(append([]byte{}, logon...), dropCopy...))
	f.Add(true, append(append([]byte{}, dropCopy...), logout...))
	f.Add(true, wire.Frame(wire.Header{Type: wire.Event, Correlation: 1}, nil))
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
		answers, stream, next := 0, false, uint32(0)
		for {
			h, payload, err := p.tryRead()
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
			switch op := transports.Operation(h.Code); {
			case h.Type == wire.Response && (op == transports.Logon || op == transports.StreamExecutions):
				var ack pb.LogonAck
				if err := proto.Unmarshal(payload, &ack); err != nil || stream {
					t.Fatalf("a stream opens (after another one: %v) with %q (%v)", stream, payload, err)
				}
				stream, next = true, max(1, uint32(ack.NextSequence)) // the fake feed begins with 1, whatever was asked for
			case h.Type == wire.Event && (!stream || h.Aux != next):
				t.Fatalf("event %d comes where %d is due, in a stream: %v", h.Aux, next, stream)
			case h.Type == wire.Event:
				next++
			}
		}
		g.Take() // the fake would keep them all
		if most := len(b) / wire.HeaderSize; answers > most {
			t.Fatalf("%d answers to at most %d requests", answers, most)
		}
	})
}
