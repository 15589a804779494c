// Package fake is a gateway for the tests of transports: no book, no journal, but the same promises about ownership and order, and
// hooks where a test wants to look or to hold something up. Only tests import it.
package fake

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Gateway implements transports.Gateway. Its fields are set before it is used; the zero value takes everything from everybody.
type Gateway struct {
	// Key is the only API key taken; empty takes any.
	Key string
	// OnOpen, where set, is called after the key was found good.
	OnOpen func(ctx context.Context, peer transports.Peer) error
	// OnHandle, where set, is called in place of Answer.
	OnHandle func(ctx context.Context, x *transports.Exchange) error
	// OnSubscribe, where set, answers Subscribe, which is else refused.
	OnSubscribe func(ctx context.Context, request *pb.StreamExecutionsRequest) (transports.Events, error)
	// OnCommit, where set, is called in place of an immediate release. It may release later, from another goroutine.
	OnCommit func(release func(err error))

	orders   atomic.Uint64
	opened   atomic.Int64
	closed   atomic.Int64
	mu       sync.Mutex
	requests []proto.Message // deep copies of everything handled
}

// Open implements transports.Gateway.
func (g *Gateway) Open(ctx context.Context, peer transports.Peer) (transports.Session, error) {
	if g.Key != "" && peer.Key != g.Key {
		return nil, transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "no such key")
	}
	if g.OnOpen != nil {
		if err := g.OnOpen(ctx, peer); err != nil {
			return nil, err
		}
	}
	g.opened.Add(1)
	return &session{gateway: g}, nil
}

// Sessions returns how many sessions are open now.
func (g *Gateway) Sessions() int64 { return g.opened.Load() - g.closed.Load() }

// Requests returns what was handled so far, reads of instruments (which a Dial makes) left out.
func (g *Gateway) Requests() []proto.Message {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]proto.Message(nil), g.requests...)
}

// Take returns what Requests does, and forgets it.
func (g *Gateway) Take() []proto.Message {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := g.requests
	g.requests = nil
	return taken
}

type session struct{ gateway *Gateway }

// Handle implements transports.Session.
func (s *session) Handle(ctx context.Context, x *transports.Exchange) error {
	g := s.gateway
	if x.Operation != transports.ListInstruments {
		kept := deepCopy(x.Request)
		g.mu.Lock()
		g.requests = append(g.requests, kept)
		g.mu.Unlock()
	}
	if g.OnHandle != nil {
		return g.OnHandle(ctx, x)
	}
	g.Answer(x)
	return nil
}

// deepCopy is a copy that shares nothing: proto.Clone shares the memory of strings, which is the transport's.
func deepCopy(m proto.Message) proto.Message {
	fresh := m.ProtoReflect().New().Interface()
	b, err := proto.Marshal(m)
	if err == nil {
		err = proto.Unmarshal(b, fresh)
	}
	if err != nil {
		panic(err) // the transport has decoded it just now
	}
	return fresh
}

// Commit implements transports.Session.
func (s *session) Commit(r transports.Releaser, mark uint64) {
	if hook := s.gateway.OnCommit; hook != nil {
		hook(func(err error) { r.Release(mark, err) })
		return
	}
	r.Release(mark, nil)
}

// Subscribe implements transports.Session.
func (s *session) Subscribe(ctx context.Context, request *pb.StreamExecutionsRequest) (transports.Events, error) {
	if s.gateway.OnSubscribe == nil {
		return nil, transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "this gateway has no events")
	}
	return s.gateway.OnSubscribe(ctx, request)
}

// Close implements transports.Session.
func (s *session) Close() { s.gateway.closed.Add(1) }

// Answer fills the response as a gateway would that accepts everything: ids repeated, the tag aliased and not copied, every kind
// of answer recognisable by what was asked.
func (g *Gateway) Answer(x *transports.Exchange) {
	switch q := x.Request.(type) {
	case *pb.SubmitOrderRequest:
		r := x.Response.(*pb.SubmitOrderResponse)
		r.ClientOrderId, r.OrderId = q.GetClientOrderId(), g.orders.Add(1)
		r.Status, r.Quantity, r.LeavesQuantity = pb.OrderStatus_ORDER_STATUS_ACCEPTED, q.GetQuantity(), q.GetQuantity()
		r.ReceivedNs, r.OrderVersion = uint64(x.ReceivedNs), 1
		if q.GetAckDetail() != pb.AckDetail_ACK_DETAIL_MINIMAL {
			r.ClientTag = q.GetClientTag()
		}
	case *pb.ReplaceOrderRequest:
		r := x.Response.(*pb.ReplaceOrderResponse)
		r.RequestId, r.ClientOrderId, r.Quantity, r.LastPrice = q.GetRequestId(), q.GetClientOrderId(), q.GetQuantity(), q.GetPrice()
		r.Status, r.ReceivedNs = pb.OrderStatus_ORDER_STATUS_ACCEPTED, uint64(x.ReceivedNs)
	case *pb.CancelOrderRequest:
		r := x.Response.(*pb.CancelOrderResponse)
		r.RequestId, r.ClientOrderId = q.GetRequestId(), q.GetClientOrderId()
		r.Status, r.ReceivedNs = pb.OrderStatus_ORDER_STATUS_CANCELED, uint64(x.ReceivedNs)
	case *pb.MassCancelRequest:
		r := x.Response.(*pb.MassCancelResponse)
		r.RequestId, r.Text, r.CanceledCount = q.GetRequestId(), q.GetSymbol(), uint32(q.GetSide())
		r.Status, r.ReceivedNs = pb.OrderStatus_ORDER_STATUS_CANCELED, uint64(x.ReceivedNs)
	case *pb.CancelAllAfterRequest:
		x.Response.(*pb.CancelAllAfterResponse).TriggerNs = uint64(q.GetTimeoutMs())
	case *pb.GetOrderRequest:
		x.Response.(*pb.GetOrderResponse).Order = &pb.Order{ClientOrderId: q.GetClientOrderId(), Side: pb.Side_SIDE_SELL}
	case *pb.ListOrdersRequest:
		r := x.Response.(*pb.ListOrdersResponse)
		r.NextPageToken = q.GetPageToken() + "+"
		r.Orders = []*pb.Order{{OrderId: uint64(q.GetState())}, {OrderId: uint64(q.GetPageSize())}}
	case *pb.GetBookRequest:
		r := x.Response.(*pb.GetBookResponse)
		r.Symbol, r.LogSequence = q.GetSymbol(), uint64(q.GetDepth())
		r.Bids = []*pb.BookLevel{{Price: -1, Quantity: 2, OrderCount: 1}}
	case *pb.ListInstrumentsRequest:
		x.Response.(*pb.ListInstrumentsResponse).Instruments = []*pb.Instrument{{Symbol: "DEMO", TickNanos: 1, LotSize: 1, Currency: "USD"}}
	}
}
