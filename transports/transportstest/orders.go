package transportstest

import (
	"bytes"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
)

// Short names of the contract's values, so that a case reads like a script.
const (
	buy  = pb.Side_SIDE_BUY
	sell = pb.Side_SIDE_SELL

	accepted = pb.OrderStatus_ORDER_STATUS_ACCEPTED
	partly   = pb.OrderStatus_ORDER_STATUS_PARTIALLY_FILLED
	filled   = pb.OrderStatus_ORDER_STATUS_FILLED
	canceled = pb.OrderStatus_ORDER_STATUS_CANCELED
	rejected = pb.OrderStatus_ORDER_STATUS_REJECTED

	notProcessed = pb.Outcome_OUTCOME_NOT_PROCESSED
	unknown      = pb.Outcome_OUTCOME_UNKNOWN
)

// limit is a day order in the rig's instrument, its price given as a distance from the reference price.
func (r *rig) limit(clientOrderID string, side pb.Side, quantity uint64, offset int64) *pb.SubmitOrderRequest {
	return &pb.SubmitOrderRequest{
		ClientOrderId: clientOrderID, Symbol: r.symbol, Side: side, Type: pb.OrderType_ORDER_TYPE_LIMIT,
		TimeInForce: pb.TimeInForce_TIME_IN_FORCE_DAY, Quantity: quantity, Price: r.price + offset,
	}
}

func (r *rig) immediate(clientOrderID string, side pb.Side, quantity uint64, offset int64) *pb.SubmitOrderRequest {
	order := r.limit(clientOrderID, side, quantity, offset)
	order.TimeInForce = pb.TimeInForce_TIME_IN_FORCE_IOC
	return order
}

func (r *rig) market(clientOrderID string, side pb.Side, quantity uint64) *pb.SubmitOrderRequest {
	return &pb.SubmitOrderRequest{
		ClientOrderId: clientOrderID, Symbol: r.symbol, Side: side, Type: pb.OrderType_ORDER_TYPE_MARKET, Quantity: quantity,
	}
}

func (r *rig) replace(requestID, clientOrderID string, quantity uint64, offset int64) *pb.ReplaceOrderRequest {
	return &pb.ReplaceOrderRequest{RequestId: requestID, ClientOrderId: clientOrderID, Quantity: quantity, Price: r.price + offset}
}

func cancelOrder(requestID, clientOrderID string) *pb.CancelOrderRequest {
	return &pb.CancelOrderRequest{RequestId: requestID, ClientOrderId: clientOrderID}
}

// with returns a changed copy of a request.
func with[M proto.Message](m M, changes ...func(M)) M {
	copied := proto.CloneOf(m)
	for _, change := range changes {
		change(copied)
	}
	return copied
}

// tag is n bytes that are told apart from another seed's and from shifted ones.
func tag(seed, n int) []byte {
	pattern := fmt.Appendf(nil, "tag %d of %d bytes;", seed, n)
	return bytes.Repeat(pattern, n/len(pattern)+1)[:n:n]
}

// exactly fills an order's tag so that the request's encoded size is n bytes. Where the tag's length prefix jumps over n, the
// id is one character longer.
func exactly(order *pb.SubmitOrderRequest, n int) *pb.SubmitOrderRequest {
	for range 2 {
		base := proto.Size(order)
		for overhead := 2; overhead <= 5; overhead++ {
			length := n - base - overhead
			if length < 1 {
				break
			}
			if sized := with(order, func(o *pb.SubmitOrderRequest) { o.ClientTag = tag(n, length) }); proto.Size(sized) == n {
				return sized
			}
		}
		order = with(order, func(o *pb.SubmitOrderRequest) { o.ClientOrderId += "x" })
	}
	panic(fmt.Sprintf("no order of %d bytes", n))
}

// badIDs are ids that the contract does not allow, by what is wrong with them.
var badIDs = []struct{ name, id string }{
	{"empty", ""},
	{"33 characters", strings.Repeat("a", 33)},
	{"300 characters", strings.Repeat("a", 300)},
	{"a space", "a b"},
	{"a slash", "a/b"},
	{"a slash at the end", "a/"},
	{"dots", ".."},
	{"a percent sign", "a%2Fb"},
	{"a question mark", "a?b=c"},
	{"a plus", "a+b"},
	{"a colon", "a:b"},
	{"a line feed", "a\nb"},
	{"a zero byte", "a\x00b"},
	{"not ASCII", "ordür"},
}
