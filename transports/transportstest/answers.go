package transportstest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// verify says what is wrong with an answer on its own: that it belongs to its request, that its parts agree with each other,
// and that its stamps lie within the call. The call's start and end are by transports.Now, which is the gateway's clock
// since both live in one process.
//
// decremented says that orders of the case may have lost quantity to self-trade prevention while they stayed open.
func verify(request, response proto.Message, started, ended int64, decremented bool) error {
	switch q := request.(type) {
	case *pb.SubmitOrderRequest:
		r := response.(*pb.SubmitOrderResponse)
		tag := q.GetClientTag()
		if q.GetAckDetail() == pb.AckDetail_ACK_DETAIL_MINIMAL {
			tag = nil
		}
		switch {
		case r.GetClientOrderId() != q.GetClientOrderId():
			return fmt.Errorf("the answer is for order %q", r.GetClientOrderId())
		case !bytes.Equal(r.GetClientTag(), tag):
			return fmt.Errorf("the answer has a tag of %d bytes that is not the expected one of %d", len(r.GetClientTag()), len(tag))
		case r.GetStatus() == pb.OrderStatus_ORDER_STATUS_REJECTED && (r.GetOrderId() != 0 || r.GetOrderVersion() != 0 || r.GetFilledQuantity() != 0):
			return fmt.Errorf("a rejected order has an order id, a version or fills")
		}
		return cmp.Or(verifyAck(r, decremented), verifyStamps(r, started, ended))
	case *pb.ReplaceOrderRequest:
		r := response.(*pb.ReplaceOrderResponse)
		if r.GetClientOrderId() != q.GetClientOrderId() || r.GetRequestId() != q.GetRequestId() {
			return fmt.Errorf("the answer is for order %q, request %q", r.GetClientOrderId(), r.GetRequestId())
		}
		return cmp.Or(verifyAck(r, decremented), verifyStamps(r, started, ended))
	case *pb.CancelOrderRequest:
		r := response.(*pb.CancelOrderResponse)
		if r.GetClientOrderId() != q.GetClientOrderId() || r.GetRequestId() != q.GetRequestId() {
			return fmt.Errorf("the answer is for order %q, request %q", r.GetClientOrderId(), r.GetRequestId())
		}
		return cmp.Or(verifyAck(r, decremented), verifyStamps(r, started, ended))
	case *pb.MassCancelRequest:
		return verifyMassCancel(q, response.(*pb.MassCancelResponse), started, ended)
	case *pb.CancelAllAfterRequest:
		if trigger := int64(response.(*pb.CancelAllAfterResponse).GetTriggerNs()); q.GetTimeoutMs() == 0 && trigger != 0 {
			return fmt.Errorf("disarmed, but it fires at %d", trigger)
		} else if timeout := int64(q.GetTimeoutMs()) * 1e6; timeout > 0 && (trigger < started+timeout || trigger > ended+timeout) {
			return fmt.Errorf("it fires %d ns after the call, asked for were %d", trigger-started, timeout)
		}
	case *pb.GetOrderRequest:
		got := response.(*pb.GetOrderResponse).GetOrder()
		if got.GetClientOrderId() != q.GetClientOrderId() {
			return fmt.Errorf("the answer is order %q", got.GetClientOrderId())
		}
		return verifyOrder(got, decremented)
	case *pb.ListOrdersRequest:
		list := response.(*pb.ListOrdersResponse).GetOrders()
		if size := cmp.Or(int(q.GetPageSize()), 100); len(list) > size {
			return fmt.Errorf("a page of %d orders, want at most %d", len(list), size)
		}
		for _, order := range list {
			if order.GetLeavesQuantity() == 0 && q.GetState() != pb.ListOrdersState_LIST_ORDERS_STATE_ALL {
				return fmt.Errorf("order %q has nothing open", order.GetClientOrderId())
			}
			if err := verifyOrder(order, decremented); err != nil {
				return err
			}
		}
	case *pb.GetBookRequest:
		return verifyBook(q, response.(*pb.GetBookResponse))
	}
	return nil
}

// ack is what the acknowledgements of orders, replaces and cancels have in common.
type ack interface {
	GetOrderId() uint64
	GetStatus() pb.OrderStatus
	GetReason() pb.Reason
	GetQuantity() uint64
	GetFilledQuantity() uint64
	GetLeavesQuantity() uint64
	GetLastPrice() int64
	GetFilledNotional() int64
	GetOrderVersion() uint32
	GetText() string
	stamps
}

// stamps are what says when something was answered, and whether again.
type stamps interface {
	GetDuplicate() bool
	GetReceivedNs() uint64
	GetSentNs() uint64
}

func verifyAck(r ack, decremented bool) error {
	if r.GetStatus() == pb.OrderStatus_ORDER_STATUS_REJECTED {
		if r.GetReason() < 100 || r.GetText() == "" {
			return fmt.Errorf("a business refusal needs a business reason and a text, got %v and %q", r.GetReason(), r.GetText())
		}
		return nil
	}
	if r.GetReason() != 0 || r.GetText() != "" || r.GetOrderId() == 0 || r.GetOrderVersion() == 0 {
		return fmt.Errorf("an accepted request needs an order id and a version, and has no reason and no text")
	}
	return verifyQuantities(decremented, r.GetStatus(), r.GetQuantity(), r.GetFilledQuantity(), r.GetLeavesQuantity(), r.GetLastPrice(), r.GetFilledNotional())
}

func verifyOrder(o *pb.Order, decremented bool) error {
	if o.GetStatus() == pb.OrderStatus_ORDER_STATUS_REJECTED {
		if o.GetReason() < 100 || o.GetLeavesQuantity() != 0 || o.GetFilledQuantity() != 0 {
			return fmt.Errorf("a rejected order has a business reason and nothing filled or open: %s", text(o))
		}
		return nil
	}
	return verifyQuantities(decremented, o.GetStatus(), o.GetQuantity(), o.GetFilledQuantity(), o.GetLeavesQuantity(), o.GetLastPrice(), o.GetFilledNotional())
}

func verifyQuantities(decremented bool, status pb.OrderStatus, quantity, filled, leaves uint64, price, notional int64) error {
	var fits bool
	switch status {
	case pb.OrderStatus_ORDER_STATUS_ACCEPTED:
		fits = filled == 0 && leaves > 0 && (leaves == quantity || decremented && leaves < quantity)
	case pb.OrderStatus_ORDER_STATUS_PARTIALLY_FILLED:
		fits = filled > 0 && leaves > 0 && (filled+leaves == quantity || decremented && filled+leaves < quantity)
	case pb.OrderStatus_ORDER_STATUS_FILLED:
		fits = filled == quantity && leaves == 0
	case pb.OrderStatus_ORDER_STATUS_CANCELED, pb.OrderStatus_ORDER_STATUS_EXPIRED:
		fits = filled < quantity && leaves == 0
	}
	if !fits {
		return fmt.Errorf("status %v does not fit: quantity %d, filled %d, leaves %d", status, quantity, filled, leaves)
	}
	if filled == 0 && (price != 0 || notional != 0) {
		return fmt.Errorf("nothing is filled, but there is a last price %d or a notional %d", price, notional)
	}
	return nil
}

func verifyMassCancel(q *pb.MassCancelRequest, r *pb.MassCancelResponse, started, ended int64) error {
	refused := r.GetStatus() == pb.OrderStatus_ORDER_STATUS_REJECTED
	switch {
	case r.GetRequestId() != q.GetRequestId():
		return fmt.Errorf("the answer is for request %q", r.GetRequestId())
	case !refused && r.GetStatus() != pb.OrderStatus_ORDER_STATUS_CANCELED:
		return fmt.Errorf("a mass cancel ends with CANCELED or REJECTED")
	case refused != (r.GetReason() != 0) || refused != (r.GetText() != "") || refused && r.GetCanceledCount() != 0:
		return fmt.Errorf("refused: %t, but the reason, the text or the count say something else", refused)
	}
	return verifyStamps(r, started, ended)
}

func verifyStamps(r stamps, started, ended int64) error {
	received, sent := int64(r.GetReceivedNs()), int64(r.GetSentNs())
	switch {
	case !r.GetDuplicate() && received < started:
		return fmt.Errorf("received_ns is %d ns before the call", started-received)
	case received <= 0 || sent < received || sent < started || sent > ended:
		return fmt.Errorf("stamps out of order: call %d, received_ns %d, sent_ns %d, return %d", started, received, sent, ended)
	}
	return nil
}

func verifyBook(q *pb.GetBookRequest, r *pb.GetBookResponse) error {
	depth := cmp.Or(int(q.GetDepth()), 10)
	bids, asks := r.GetBids(), r.GetAsks()
	byPrice := func(a, b *pb.BookLevel) int { return cmp.Compare(a.GetPrice(), b.GetPrice()) }
	switch {
	case r.GetSymbol() != q.GetSymbol():
		return fmt.Errorf("the answer is the book of %q", r.GetSymbol())
	case len(bids) > depth || len(asks) > depth:
		return fmt.Errorf("%d bids and %d asks, want at most %d levels", len(bids), len(asks), depth)
	case !slices.IsSortedFunc(asks, byPrice) || !slices.IsSortedFunc(bids, func(a, b *pb.BookLevel) int { return byPrice(b, a) }):
		return fmt.Errorf("the levels are not best first")
	case len(bids) > 0 && len(asks) > 0 && bids[0].GetPrice() >= asks[0].GetPrice():
		return fmt.Errorf("the book is crossed or locked: %d bid, %d asked", bids[0].GetPrice(), asks[0].GetPrice())
	}
	for _, level := range slices.Concat(bids, asks) {
		if level.GetQuantity() == 0 || level.GetOrderCount() == 0 {
			return fmt.Errorf("a level without orders at %d", level.GetPrice())
		}
	}
	return nil
}

// gatewaysOwn are the fields whose values are the gateway's to choose; expectations written by hand leave them out.
var gatewaysOwn = []protoreflect.Name{"order_id", "sequence", "epoch", "order_version", "received_ns", "sent_ns", "log_sequence", "text"}

// clocks are the fields that differ from one run to the next of the same calls on the same gateway.
var clocks = []protoreflect.Name{"received_ns", "sent_ns", "log_sequence", "event_ns", "trigger_ns", "retry_after_ms"}

// equal compares an answer with one written by hand, but for what is the gateway's own to choose.
func equal(t testing.TB, got, want proto.Message) {
	t.Helper()
	got, want = without(got, gatewaysOwn), without(want, gatewaysOwn)
	if !proto.Equal(got, want) {
		t.Errorf("%T\n got %s\nwant %s", got, text(got), text(want))
	}
}

// without returns a copy of m with the named fields cleared in it and in the messages within.
func without(m proto.Message, names []protoreflect.Name) proto.Message {
	copied := proto.Clone(m)
	clearFields(copied.ProtoReflect(), names)
	return copied
}

func clearFields(m protoreflect.Message, names []protoreflect.Name) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case slices.Contains(names, field.Name()):
			m.Clear(field)
		case field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				clearFields(value.List().Get(i).Message(), names)
			}
		default:
			clearFields(value.Message(), names)
		}
		return true
	})
}

// observed is how a table writes down an answer or a fault.
func observed(response proto.Message, fault *transports.Fault) string {
	if fault != nil {
		return "fault " + text(without(fault.Detail(), clocks))
	}
	return text(without(response, clocks))
}

// text writes a message on one line, a long one cut. Two equal messages give the same text within one process.
func text(m proto.Message) string {
	if m == nil {
		return "nothing"
	}
	encoded, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return fmt.Sprintf("%q", err)
	}
	if len(encoded) > 2000 {
		return fmt.Sprintf("%s... (%d bytes)", encoded[:2000], len(encoded))
	}
	return string(encoded)
}

// stale returns a response message full of an earlier call's leavings, which Do has to clear away.
func stale(op transports.Operation) proto.Message {
	response := op.NewResponse()
	if response == nil {
		return &pb.ErrorDetail{}
	}
	m := response.ProtoReflect()
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		switch {
		case field.IsList() || field.Message() != nil:
			m.Mutable(field)
			if field.IsList() {
				m.Mutable(field).List().AppendMutable()
			}
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString("stale"))
		case field.Kind() == protoreflect.BytesKind:
			m.Set(field, protoreflect.ValueOfBytes([]byte("stale")))
		case field.Kind() == protoreflect.BoolKind:
			m.Set(field, protoreflect.ValueOfBool(true))
		}
	}
	return response
}

// operationOf finds the operation that a request belongs to.
func operationOf(request proto.Message) transports.Operation {
	for _, op := range transports.Operations() {
		if op.NewRequest().ProtoReflect().Descriptor() == request.ProtoReflect().Descriptor() {
			return op
		}
	}
	return 0
}
