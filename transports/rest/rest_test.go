package rest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; only a failure takes so long.
const patience = 20 * time.Second

// listen starts a server at a free port and stops it with the test.
func listen(t testing.TB, gateway transports.Gateway, config transports.ListenConfig) transports.Server {
	t.Helper()
	config.Address = "127.0.0.1:0"
	server, err := rest.Transport().Listen(t.Context(), gateway, config)
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
	client, err := rest.Transport().Dial(t.Context(), config)
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

func TestEveryOperationGoesThereAndBack(t *testing.T) {
	for _, encoding := range rest.Transport().Encodings {
		t.Run(encoding, func(t *testing.T) {
			gateway := &fake.Gateway{}
			client := dial(t, listen(t, gateway, transports.ListenConfig{}), transports.DialConfig{Encoding: encoding})
			for _, op := range transports.Operations() {
				fake.CheckThereAndBack(t, gateway, client, op)
			}
			if open := gateway.Sessions(); open != 0 {
				t.Errorf("%d sessions are still open", open)
			}
		})
	}
}

func TestTagsOfEverySizeComeBack(t *testing.T) {
	for _, encoding := range rest.Transport().Encodings {
		t.Run(encoding, func(t *testing.T) {
			client := dial(t, listen(t, &fake.Gateway{}, transports.ListenConfig{}), transports.DialConfig{Encoding: encoding})
			// Work is pooled: a large tag, then a small one, must not leave anything of the large one behind.
			for _, size := range []int{0, 1, 64 << 10, 33, 2047, 2048, 2049, 4096, 1<<20 - 100, 1, 0} {
				tag := bytes.Repeat([]byte{byte(size)}, size)
				c := fake.Call(transports.SubmitOrder, fake.Order("o", tag))
				before := time.Now()
				if err := client.Do(t.Context(), c); err != nil {
					t.Fatalf("%d bytes: %v", size, err)
				}
				if got := c.Response.(*pb.SubmitOrderResponse).GetClientTag(); !bytes.Equal(got, tag) {
					t.Errorf("%d bytes: the echo has %d", size, len(got))
				}
				if c.FirstWrite.Before(before) || c.FirstWrite.After(time.Now()) {
					t.Errorf("FirstWrite is %v, not within the call that began at %v", c.FirstWrite, before)
				}
			}
		})
	}
}

func TestTLS(t *testing.T) {
	serverTLS, clientTLS := fake.Certificate(t)
	var seen *tls.ConnectionState
	gateway := &fake.Gateway{OnOpen: func(_ context.Context, peer transports.Peer) error {
		seen = peer.TLS
		return nil
	}}
	server := listen(t, gateway, transports.ListenConfig{TLS: serverTLS})
	client := dial(t, server, transports.DialConfig{TLS: clientTLS})
	fake.CheckThereAndBack(t, gateway, client, transports.SubmitOrder)
	if seen == nil || seen.NegotiatedProtocol != "http/1.1" {
		t.Errorf("the gateway saw TLS %+v, want a state with http/1.1", seen)
	}
	if serverTLS.NextProtos != nil || clientTLS.NextProtos != nil {
		t.Error("the configurations of the caller were changed")
	}
	c := fake.Call(transports.SubmitOrder, fake.Order("o", nil))
	if err := client.Do(t.Context(), c); err != nil || c.FirstWrite.IsZero() {
		t.Errorf("error %v, FirstWrite %v under TLS", err, c.FirstWrite)
	}
}

func TestGatewaySeesWhoSpeaks(t *testing.T) {
	var peer transports.Peer
	gateway := &fake.Gateway{Key: "k.1~2+/3==", OnOpen: func(_ context.Context, p transports.Peer) error {
		peer = p
		return nil
	}}
	dial(t, listen(t, gateway, transports.ListenConfig{}), transports.DialConfig{Key: gateway.Key})
	address, ok := peer.Remote.(*net.TCPAddr)
	if !ok || !address.IP.IsLoopback() || peer.Transport != rest.Name || peer.Key != gateway.Key || peer.TLS != nil {
		t.Errorf("peer is %+v (%T)", peer, peer.Remote)
	}
}
