package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
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

// TestDrainUnderLoad stops the server while clients send. What was acknowledged is in the gateway, what is NOT_PROCESSED is not, and nobody
// waits for ever.
func TestDrainUnderLoad(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	var acked, refused sync.Map
	var group sync.WaitGroup
	var answered atomic.Int64
	enough := make(chan struct{})
	for i := range 8 {
		client := dial(t, server, transports.DialConfig{})
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
				if !ok || fault.Reason == pb.Reason_REASON_DEADLINE_EXCEEDED {
					t.Errorf("%s: %v", id, err)
				} else if fault.Outcome == pb.Outcome_OUTCOME_NOT_PROCESSED {
					refused.Store(id, fault.Reason)
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
}

func TestAcceptedIsAnsweredAndLaterIsRefused(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	early := dial(t, server, transports.DialConfig{})
	// A connection that is open, and in the middle of a request when the server begins to drain.
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

// TestRequestOnAnOpenConnectionIsRefusedWhileDraining holds a connection busy over the begin of the drain by pipelining behind a
// request that waits: net/http reads the second one when the drain has begun.
func TestRequestOnAnOpenConnectionIsRefusedWhileDraining(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	entered, leave := make(chan struct{}), make(chan struct{})
	gateway.OnOpen = func(context.Context, transports.Peer) error { // after the look at draining, before the body
		close(entered)
		<-leave
		return nil
	}
	conn := connect(t, server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if status, _ := say(t, conn, "GET /v1/orders HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/orders HTTP/1.1\r\nHost: x\r\n\r\n"); status != 200 {
			t.Errorf("the accepted request: status %d", status)
		}
	}()
	<-entered
	silent := connect(t, server)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(context.Background()) }()
	silent.Read(make([]byte, 1)) //nolint:errcheck // ends when the drain has begun
	close(leave)
	<-done
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if seen := gateway.Requests(); len(seen) != 1 || !proto.Equal(seen[0], &pb.ListOrdersRequest{}) {
		t.Errorf("the gateway saw %v, want the first request only", seen)
	}
}

// TestWhatSlipsInWhileDrainingIsRefused asks the handler itself: net/http closes connections so early that a request comes this
// far only in a race.
func TestWhatSlipsInWhileDrainingIsRefused(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	rest.HandlerOf(server).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/orders", http.NoBody))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "REASON_DRAINING") || !strings.Contains(w.Body.String(), "NOT_PROCESSED") {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
	if w.Header().Get("Connection") != "close" || w.Header().Get("Retry-After") == "" {
		t.Errorf("headers are %v", w.Header())
	}
	if seen := gateway.Requests(); len(seen) != 0 {
		t.Errorf("the gateway saw %v", seen)
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
