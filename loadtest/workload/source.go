package workload

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Source is the requests of one client, one after the other. It reuses its messages: a request is valid until the next call of Next. It is
// for one goroutine at a time.
type Source struct {
	flow       *Flow
	instrument int
	class      int // place in the mix of all its orders' size; -1 = drawn for each
	rng        *rand.Rand
	ids        ids
	block      [BlockOrders]drawn
	left       int // orders of the block not yet handed out

	submit     pb.SubmitOrderRequest
	submitAck  pb.SubmitOrderResponse
	cancel     pb.CancelOrderRequest
	cancelAck  pb.CancelOrderResponse
	replace    pb.ReplaceOrderRequest
	replaceAck pb.ReplaceOrderResponse

	book         pb.GetBookRequest
	bookAnswer   pb.GetBookResponse
	bookSequence uint64 // of the last book seen; 0 = none

	open resting // the client's last order that was left open, for cancels and replaces; no id = none
}

// drawn is a resting order of a block.
type drawn struct {
	side     pb.Side
	quantity int // above the instrument's least
}

type resting struct {
	id               string
	side             pb.Side
	quantity, filled uint64
}

// Source returns the requests of one client, 0 to Config.Clients-1.
func (f *Flow) Source(client int) *Source {
	s := &Source{
		flow:       f,
		instrument: client % len(f.config.Instruments), class: -1,
		rng: rand.New(rand.NewPCG(f.config.Seed, uint64(client))),
		ids: ids{prefix: f.config.Prefix, taken: f.ids},
	}
	if f.class != nil {
		s.class = f.class[client]
	}
	template := f.template(s.instrument)
	s.submit.Symbol = template.Symbol
	s.submit.Type = template.Type
	s.submit.AckDetail = template.AckDetail
	s.book.Symbol, s.book.Depth = f.config.Instruments[0].Symbol, BookDepth
	return s
}

// Next fills call with the client's next request and the place for its answer. Cancels and replaces name the client's last order that its
// acknowledgement left open; while there is none, a new order takes their turn. What is drawn depends on the seed alone; which turns
// become cancels and replaces depends on the answers too.
func (s *Source) Next(call *transports.Call) {
	if s.flow.config.Operation == transports.GetBook {
		s.nextBook(call)
		return
	}
	turn := 1.0
	if s.flow.config.CancelShare+s.flow.config.ReplaceShare > 0 {
		turn = s.rng.Float64()
	}
	switch {
	case turn < s.flow.config.CancelShare && s.open.id != "":
		s.cancel.RequestId, _ = s.ids.take(IDLength)
		s.cancel.ClientOrderId = s.open.id
		*call = transports.Call{Operation: transports.CancelOrder, Request: &s.cancel, Response: &s.cancelAck}
	case turn < s.flow.config.CancelShare+s.flow.config.ReplaceShare && s.open.id != "":
		s.nextReplace()
		*call = transports.Call{Operation: transports.ReplaceOrder, Request: &s.replace, Response: &s.replaceAck}
	default:
		s.nextSubmit()
		*call = transports.Call{Operation: transports.SubmitOrder, Request: &s.submit, Response: &s.submitAck}
	}
}

func (s *Source) nextSubmit() {
	m := &s.submit
	var order drawn
	if s.rng.Float64() < ImmediateShare {
		order = drawn{side: pb.Side(1 + s.rng.IntN(2)), quantity: s.rng.IntN(QuantitySpread)}
		m.TimeInForce = pb.TimeInForce_TIME_IN_FORCE_IOC
	} else {
		if s.left == 0 {
			s.drawBlock()
		}
		s.left--
		order = s.block[s.left]
		m.TimeInForce = pb.TimeInForce_TIME_IN_FORCE_DAY
	}
	offset := s.drawOffset(order.side)
	shape := &s.flow.shapes[s.drawSize()][s.instrument][offset+PriceSpread][order.quantity]
	id, number := s.ids.take(shape.id)
	m.ClientOrderId = id
	m.Side = order.side
	m.Quantity = s.flow.least[s.instrument] + uint64(order.quantity)
	m.Price = s.flow.config.Instruments[s.instrument].ReferencePrice + int64(offset)
	m.ClientTag = nil
	if shape.tag > 0 {
		start := int(number*0x9E3779B97F4A7C15>>32) % tagSlack
		m.ClientTag = s.flow.noise[start : start+shape.tag : start+shape.tag]
	}
}

// drawSize draws the size of a new order, by its place in the mix.
func (s *Source) drawSize() int {
	below := s.flow.below
	if s.class >= 0 {
		return s.class
	}
	if len(below) == 1 {
		return 0
	}
	draw, i := s.rng.Float64(), 0
	for i < len(below)-1 && draw >= below[i] {
		i++
	}
	return i
}

// Class is the place in Config.Mix of the size that all of the client's orders have; -1 where it is drawn for each, or where there is one alone.
func (s *Source) Class() int { return s.class }

// drawBlock draws a balanced block: whatever order its halves come in, they cancel out.
func (s *Source) drawBlock() {
	for i := 0; i < BlockOrders; i += 2 {
		quantity := s.rng.IntN(QuantitySpread)
		s.block[i] = drawn{pb.Side_SIDE_BUY, quantity}
		s.block[i+1] = drawn{pb.Side_SIDE_SELL, quantity}
	}
	s.rng.Shuffle(BlockOrders, func(i, j int) { s.block[i], s.block[j] = s.block[j], s.block[i] })
	s.left = BlockOrders
}

// drawOffset is how far from the reference price an order of this side goes: buys at or above it, sells at or below.
func (s *Source) drawOffset(side pb.Side) int {
	offset := s.rng.IntN(PriceSpread + 1)
	if side == pb.Side_SIDE_SELL {
		return -offset
	}
	return offset
}

// nextReplace draws another price on the same side, and one lot less where the order has more than one open.
func (s *Source) nextReplace() {
	m := &s.replace
	m.RequestId, _ = s.ids.take(IDLength)
	m.ClientOrderId = s.open.id
	m.Price = s.flow.config.Instruments[s.instrument].ReferencePrice + int64(s.drawOffset(s.open.side))
	m.Quantity = s.open.quantity
	if s.open.quantity > s.open.filled+1 {
		m.Quantity--
	}
}

// Answer is what an acknowledgement says to the load tester.
type Answer struct {
	Rejected  bool
	Reason    pb.Reason     // where Rejected
	Server    time.Duration // between the gateway's own stamps
	HasServer bool          // whether it was stamped: not by a bare echo
}

// Check reads the answer to the last request of Next and remembers what it leaves open. The error says how the answer is wrong: another
// request's id or tag, a quantity that does not add up, no stamps, or a repetition of an id that was never used before.
func (s *Source) Check(call *transports.Call) (Answer, error) {
	switch m := call.Response.(type) {
	case *pb.SubmitOrderResponse:
		return s.checkSubmit(m)
	case *pb.CancelOrderResponse:
		return s.checkChange(change{
			what: "cancel", status: m.Status, reason: m.Reason, requestID: m.RequestId, orderID: m.ClientOrderId, wantRequestID: s.cancel.RequestId,
			quantity: m.Quantity, filled: m.FilledQuantity, leaves: m.LeavesQuantity, duplicate: m.Duplicate, received: m.ReceivedNs, sent: m.SentNs,
		})
	case *pb.ReplaceOrderResponse:
		return s.checkChange(change{
			what: "replace", status: m.Status, reason: m.Reason, requestID: m.RequestId, orderID: m.ClientOrderId, wantRequestID: s.replace.RequestId,
			quantity: m.Quantity, filled: m.FilledQuantity, leaves: m.LeavesQuantity, duplicate: m.Duplicate, received: m.ReceivedNs, sent: m.SentNs,
		})
	case *pb.GetBookResponse:
		return s.checkBook(m)
	default:
		return Answer{}, fmt.Errorf("workload: %T is no answer to a request of the flow", call.Response)
	}
}

func (s *Source) checkSubmit(m *pb.SubmitOrderResponse) (Answer, error) {
	if m.ClientOrderId != s.submit.ClientOrderId {
		return Answer{}, fmt.Errorf("answer to order %q has the id %q", s.submit.ClientOrderId, m.ClientOrderId)
	}
	want := s.submit.ClientTag
	if s.flow.config.Minimal && !s.flow.config.EchoOnly {
		want = nil
	}
	if !bytes.Equal(m.ClientTag, want) {
		return Answer{}, fmt.Errorf("answer to order %q echoes a tag of %d bytes that is not the %d bytes due", m.ClientOrderId, len(m.ClientTag), len(want))
	}
	if s.flow.config.EchoOnly {
		return Answer{}, nil
	}
	answer := Answer{Rejected: m.Status == pb.OrderStatus_ORDER_STATUS_REJECTED, Reason: m.Reason, HasServer: true}
	switch {
	case m.Duplicate:
		return Answer{}, fmt.Errorf("answer to order %q says duplicate, but the id is new", m.ClientOrderId)
	case !answer.Rejected && m.Quantity != s.submit.Quantity:
		return Answer{}, fmt.Errorf("answer to order %q has quantity %d, not %d", m.ClientOrderId, m.Quantity, s.submit.Quantity)
	case !answer.Rejected && m.FilledQuantity+m.LeavesQuantity > m.Quantity:
		return Answer{}, fmt.Errorf("answer to order %q: filled %d and leaves %d pass its quantity %d", m.ClientOrderId, m.FilledQuantity, m.LeavesQuantity, m.Quantity)
	case !answer.Rejected && m.OrderId == 0:
		return Answer{}, fmt.Errorf("answer to order %q: %s without an order id", m.ClientOrderId, m.Status)
	case m.Status < pb.OrderStatus_ORDER_STATUS_ACCEPTED || m.Status > pb.OrderStatus_ORDER_STATUS_REJECTED:
		return Answer{}, fmt.Errorf("answer to order %q has the status %s", m.ClientOrderId, m.Status)
	}
	if m.LeavesQuantity > 0 && !answer.Rejected {
		s.open = resting{id: s.submit.ClientOrderId, side: s.submit.Side, quantity: m.Quantity, filled: m.FilledQuantity}
	}
	var err error
	answer.Server, err = serverTime(m.ClientOrderId, m.ReceivedNs, m.SentNs)
	return answer, err
}

// change is what the answers to a cancel and to a replace have in common.
type change struct {
	what                              string
	status                            pb.OrderStatus
	reason                            pb.Reason
	requestID, orderID, wantRequestID string
	quantity, filled, leaves          uint64
	duplicate                         bool
	received, sent                    uint64
}

func (s *Source) checkChange(c change) (Answer, error) {
	answer := Answer{Rejected: c.status == pb.OrderStatus_ORDER_STATUS_REJECTED, Reason: c.reason, HasServer: true}
	switch {
	case c.requestID != c.wantRequestID || c.orderID != s.open.id:
		return Answer{}, fmt.Errorf("answer to %s %q of order %q has the ids %q and %q", c.what, c.wantRequestID, s.open.id, c.requestID, c.orderID)
	case c.duplicate:
		return Answer{}, fmt.Errorf("answer to %s %q says duplicate, but the id is new", c.what, c.requestID)
	case !answer.Rejected && c.filled+c.leaves > c.quantity:
		return Answer{}, fmt.Errorf("answer to %s %q: filled %d and leaves %d pass the quantity %d", c.what, c.requestID, c.filled, c.leaves, c.quantity)
	}
	if answer.Rejected || c.leaves == 0 {
		s.open = resting{}
	} else {
		s.open.quantity, s.open.filled = c.quantity, c.filled
	}
	var err error
	answer.Server, err = serverTime(c.requestID, c.received, c.sent)
	return answer, err
}

// serverTime is the time between the gateway's stamps.
func serverTime(id string, received, sent uint64) (time.Duration, error) {
	if received == 0 || sent < received {
		return 0, fmt.Errorf("answer to %q has stamps that cannot be: received %d, sent %d", id, received, sent)
	}
	return time.Duration(sent - received), nil
}

// Forget drops what the client believes to be open, and how far the log was: after a request with an unknown outcome it cannot know.
func (s *Source) Forget() { s.open, s.bookSequence = resting{}, 0 }
