package grpc_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/grpc"
	"tailgate/transports/internal/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; only a failure takes so long.
const patience = 20 * time.Second

// listen starts a server at a free port and stops it with the test.
func listen(t testing.TB, gateway transports.Gateway, config transports.ListenConfig) transports.Server {
	t.Helper()
	config.Address = "127.0.0.1:0"
	server, err := grpc.Transport().Listen(t.Context(), gateway, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return server
}

// dial connects a client to the server and closes it with the test.
func dial(t testing.TB, server transports.Server, config transports.DialConfig) transports.Client {
	t.Helper()
	config.Address = server.Addr().String()
	client, err := grpc.Transport().Dial(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return client
}

// checkFault checks what a call ended with.
func checkFault(t *testing.T, err error, reason pb.Reason, outcome pb.Outcome) {
	t.Helper()
	fault, ok := errors.AsType[*transports.Fault](err)
	if !ok || fault.Reason != reason || fault.Outcome != outcome {
		t.Errorf("the call ended with %v (%+v), want %v, %v", err, fault, reason, outcome)
	}
}

func TestEveryOperationGoesThereAndBack(t *testing.T) {
	gateway := &fake.Gateway{}
	client := dial(t, listen(t, gateway, transports.ListenConfig{}), transports.DialConfig{})
	for _, op := range transports.Operations() {
		fake.CheckThereAndBack(t, gateway, client, op)
	}
	if open := gateway.Sessions(); open != 0 {
		t.Errorf("%d sessions are still open", open)
	}
}

func TestTagsOfEverySizeComeBack(t *testing.T) {
	client := dial(t, listen(t, &fake.Gateway{}, transports.ListenConfig{}), transports.DialConfig{})
	for _, size := range []int{0, 1, 33, 16<<10 - 1, 64 << 10, 1<<20 - 100, 1} {
		tag := bytes.Repeat([]byte{byte(size)}, size)
		c := fake.Call(transports.SubmitOrder, fake.Order("o", tag))
		if err := client.Do(t.Context(), c); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if got := c.Response.(*pb.SubmitOrderResponse).GetClientTag(); !bytes.Equal(got, tag) {
			t.Errorf("%d bytes: the echo has %d", size, len(got))
		}
	}
}

func TestTLS(t *testing.T) {
	serverTLS, clientTLS := fake.Certificate(t)
	var seen *tls.ConnectionState
	gateway := &fake.Gateway{OnOpen: func(_ context.Context, peer transports.Peer) error {
		seen = peer.TLS
		return nil
	}}
	client := dial(t, listen(t, gateway, transports.ListenConfig{TLS: serverTLS}), transports.DialConfig{TLS: clientTLS})
	fake.CheckThereAndBack(t, gateway, client, transports.SubmitOrder)
	if seen == nil || seen.NegotiatedProtocol != "h2" {
		t.Errorf("the gateway saw TLS %+v, want a state with h2", seen)
	}
	if serverTLS.NextProtos != nil || clientTLS.NextProtos != nil {
		t.Error("the configurations of the caller were changed")
	}
}

func TestGatewaySeesWhoSpeaksAndUntilWhen(t *testing.T) {
	var peer transports.Peer
	var until time.Time
	gateway := &fake.Gateway{Key: "k.1~2+/3==", OnOpen: func(ctx context.Context, p transports.Peer) error {
		peer = p
		until, _ = ctx.Deadline()
		return nil
	}}
	client := dial(t, listen(t, gateway, transports.ListenConfig{}), transports.DialConfig{Key: gateway.Key})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := client.Do(ctx, fake.Call(transports.SubmitOrder, fake.Order("o", nil))); err != nil {
		t.Fatal(err)
	}
	address, ok := peer.Remote.(*net.TCPAddr)
	if !ok || !address.IP.IsLoopback() || peer.Transport != grpc.Name || peer.Key != gateway.Key || peer.TLS != nil {
		t.Errorf("peer is %+v (%T)", peer, peer.Remote)
	}
	if left := time.Until(until); left < time.Minute || left > time.Hour {
		t.Errorf("the gateway's deadline is in %v, want an hour", left)
	}
}

func TestManyCallersShareOneConnection(t *testing.T) {
	gateway := &fake.Gateway{}
	// One connection, few streams: those beyond wait for a place and get it.
	server := listen(t, gateway, transports.ListenConfig{Limits: transports.Limits{MaxConnections: 1, MaxStreams: 4}})
	client := dial(t, server, transports.DialConfig{})
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			for j := range 20 {
				id := fmt.Sprintf("o-%d-%d", i, j)
				tag := bytes.Repeat([]byte(id), 1+i*j)
				c := fake.Call(transports.SubmitOrder, fake.Order(id, tag))
				if err := client.Do(t.Context(), c); err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				if r := c.Response.(*pb.SubmitOrderResponse); r.GetClientOrderId() != id || !bytes.Equal(r.GetClientTag(), tag) {
					t.Errorf("%s got the answer of %s", id, r.GetClientOrderId())
				}
			}
		})
	}
	group.Wait()
	if got := len(gateway.Requests()); got != 32*20 {
		t.Errorf("the gateway saw %d requests, want %d", got, 32*20)
	}
}
