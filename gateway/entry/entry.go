// Package entry is where a request becomes a command: it admits peers, holds requests to the contract, and turns messages into
// commands for the sequencer and its answers into messages.
//
// It is the gateway that transports see (transports.Gateway). It must never know how a request travelled, what a book looks
// like inside, or how a journal writes. What is checked here needs no state (the shape of a message); what needs state is
// decided by package orders under the writer's lock.
package entry

import (
	"context"
	"errors"
	"net"
	"sync"

	"tailgate/gateway/orders"
	"tailgate/gateway/sequencer"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// DemoAccount is the account of every loopback client of a gateway without keys.
const DemoAccount = "demo"

// Gateway implements transports.Gateway. Safe for concurrent use.
type Gateway struct {
	sequencer *sequencer.Sequencer
	keys      map[KeyHash]uint32 // account numbers; never changed after New
	demo      *session           // of clients where no keys are configured, else nil
	anybody   bool               // demo is not only for loopback clients
}

// New returns a gateway for the accounts behind the keys. Without any key every loopback client, with anybody set every client at all,
// trades for DemoAccount, which must then be defined. Accounts are numbers that the state has given.
func New(s *sequencer.Sequencer, keys map[KeyHash]uint32, anybody bool) (*Gateway, error) {
	g := &Gateway{sequencer: s, keys: keys, anybody: anybody}
	if len(keys) > 0 {
		return g, nil
	}
	var number uint32
	var ok bool
	s.Read(func(state *orders.State, _ uint64) { number, ok = state.Account(DemoAccount) })
	if !ok {
		return nil, errors.New("entry: no keys are configured and the account " + DemoAccount + " is not defined")
	}
	g.demo = &session{gateway: g, account: number}
	return g, nil
}

// Open implements transports.Gateway. A key is found by its hash, so nothing that depends on the key's bytes takes a time that
// depends on them.
func (g *Gateway) Open(_ context.Context, peer transports.Peer) (transports.Session, error) {
	if g.demo != nil {
		if peer.Key == "" && (g.anybody || isLoopback(peer.Remote)) {
			return g.demo, nil
		}
		if peer.Key != "" {
			return nil, transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "this gateway has no keys configured: connect without one")
		}
		return nil, transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "this gateway has no keys configured and serves loopback clients only")
	}
	if peer.Key == "" {
		return nil, transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "an API key is needed and none was sent")
	}
	account, ok := g.keys[HashKey(peer.Key)]
	if !ok {
		return nil, transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "nobody has this API key")
	}
	return &session{gateway: g, account: account}, nil
}

// isLoopback tells local peers. The in-memory transport has no address.
func isLoopback(remote net.Addr) bool {
	switch a := remote.(type) {
	case nil:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	default:
		return false
	}
}

// session is one admitted peer. It has no state of its own but the account, so one serves many connections.
type session struct {
	transports.NoEvents
	gateway *Gateway
	account uint32
}

// Commit implements transports.Session.
func (s *session) Commit(r transports.Releaser, mark uint64) { s.gateway.sequencer.Commit(r, mark) }

// Close implements transports.Session.
func (s *session) Close() {}

// scratch is what one exchange needs besides its messages, so that the hot path takes nothing from the heap.
type scratch struct {
	command orders.Command
	answer  orders.Answer
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// Handle implements transports.Session.
func (s *session) Handle(ctx context.Context, x *transports.Exchange) error {
	if err := ctx.Err(); err != nil {
		f := transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "the request was over before its work began")
		f.Err = err
		return f
	}
	switch request := x.Request.(type) {
	case *pb.SubmitOrderRequest:
		if response, ok := x.Response.(*pb.SubmitOrderResponse); ok {
			return s.submit(request, response, x.ReceivedNs)
		}
	case *pb.ReplaceOrderRequest:
		if response, ok := x.Response.(*pb.ReplaceOrderResponse); ok {
			return s.replace(request, response, x.ReceivedNs)
		}
	case *pb.CancelOrderRequest:
		if response, ok := x.Response.(*pb.CancelOrderResponse); ok {
			return s.cancel(request, response, x.ReceivedNs)
		}
	case *pb.GetOrderRequest:
		if response, ok := x.Response.(*pb.GetOrderResponse); ok {
			return s.getOrder(request, response)
		}
	case *pb.ListOrdersRequest:
		if response, ok := x.Response.(*pb.ListOrdersResponse); ok {
			return s.listOrders(request, response)
		}
	case *pb.GetBookRequest:
		if response, ok := x.Response.(*pb.GetBookResponse); ok {
			return s.getBook(request, response)
		}
	case *pb.ListInstrumentsRequest:
		if response, ok := x.Response.(*pb.ListInstrumentsResponse); ok {
			return s.listInstruments(response)
		}
	case *pb.MassCancelRequest, *pb.CancelAllAfterRequest:
		return unimplemented("", x.Operation.String())
	}
	return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%s does not go with a %T answered by a %T", x.Operation, x.Request, x.Response)
}

func (s *session) submit(request *pb.SubmitOrderRequest, response *pb.SubmitOrderResponse, receivedNs int64) error {
	work, _ := scratches.Get().(*scratch)
	defer scratches.Put(work)
	c, a := &work.command, &work.answer
	*c = orders.Command{Kind: orders.Submit, Account: s.account, ReceivedNs: receivedNs}
	if err := checkSubmit(request, c); err != nil {
		return err
	}
	if err := s.gateway.sequencer.Execute(c, a); err != nil {
		return err
	}
	response.ClientOrderId = request.GetClientOrderId()
	response.OrderId = a.OrderID
	response.Status = a.Status
	response.Reason = a.Reason
	response.Quantity, response.FilledQuantity, response.LeavesQuantity = a.Quantity, a.Filled, a.Leaves
	response.LastPrice, response.FilledNotional = a.LastPrice, a.FilledNotional
	response.Sequence, response.Epoch = a.Sequence, a.Epoch
	response.Duplicate = a.Duplicate
	response.OrderVersion = a.Version
	response.ReceivedNs = uint64(a.ReceivedNs)
	response.SentNs = 0
	response.ClientTag = nil
	if request.GetAckDetail() != pb.AckDetail_ACK_DETAIL_MINIMAL {
		response.ClientTag = request.GetClientTag()
	}
	response.Text = a.Text(c)
	return nil
}

func (s *session) replace(request *pb.ReplaceOrderRequest, response *pb.ReplaceOrderResponse, receivedNs int64) error {
	work, _ := scratches.Get().(*scratch)
	defer scratches.Put(work)
	c, a := &work.command, &work.answer
	*c = orders.Command{Kind: orders.Replace, Account: s.account, ReceivedNs: receivedNs}
	if err := checkReplace(request, c); err != nil {
		return err
	}
	if err := s.gateway.sequencer.Execute(c, a); err != nil {
		return err
	}
	response.ClientOrderId, response.RequestId = request.GetClientOrderId(), request.GetRequestId()
	response.OrderId = a.OrderID
	response.Status = a.Status
	response.Reason = a.Reason
	response.Quantity, response.FilledQuantity, response.LeavesQuantity = a.Quantity, a.Filled, a.Leaves
	response.LastPrice, response.FilledNotional = a.LastPrice, a.FilledNotional
	response.Sequence, response.Epoch = a.Sequence, a.Epoch
	response.Duplicate = a.Duplicate
	response.OrderVersion = a.Version
	response.ReceivedNs = uint64(a.ReceivedNs)
	response.SentNs = 0
	response.Text = a.Text(c)
	return nil
}

func (s *session) cancel(request *pb.CancelOrderRequest, response *pb.CancelOrderResponse, receivedNs int64) error {
	work, _ := scratches.Get().(*scratch)
	defer scratches.Put(work)
	c, a := &work.command, &work.answer
	*c = orders.Command{Kind: orders.Cancel, Account: s.account, ReceivedNs: receivedNs}
	if err := checkChange(request.GetRequestId(), request.GetClientOrderId(), c); err != nil {
		return err
	}
	if err := s.gateway.sequencer.Execute(c, a); err != nil {
		return err
	}
	response.ClientOrderId, response.RequestId = request.GetClientOrderId(), request.GetRequestId()
	response.OrderId = a.OrderID
	response.Status = a.Status
	response.Reason = a.Reason
	response.Quantity, response.FilledQuantity, response.LeavesQuantity = a.Quantity, a.Filled, a.Leaves
	response.LastPrice, response.FilledNotional = a.LastPrice, a.FilledNotional
	response.Sequence, response.Epoch = a.Sequence, a.Epoch
	response.Duplicate = a.Duplicate
	response.OrderVersion = a.Version
	response.ReceivedNs = uint64(a.ReceivedNs)
	response.SentNs = 0
	response.Text = a.Text(c)
	return nil
}
