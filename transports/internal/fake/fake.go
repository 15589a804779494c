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
	// Forgetful keeps no copies of requests, for benchmarks.
	Forgetful bool
	// OnOpen, where set, is called after the key was found good.
	OnOpen func(ctx context.Context, peer transports.Peer) error
	// OnHandle, where set, is called in place of Answer.
	OnHandle func(ctx context.Context, x *transports.Exchange) error
	// Feed, where set, is what Subscribe reads and where a Logon without a place begins. A second Logon under the same session id ends
	// the first one's session.
	Feed *Feed
	// OnSubscribe, where set, answers Subscribe in place of Feed; without both it is refused.
	OnSubscribe func(ctx context.Context, request *pb.StreamExecutionsRequest) (transports.Events, error)
	// OnCommit, where set, is called in place of an immediate release. It may release later, from another goroutine.
	OnCommit func(release func(err error))

	orders   atomic.Uint64
	opened   atomic.Int64
	closed   atomic.Int64
	mu       sync.Mutex
	requests []proto.Message     // deep copies of everything handled
	named    map[string]*session // by session id
	lost     []string            // ids of named sessions that were closed without a Logout
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

// Lost returns the ids of the sessions that were closed without a Logout and without being replaced, in order.
func (g *Gateway) Lost() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.lost...)
}

type session struct {
	gateway  *Gateway
	id       string // of its Logon; guarded by the gateway's lock, as in Gateway.named
	replaced atomic.Bool
}

// Handle implements transports.Session.
func (s *session) Handle(ctx context.Context, x *transports.Exchange) error {
	g := s.gateway
	if x.Operation != transports.ListInstruments && !g.Forgetful {
		kept := deepCopy(x.Request)
		g.mu.Lock()
		g.requests = append(g.requests, kept)
		g.mu.Unlock()
	}
	if s.replaced.Load() {
		return replacedFault()
	}
	if err := s.step(x); err != nil {
		return err
	}
	if g.OnHandle != nil {
		return g.OnHandle(ctx, x)
	}
	g.Answer(x)
	return nil
}

// step keeps the book of named sessions.
func (s *session) step(x *transports.Exchange) error {
	g := s.gateway
	switch q := x.Request.(type) {
	case *pb.Logon:
		id := string([]byte(q.GetSessionId()))
		if id == "" {
			return transports.Malformed("session_id", "it is empty")
		}
		if g.Feed != nil { // a place that is not there is refused before anything changes
			g.Feed.mu.Lock()
			_, err := g.Feed.place("last_sequence", q.GetEpoch(), q.GetLastSequence()+1)
			g.Feed.mu.Unlock()
			if err != nil {
				return err
			}
		}
		g.mu.Lock()
		older := g.named[id]
		if g.named == nil {
			g.named = make(map[string]*session)
		}
		g.named[id], s.id = s, id
		g.mu.Unlock()
		if older != nil {
			older.replaced.Store(true)
			if g.Feed != nil {
				g.Feed.mu.Lock()
				g.Feed.change()
				g.Feed.mu.Unlock()
			}
		}
	case *pb.Logout:
		g.mu.Lock()
		delete(g.named, s.id)
		g.mu.Unlock()
	}
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
	switch g := s.gateway; {
	case g.OnSubscribe != nil:
		return g.OnSubscribe(ctx, request)
	case g.Feed != nil:
		return g.Feed.subscribe(request, s)
	default:
		return nil, transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "this gateway has no events")
	}
}

// Close implements transports.Session.
func (s *session) Close() {
	g := s.gateway
	g.mu.Lock()
	if s.id != "" && g.named[s.id] == s {
		delete(g.named, s.id)
		g.lost = append(g.lost, s.id)
	}
	g.mu.Unlock()
	g.closed.Add(1)
}

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
	case *pb.Logon:
		r := x.Response.(*pb.LogonAck)
		if r.Epoch, r.NextSequence = q.GetEpoch(), q.GetLastSequence()+1; r.Epoch == 0 {
			r.Epoch = 1
			if g.Feed != nil {
				r.Epoch, _ = g.Feed.End()
			}
		}
	case *pb.Logout:
		x.Response.(*pb.Logout).Text = q.GetText()
	case *pb.ListInstrumentsRequest:
		x.Response.(*pb.ListInstrumentsResponse).Instruments = []*pb.Instrument{{Symbol: "DEMO", TickNanos: 1, LotSize: 1, Currency: "USD"}}
	}
}
