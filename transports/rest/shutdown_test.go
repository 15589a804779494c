package rest_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/rest"
)

// TestDrainUnderLoad stops the server while clients send in closed loops, each on its one connection. What was acknowledged is in the gateway,
// what is NOT_PROCESSED is not, nobody waits for ever, and nobody is left in doubt: the end of every connection was announced.
func TestDrainUnderLoad(t *testing.T) {
	serverTLS, clientTLS := fake.Certificate(t)
	for name, c := range map[string]struct{ server, client *tls.Config }{"plain": {}, "TLS": {serverTLS, clientTLS}} {
		t.Run(name, func(t *testing.T) {
			gateway := &fake.Gateway{}
			server := listen(t, gateway, transports.ListenConfig{TLS: c.server})
			rest.SetGrace(server, patience) // the promise, and not how fast this machine is today
			var acked, refused sync.Map
			var group sync.WaitGroup
			var answered atomic.Int64
			enough := make(chan struct{})
			for i := range 16 {
				client := dial(t, server, transports.DialConfig{TLS: c.client})
				group.Go(func() {
					for j := 0; ; j++ {
						id := fmt.Sprintf("%d-%d", i, j)
						ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
						err := client.Do(ctx, fake.Call(transports.SubmitOrder, fake.Order(id, nil)))
						cancel()
						if err == nil {
							acked.Store(id, true)
							if answered.Add(1) == 160 {
								close(enough)
							}
							continue
						}
						fault, ok := errors.AsType[*transports.Fault](err)
						if !ok || fault.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED || fault.Reason == pb.Reason_REASON_DEADLINE_EXCEEDED {
							t.Errorf("%s: %v", id, err)
							return
						}
						refused.Store(id, fault.Reason)
						return
					}
				})
			}
			<-enough
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			start := time.Now()
			if err := server.Shutdown(ctx); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if time.Since(start) >= patience {
				t.Error("Shutdown waited although every connection had had its last answer")
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
		})
	}
}

func TestAcceptedIsAnsweredAndLaterIsRefused(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	rest.SetGrace(server, patience)
	early := dial(t, server, transports.DialConfig{})
	late := connect(t, server)
	if status, _ := say(t, late, "GET /v1/orders HTTP/1.1\r\nHost: x\r\n\r\n"); status != 200 {
		t.Fatalf("status %d", status)
	}
	silent := connect(t, server)

	entered, leave := make(chan struct{}), make(chan struct{})
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		close(entered)
		<-leave
		gateway.Answer(x)
		return nil
	}
	accepted := make(chan error, 1)
	go func() {
		accepted <- early.Do(context.Background(), fake.Call(transports.SubmitOrder, fake.Order("early", nil)))
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(context.Background()) }()
	// The silent connection is closed as soon as the drain has begun.
	if _, err := silent.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the silent connection: %v", err)
	}
	if conn, err := net.Dial("tcp", server.Addr().String()); err == nil {
		conn.Close()
		t.Error("a new connection is taken while draining")
	}
	checkRefused(t, late)
	select {
	case err := <-stopped:
		t.Fatalf("Shutdown returned (%v) before the accepted request was answered", err)
	default:
	}
	close(leave)
	if err := <-accepted; err != nil {
		t.Errorf("the accepted request: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown again: %v", err)
	}
}

// checkRefused sends a request on a connection that was used before and expects the refusal and then the end.
func checkRefused(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.WriteString(conn, "GET /v1/orders HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	if response.StatusCode != 503 || !strings.Contains(string(body), "REASON_DRAINING") || !strings.Contains(string(body), "NOT_PROCESSED") {
		t.Errorf("status %d, %s", response.StatusCode, body)
	}
	if !response.Close || response.Header.Get("Retry-After") == "" {
		t.Errorf("headers are %v, Connection: close is %t", response.Header, response.Close)
	}
	if _, err := reader.ReadByte(); err != io.EOF {
		t.Errorf("after the last answer: %v, want the end", err)
	}
}

// TestWhatIsPipelinedBehindTheLastAnswerIsNotTaken: the answer to the first says that it is the last (RFC 9112, section 9.6).
func TestWhatIsPipelinedBehindTheLastAnswerIsNotTaken(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	entered, leave := make(chan struct{}), make(chan struct{})
	gateway.OnOpen = func(context.Context, transports.Peer) error { // after the look at draining, before the body
		close(entered)
		<-leave
		return nil
	}
	rest.SetGrace(server, patience) // so that it is not net/http that ends the connection
	conn := connect(t, server)
	if _, err := io.WriteString(conn, strings.Repeat("GET /v1/orders HTTP/1.1\r\nHost: x\r\n\r\n", 2)); err != nil {
		t.Fatal(err)
	}
	<-entered
	silent := connect(t, server)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(context.Background()) }()
	silent.Read(make([]byte, 1)) //nolint:errcheck // ends when the drain has begun
	close(leave)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, response.Body) //nolint:errcheck // what counts is what comes after
	response.Body.Close()
	if response.StatusCode != 200 || !response.Close {
		t.Errorf("the accepted request: status %d, Connection: close is %t", response.StatusCode, response.Close)
	}
	if more, err := reader.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("after the last answer: %q, %v", more, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if seen := gateway.Requests(); len(seen) != 1 || !proto.Equal(seen[0], &pb.ListOrdersRequest{}) {
		t.Errorf("the gateway saw %v, want the first request only", seen)
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
