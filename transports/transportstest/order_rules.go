package transportstest

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
)

// orderPathCases need a gateway with the whole order path.
var orderPathCases = []testCase{
	{"fill or kill", true, fillOrKill, orderPath},
	{"post only", true, postOnly, orderPath},
	{"minimum quantity", true, minimumQuantity, orderPath},
	{"display quantity", true, displayQuantity, orderPath},
	{"self-trade prevention", true, selfTradePrevention, orderPath},
	{"mass cancel", true, massCancel, orderPath},
	{"every limit", true, everyLimit, orderPath},
	{"kill switches", true, killSwitches, orderPath},
	{"order rate", false, orderRate, orderPath},
	{"dead-man timer", true, deadManTimer, orderPath},
	{"dead-man timer fires", false, deadManTimerFires, orderPath},
	{"end of day", true, endOfDay, orderPath},
	{"table of ids full", true, idsFull, orderPath},
	{"store of events full", true, eventsFull, orderPath},
	{"book full", true, bookFull, orderPath},
}

// Short names of what an order asks for beside its price.
func fok(o *pb.SubmitOrderRequest)     { o.TimeInForce = pb.TimeInForce_TIME_IN_FORCE_FOK }
func gtc(o *pb.SubmitOrderRequest)     { o.TimeInForce = pb.TimeInForce_TIME_IN_FORCE_GTC }
func posting(o *pb.SubmitOrderRequest) { o.PostOnly = true }
func showing(lots uint64) orderChange {
	return func(o *pb.SubmitOrderRequest) { o.DisplayQuantity = lots }
}
func atLeast(lots uint64) orderChange {
	return func(o *pb.SubmitOrderRequest) { o.MinimumQuantity = lots }
}
func on(symbol string) orderChange   { return func(o *pb.SubmitOrderRequest) { o.Symbol = symbol } }
func priced(price int64) orderChange { return func(o *pb.SubmitOrderRequest) { o.Price = price } }
func preventing(p prevention) orderChange {
	return func(o *pb.SubmitOrderRequest) { o.SelfTradePrevention = p }
}

type (
	orderChange = func(*pb.SubmitOrderRequest)
	prevention  = pb.SelfTradePrevention
)

// becomes submits an order and holds its answer to status and quantities.
func (c *client) becomes(order *pb.SubmitOrderRequest, status pb.OrderStatus, filled, leaves uint64) *pb.SubmitOrderResponse {
	c.rig.t.Helper()
	got := c.submit(order)
	if got.GetStatus() != status || got.GetFilledQuantity() != filled || got.GetLeavesQuantity() != leaves {
		c.rig.t.Errorf("%s\nbecame %v: filled %d, leaves %d; want %v: %d, %d (%v)", text(order),
			got.GetStatus(), got.GetFilledQuantity(), got.GetLeavesQuantity(), status, filled, leaves, got.GetReason())
	}
	return got
}

// is makes a call that must be answered with this reason; 0 = not refused.
func (c *client) is(reason pb.Reason, request proto.Message) {
	c.rig.t.Helper()
	c.rig.wantRefusal(c, refusal{text(request), "", request, reason, ""})
}

// fillOrKill: all at once over all levels, or nothing.
func fillOrKill(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	maker, taker := r.dial(betaKey), r.dial(alphaKey)
	maker.submit(r.limit("near", sell, 3, 1))
	maker.submit(r.limit("far", sell, 4, 2))
	taker.is(pb.Reason_REASON_FILL_OR_KILL, with(r.limit("one-too-many", buy, 8, 2), fok))
	taker.is(pb.Reason_REASON_FILL_OR_KILL, with(r.limit("not-at-that-price", buy, 4, 1), fok))
	taker.is(pb.Reason_REASON_FILL_OR_KILL, with(r.market("market-too-many", buy, 8), fok))
	r.wantBook(taker, 0, nil, []*pb.BookLevel{{Price: r.price + 1, Quantity: 3, OrderCount: 1}, {Price: r.price + 2, Quantity: 4, OrderCount: 1}}, 0)
	taker.becomes(with(r.limit("all", buy, 5, 2), fok), filled, 5, 0)
	taker.becomes(with(r.market("market-all", buy, 2), fok), filled, 2, 0)
	r.wantBook(taker, 0, nil, nil, r.price+2)
	taker.is(pb.Reason_REASON_FILL_OR_KILL, with(r.limit("nothing-there", buy, 1, 2), fok))
}

// postOnly is refused rather than take.
func postOnly(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	maker, taker := r.dial(betaKey), r.dial(alphaKey)
	taker.becomes(with(r.limit("into-nothing", buy, 2, 0), posting), accepted, 0, 2)
	maker.submit(r.limit("ask", sell, 3, 2))
	taker.is(pb.Reason_REASON_POST_ONLY_WOULD_TAKE, with(r.limit("would-take", buy, 1, 2), posting))
	taker.becomes(with(r.limit("just-not", buy, 1, 1), posting), accepted, 0, 1)
	taker.is(pb.Reason_REASON_POST_ONLY_WOULD_TAKE, r.replace("cross", "just-not", 1, 2)) // it stays post-only
	r.wantOrder(taker, "just-not", accepted, 1, 0, 1)
	got := ask[*pb.GetOrderResponse](taker, &pb.GetOrderRequest{ClientOrderId: "just-not"}).GetOrder()
	if !got.GetPostOnly() {
		t.Errorf("read %s, want post_only", text(got))
	}
	maker.becomes(r.limit("hits", sell, 4, 0), partly, 3, 1)
}

// minimumQuantity: the first fill has so much or there is none.
func minimumQuantity(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	maker, taker := r.dial(betaKey), r.dial(alphaKey)
	maker.submit(r.limit("three", sell, 3, 0))
	taker.is(pb.Reason_REASON_MINIMUM_QUANTITY, with(r.limit("four-of-ten", buy, 10, 0), atLeast(4)))
	taker.is(pb.Reason_REASON_MINIMUM_QUANTITY, with(r.immediate("at-once-four", buy, 10, 0), atLeast(4)))
	taker.is(pb.Reason_REASON_MINIMUM_QUANTITY, with(r.limit("at-a-worse-price", buy, 10, -1), atLeast(1)))
	taker.becomes(with(r.limit("three-of-ten", buy, 10, 0), atLeast(3)), partly, 3, 7)
	maker.becomes(r.immediate("one-more", sell, 1, 0), filled, 1, 0) // its minimum was for the first fill
	r.wantOrder(taker, "three-of-ten", partly, 10, 4, 6)
	got := ask[*pb.GetOrderResponse](taker, &pb.GetOrderRequest{ClientOrderId: "three-of-ten"}).GetOrder()
	if got.GetMinimumQuantity() != 3 {
		t.Errorf("read %s, want minimum_quantity 3", text(got))
	}
}

// displayQuantity: the book shows a part, all of it trades, and each part that is shown anew goes to the back.
func displayQuantity(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	iceberg, other := r.dial(alphaKey), r.dial(betaKey)
	iceberg.becomes(with(r.limit("iceberg", buy, 10, 0), showing(3)), accepted, 0, 10)
	other.becomes(r.limit("behind", buy, 2, 0), accepted, 0, 2)
	r.wantBook(other, 0, []*pb.BookLevel{{Price: r.price, Quantity: 5, OrderCount: 2}}, nil, 0)
	other.becomes(r.immediate("takes-what-is-shown", sell, 3, 0), filled, 3, 0)
	r.wantOrder(iceberg, "iceberg", partly, 10, 3, 7)
	other.becomes(r.immediate("meets-the-one-behind", sell, 2, 0), filled, 2, 0)
	r.wantOrder(other, "behind", filled, 2, 2, 0)
	r.wantBook(other, 0, []*pb.BookLevel{{Price: r.price, Quantity: 3, OrderCount: 1}}, nil, r.price)
	other.becomes(r.immediate("takes-all-of-it", sell, 9, 0), canceled, 7, 0)
	r.wantOrder(iceberg, "iceberg", filled, 10, 10, 0)
	r.wantBook(other, 0, nil, nil, r.price)
}

// selfTradePrevention: the taker's word counts, for all accounts of one group.
func selfTradePrevention(t *testing.T, s *suite) {
	r := s.start(t, twoFirms(), func(r *rig) { r.decrements = true })
	maker, taker, stranger := r.dial(alphaKey), r.dial(gammaKey), r.dial(betaKey)
	for _, c := range []struct {
		name          string
		prevention    prevention
		taken         uint64 // lots of the taker, the maker has 5
		status        pb.OrderStatus
		filled, rests uint64
		makerStatus   pb.OrderStatus
		makerFilled   uint64
		makerLeaves   uint64
	}{
		{"none", pb.SelfTradePrevention_SELF_TRADE_PREVENTION_NONE, 3, filled, 3, 0, partly, 3, 2},
		{"unspecified", pb.SelfTradePrevention_SELF_TRADE_PREVENTION_UNSPECIFIED, 3, filled, 3, 0, partly, 3, 2},
		{"taker", pb.SelfTradePrevention_SELF_TRADE_PREVENTION_CANCEL_TAKER, 3, canceled, 0, 0, accepted, 0, 5},
		{"maker", pb.SelfTradePrevention_SELF_TRADE_PREVENTION_CANCEL_MAKER, 3, accepted, 0, 3, canceled, 0, 0},
		{"both", pb.SelfTradePrevention_SELF_TRADE_PREVENTION_CANCEL_BOTH, 3, canceled, 0, 0, canceled, 0, 0},
		{"decrement-less", pb.SelfTradePrevention_SELF_TRADE_PREVENTION_DECREMENT, 3, canceled, 0, 0, accepted, 0, 2},
		{"decrement-equal", pb.SelfTradePrevention_SELF_TRADE_PREVENTION_DECREMENT, 5, canceled, 0, 0, canceled, 0, 0},
		{"decrement-more", pb.SelfTradePrevention_SELF_TRADE_PREVENTION_DECREMENT, 7, accepted, 0, 2, canceled, 0, 0},
	} {
		maker.submit(r.limit("own-"+c.name, sell, 5, 0))
		taker.becomes(with(r.limit("takes-"+c.name, buy, c.taken, 0), preventing(c.prevention)), c.status, c.filled, c.rests)
		r.wantOrder(maker, "own-"+c.name, c.makerStatus, 5, c.makerFilled, c.makerLeaves)
		if c.makerLeaves > 0 {
			ask[*pb.CancelOrderResponse](maker, cancelOrder("", "own-"+c.name))
		}
		if c.rests > 0 {
			ask[*pb.CancelOrderResponse](taker, cancelOrder("", "takes-"+c.name))
		}
		r.wantBook(stranger, 0, nil, nil, r.price)
	}
	// Another group's order before the own one trades, and fill-or-kill counts only what the prevention lets it take.
	stranger.submit(r.limit("strangers", sell, 2, 0))
	maker.submit(r.limit("own", sell, 5, 0))
	both := preventing(pb.SelfTradePrevention_SELF_TRADE_PREVENTION_CANCEL_TAKER)
	taker.is(pb.Reason_REASON_FILL_OR_KILL, with(r.limit("all-or-nothing", buy, 3, 0), both, fok))
	taker.becomes(with(r.limit("some", buy, 3, 0), both), canceled, 2, 0)
	stranger.becomes(with(r.limit("no-relation", buy, 5, 0), both), filled, 5, 0)
}

// massCancel by symbol and side, answered once for each request id.
func massCancel(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c, other := r.dial(alphaKey), r.dial(betaKey)
	order := func(name, symbol string, side pb.Side) *pb.SubmitOrderRequest {
		return with(r.limit(name, side, 1, int64(side)*2-3), on(symbol), priced(1000+int64(side)))
	}
	enter := func(round int) {
		for _, symbol := range []string{r.symbol, r.second} {
			for _, side := range []pb.Side{buy, sell} {
				c.submit(order(fmt.Sprintf("%s-%d-%d", symbol, side, round), symbol, side))
			}
		}
	}
	want := func(request *pb.MassCancelRequest, count uint32) *pb.MassCancelResponse {
		t.Helper()
		got := ask[*pb.MassCancelResponse](c, request)
		if got.GetCanceledCount() != count || got.GetStatus() != canceled {
			t.Errorf("%s\nanswered %s, want %d canceled", text(request), text(got), count)
		}
		return got
	}
	other.submit(order("others", r.symbol, buy))
	for round, step := range []struct {
		request     *pb.MassCancelRequest
		count, rest uint32
	}{
		{&pb.MassCancelRequest{RequestId: "side", Symbol: r.symbol, Side: buy}, 1, 3},
		{&pb.MassCancelRequest{RequestId: "symbol", Symbol: r.symbol}, 2, 2},
		{&pb.MassCancelRequest{RequestId: "sides", Side: sell}, 2, 2},
		{&pb.MassCancelRequest{RequestId: "all"}, 4, 0},
		{&pb.MassCancelRequest{}, 4, 0},
	} {
		enter(round)
		first := want(step.request, step.count)
		if open := ask[*pb.ListOrdersResponse](c, &pb.ListOrdersRequest{}).GetOrders(); len(open) != int(step.rest) {
			t.Errorf("%s left %d orders open, want %d", text(step.request), len(open), step.rest)
		}
		if step.request.RequestId != "" {
			again := want(step.request, step.count)
			expected := proto.CloneOf(first)
			expected.Duplicate, expected.SentNs = true, again.GetSentNs()
			if !proto.Equal(again, expected) {
				t.Errorf("the same request again\n got %s\nwant %s", text(again), text(expected))
			}
			used := ask[*pb.MassCancelResponse](c, &pb.MassCancelRequest{RequestId: step.request.RequestId, Symbol: r.second, Side: buy})
			if used.GetReason() != pb.Reason_REASON_DUPLICATE_ID || used.GetStatus() != rejected {
				t.Errorf("the request id for something else: %s", text(used))
			}
		}
		want(&pb.MassCancelRequest{}, step.rest)
	}
	want(&pb.MassCancelRequest{}, 0) // and nothing is an answer, too
	unknownSymbol := ask[*pb.MassCancelResponse](c, &pb.MassCancelRequest{Symbol: "NO.SUCH.SYMBOL"})
	if unknownSymbol.GetReason() != pb.Reason_REASON_UNKNOWN_SYMBOL || unknownSymbol.GetStatus() != rejected {
		t.Errorf("an unknown symbol: %s", text(unknownSymbol))
	}
	for _, bad := range []struct {
		field   string
		request *pb.MassCancelRequest
	}{
		{"request_id", &pb.MassCancelRequest{RequestId: "a b"}}, {"symbol", &pb.MassCancelRequest{Symbol: "a b"}}, {"side", &pb.MassCancelRequest{Side: 3}},
	} {
		r.wantRefusal(c, refusal{text(bad.request), "", bad.request, pb.Reason_REASON_MALFORMED, bad.field})
	}
	r.wantOrder(other, "others", accepted, 1, 0, 1)
}
