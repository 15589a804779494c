// Package rpctest holds an RPC transport over HTTP to what the suite of all transports does not see: every message and every fault at the ends of one connection, TLS, and
// what the gateway is told of a peer. One way is one protocol in one encoding of the transport.
package rpctest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
)

// withDeadlines are the transports that carry deadlines: where one loses its own, these tests must not fall silent.
var withDeadlines = []string{"connect"}

// patience bounds every wait of these tests; only a failure takes so long.
const patience = 20 * time.Second

// Run is all of the tests.
func Run(t *testing.T, transport transports.Transport) {
	t.Run("every operation", func(t *testing.T) { everyOperation(t, transport) })
	t.Run("every fault", func(t *testing.T) { everyFault(t, transport) })
	t.Run("TLS", func(t *testing.T) { overTLS(t, transport) })
	t.Run("peer", func(t *testing.T) { peerAndDeadline(t, transport) })
}

// listen starts a server at a free port and stops it with the test.
func listen(t testing.TB, transport transports.Transport, gateway transports.Gateway, config transports.ListenConfig) transports.Server {
	t.Helper()
	config.Address = "127.0.0.1:0"
	server, err := transport.Listen(t.Context(), gateway, config)
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
func dial(t testing.TB, transport transports.Transport, server transports.Server, config transports.DialConfig) transports.Client {
	t.Helper()
	config.Address = server.Addr().String()
	client, err := transport.Dial(t.Context(), config)
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

// ways are the transport's protocols, each in every encoding, by name.
func ways(transport transports.Transport) map[string]transports.DialConfig {
	protocols := transport.Protocols
	if len(protocols) == 0 {
		protocols = []string{""}
	}
	all := map[string]transports.DialConfig{}
	for _, protocol := range protocols {
		for _, encoding := range transport.Encodings {
			all[strings.TrimPrefix(protocol+"/"+encoding, "/")] = transports.DialConfig{Protocol: protocol, Encoding: encoding}
		}
	}
	return all
}

func each(t *testing.T, transport transports.Transport, run func(t *testing.T, config transports.DialConfig)) {
	for name, config := range ways(transport) {
		t.Run(name, func(t *testing.T) { run(t, config) })
	}
}

func everyOperation(t *testing.T, transport transports.Transport) {
	gateway := &fake.Gateway{}
	server := listen(t, transport, gateway, transports.ListenConfig{})
	each(t, transport, func(t *testing.T, config transports.DialConfig) {
		client := dial(t, transport, server, config)
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

func everyFault(t *testing.T, transport transports.Transport) {
	var fault *transports.Fault
	gateway := &fake.Gateway{}
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		if x.Operation == transports.SubmitOrder {
			return fault
		}
		gateway.Answer(x)
		return nil
	}
	server := listen(t, transport, gateway, transports.ListenConfig{})
	each(t, transport, func(t *testing.T, config transports.DialConfig) {
		client := dial(t, transport, server, config)
		for _, fault = range fake.Faults() {
			got, ok := errors.AsType[*transports.Fault](client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))))
			if !ok || *got != *fault {
				t.Errorf("the client has %+v, want %+v", got, fault)
			}
		}
	})
}

func overTLS(t *testing.T, transport transports.Transport) {
	serverTLS, clientTLS := fake.Certificate(t)
	var seen *tls.ConnectionState
	gateway := &fake.Gateway{OnOpen: func(_ context.Context, peer transports.Peer) error {
		seen = peer.TLS
		return nil
	}}
	server := listen(t, transport, gateway, transports.ListenConfig{TLS: serverTLS})
	each(t, transport, func(t *testing.T, config transports.DialConfig) {
		config.TLS = clientTLS
		fake.CheckThereAndBack(t, gateway, dial(t, transport, server, config), transports.SubmitOrder)
		if seen == nil || seen.NegotiatedProtocol != "h2" {
			t.Errorf("the gateway saw TLS %+v, want a state with h2", seen)
		}
	})
	if serverTLS.NextProtos != nil || clientTLS.NextProtos != nil {
		t.Error("the configurations of the caller were changed")
	}
}

// peerAndDeadline: the gateway sees who speaks, and until when where the transport carries deadlines.
func peerAndDeadline(t *testing.T, transport transports.Transport) {
	var peer transports.Peer
	var until time.Time
	gateway := &fake.Gateway{Key: "k.1~2+/3==", OnOpen: func(ctx context.Context, p transports.Peer) error {
		peer = p
		until, _ = ctx.Deadline()
		return nil
	}}
	server := listen(t, transport, gateway, transports.ListenConfig{})
	each(t, transport, func(t *testing.T, config transports.DialConfig) {
		config.Key = gateway.Key
		client := dial(t, transport, server, config)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := client.Do(ctx, fake.Call(transports.SubmitOrder, fake.Order("o", nil))); err != nil {
			t.Fatal(err)
		}
		address, ok := peer.Remote.(*net.TCPAddr)
		if !ok || !address.IP.IsLoopback() || peer.Transport != transport.Name || peer.Key != gateway.Key || peer.TLS != nil {
			t.Errorf("peer is %+v (%T)", peer, peer.Remote)
		}
		if left := time.Until(until); slices.Contains(withDeadlines, transport.Name) && (left < time.Minute || left > time.Hour) {
			t.Errorf("the gateway's deadline is in %v, want an hour", left)
		}
	})
}

// sink is a response that nobody reads.
type sink struct {
	header http.Header
	status int
	bytes  int
}

// Header implements http.ResponseWriter.
func (s *sink) Header() http.Header { return s.header }

// WriteHeader implements http.ResponseWriter.
func (s *sink) WriteHeader(status int) { s.status = status }

// Write implements http.ResponseWriter.
func (s *sink) Write(p []byte) (int, error) {
	s.bytes += len(p)
	return len(p), nil
}

// Answer is what the gateway of the benchmarks answers, for the bare server beside it, so that both send the same bytes.
func Answer(ctx context.Context, order *pb.SubmitOrderRequest) (*pb.SubmitOrderResponse, error) {
	x := transports.Exchange{Operation: transports.SubmitOrder, ReceivedNs: transports.Now(), Request: order, Response: &pb.SubmitOrderResponse{}}
	err := fake.Null{}.Handle(ctx, &x)
	transports.StampSent(x.Response, transports.Now())
	return x.Response.(*pb.SubmitOrderResponse), err
}

// BenchHandler is one order through ServeHTTP, of the transport and of the bare server of its library: the difference is what admission, bounds and the exchange with
// a gateway cost. It fails where the two do not answer as many bytes.
func BenchHandler(b *testing.B, gateway, bare http.Handler, path, binaryType string) {
	for _, size := range []int{64, 64 << 10} {
		m := fake.Order("abcdefghijkl", nil)
		m.ClientTag = make([]byte, max(1, size-proto.Size(m)-2))
		binary, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		text, err := protojson.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range []struct {
			name, contentType string
			body              []byte
		}{{"protobuf", binaryType, binary}, {"json", "application/json", text}} {
			request := func() *http.Request {
				return &http.Request{
					Method: http.MethodPost, URL: &url.URL{Path: path}, Header: http.Header{"Content-Type": {c.contentType}},
					ContentLength: int64(len(c.body)), ProtoMajor: 1, Host: "x", Body: io.NopCloser(bytes.NewReader(c.body)),
				}
			}
			var answers [2]sink
			for i, handler := range []http.Handler{gateway, bare} {
				answers[i].header = make(http.Header)
				handler.ServeHTTP(&answers[i], request())
			}
			if c.name == "protobuf" && answers[0].bytes != answers[1].bytes { // as text each library writes zero values and spaces in its own way
				b.Fatalf("%s, %d bytes: the gateway answers %d bytes, the bare server %d", c.name, size, answers[0].bytes, answers[1].bytes)
			}
			for i, handler := range []http.Handler{gateway, bare} {
				b.Run(fmt.Sprintf("%s/%s/%d", []string{"gateway", "bare"}[i], c.name, size), func(b *testing.B) {
					w, r, body := &sink{header: make(http.Header)}, request(), bytes.NewReader(c.body)
					b.ReportAllocs()
					b.SetBytes(int64(len(c.body)))
					for b.Loop() {
						body.Reset(c.body)
						r.Body = io.NopCloser(body)
						handler.ServeHTTP(w, r)
					}
					if w.status > http.StatusOK || w.bytes == 0 {
						b.Fatalf("status %d, %d bytes", w.status, w.bytes)
					}
				})
			}
		}
	}
}

// BenchRoundTrip is one caller over loopback, client and server in one process, each way: both sides' allocations are counted.
func BenchRoundTrip(b *testing.B, transport transports.Transport) {
	for name, config := range ways(transport) {
		b.Run(name, func(b *testing.B) {
			client := dial(b, transport, listen(b, transport, fake.Null{}, transports.ListenConfig{}), config)
			c := fake.Call(transports.SubmitOrder, fake.Order("abcdefghijkl", make([]byte, 20)))
			b.ReportAllocs()
			for b.Loop() {
				if err := client.Do(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
