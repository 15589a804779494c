package twirp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/twirp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; only a failure takes so long.
const patience = 20 * time.Second

// listen starts a server at a free port and stops it with the test.
func listen(t testing.TB, gateway transports.Gateway, config transports.ListenConfig) transports.Server {
	t.Helper()
	config.Address = "127.0.0.1:0"
	server, err := twirp.Transport().Listen(t.Context(), gateway, config)
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
	client, err := twirp.Transport().Dial(t.Context(), config)
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

// each runs a test in every encoding.
func each(t *testing.T, run func(t *testing.T, config transports.DialConfig)) {
	for _, encoding := range twirp.Transport().Encodings {
		t.Run(encoding, func(t *testing.T) { run(t, transports.DialConfig{Encoding: encoding}) })
	}
}

func TestEveryOperationGoesThereAndBack(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	each(t, func(t *testing.T, config transports.DialConfig) {
		client := dial(t, server, config)
		for _, op := range transports.Operations() {
			fake.CheckThereAndBack(t, gateway, client, op)
		}
		for _, size := range []int{0, 1, 33, 64 << 10, 1<<20 - 100} {
			tag := bytes.Repeat([]byte{byte(size)}, size)
			c := fake.Call(transports.SubmitOrder, fake.Order("o", tag))
			if err := client.Do(t.Context(), c); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if got := c.Response.(*pb.SubmitOrderResponse).GetClientTag(); !bytes.Equal(got, tag) {
				t.Errorf("%d bytes: the echo has %d", size, len(got))
			}
		}
	})
	if open := gateway.Sessions(); open != 0 {
		t.Errorf("%d sessions are still open", open)
	}
}

func TestEveryFaultComesBackWhole(t *testing.T) {
	var fault *transports.Fault
	gateway := &fake.Gateway{}
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		if x.Operation == transports.SubmitOrder {
			return fault
		}
		gateway.Answer(x)
		return nil
	}
	server := listen(t, gateway, transports.ListenConfig{})
	each(t, func(t *testing.T, config transports.DialConfig) {
		client := dial(t, server, config)
		for _, fault = range fake.Faults() {
			got, ok := errors.AsType[*transports.Fault](client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))))
			if !ok || *got != *fault {
				t.Errorf("the client has %+v, want %+v", got, fault)
			}
		}
	})
}

func TestTLS(t *testing.T) {
	serverTLS, clientTLS := fake.Certificate(t)
	var seen *tls.ConnectionState
	gateway := &fake.Gateway{OnOpen: func(_ context.Context, peer transports.Peer) error {
		seen = peer.TLS
		return nil
	}}
	server := listen(t, gateway, transports.ListenConfig{TLS: serverTLS})
	each(t, func(t *testing.T, config transports.DialConfig) {
		config.TLS = clientTLS
		fake.CheckThereAndBack(t, gateway, dial(t, server, config), transports.SubmitOrder)
		if seen == nil || seen.NegotiatedProtocol != "h2" {
			t.Errorf("the gateway saw TLS %+v, want a state with h2", seen)
		}
	})
	if serverTLS.NextProtos != nil || clientTLS.NextProtos != nil {
		t.Error("the configurations of the caller were changed")
	}
}

func TestGatewaySeesWhoSpeaks(t *testing.T) {
	var peer transports.Peer
	gateway := &fake.Gateway{Key: "k.1~2+/3==", OnOpen: func(_ context.Context, p transports.Peer) error {
		peer = p
		return nil
	}}
	server := listen(t, gateway, transports.ListenConfig{})
	each(t, func(t *testing.T, config transports.DialConfig) {
		config.Key = gateway.Key
		client := dial(t, server, config)
		if err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))); err != nil {
			t.Fatal(err)
		}
		address, ok := peer.Remote.(*net.TCPAddr)
		if !ok || !address.IP.IsLoopback() || peer.Transport != twirp.Name || peer.Key != gateway.Key || peer.TLS != nil {
			t.Errorf("peer is %+v (%T)", peer, peer.Remote)
		}
	})
}
