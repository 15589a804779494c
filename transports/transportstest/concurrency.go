package transportstest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// concurrentCalls: many goroutines share one connection. That each answer belongs to its request is checked with every call.
func concurrentCalls(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	r.trade(t, []*client{c}, 16, 12)
	r.conserved(t, map[string]*client{"alpha": c})
}

// concurrentClients: many connections of two accounts, a few goroutines each.
func concurrentClients(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	var clients []*client
	for i := range 12 {
		clients = append(clients, r.dial([]string{alphaKey, betaKey, alpha2Key}[i%3]))
	}
	r.trade(t, clients, 2, 8)
	r.conserved(t, map[string]*client{"alpha": clients[0], "beta": clients[1]})
}

// trade runs calls of every kind on each client from several goroutines at once.
func (r *rig) trade(t *testing.T, clients []*client, goroutines, orders int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var group sync.WaitGroup
	for n, c := range clients {
		for g := range goroutines {
			random := rand.New(rand.NewPCG(uint64(n), uint64(g)))
			group.Go(func() {
				for i := range orders {
					name := id("o-%d-%d-%d", n, g, i)
					order := r.limit(name, pb.Side(1+random.IntN(2)), 1+random.Uint64N(9), random.Int64N(5)-2)
					order.ClientTag = tag(n*1000+g*100+i, random.IntN(3000))
					requests := []proto.Message{order}
					switch random.IntN(4) {
					case 0:
						requests = append(requests, cancelOrder(name, name))
					case 1:
						requests = append(requests, r.replace(name, name, 1+random.Uint64N(9), random.Int64N(5)-2))
					case 2:
						requests = append(requests, &pb.GetOrderRequest{ClientOrderId: name}, &pb.GetBookRequest{Symbol: r.symbol, Depth: 1 + random.Uint32N(5)})
					}
					for _, request := range requests {
						if _, fault := c.try(ctx, request); fault != nil {
							t.Errorf("client %d, goroutine %d: %s: %v", n, g, text(request), fault)
							return
						}
					}
				}
			})
		}
	}
	await(t, "all calls end", run(group.Wait))
}

// conserved reads every order of every account and checks that nothing was made up or lost: what was bought was sold, at the
// same prices, and what is open is what the book shows.
func (r *rig) conserved(t *testing.T, accounts map[string]*client) {
	t.Helper()
	lots, notional, open := map[pb.Side]uint64{}, map[pb.Side]int64{}, map[pb.Side]uint64{}
	seen := map[uint64]string{}
	for account, c := range accounts {
		for _, o := range c.all() {
			if earlier, twice := seen[o.GetOrderId()]; twice {
				t.Errorf("order id %d is %s's and %s's", o.GetOrderId(), earlier, account+" "+o.GetClientOrderId())
			}
			seen[o.GetOrderId()] = account + " " + o.GetClientOrderId()
			lots[o.GetSide()] += o.GetFilledQuantity()
			notional[o.GetSide()] += o.GetFilledNotional()
			open[o.GetSide()] += o.GetLeavesQuantity()
			if n := r.probe.handledOrders()[o.GetClientOrderId()]; n != 1 {
				t.Errorf("order %s reached the gateway %d times", o.GetClientOrderId(), n)
			}
		}
	}
	if lots[buy] != lots[sell] || notional[buy] != notional[sell] || lots[buy] == 0 {
		t.Errorf("bought %d lots for %d, sold %d for %d", lots[buy], notional[buy], lots[sell], notional[sell])
	}
	for _, c := range accounts {
		book := ask[*pb.GetBookResponse](c, &pb.GetBookRequest{Symbol: r.symbol, Depth: 5000})
		if bid, asked := depth(book.GetBids()), depth(book.GetAsks()); bid != open[buy] || asked != open[sell] {
			t.Errorf("the book shows %d bid and %d asked, open are %d and %d", bid, asked, open[buy], open[sell])
		}
	}
}

// all reads every order of the account.
func (c *client) all() []*pb.Order {
	c.rig.t.Helper()
	var orders []*pb.Order
	request := &pb.ListOrdersRequest{State: pb.ListOrdersState_LIST_ORDERS_STATE_ALL, PageSize: 300}
	for {
		page := ask[*pb.ListOrdersResponse](c, request)
		orders = append(orders, page.GetOrders()...)
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
			return orders
		}
	}
}

func depth(levels []*pb.BookLevel) (sum uint64) {
	for _, level := range levels {
		sum += level.GetQuantity()
	}
	return sum
}

// moreCallsThanStreams: what a connection does not take at once waits for its turn.
func moreCallsThanStreams(t *testing.T, s *suite) {
	few := transports.Limits{MaxStreams: 2}
	r := s.start(t, twoAccounts(), withLimits(few))
	c := r.dial(alphaKey, func(d *transports.DialConfig) { d.Limits = few })
	r.trade(t, []*client{c}, 8, 4)
	r.conserved(t, map[string]*client{"alpha": c})
}

// largeAnswers: an answer may be much larger than its request, and than any request that the listener takes.
func largeAnswers(t *testing.T, s *suite) {
	options := twoAccounts()
	options.Limits = &pb.Limits{}
	r := s.start(t, options, withLimits(transports.Limits{MaxRequestBytes: 2048}))
	gateway, c := r.direct(alphaKey), r.dial(alphaKey)
	const levels = 700 // on each side
	for i := range int64(levels) {
		gateway.submit(r.limit(id("bid-with-a-long-identifier-%d", i), buy, 1<<30, -1-i))
		gateway.submit(r.limit(id("ask-with-a-long-identifier-%d", i), sell, 1<<30, 1+i))
	}
	for _, request := range []proto.Message{
		&pb.GetBookRequest{Symbol: r.symbol, Depth: 5000}, &pb.ListOrdersRequest{PageSize: 1000},
	} {
		got, fault := c.try(t.Context(), request)
		want, _ := gateway.try(t.Context(), request)
		if fault != nil {
			t.Errorf("%s: %v", text(request), fault)
		} else if !proto.Equal(got, want) {
			t.Errorf("%s: the answer of %d bytes is not the gateway's of %d", text(request), proto.Size(got), proto.Size(want))
		}
	}
}
