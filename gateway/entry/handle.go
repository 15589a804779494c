package entry

import (
	"context"
	"sync"

	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// scratch is what one exchange needs besides its messages, so that the hot path takes nothing from the heap.
type scratch struct {
	command orders.Command
	answer  orders.Answer
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// usable says why this session takes nothing more, or that the request is over already.
func (s *session) usable(ctx context.Context) error {
	if f := s.over.Load(); f != nil {
		return f
	}
	if s.revoked.Load() {
		return faultRevoked
	}
	if err := ctx.Err(); err != nil {
		f := transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "the request was over before its work began")
		f.Err = err
		return f
	}
	return nil
}

// admit holds a request to the key's role and the account's rate.
func (s *session) admit(c class) error {
	f := s.throttle.admit(c)
	if f == nil {
		return nil
	}
	if f.Final {
		s.gateway.logger.Warn("session ended: the refusals of its rate were not heeded", "account", s.Name)
		s.end(f)
	}
	return f
}

// trades is admit for what only a trading key may do.
func (s *session) trades(c class) error {
	if s.Role != Trade {
		return transports.Refuse(pb.Reason_REASON_PERMISSION_DENIED, "this key reads the events of the accounts that it names; it neither trades nor reads orders")
	}
	return s.admit(c)
}

// Handle implements transports.Session.
func (s *session) Handle(ctx context.Context, x *transports.Exchange) error {
	if err := s.usable(ctx); err != nil {
		return err
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
	default:
		return s.handleOther(x)
	}
	return mismatch(x)
}

// handleOther is Handle for all that is not on the hot path.
func (s *session) handleOther(x *transports.Exchange) error {
	switch request := x.Request.(type) {
	case *pb.MassCancelRequest:
		if response, ok := x.Response.(*pb.MassCancelResponse); ok {
			return s.massCancel(request, response, x.ReceivedNs)
		}
	case *pb.CancelAllAfterRequest:
		if response, ok := x.Response.(*pb.CancelAllAfterResponse); ok {
			return s.cancelAllAfter(request, response, x.ReceivedNs)
		}
	case *pb.Logon:
		if response, ok := x.Response.(*pb.LogonAck); ok {
			if err := s.trades(canceling); err != nil {
				return err
			}
			return s.logon(request, response, x.ReceivedNs)
		}
	case *pb.Logout:
		if response, ok := x.Response.(*pb.Logout); ok {
			return s.logout(request, response, x.ReceivedNs)
		}
	default:
		return s.read(x)
	}
	return mismatch(x)
}

func mismatch(x *transports.Exchange) error {
	return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%s does not go with a %T answered by a %T", x.Operation, x.Request, x.Response)
}

// The answers of submit, replace and cancel have the same fields in three generated types. Go cannot reach a field through a type parameter,
// and a list of pointers to the fields would be as long as filling them, so each of them is filled in full; where one gets a field, so do the others.

func (s *session) submit(request *pb.SubmitOrderRequest, response *pb.SubmitOrderResponse, receivedNs int64) error {
	if err := s.trades(ordering); err != nil {
		return err
	}
	work, _ := scratches.Get().(*scratch)
	defer scratches.Put(work)
	c, a := &work.command, &work.answer
	*c = orders.Command{Kind: orders.Submit, Account: s.Key.Account, ReceivedNs: receivedNs}
	if err := checkSubmit(request, c); err != nil {
		return err
	}
	if err := s.execute(c, a); err != nil {
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
	if err := s.trades(ordering); err != nil {
		return err
	}
	work, _ := scratches.Get().(*scratch)
	defer scratches.Put(work)
	c, a := &work.command, &work.answer
	*c = orders.Command{Kind: orders.Replace, Account: s.Key.Account, ReceivedNs: receivedNs}
	if err := checkReplace(request, c); err != nil {
		return err
	}
	if err := s.execute(c, a); err != nil {
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
	if err := s.trades(canceling); err != nil {
		return err
	}
	work, _ := scratches.Get().(*scratch)
	defer scratches.Put(work)
	c, a := &work.command, &work.answer
	*c = orders.Command{Kind: orders.Cancel, Account: s.Key.Account, ReceivedNs: receivedNs}
	if err := checkChange(request.GetRequestId(), request.GetClientOrderId(), c); err != nil {
		return err
	}
	if err := s.execute(c, a); err != nil {
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

func (s *session) massCancel(request *pb.MassCancelRequest, response *pb.MassCancelResponse, receivedNs int64) error {
	if err := s.trades(canceling); err != nil {
		return err
	}
	work, _ := scratches.Get().(*scratch)
	defer scratches.Put(work)
	c, a := &work.command, &work.answer
	*c = orders.Command{Kind: orders.MassCancel, Account: s.Key.Account, ReceivedNs: receivedNs}
	if err := checkMassCancel(request, c); err != nil {
		return err
	}
	if err := s.execute(c, a); err != nil {
		return err
	}
	response.RequestId = request.GetRequestId()
	response.CanceledCount = a.Count
	response.Status, response.Reason = a.Status, a.Reason
	response.Sequence, response.Epoch = a.Sequence, a.Epoch
	response.Duplicate = a.Duplicate
	response.ReceivedNs = uint64(a.ReceivedNs)
	response.SentNs = 0
	response.Text = a.Text(c)
	return nil
}

func (s *session) cancelAllAfter(request *pb.CancelAllAfterRequest, response *pb.CancelAllAfterResponse, receivedNs int64) error {
	if err := s.trades(canceling); err != nil {
		return err
	}
	c := orders.Command{Kind: orders.CancelAllAfter, Account: s.Key.Account, ReceivedNs: receivedNs}
	if err := checkCancelAllAfter(request, &c); err != nil {
		return err
	}
	var answer orders.Answer
	if err := s.execute(&c, &answer); err != nil {
		return err
	}
	response.TriggerNs = uint64(answer.TriggerNs)
	return nil
}
