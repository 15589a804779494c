package transportstest

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
)

func submitRests(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	got := c.submit(r.limit("rests", buy, 7, -3))
	equal(t, got, &pb.SubmitOrderResponse{ClientOrderId: "rests", Status: accepted, Quantity: 7, LeavesQuantity: 7})
	gtc := with(r.limit("good-till-canceled", sell, 1, 3), func(o *pb.SubmitOrderRequest) {
		o.TimeInForce = pb.TimeInForce_TIME_IN_FORCE_GTC
		o.SelfTradePrevention = pb.SelfTradePrevention_SELF_TRADE_PREVENTION_NONE
	})
	other := c.submit(gtc)
	equal(t, other, &pb.SubmitOrderResponse{ClientOrderId: gtc.ClientOrderId, Status: accepted, Quantity: 1, LeavesQuantity: 1})
	if got.GetOrderId() == other.GetOrderId() {
		t.Errorf("two orders have the order id %d", got.GetOrderId())
	}
	if got.GetEpoch() != other.GetEpoch() || got.GetSequence() >= other.GetSequence() {
		t.Errorf("sequences of an account grow within an epoch: %d in %d, then %d in %d", got.GetSequence(), got.GetEpoch(), other.GetSequence(), other.GetEpoch())
	}
}

func submitCrosses(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	maker, taker := r.dial(betaKey), r.dial(alphaKey)
	maker.submit(r.limit("near", sell, 3, 1))
	maker.submit(r.limit("far", sell, 4, 2))

	// Trades print at the resting order's price, the better first.
	notional := 3*(r.price+1) + 2*(r.price+2)
	equal(t, taker.submit(r.limit("takes", buy, 5, 2)), &pb.SubmitOrderResponse{
		ClientOrderId: "takes", Status: filled, Quantity: 5, FilledQuantity: 5, LastPrice: r.price + 2, FilledNotional: notional,
	})
	r.wantOrder(maker, "near", filled, 3, 3, 0)
	r.wantOrder(maker, "far", partly, 4, 2, 2)

	// What it cannot take rests.
	equal(t, taker.submit(r.limit("takes-and-rests", buy, 10, 3)), &pb.SubmitOrderResponse{
		ClientOrderId: "takes-and-rests", Status: partly, Quantity: 10, FilledQuantity: 2, LeavesQuantity: 8,
		LastPrice: r.price + 2, FilledNotional: 2 * (r.price + 2),
	})
	r.wantOrder(maker, "far", filled, 4, 4, 0)
	r.wantBook(taker, 0, []*pb.BookLevel{{Price: r.price + 3, Quantity: 8, OrderCount: 1}}, nil, r.price+2)

	// Orders of one account trade with each other unless it asks for something else.
	equal(t, taker.submit(r.limit("own", sell, 8, 3)), &pb.SubmitOrderResponse{
		ClientOrderId: "own", Status: filled, Quantity: 8, FilledQuantity: 8, LastPrice: r.price + 3, FilledNotional: 8 * (r.price + 3),
	})
	r.wantBook(taker, 0, nil, nil, r.price+3)
}

func immediateOrCancel(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	maker, taker := r.dial(betaKey), r.dial(alphaKey)
	equal(t, taker.submit(r.immediate("nothing", buy, 5, 0)), &pb.SubmitOrderResponse{ClientOrderId: "nothing", Status: canceled, Quantity: 5})
	maker.submit(r.limit("bid", buy, 3, 0))
	equal(t, taker.submit(r.immediate("worse", sell, 5, 1)), &pb.SubmitOrderResponse{ClientOrderId: "worse", Status: canceled, Quantity: 5})
	equal(t, taker.submit(r.immediate("some", sell, 5, -1)), &pb.SubmitOrderResponse{
		ClientOrderId: "some", Status: canceled, Quantity: 5, FilledQuantity: 3, LastPrice: r.price, FilledNotional: 3 * r.price,
	})
	maker.submit(r.limit("bid-again", buy, 3, 0))
	equal(t, taker.submit(r.immediate("all", sell, 2, 0)), &pb.SubmitOrderResponse{
		ClientOrderId: "all", Status: filled, Quantity: 2, FilledQuantity: 2, LastPrice: r.price, FilledNotional: 2 * r.price,
	})
	r.wantBook(taker, 0, []*pb.BookLevel{{Price: r.price, Quantity: 1, OrderCount: 1}}, nil, r.price)
}

func market(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	maker, taker := r.dial(betaKey), r.dial(alphaKey)
	equal(t, taker.submit(r.market("nothing", buy, 5)), &pb.SubmitOrderResponse{ClientOrderId: "nothing", Status: canceled, Quantity: 5})
	maker.submit(r.limit("ask-1", sell, 2, 1))
	maker.submit(r.limit("ask-2", sell, 2, 2))
	ioc := with(r.market("some", buy, 3), func(o *pb.SubmitOrderRequest) { o.TimeInForce = pb.TimeInForce_TIME_IN_FORCE_IOC })
	equal(t, taker.submit(ioc), &pb.SubmitOrderResponse{
		ClientOrderId: "some", Status: filled, Quantity: 3, FilledQuantity: 3,
		LastPrice: r.price + 2, FilledNotional: 2*(r.price+1) + r.price + 2,
	})
	equal(t, taker.submit(r.market("more-than-there-is", buy, 5)), &pb.SubmitOrderResponse{
		ClientOrderId: "more-than-there-is", Status: canceled, Quantity: 5, FilledQuantity: 1,
		LastPrice: r.price + 2, FilledNotional: r.price + 2,
	})
	r.wantBook(taker, 0, nil, nil, r.price+2)
}

func replaceKeepsPlace(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	first, second := r.dial(alphaKey), r.dial(betaKey)
	entered := first.submit(r.limit("first", buy, 5, 0))
	second.submit(r.limit("second", buy, 5, 0))
	got := ask[*pb.ReplaceOrderResponse](first, r.replace("down", "first", 3, 0))
	equal(t, got, &pb.ReplaceOrderResponse{ClientOrderId: "first", RequestId: "down", Status: accepted, Quantity: 3, LeavesQuantity: 3})
	if got.GetOrderId() != entered.GetOrderId() || got.GetOrderVersion() <= entered.GetOrderVersion() {
		t.Errorf("order %d version %d became order %d version %d", entered.GetOrderId(), entered.GetOrderVersion(), got.GetOrderId(), got.GetOrderVersion())
	}
	second.submit(r.immediate("take", sell, 3, 0))
	r.wantOrder(first, "first", filled, 3, 3, 0)
	r.wantOrder(second, "second", accepted, 5, 0, 5)
}

func replaceLosesPlace(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	first, second := r.dial(alphaKey), r.dial(betaKey)
	first.submit(r.limit("first", buy, 5, 0))
	second.submit(r.limit("second", buy, 5, 0))
	equal(t, ask[*pb.ReplaceOrderResponse](first, r.replace("up", "first", 6, 0)),
		&pb.ReplaceOrderResponse{ClientOrderId: "first", RequestId: "up", Status: accepted, Quantity: 6, LeavesQuantity: 6})
	second.submit(r.immediate("take", sell, 2, 0))
	r.wantOrder(first, "first", accepted, 6, 0, 6)
	r.wantOrder(second, "second", partly, 5, 2, 3)

	// A price that changes and changes back has lost its place too; the total counts what is filled.
	equal(t, ask[*pb.ReplaceOrderResponse](second, r.replace("away", "second", 4, -1)), &pb.ReplaceOrderResponse{
		ClientOrderId: "second", RequestId: "away", Status: partly, Quantity: 4, FilledQuantity: 2, LeavesQuantity: 2,
		LastPrice: r.price, FilledNotional: 2 * r.price,
	})
	ask[*pb.ReplaceOrderResponse](second, r.replace("back", "second", 4, 0))
	first.submit(r.immediate("take", sell, 7, 0))
	r.wantOrder(first, "first", filled, 6, 6, 0)
	r.wantOrder(second, "second", partly, 4, 3, 1)
}

func replaceFills(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c, other := r.dial(alphaKey), r.dial(betaKey)
	other.submit(r.limit("ask", sell, 4, 2))
	c.submit(r.limit("bid", buy, 6, 0))
	equal(t, ask[*pb.ReplaceOrderResponse](c, r.replace("cross", "bid", 6, 2)), &pb.ReplaceOrderResponse{
		ClientOrderId: "bid", RequestId: "cross", Status: partly, Quantity: 6, FilledQuantity: 4, LeavesQuantity: 2,
		LastPrice: r.price + 2, FilledNotional: 4 * (r.price + 2),
	})
	r.wantOrder(other, "ask", filled, 4, 4, 0)
	r.wantBook(c, 0, []*pb.BookLevel{{Price: r.price + 2, Quantity: 2, OrderCount: 1}}, nil, r.price+2)
}

func cancels(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c, other := r.dial(alphaKey), r.dial(betaKey)
	c.submit(r.limit("whole", buy, 5, -1))
	equal(t, ask[*pb.CancelOrderResponse](c, cancelOrder("c1", "whole")),
		&pb.CancelOrderResponse{ClientOrderId: "whole", RequestId: "c1", Status: canceled, Quantity: 5})
	c.submit(r.limit("rest", buy, 5, 0))
	other.submit(r.immediate("take", sell, 2, 0))
	equal(t, ask[*pb.CancelOrderResponse](c, cancelOrder("", "rest")), &pb.CancelOrderResponse{
		ClientOrderId: "rest", Status: canceled, Quantity: 5, FilledQuantity: 2, LastPrice: r.price, FilledNotional: 2 * r.price,
	})
	r.wantOrder(c, "rest", canceled, 5, 2, 0)
	r.wantBook(c, 0, nil, nil, r.price)
}

func getOrder(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	entered := with(r.limit("read-me", sell, 9, 4), func(o *pb.SubmitOrderRequest) {
		o.TimeInForce = pb.TimeInForce_TIME_IN_FORCE_GTC
		o.ClientTag = tag(1, 10)
	})
	ack := c.submit(entered)
	got := ask[*pb.GetOrderResponse](c, &pb.GetOrderRequest{ClientOrderId: "read-me"})
	equal(t, got.GetOrder(), &pb.Order{
		ClientOrderId: "read-me", Symbol: r.symbol, Side: sell, Type: pb.OrderType_ORDER_TYPE_LIMIT,
		TimeInForce: pb.TimeInForce_TIME_IN_FORCE_GTC, Status: accepted, Price: r.price + 4, Quantity: 9, LeavesQuantity: 9,
		SelfTradePrevention: pb.SelfTradePrevention_SELF_TRADE_PREVENTION_NONE,
	})
	if o := got.GetOrder(); o.GetOrderId() != ack.GetOrderId() || o.GetReceivedNs() != ack.GetReceivedNs() || o.GetOrderVersion() != ack.GetOrderVersion() {
		t.Errorf("acknowledged %s\nread %s", text(ack), text(o))
	}
}

func listOrders(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c, other := r.dial(alphaKey), r.dial(betaKey)
	page := func(state pb.ListOrdersState, size uint32) [][]string {
		t.Helper()
		var pages [][]string
		request := &pb.ListOrdersRequest{State: state, PageSize: size}
		for {
			got := ask[*pb.ListOrdersResponse](c, request)
			var ids []string
			for _, o := range got.GetOrders() {
				ids = append(ids, o.GetClientOrderId())
			}
			pages = append(pages, ids)
			if request.PageToken = got.GetNextPageToken(); request.PageToken == "" || len(pages) > 10 {
				return pages
			}
		}
	}
	want := func(got [][]string, want ...[]string) {
		t.Helper()
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("pages %q, want %q", got, want)
		}
	}
	const (
		unspecified = pb.ListOrdersState_LIST_ORDERS_STATE_UNSPECIFIED
		open        = pb.ListOrdersState_LIST_ORDERS_STATE_OPEN
		all         = pb.ListOrdersState_LIST_ORDERS_STATE_ALL
	)
	want(page(open, 0), nil)
	for _, name := range []string{"e", "d", "c", "b", "a"} {
		c.submit(r.limit(name, buy, 2, -5))
	}
	other.submit(r.limit("not-alphas", buy, 1, -5))
	c.submit(with(r.limit("refused", buy, 2, 0), func(o *pb.SubmitOrderRequest) { o.Symbol = "NO.SUCH.SYMBOL" }))
	c.submit(r.immediate("gone", buy, 2, -5))
	ask[*pb.CancelOrderResponse](c, cancelOrder("", "d"))
	ask[*pb.ReplaceOrderResponse](c, r.replace("", "e", 3, -4)) // loses its place in the queue, not in the list

	want(page(open, 0), []string{"e", "c", "b", "a"})
	want(page(unspecified, 3), []string{"e", "c", "b"}, []string{"a"})
	want(page(open, 1000), []string{"e", "c", "b", "a"})
	want(page(all, 3), []string{"e", "d", "c"}, []string{"b", "a", "refused"}, []string{"gone"})

	// A list goes on where it was although what it has shown ends meanwhile.
	first := ask[*pb.ListOrdersResponse](c, &pb.ListOrdersRequest{PageSize: 1})
	ask[*pb.CancelOrderResponse](c, cancelOrder("", "e"))
	next := ask[*pb.ListOrdersResponse](c, &pb.ListOrdersRequest{PageSize: 1, PageToken: first.GetNextPageToken()})
	if len(next.GetOrders()) != 1 || next.GetOrders()[0].GetClientOrderId() != "c" {
		t.Errorf("behind e comes %s, want c", text(next))
	}
}

func getBook(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	r.wantBook(c, 0, nil, nil, 0)
	for i := range int64(12) {
		c.submit(r.limit(id("bid-%d", i), buy, uint64(i)+1, -1-i))
		c.submit(r.limit(id("ask-%d", i), sell, uint64(i)+2, 1+i))
	}
	c.submit(r.limit("bid-more", buy, 10, -1))
	levels := func(n int) (bids, asks []*pb.BookLevel) {
		for i := range int64(n) {
			bids = append(bids, &pb.BookLevel{Price: r.price - 1 - i, Quantity: uint64(i) + 1, OrderCount: 1})
			asks = append(asks, &pb.BookLevel{Price: r.price + 1 + i, Quantity: uint64(i) + 2, OrderCount: 1})
		}
		bids[0].Quantity, bids[0].OrderCount = 11, 2
		return bids, asks
	}
	for _, ask := range []struct {
		depth  uint32
		levels int
	}{{0, 10}, {1, 1}, {11, 11}, {12, 12}, {5000, 12}} {
		bids, asks := levels(ask.levels)
		r.wantBook(c, ask.depth, bids, asks, 0)
	}
	got := ask[*pb.GetBookResponse](c, &pb.GetBookRequest{Symbol: r.second})
	equal(t, got, &pb.GetBookResponse{Symbol: r.second})
}

// extremeNumbers: the greatest numbers of the contract arrive as they were sent, although a double holds 53 bits only. What an account
// has open must fit 63 bits, so there are two of them.
func extremeNumbers(t *testing.T, s *suite) {
	options := twoAccounts()
	options.Limits = &pb.Limits{}
	r := s.start(t, options)
	c, other := r.dial(alphaKey), r.dial(betaKey)
	enter := func(c *client, name string, side pb.Side, quantity uint64, price int64) {
		order := r.limit(name, side, quantity, 0)
		order.Price = price
		equal(t, c.submit(order), &pb.SubmitOrderResponse{
			ClientOrderId: name, Status: accepted, Quantity: quantity, LeavesQuantity: quantity,
		})
		if got := ask[*pb.GetOrderResponse](c, &pb.GetOrderRequest{ClientOrderId: name}).GetOrder(); got.GetPrice() != price {
			t.Errorf("order %s: price %d, want %d", name, got.GetPrice(), price)
		}
	}
	enter(c, "dearest", sell, 1, 1<<62)
	enter(c, "nearly-dearest", sell, 1, 1<<62-1)
	enter(other, "cheapest", buy, 1, -(1 << 62))
	enter(other, "nearly-cheapest", buy, 1, -(1<<62)+1)
	equal(t, ask[*pb.ReplaceOrderResponse](c, &pb.ReplaceOrderRequest{ClientOrderId: "dearest", Quantity: mostLots / 3, Price: 12345678}),
		&pb.ReplaceOrderResponse{ClientOrderId: "dearest", Status: accepted, Quantity: mostLots / 3, LeavesQuantity: mostLots / 3})
	enter(c, "most", buy, mostLots, 1)
	enter(c, "free", buy, 7, 0)
	enter(c, "below-zero", buy, 7, -1)
	bid := func(price int64, quantity uint64) *pb.BookLevel {
		return &pb.BookLevel{Price: price, Quantity: quantity, OrderCount: 1}
	}
	r.wantBook(c, 0, []*pb.BookLevel{bid(1, mostLots), bid(0, 7), bid(-1, 7), bid(-(1<<62)+1, 1), bid(-(1 << 62), 1)},
		[]*pb.BookLevel{bid(12345678, mostLots/3), bid(1<<62-1, 1)}, 0)
	taken := r.immediate("takes-a-third", buy, mostLots/3, 0)
	taken.Price = 12345678
	equal(t, c.submit(taken), &pb.SubmitOrderResponse{
		ClientOrderId: taken.ClientOrderId, Status: filled, Quantity: mostLots / 3, FilledQuantity: mostLots / 3,
		LastPrice: 12345678, FilledNotional: mostLots / 3 * 12345678,
	})
}

func listInstruments(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	got := ask[*pb.ListInstrumentsResponse](r.dial(alphaKey), &pb.ListInstrumentsRequest{})
	direct := ask[*pb.ListInstrumentsResponse](r.direct(alphaKey), &pb.ListInstrumentsRequest{})
	if !proto.Equal(got, direct) {
		t.Errorf("through the transport %s\nfrom the gateway %s", text(got), text(direct))
	}
}

// wantOrder reads an order and compares its state.
func (r *rig) wantOrder(c *client, clientOrderID string, status pb.OrderStatus, quantity, filled, leaves uint64) {
	r.t.Helper()
	o := ask[*pb.GetOrderResponse](c, &pb.GetOrderRequest{ClientOrderId: clientOrderID}).GetOrder()
	if o.GetStatus() != status || o.GetQuantity() != quantity || o.GetFilledQuantity() != filled || o.GetLeavesQuantity() != leaves {
		r.t.Errorf("order %s is %v: quantity %d, filled %d, leaves %d; want %v: %d, %d, %d", clientOrderID,
			o.GetStatus(), o.GetQuantity(), o.GetFilledQuantity(), o.GetLeavesQuantity(), status, quantity, filled, leaves)
	}
}

// wantBook reads the book of the rig's instrument and compares it.
func (r *rig) wantBook(c *client, depth uint32, bids, asks []*pb.BookLevel, last int64) {
	r.t.Helper()
	got := ask[*pb.GetBookResponse](c, &pb.GetBookRequest{Symbol: r.symbol, Depth: depth})
	equal(r.t, got, &pb.GetBookResponse{Symbol: r.symbol, Bids: bids, Asks: asks, LastPrice: last})
}
