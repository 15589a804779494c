package tcp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp"
	"tailgate/transports/tcp/internal/credit"
)

// gateway is a fake order path. It answers every order with an acknowledgement that echoes the tag, counts what it handled, and releases
// as its commit function says; nil releases inside Commit.
type gateway struct {
	open   func(transports.Peer) error
	handle func(*transports.Exchange) error // nil: acknowledge
	commit func(transports.Releaser, uint64)
	events func(*pb.StreamExecutionsRequest) transports.Events // nil: there are none

	mu      sync.Mutex
	handled []string // client order ids, in order
}

type session struct{ g *gateway }

func (s session) Subscribe(ctx context.Context, request *pb.StreamExecutionsRequest) (transports.Events, error) {
	if s.g.events == nil {
		return transports.NoEvents{}.Subscribe(ctx, request)
	}
	return s.g.events(request), nil
}

func (g *gateway) Open(_ context.Context, peer transports.Peer) (transports.Session, error) {
	if g.open != nil {
		if err := g.open(peer); err != nil {
			return nil, err
		}
	}
	return session{g: g}, nil
}

func (s session) Handle(_ context.Context, x *transports.Exchange) error {
	if s.g.handle != nil {
		return s.g.handle(x)
	}
	return s.g.acknowledge(x)
}

func (g *gateway) acknowledge(x *transports.Exchange) error {
	switch request := x.Request.(type) {
	case *pb.SubmitOrderRequest:
		if request.ClientOrderId == "" {
			return transports.Malformed("client_order_id", "it is empty")
		}
		g.mu.Lock()
		g.handled = append(g.handled, string([]byte(request.ClientOrderId)))
		g.mu.Unlock()
		response := x.Response.(*pb.SubmitOrderResponse)
		response.ClientOrderId, response.OrderId = request.ClientOrderId, 7
		response.Status, response.Quantity = pb.OrderStatus_ORDER_STATUS_ACCEPTED, request.Quantity
		response.ReceivedNs = uint64(x.ReceivedNs)
		if request.AckDetail != pb.AckDetail_ACK_DETAIL_MINIMAL {
			response.ClientTag = request.ClientTag
		}
	case *pb.CancelOrderRequest:
		x.Response.(*pb.CancelOrderResponse).ClientOrderId = request.ClientOrderId
	case *pb.MassCancelRequest:
		x.Response.(*pb.MassCancelResponse).RequestId = request.RequestId
	case *pb.GetBookRequest:
		x.Response.(*pb.GetBookResponse).Symbol = request.Symbol
	}
	return nil
}

func (s session) Commit(r transports.Releaser, mark uint64) {
	if s.g.commit != nil {
		s.g.commit(r, mark)
		return
	}
	r.Release(mark, nil)
}

func (session) Close() {}

// ids is a copy of what was handled.
func (g *gateway) ids() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.handled...)
}

// listen starts a server that is shut down with the test.
func listen(t testing.TB, g transports.Gateway, config transports.ListenConfig) transports.Server {
	t.Helper()
	return listenWith(t, g, config, credit.Config{})
}

// wide is a pool in which each connection has the credit for one largest message as its floor, for peers that never ask.
var wide = credit.Config{Floor: 1354, Capacity: 1 << 22}

// listenWith is listen with a pool of credit of its own.
func listenWith(t testing.TB, g transports.Gateway, config transports.ListenConfig, pool credit.Config) transports.Server {
	t.Helper()
	if config.Address == "" {
		config.Address = "127.0.0.1:0"
	}
	if config.Engine == "" && config.TLS == nil {
		config.Engine = engine
	}
	server, err := tcp.ListenWith(g, config, pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	})
	return server
}

// dial connects a client that is closed with the test.
func dial(t testing.TB, server transports.Server, config transports.DialConfig) transports.Client {
	t.Helper()
	config.Address = server.Addr().String()
	client, err := tcp.Transport().Dial(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// order is a call with a tag of the given size.
func order(id string, tag int) *transports.Call {
	return &transports.Call{
		Operation: transports.SubmitOrder,
		Request: &pb.SubmitOrderRequest{
			ClientOrderId: id, Symbol: "TG.A", Side: pb.Side_SIDE_BUY, Type: pb.OrderType_ORDER_TYPE_LIMIT,
			TimeInForce: pb.TimeInForce_TIME_IN_FORCE_GTC, Quantity: 10, Price: 100, ClientTag: pattern(id, tag),
		},
		Response: &pb.SubmitOrderResponse{},
	}
}

// pattern is n bytes that depend on the id, so that answers cannot be mixed up unnoticed.
func pattern(id string, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = id[i%len(id)] + byte(i>>8)
	}
	return b
}

// checkAnswer compares an answer with its order.
func checkAnswer(call *transports.Call) error {
	request, response := call.Request.(*pb.SubmitOrderRequest), call.Response.(*pb.SubmitOrderResponse)
	if response.ClientOrderId != request.ClientOrderId || string(response.ClientTag) != string(request.ClientTag) {
		return fmt.Errorf("order %s got the answer of %s, with a tag of %d bytes for one of %d", request.ClientOrderId, response.ClientOrderId, len(response.ClientTag), len(request.ClientTag))
	}
	if response.SentNs < response.ReceivedNs || response.ReceivedNs == 0 {
		return fmt.Errorf("order %s was received at %d and its answer sent at %d", request.ClientOrderId, response.ReceivedNs, response.SentNs)
	}
	return nil
}
