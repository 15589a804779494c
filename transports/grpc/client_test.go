package grpc_test

import (
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

	ggrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/grpc"
	"tailgate/transports/internal/fake"
)

// serveRaw is a listener whose connections a test serves by hand.
func serveRaw(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		group.Wait()
	})
	return listener.Addr().String()
}

func TestDialFailsClearly(t *testing.T) {
	_, clientTLS := fake.Certificate(t)
	serverTLS, _ := fake.Certificate(t)
	gateway := &fake.Gateway{Key: "good"}
	plain := listen(t, gateway, transports.ListenConfig{}).Addr().String()
	secured := listen(t, gateway, transports.ListenConfig{TLS: serverTLS}).Addr().String()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	stranger := serveRaw(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})
	silent := serveRaw(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	closed.Close() // last, so that no other listener of this test gets its port
	short := transports.Limits{HandshakeTimeout: 500 * time.Millisecond}
	for name, c := range map[string]struct {
		config transports.DialConfig
		want   []string
	}{
		"nobody listens":     {transports.DialConfig{Address: nobody}, []string{"connection refused"}},
		"no port":            {transports.DialConfig{Address: "127.0.0.1"}, []string{"port"}},
		"wrong key":          {transports.DialConfig{Address: plain, Key: "bad"}, []string{"UNAUTHENTICATED", "no such key"}},
		"no key":             {transports.DialConfig{Address: plain}, []string{"UNAUTHENTICATED"}},
		"plain to TLS":       {transports.DialConfig{Address: secured, Key: "good", Limits: short}, nil},
		"TLS to plain":       {transports.DialConfig{Address: plain, Key: "good", TLS: clientTLS}, []string{"does not look like a TLS handshake"}},
		"strange authority":  {transports.DialConfig{Address: secured, Key: "good", TLS: clientTLS}, []string{"certificate"}},
		"another protocol":   {transports.DialConfig{Address: stranger, Limits: short}, nil},
		"silence":            {transports.DialConfig{Address: silent, Limits: short}, []string{"DEADLINE_EXCEEDED"}},
		"encoding":           {transports.DialConfig{Address: plain, Encoding: "json"}, []string{`"json"`, "protobuf"}},
		"flow":               {transports.DialConfig{Address: plain, Flow: "credit"}, []string{`"credit"`}},
		"engine":             {transports.DialConfig{Address: plain, Engine: "spin"}, []string{`"spin"`}},
		"congestion control": {transports.DialConfig{Address: plain, CongestionControl: "no-such"}, []string{"no-such"}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := grpc.Transport().Dial(t.Context(), c.config)
			if err == nil {
				t.Fatal("no error")
			}
			t.Log(err)
			if time.Since(start) > patience {
				t.Errorf("it took %v", time.Since(start))
			}
			for _, want := range append(c.want, "grpc: dial "+c.config.Address) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
			if fault, ok := errors.AsType[*transports.Fault](err); ok && fault.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED && name != "another protocol" {
				t.Errorf("fault is %+v", fault)
			}
		})
	}
}

func TestListenFailsClearly(t *testing.T) {
	busy := listen(t, &fake.Gateway{}, transports.ListenConfig{}).Addr().String()
	for name, c := range map[string]struct {
		config transports.ListenConfig
		want   []string
	}{
		"busy port":          {transports.ListenConfig{Address: busy}, []string{busy, "address already in use"}},
		"congestion control": {transports.ListenConfig{Address: "127.0.0.1:0", CongestionControl: "no-such"}, []string{"no-such"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := grpc.Transport().Listen(t.Context(), &fake.Gateway{}, c.config)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.want, "grpc: listen") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

func TestWhatWasNotSentIsNotProcessed(t *testing.T) {
	const notProcessed = pb.Outcome_OUTCOME_NOT_PROCESSED
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	client := dial(t, server, transports.DialConfig{Limits: transports.Limits{MaxRequestBytes: 100}})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	order := func(tag int) *transports.Call {
		return fake.Call(transports.SubmitOrder, fake.Order("o", make([]byte, tag)))
	}
	checkFault(t, client.Do(over, order(0)), pb.Reason_REASON_DEADLINE_EXCEEDED, notProcessed)
	checkFault(t, client.Do(t.Context(), &transports.Call{Operation: 999, Request: fake.Order("o", nil)}), pb.Reason_REASON_UNIMPLEMENTED, notProcessed)
	checkFault(t, client.Do(t.Context(), order(100)), pb.Reason_REASON_TOO_LARGE, notProcessed)
	checkFault(t, client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("\xff", nil))), pb.Reason_REASON_MALFORMED, notProcessed)
	client.Close()
	checkFault(t, client.Do(t.Context(), order(0)), pb.Reason_REASON_CONNECTION_LOST, notProcessed)
	if seen := gateway.Requests(); len(seen) != 0 {
		t.Errorf("the gateway saw %v", seen)
	}
}

// TestNoConnectionIsNotProcessed stops the server: the next call finds nobody, and says that nothing was sent.
func TestNoConnectionIsNotProcessed(t *testing.T) {
	server := listen(t, &fake.Gateway{}, transports.ListenConfig{})
	client := dial(t, server, transports.DialConfig{})
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil)))
	checkFault(t, err, pb.Reason_REASON_CONNECTION_LOST, pb.Outcome_OUTCOME_NOT_PROCESSED)
}

// hold makes the gateway keep requests until leave is closed or their context ends.
func hold(gateway *fake.Gateway) (entered chan struct{}, leave chan struct{}) {
	entered, leave = make(chan struct{}, 100), make(chan struct{})
	gateway.OnHandle = func(ctx context.Context, x *transports.Exchange) error {
		entered <- struct{}{}
		select {
		case <-leave:
		case <-ctx.Done():
			return ctx.Err()
		}
		gateway.Answer(x)
		return nil
	}
	return entered, leave
}

func TestCallsUnderWayEndInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(server transports.Server, client transports.Client, cancel func())
		reason pb.Reason
	}{
		"client closes": {func(_ transports.Server, client transports.Client, _ func()) { client.Close() }, pb.Reason_REASON_CONNECTION_LOST},
		"caller leaves": {func(_ transports.Server, _ transports.Client, cancel func()) { cancel() }, pb.Reason_REASON_DEADLINE_EXCEEDED},
		"server stops hard": {func(server transports.Server, _ transports.Client, _ func()) {
			over, cancel := context.WithCancel(context.Background())
			cancel()
			if err := server.Shutdown(over); !errors.Is(err, context.Canceled) {
				t.Errorf("Shutdown: %v", err)
			}
		}, pb.Reason_REASON_CONNECTION_LOST},
	} {
		t.Run(name, func(t *testing.T) {
			gateway := &fake.Gateway{}
			server := listen(t, gateway, transports.ListenConfig{})
			client := dial(t, server, transports.DialConfig{})
			entered, _ := hold(gateway)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- client.Do(ctx, fake.Call(transports.SubmitOrder, fake.Order("o", nil))) }()
			<-entered
			c.end(server, client, cancel)
			checkFault(t, <-done, c.reason, pb.Outcome_OUTCOME_UNKNOWN)
		})
	}
}

// TestDeadlineEndsTheGatewaysContext: what the caller no longer waits for is not worked on.
func TestDeadlineEndsTheGatewaysContext(t *testing.T) {
	gateway := &fake.Gateway{}
	client := dial(t, listen(t, gateway, transports.ListenConfig{}), transports.DialConfig{})
	ended := make(chan error, 1)
	gateway.OnHandle = func(ctx context.Context, _ *transports.Exchange) error {
		select {
		case <-ctx.Done():
		case <-time.After(patience):
		}
		ended <- ctx.Err()
		return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, ctx.Err(), "as a gateway says it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	checkFault(t, client.Do(ctx, fake.Call(transports.SubmitOrder, fake.Order("o", nil))), pb.Reason_REASON_DEADLINE_EXCEEDED, pb.Outcome_OUTCOME_UNKNOWN)
	if err := <-ended; err == nil {
		t.Error("the gateway's context did not end")
	}
}

func TestRefusalOfSizeComesFromTheServerToo(t *testing.T) {
	const limit = 10_000
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{Limits: transports.Limits{MaxRequestBytes: limit}})
	client := dial(t, server, transports.DialConfig{}) // with a wider limit of its own
	largest := fake.Order("o", nil)
	largest.ClientTag = make([]byte, limit-proto.Size(largest)-3)
	if size := proto.Size(largest); size != limit {
		t.Fatalf("the order has %d bytes", size)
	}
	if err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, largest)); err != nil {
		t.Errorf("%d bytes: %v", limit, err)
	}
	larger := proto.Clone(largest).(*pb.SubmitOrderRequest)
	larger.ClientTag = append(larger.ClientTag, 0)
	err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, larger))
	checkFault(t, err, pb.Reason_REASON_TOO_LARGE, pb.Outcome_OUTCOME_NOT_PROCESSED)
	if want := "the request has 10001 bytes, at most 10000 are taken"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	_, err = pb.NewOrderEntryServiceClient(native(t, server)).SubmitOrder(t.Context(), larger)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a plain client: %v", err)
	}
	if err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("p", nil))); err != nil {
		t.Errorf("the next request: %v", err)
	}
	if got := len(gateway.Requests()); got != 2 {
		t.Errorf("%d requests reached the gateway, want 2", got)
	}
}

// TestAnswerTooLargeIsInDoubt: grpc words it as it words a request that is too large, but the order may be in.
func TestAnswerTooLargeIsInDoubt(t *testing.T) {
	gateway := &fake.Gateway{}
	client := dial(t, listen(t, gateway, transports.ListenConfig{}), transports.DialConfig{})
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		x.Response.(*pb.SubmitOrderResponse).ClientTag = make([]byte, 17<<20)
		return nil
	}
	checkFault(t, client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))), pb.Reason_REASON_INTERNAL, pb.Outcome_OUTCOME_UNKNOWN)
}

// TestForeignServers: a gRPC server that is no gateway proves nothing but the lack of the method.
func TestForeignServers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := ggrpc.NewServer()
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		if err := server.Serve(listener); err != nil {
			t.Error(err)
		}
	}()
	defer func() {
		server.Stop()
		<-stop
	}()
	_, err = grpc.Transport().Dial(t.Context(), transports.DialConfig{Address: listener.Addr().String()})
	checkFault(t, err, pb.Reason_REASON_UNIMPLEMENTED, pb.Outcome_OUTCOME_NOT_PROCESSED)
}

// TestStatusWithoutDetailIsInDoubt: a status that carries no ErrorDetail is no gateway's word, and its request is sent once all the same.
func TestStatusWithoutDetailIsInDoubt(t *testing.T) {
	var code codes.Code
	var calls atomic.Int64
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := ggrpc.NewServer(ggrpc.UnknownServiceHandler(func(_ any, stream ggrpc.ServerStream) error {
		method, _ := ggrpc.MethodFromServerStream(stream)
		if err := stream.RecvMsg(&pb.SubmitOrderRequest{}); err != nil {
			return err
		}
		if method == pb.OrderEntryService_ListInstruments_FullMethodName { // the probe of a Dial
			return stream.SendMsg(&pb.ListInstrumentsResponse{})
		}
		calls.Add(1)
		return status.Error(code, "as told")
	}))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := server.Serve(listener); err != nil {
			t.Error(err)
		}
	}()
	defer func() {
		server.Stop()
		<-stopped
	}()
	client, err := grpc.Transport().Dial(t.Context(), transports.DialConfig{Address: listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, c := range []struct {
		code    codes.Code
		limited bool // whether the call has a deadline
		reason  pb.Reason
	}{
		{codes.DeadlineExceeded, true, pb.Reason_REASON_DEADLINE_EXCEEDED},
		{codes.DeadlineExceeded, false, pb.Reason_REASON_DEADLINE_EXCEEDED},
		{codes.Canceled, true, pb.Reason_REASON_DEADLINE_EXCEEDED},
		{codes.Canceled, false, pb.Reason_REASON_CONNECTION_LOST},
		{codes.Unavailable, true, pb.Reason_REASON_CONNECTION_LOST},
		{codes.Internal, true, pb.Reason_REASON_INTERNAL},
		{codes.ResourceExhausted, true, pb.Reason_REASON_INTERNAL},
		{codes.InvalidArgument, false, pb.Reason_REASON_INTERNAL},
		{codes.Unknown, false, pb.Reason_REASON_INTERNAL},
	} {
		t.Run(fmt.Sprintf("%v/%t", c.code, c.limited), func(t *testing.T) {
			code = c.code
			ctx := t.Context()
			if c.limited {
				limited, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				ctx = limited
			}
			before := calls.Load()
			err := client.Do(ctx, fake.Call(transports.SubmitOrder, fake.Order("o", nil)))
			checkFault(t, err, c.reason, pb.Outcome_OUTCOME_UNKNOWN)
			if (c.reason == pb.Reason_REASON_DEADLINE_EXCEEDED) != errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the fault wraps %v", errors.Unwrap(err))
			}
			if n := calls.Load() - before; n != 1 {
				t.Errorf("the request was sent %d times", n)
			}
		})
	}
}
