package tcp

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/hotcodec"
	"tailgate/transports/tcp/internal/wire"
)

// check judges a frame by its header, before its payload is there and before anything is allocated for it. whole says that it is there; then it is paid for.
// A fault is fatal for the connection.
func (c *conn) check(h wire.Header, whole bool) *transports.Fault {
	if h.Type == wire.Request {
		if h.Length > uint32(c.server.limits.MaxRequestBytes) {
			return transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the request has %d bytes, at most %d are taken", h.Length, c.server.limits.MaxRequestBytes)
		}
		if h.Correlation != c.last+1 {
			return transports.Malformed("correlation id", "request %d follows request %d, it has to be %d", h.Correlation, c.last, c.last+1)
		}
		op := transports.Operation(h.Code)
		if h.Flags&wire.ClassMask == wire.Urgent && !wire.MayBeUrgent(op) {
			return transports.Malformed("class", "%v cannot be an urgent request", op)
		}
		if whole {
			return c.pay(h, op)
		}
		return c.afford(h, op)
	}
	switch h.Type {
	case wire.Ping, wire.Demand, wire.Error:
	default:
		if h.Type < wire.Ignorable {
			return transports.Malformed("type", "a client may not send %v", h.Type)
		}
	}
	if h.Length > maxControl {
		return transports.Refuse(pb.Reason_REASON_TOO_LARGE, "%v has %d bytes of payload, at most %d are taken", h.Type, h.Length, maxControl)
	}
	if c.share == nil {
		return nil
	}
	if h.Type == wire.Ping && h.Aux != c.used {
		return transports.Malformed("aux", "PING says that %d of the credit is used, the gateway counts %d", h.Aux, c.used)
	}
	if h.Type == wire.Ping && h.Credit != c.released {
		return transports.Malformed("credit", "PING says that %d of the credit is given back, the gateway counts %d", h.Credit, c.released)
	}
	if h.Type == wire.Demand && whole {
		return c.demand(h)
	}
	return nil
}

// frame takes one whole frame that check let pass. It returns false when the connection has to end.
func (c *conn) frame(h wire.Header, payload []byte) bool {
	switch h.Type {
	case wire.Request:
		return c.take(h, payload)
	case wire.Ping:
		pong := wire.Header{Type: wire.Pong, Correlation: h.Correlation, Aux: c.used}
		pong.Credit, _ = c.granted()
		room := c.box.Begin(wire.HeaderSize)
		if room == nil {
			return false
		}
		pong.Put(room)
		c.box.EndControl(wire.HeaderSize)
		c.bytes += wire.HeaderSize
		c.control = true
		return true
	case wire.Error:
		var detail pb.ErrorDetail
		_ = proto.Unmarshal(payload, &detail) // for the log only: what can be read of it
		c.log.Warn("tcp: connection closed by its client", "reason", transports.FaultFromDetail(&detail).Error())
		return false
	default: // DEMAND, which check has taken, and what a later version may say
		return true
	}
}

// take answers one request. It returns false when the connection has to end.
func (c *conn) take(h wire.Header, payload []byte) bool {
	op := transports.Operation(h.Code)
	c.last = h.Correlation
	fault := c.prepare(h, op, payload)
	if fault == nil && op.OfSession() {
		return c.step(h)
	}
	if fault == nil {
		fault = c.handle(h)
	}
	if fault == nil {
		var open bool
		if fault, open = c.answer(h); fault == nil {
			return open
		}
	}
	return c.reject(fault, h.Correlation)
}

// prepare makes the exchange, or says why the request is not looked at. Its faults change nothing.
func (c *conn) prepare(h wire.Header, op transports.Operation, payload []byte) *transports.Fault {
	x := &c.exchange
	if !op.Valid() {
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "operation %d is not part of the contract", h.Code)
	}
	if largest := c.server.model.LargestAnswer(op, h.Length); largest > c.maxPayload {
		return transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the answer may have %d bytes, the client takes at most %d", largest, c.maxPayload)
	}
	if h.Aux != 0 {
		if late := time.Duration(transports.Now()-x.ReceivedNs) - time.Duration(h.Aux)*time.Microsecond; late > 0 {
			return transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "the request's deadline passed %v before its turn came", late)
		}
	}
	x.Operation = op
	if op == transports.SubmitOrder {
		if err := hotcodec.DecodeSubmitOrderRequest(payload, &c.request); err != nil {
			return transports.Malformed("", "not a SubmitOrderRequest: %v", err)
		}
		c.response.Reset()
		x.Request, x.Response = &c.request, &c.response
		return nil
	}
	x.Request, x.Response = op.NewRequest(), op.NewResponse()
	if err := proto.Unmarshal(payload, x.Request); err != nil {
		return transports.Malformed("", "not a request of %v: %v", op, err)
	}
	return nil
}

// handle calls the session. A panic costs the request and not the process.
func (c *conn) handle(h wire.Header) (fault *transports.Fault) {
	ctx := c.server.ctx
	if h.Aux != 0 {
		ctx = c.deadline.begin(ctx, c.exchange.ReceivedNs+int64(h.Aux)*int64(time.Microsecond))
		defer c.deadline.end()
	}
	defer c.caught(c.exchange.Operation.String(), &fault)
	if err := c.session.Handle(ctx, &c.exchange); err != nil {
		return transports.AsFault(err)
	}
	return nil
}

// answer appends the RESPONSE. open is false when the box takes nothing more.
func (c *conn) answer(h wire.Header) (fault *transports.Fault, open bool) {
	header := wire.Header{Type: wire.Response, Code: h.Code, Correlation: h.Correlation}
	header.Credit, header.Y = c.granted()
	limit := c.server.model.LargestAnswer(transports.Operation(h.Code), h.Length)
	if response, ok := c.exchange.Response.(*pb.SubmitOrderResponse); ok {
		size := hotcodec.SizeSubmitOrderResponse(response)
		if uint64(size) > limit {
			return c.oversize(size, limit), true
		}
		if done, open := c.answerInPlace(header, response); done {
			return nil, open
		}
		room := c.box.Begin(wire.HeaderSize + size)
		if room == nil {
			return nil, false
		}
		_, stamp, err := hotcodec.AppendSubmitOrderResponse(room[:wire.HeaderSize], response)
		if err != nil {
			c.box.Cancel()
			return c.unencodable(err), true
		}
		if header.Length = uint32(size); stamp <= 1<<16-1 { // always, with ids of the contract's length
			header.X = uint16(stamp)
		}
		header.Put(room)
		c.appended(len(room))
		return nil, true
	}
	transports.StampSent(c.exchange.Response, 1) // any value: it makes room for the stamp that Release writes
	encoded, err := proto.Marshal(c.exchange.Response)
	if err != nil {
		return c.unencodable(err), true
	}
	if uint64(len(encoded)) > limit {
		return c.oversize(len(encoded), limit), true
	}
	room := c.box.Begin(wire.HeaderSize + len(encoded))
	if room == nil {
		return nil, false
	}
	header.Length, header.X = uint32(len(encoded)), stampOffset(c.exchange.Operation, encoded)
	header.Put(room)
	copy(room[wire.HeaderSize:], encoded)
	c.appended(len(room))
	return nil, true
}

// answerInPlace sends a large tag from the memory that it came in: an echo's answer is its request with another head. It writes the head in front of the
// tag, over the request, and gives the in-buffer to the box, so that a tag of 64 KiB is not copied. It returns false where that cannot be done: the tag
// is small, or another one, or is not the last field, or the head does not fit, or so much is read behind it that moving that would cost more.
func (c *conn) answerInPlace(header wire.Header, response *pb.SubmitOrderResponse) (done, open bool) {
	tag, end := response.ClientTag, c.r
	if len(tag) < batchSize || end < len(tag) || &c.in.B[end-len(tag)] != &tag[0] || c.w-end > len(tag)/8 {
		return false, false
	}
	var scratch [headroom]byte // the response's strings may lie where the head goes
	head, stamp, err := hotcodec.AppendSubmitOrderResponseHead(scratch[:wire.HeaderSize], response)
	start := end - len(tag) - len(head)
	if err != nil || start < 0 {
		return false, false
	}
	header.Length, header.X = uint32(end-start-wire.HeaderSize), uint16(stamp)
	header.Put(head)
	copy(c.in.B[start:], head)
	buffer := c.give()
	if !c.box.Adopt(buffer, start, end) {
		c.server.pool.Put(buffer)
		return true, false
	}
	c.answers++
	c.bytes += end - start
	return true, true
}

// appended ends the append of an answer of n bytes.
func (c *conn) appended(n int) {
	c.box.EndAnswer(n)
	c.answers++
	c.bytes += n
}

func (c *conn) oversize(size int, limit uint64) *transports.Fault {
	c.log.Error("tcp: an answer is larger than its operation may have", "operation", c.exchange.Operation.String(), "bytes", size, "most", limit)
	return transports.InDoubt(pb.Reason_REASON_INTERNAL, nil, "the answer has %d bytes, at most %d are possible; the request may have been entered", size, limit)
}

func (c *conn) unencodable(err error) *transports.Fault {
	c.log.Error("tcp: an answer cannot be encoded", "operation", c.exchange.Operation.String(), "error", err)
	return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the answer cannot be encoded; the request may have been entered")
}

// reject appends the REJECT. It returns false when the connection has to end: the fault is final, or the box takes nothing more.
func (c *conn) reject(fault *transports.Fault, correlation uint32) bool {
	frame := faultFrame(wire.Reject, fault, correlation)
	h := wire.Parse(frame)
	h.Credit, h.Y = c.granted()
	h.Put(frame)
	room := c.box.Begin(len(frame))
	if room == nil {
		return false
	}
	c.box.EndControl(copy(room, frame))
	c.bytes += len(frame)
	c.control = true
	if fault.Final {
		c.lastWord = c.farewell(fault, correlation)
	}
	return !fault.Final
}

// faultFrame is a frame of type t that carries a fault.
func faultFrame(t wire.Type, fault *transports.Fault, correlation uint32) []byte {
	detail := fault.Detail()
	payload, err := proto.Marshal(detail)
	if err != nil { // a text that is not UTF-8, e.g. from a peer's bytes
		detail.Field, detail.Message = "", fmt.Sprintf("%+q", detail.GetField()+" "+detail.GetMessage())
		payload, _ = proto.Marshal(detail) // the quoted text is ASCII
	}
	return wire.Frame(wire.Header{Type: t, Code: uint16(detail.GetReason()), Correlation: correlation, Aux: detail.GetRetryAfterMs()}, payload)
}

// stampFields are the numbers of sent_ns in the answers that have one.
var stampFields = map[transports.Operation]protowire.Number{
	transports.SubmitOrder: 14, transports.ReplaceOrder: 14, transports.CancelOrder: 14, transports.MassCancel: 9,
}

// stampOffset finds the eight bytes of sent_ns in an encoded answer, 0 where it has none.
func stampOffset(op transports.Operation, encoded []byte) uint16 {
	field, ok := stampFields[op]
	if !ok {
		return 0
	}
	for at := 0; at < len(encoded); {
		num, typ, n := protowire.ConsumeTag(encoded[at:])
		if n < 0 {
			return 0
		}
		at += n
		if num == field && typ == protowire.Fixed64Type && at <= 1<<16-1 {
			return uint16(at)
		}
		if n = protowire.ConsumeFieldValue(num, typ, encoded[at:]); n < 0 {
			return 0
		}
		at += n
	}
	return 0
}
