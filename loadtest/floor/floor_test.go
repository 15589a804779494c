package floor_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tailgate/loadtest/floor"
	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func dial(t testing.TB, address string) transports.Client {
	t.Helper()
	client, err := floor.Transport().Dial(t.Context(), transports.DialConfig{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func closeServer(t testing.TB, s *floor.Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestEcho: orders of every size come back, on many connections at a time, and closing ends everything.
func TestEcho(t *testing.T) {
	listener := listen(t)
	server := floor.Serve(listener)
	var clients sync.WaitGroup
	for _, size := range []int{31, 64, 4092, 4093, 64 << 10, 1 << 20} {
		client := dial(t, listener.Addr().String())
		flow, err := workload.New(workload.Config{Prefix: "abcdef", Size: size, Clients: 1, EchoOnly: true, Instruments: []workload.Instrument{{Symbol: "ACME", ReferencePrice: 10_000}}})
		if err != nil {
			t.Fatal(err)
		}
		clients.Go(func() {
			source := flow.Source(0)
			var call transports.Call
			for range 20 {
				source.Next(&call)
				if err := client.Do(t.Context(), &call); err != nil {
					t.Errorf("size %d: %v", size, err)
					return
				}
				if _, err := source.Check(&call); err != nil {
					t.Errorf("size %d: %v", size, err)
				}
			}
		})
	}
	clients.Wait()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if _, err := floor.Transport().Dial(t.Context(), transports.DialConfig{Address: listener.Addr().String()}); err == nil {
		t.Error("a closed echo can be dialed")
	}
}

func submit() *transports.Call {
	return &transports.Call{Operation: transports.SubmitOrder, Request: &pb.SubmitOrderRequest{ClientOrderId: "0123456789ab"}, Response: &pb.SubmitOrderResponse{}}
}

// TestFailures: silence ends at the deadline, a wrong echo and a closed connection are found out.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name string
		peer func(net.Conn)
		want pb.Reason
	}{
		{"silence", func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }, pb.Reason_REASON_DEADLINE_EXCEEDED},
		{"hang up", func(conn net.Conn) { _, _ = conn.Read(make([]byte, 4)) }, pb.Reason_REASON_CONNECTION_LOST},
		{"wrong echo", func(conn net.Conn) {
			b := make([]byte, 4+14) // the order of submit has 14 bytes
			_, _ = io.ReadFull(conn, b)
			b[17]++
			_, _ = conn.Write(b)
		}, pb.Reason_REASON_INTERNAL},
	} {
		listener := listen(t)
		var peer sync.WaitGroup
		peer.Go(func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			c.peer(conn)
			conn.Close()
		})
		client := dial(t, listener.Addr().String())
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := client.Do(ctx, submit())
		cancel()
		fault, ok := errors.AsType[*transports.Fault](err)
		if !ok || fault.Reason != c.want || fault.Outcome != pb.Outcome_OUTCOME_UNKNOWN {
			t.Errorf("%s: got %v, want %s with an unknown outcome", c.name, err, c.want)
		}
		client.Close()
		listener.Close()
		peer.Wait()
	}
}

func TestOnlyOrders(t *testing.T) {
	listener := listen(t)
	server := floor.Serve(listener)
	defer closeServer(t, server)
	client := dial(t, listener.Addr().String())
	if err := client.Do(t.Context(), &transports.Call{Operation: transports.GetBook, Request: &pb.GetBookRequest{}, Response: &pb.GetBookResponse{}}); err == nil {
		t.Error("a bare echo answers GetBook")
	}
	if _, err := floor.Transport().Listen(t.Context(), nil, transports.ListenConfig{}); err == nil {
		t.Error("a bare echo serves a gateway")
	}
	// A frame that says it is larger than any order ends its connection.
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{0xff, 0xff, 0xff, 0x7f}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
}

func BenchmarkEcho(b *testing.B) {
	listener := listen(b)
	server := floor.Serve(listener)
	defer closeServer(b, server)
	client := dial(b, listener.Addr().String())
	call := submit()
	b.ReportAllocs()
	for b.Loop() {
		if err := client.Do(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
}
