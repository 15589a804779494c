package grpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/grpc"
	"tailgate/transports/internal/fake"
)

// connect opens a bare socket to the server.
func connect(t *testing.T, server transports.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// untilClosed reads until the server closes.
func untilClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, conn)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		t.Error("the connection is still open")
	}
}

// beginRequest opens a stream by hand and sends the headers of a SubmitOrder and so much of its message.
func beginRequest(t *testing.T, conn net.Conn, message []byte) {
	t.Helper()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, nil)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	openStream(t, framer, 1, message, false)
}

// openStream sends a SubmitOrder on a stream of a connection that has begun. The fields are not indexed, so that each stream's stand
// alone.
func openStream(t *testing.T, framer *http2.Framer, id uint32, message []byte, end bool) {
	t.Helper()
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", pb.OrderEntryService_SubmitOrder_FullMethodName}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers.Bytes(), EndHeaders: true}),
		framer.WriteData(id, end, message),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// TestStreamBetweenGoAwayAndItsEndIsRefused: after the first GOAWAY a peer may still open streams that were on their way (RFC 9113,
// section 6.8). They are answered, with a refusal, while what was accepted before is executed.
func TestStreamBetweenGoAwayAndItsEndIsRefused(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	entered, leave := hold(gateway)
	conn := connect(t, server)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	encoded, err := proto.Marshal(fake.Order("early", nil))
	if err != nil {
		t.Fatal(err)
	}
	message := append([]byte{0, 0, 0, 0, byte(len(encoded))}, encoded...) // uncompressed, and its length
	openStream(t, framer, 1, message, true)
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(context.Background()) }()

	status := map[uint32]string{} // grpc-status by stream
	var pings [][8]byte
	for len(status) < 2 {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("%v, after %v", err, status)
		}
		switch f := frame.(type) {
		case *http2.GoAwayFrame:
			if f.LastStreamID > 3 {
				openStream(t, framer, 3, message, true)
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				pings = append(pings, f.Data) // answered once stream 3 is: the answer ends the time for such streams
			}
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if h.Name == "grpc-status" {
					status[f.StreamID] = h.Value
				}
			}
			if f.StreamID == 3 && status[3] != "" {
				for _, data := range pings {
					if err := framer.WritePing(true, data); err != nil {
						t.Fatal(err)
					}
				}
				close(leave)
			}
		}
	}
	if status[1] != "0" || status[3] != fmt.Sprint(uint32(codes.Unavailable)) {
		t.Errorf("statuses by stream: %v, want 1: 0, 3: %d", status, codes.Unavailable)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if seen := gateway.Requests(); len(seen) != 1 {
		t.Errorf("the gateway saw %v", seen)
	}
}

func TestSlowAndBrokenPeersAreCut(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{Limits: transports.Limits{
		HandshakeTimeout: 300 * time.Millisecond, RequestTimeout: 300 * time.Millisecond,
	}})
	for name, begin := range map[string]func(t *testing.T, conn net.Conn){
		"silent":         func(*testing.T, net.Conn) {},
		"half a preface": func(_ *testing.T, conn net.Conn) { _, _ = io.WriteString(conn, http2.ClientPreface[:10]) },
		"HTTP/1.1":       func(_ *testing.T, conn net.Conn) { _, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") },
		"no message":     func(t *testing.T, conn net.Conn) { beginRequest(t, conn, nil) },
		"half a message": func(t *testing.T, conn net.Conn) { beginRequest(t, conn, []byte{0, 0, 0, 0, 50, 0x0a}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, server)
			begin(t, conn)
			untilClosed(t, conn)
		})
	}
	t.Cleanup(func() {
		if seen := gateway.Requests(); len(seen) != 0 {
			t.Errorf("half requests reached the gateway: %v", seen)
		}
	})
}

// TestLongCommitOutlivesTheRequestTimeout: RequestTimeout is about the peer's bytes, not about the journal.
func TestLongCommitOutlivesTheRequestTimeout(t *testing.T) {
	gateway := &fake.Gateway{}
	client := dial(t, listen(t, gateway, transports.ListenConfig{Limits: transports.Limits{RequestTimeout: 200 * time.Millisecond}}), transports.DialConfig{})
	gateway.OnCommit = func(release func(error)) {
		time.AfterFunc(600*time.Millisecond, func() { release(nil) }) // what is tested is a duration, three times the limit
	}
	if err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))); err != nil {
		t.Error(err)
	}
}

func TestFloodOfHeadersIsRefused(t *testing.T) {
	gateway := &fake.Gateway{}
	stub := pb.NewOrderEntryServiceClient(native(t, listen(t, gateway, transports.ListenConfig{})))
	if _, err := stub.SubmitOrder(t.Context(), fake.Order("o", nil)); err != nil {
		t.Fatal(err) // also has the server's settings arrive
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-fill", strings.Repeat("x", 20<<10))
	if _, err := stub.SubmitOrder(ctx, fake.Order("p", nil)); err == nil {
		t.Error("20 KiB of headers are taken")
	}
	if got := len(gateway.Requests()); got != 1 {
		t.Errorf("%d requests reached the gateway", got)
	}
}

func TestOneConnectionTooManyIsToldSoAndAFreedPlaceServes(t *testing.T) {
	const limit = 3
	server := listen(t, &fake.Gateway{}, transports.ListenConfig{Limits: transports.Limits{MaxConnections: limit}})
	var clients []transports.Client
	for range limit {
		clients = append(clients, dial(t, server, transports.DialConfig{}))
	}
	dialOne := func() (transports.Client, error) {
		return grpc.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String()})
	}
	_, err := dialOne()
	checkFault(t, err, pb.Reason_REASON_OVERLOADED, pb.Outcome_OUTCOME_NOT_PROCESSED)
	_, err = pb.NewOrderEntryServiceClient(native(t, server)).ListInstruments(t.Context(), &pb.ListInstrumentsRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "3 connections") {
		t.Errorf("a plain client: %v", err)
	}
	clients[0].Close()
	deadline := time.Now().Add(patience)
	for { // until the server has seen the close
		client, err := dialOne()
		if err == nil {
			client.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the freed place serves nobody: %v", err)
		}
	}
	if err := clients[1].Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))); err != nil {
		t.Errorf("one of the first: %v", err)
	}
}

// TestDrainUnderLoad stops the server while clients send. What was acknowledged is in the gateway, what is NOT_PROCESSED is not, and nobody
// waits for ever.
func TestDrainUnderLoad(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	var acked, refused sync.Map
	var group sync.WaitGroup
	var answered, doubts atomic.Int64
	enough := make(chan struct{})
	client := dial(t, server, transports.DialConfig{})
	for i := range 16 {
		group.Go(func() {
			for j := 0; ; j++ {
				id := fmt.Sprintf("%d-%d", i, j)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				err := client.Do(ctx, fake.Call(transports.SubmitOrder, fake.Order(id, nil)))
				cancel()
				if err == nil {
					acked.Store(id, true)
					if answered.Add(1) == 200 {
						close(enough)
					}
					continue
				}
				fault, ok := errors.AsType[*transports.Fault](err)
				switch {
				case !ok || fault.Reason == pb.Reason_REASON_DEADLINE_EXCEEDED:
					t.Errorf("%s: %v", id, err)
				case fault.Outcome == pb.Outcome_OUTCOME_NOT_PROCESSED:
					refused.Store(id, fault.Reason)
				default:
					doubts.Add(1)
				}
				return
			}
		})
	}
	<-enough
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	group.Wait()
	entered := make(map[string]bool)
	for _, request := range gateway.Requests() {
		entered[request.(*pb.SubmitOrderRequest).GetClientOrderId()] = true
	}
	acked.Range(func(id, _ any) bool {
		if !entered[id.(string)] {
			t.Errorf("%s was acknowledged and is not in the gateway", id)
		}
		return true
	})
	refused.Range(func(id, reason any) bool {
		if entered[id.(string)] {
			t.Errorf("%s was NOT_PROCESSED (%v) and is in the gateway", id, reason)
		}
		return true
	})
	t.Logf("%d answered, %d in doubt", answered.Load(), doubts.Load())
}

func TestSilentConnectionsDoNotHoldUpAShutdown(t *testing.T) {
	server := listen(t, &fake.Gateway{}, transports.ListenConfig{Limits: transports.Limits{HandshakeTimeout: time.Hour}})
	silent := connect(t, server)
	half := connect(t, server)
	if _, err := io.WriteString(half, http2.ClientPreface[:10]); err != nil {
		t.Fatal(err)
	}
	// Until both are accepted: a served request behind them in the queue of the listener.
	dial(t, server, transports.DialConfig{Limits: transports.Limits{HandshakeTimeout: patience}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	untilClosed(t, silent)
	untilClosed(t, half)
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown again: %v", err)
	}
}

func TestShutdownGivesUpWithItsContext(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	client := dial(t, server, transports.DialConfig{})
	committed := make(chan func(error), 1)
	gateway.OnCommit = func(release func(error)) { committed <- release } // and nobody releases
	done := make(chan error, 1)
	go func() {
		done <- client.Do(context.Background(), fake.Call(transports.SubmitOrder, fake.Order("o", nil)))
	}()
	release := <-committed
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v, want the context's error", err)
	}
	fault, ok := errors.AsType[*transports.Fault](<-done)
	if !ok || fault.Outcome != pb.Outcome_OUTCOME_UNKNOWN {
		t.Errorf("fault is %+v", fault)
	}
	release(nil) // late: nobody waits, nothing breaks
}
