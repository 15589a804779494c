package entry

import (
	"strings"
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// The hand-written checks say yes to exactly what the rules in the proto say yes to, over messages that are mostly right and wrong in
// one or two places.

func text(valid string) *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(valid), rapid.StringMatching(valid), rapid.StringMatching(valid), rapid.String(),
		rapid.SampledFrom([]string{"", "a b", "ü", strings.Repeat("A", 16), strings.Repeat("A", 17), strings.Repeat("a", 32), strings.Repeat("a", 33), "A\n", "\x00"}))
}

func enum(last int32) *rapid.Generator[int32] {
	return rapid.OneOf(rapid.Int32Range(1, last), rapid.Int32Range(1, last), rapid.Int32Range(1, last), rapid.Int32Range(-1, last+1))
}

func lots() *rapid.Generator[uint64] {
	return rapid.OneOf(rapid.Uint64Range(1, 1000), rapid.Uint64Range(1, 1000),
		rapid.SampledFrom([]uint64{0, 1, 1<<40 - 1, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1}))
}

func ticks() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(-1000, 1000), rapid.Just(int64(0)),
		rapid.SampledFrom([]int64{1 << 62, 1<<62 + 1, -(1 << 62), -(1 << 62) - 1, 1<<63 - 1, -1 << 63}))
}

func agree(t *rapid.T, message proto.Message, err error) {
	t.Helper()
	if err != nil && transports.AsFault(err).Reason != pb.Reason_REASON_MALFORMED {
		t.Fatalf("a message with a wrong shape got %v", err)
	}
	if rules := protovalidate.Validate(message); (rules == nil) != (err == nil) {
		t.Fatalf("%v\nproto: %v\nentry: %v", message, rules, err)
	}
}

func TestSubmitChecksAreTheProtos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &pb.SubmitOrderRequest{
			ClientOrderId: text(`[A-Za-z0-9_-]{1,32}`).Draw(t, "id"), Symbol: text(`[A-Z0-9._-]{1,16}`).Draw(t, "symbol"),
			Side: pb.Side(enum(2).Draw(t, "side")), Type: pb.OrderType(enum(2).Draw(t, "type")),
			TimeInForce: pb.TimeInForce(rapid.OneOf(enum(4), rapid.Just(int32(0))).Draw(t, "tif")),
			Quantity:    lots().Draw(t, "quantity"), Price: ticks().Draw(t, "price"), PostOnly: rapid.Bool().Draw(t, "post_only"),
			SelfTradePrevention: pb.SelfTradePrevention(enum(5).Draw(t, "stp")), AckDetail: pb.AckDetail(enum(2).Draw(t, "detail")),
			ClientTag: make([]byte, rapid.SampledFrom([]int{0, 1, 1 << 20, 1<<20 + 1}).Draw(t, "tag")),
		}
		if rapid.Bool().Draw(t, "iceberg") {
			r.DisplayQuantity, r.MinimumQuantity = lots().Draw(t, "display"), lots().Draw(t, "minimum")
		}
		agree(t, r, checkSubmit(r, &orders.Command{}))
	})
}

func TestChangeChecksAreTheProtos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requestID := text(`[A-Za-z0-9_-]{0,32}`).Draw(t, "request")
		orderID := text(`[A-Za-z0-9_-]{1,32}`).Draw(t, "order")
		err := checkChange(requestID, orderID, &orders.Command{})
		agree(t, &pb.CancelOrderRequest{RequestId: requestID, ClientOrderId: orderID}, err)

		r := &pb.ReplaceOrderRequest{RequestId: requestID, ClientOrderId: orderID, Quantity: lots().Draw(t, "quantity"), Price: ticks().Draw(t, "price")}
		agree(t, r, checkReplace(r, &orders.Command{}))
	})
}

func TestOtherChecksAreTheProtos(t *testing.T) {
	millis := func(most uint32) *rapid.Generator[uint32] {
		return rapid.OneOf(rapid.Uint32Range(0, most), rapid.SampledFrom([]uint32{0, 1, most, most + 1, 1<<32 - 1}))
	}
	long := func(most int) *rapid.Generator[string] {
		return rapid.Map(rapid.SampledFrom([]int{0, 1, most, most + 1}), func(n int) string { return strings.Repeat("x", n) })
	}
	rapid.Check(t, func(t *rapid.T) {
		cancel := &pb.MassCancelRequest{
			RequestId: text(`[A-Za-z0-9_-]{0,32}`).Draw(t, "request"), Symbol: text(`[A-Z0-9._-]{0,16}`).Draw(t, "symbol"),
			Side: pb.Side(rapid.OneOf(enum(2), rapid.Just(int32(0))).Draw(t, "side")),
		}
		agree(t, cancel, checkMassCancel(cancel, &orders.Command{}))

		timer := &pb.CancelAllAfterRequest{TimeoutMs: millis(3_600_000).Draw(t, "timeout")}
		agree(t, timer, checkCancelAllAfter(timer, &orders.Command{}))

		logon := &pb.Logon{
			SessionId: text(`[A-Za-z0-9_-]{1,32}`).Draw(t, "session"), GraceMs: millis(60_000).Draw(t, "grace"),
			DisconnectMode: pb.DisconnectMode(rapid.OneOf(enum(2), rapid.Just(int32(0))).Draw(t, "mode")),
			Epoch:          rapid.Uint32().Draw(t, "epoch"), LastSequence: rapid.Uint64().Draw(t, "last"),
		}
		agree(t, logon, checkLogon(logon, &orders.Command{}))

		logout := &pb.Logout{Text: long(256).Draw(t, "text")}
		agree(t, logout, checkLogout(logout))

		stream := &pb.StreamExecutionsRequest{Account: long(32).Draw(t, "account")}
		agree(t, stream, checkStream(stream))
	})
}
