package transportstest

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "tailgate/proto/gen/orderentry/v1"
)

// sameAnswer compares a repeated answer with the first one: everything is the same but the flag, the time it was sent, and
// the tag, which is the repeated request's.
func sameAnswer(t testing.TB, first, again *pb.SubmitOrderResponse) {
	t.Helper()
	want, got := proto.CloneOf(first), proto.CloneOf(again)
	want.Duplicate, want.SentNs, want.ClientTag = true, 0, nil
	got.SentNs, got.ClientTag = 0, nil
	if !proto.Equal(want, got) {
		t.Errorf("the same id again\n got %s\nwant %s", text(got), text(want))
	}
}

func duplicateOrder(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c, other := r.dial(alphaKey), r.dial(betaKey)
	order := with(r.limit("once", buy, 5, 0), func(o *pb.SubmitOrderRequest) { o.ClientTag = tag(1, 40) })
	first := c.submit(order)
	if first.GetDuplicate() {
		t.Errorf("the first answer says duplicate: %s", text(first))
	}
	again := func() {
		t.Helper()
		sameAnswer(t, first, c.submit(order))
		sameAnswer(t, first, c.submit(with(order, func(o *pb.SubmitOrderRequest) { o.ClientTag = tag(2, 99) })))
		sameAnswer(t, first, c.submit(with(order, func(o *pb.SubmitOrderRequest) { o.ClientTag = nil })))
		sameAnswer(t, first, c.submit(with(order, func(o *pb.SubmitOrderRequest) { o.AckDetail = pb.AckDetail_ACK_DETAIL_MINIMAL })))
		sameAnswer(t, first, c.submit(with(order, func(o *pb.SubmitOrderRequest) { o.AckDetail = pb.AckDetail_ACK_DETAIL_FULL })))
	}
	again()
	r.wantBook(c, 0, []*pb.BookLevel{{Price: r.price, Quantity: 5, OrderCount: 1}}, nil, 0)
	other.submit(r.immediate("fills-some", sell, 2, 0))
	again() // the first answer, and not how the order stands now
	ask[*pb.CancelOrderResponse](c, cancelOrder("", "once"))
	again()
	r.wantBook(c, 0, nil, nil, r.price)

	refusedOrder := with(r.limit("refused", buy, 5, 0), func(o *pb.SubmitOrderRequest) { o.Symbol = "NO.SUCH.SYMBOL" })
	sameAnswer(t, c.submit(refusedOrder), c.submit(refusedOrder))
}

func duplicateElsewhere(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	order := r.limit("once", buy, 5, 0)
	first := c.submit(order)
	sameAnswer(t, first, r.dial(alphaKey).submit(order))
	sameAnswer(t, first, r.dial(alpha2Key).submit(order))
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	c = r.dial(alphaKey)
	sameAnswer(t, first, c.submit(order))
	if got := r.dial(betaKey).submit(order); got.GetDuplicate() || got.GetOrderId() == first.GetOrderId() {
		t.Errorf("another account's order with the same id: %s", text(got))
	}
	r.wantBook(c, 0, []*pb.BookLevel{{Price: r.price, Quantity: 10, OrderCount: 2}}, nil, 0)
}

// duplicateRequests: replaces and cancels with a request id are answered once too, in name spaces apart from the orders'.
func duplicateRequests(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	again := func(first, second proto.Message) {
		t.Helper()
		want := without(first, gatewaysOwn)
		want.ProtoReflect().Set(want.ProtoReflect().Descriptor().Fields().ByName("duplicate"), protoreflect.ValueOfBool(true))
		if got := without(second, gatewaysOwn); !proto.Equal(got, want) {
			t.Errorf("the same request again\n got %s\nwant %s", text(got), text(want))
		}
	}
	c.submit(r.limit("order", buy, 5, 0))
	up := r.replace("order", "order", 6, 1)
	first := ask[*pb.ReplaceOrderResponse](c, up)
	again(first, ask[*pb.ReplaceOrderResponse](c, up))
	ask[*pb.ReplaceOrderResponse](c, r.replace("next", "order", 7, 2))
	again(first, ask[*pb.ReplaceOrderResponse](c, up))
	r.wantBook(c, 0, []*pb.BookLevel{{Price: r.price + 2, Quantity: 7, OrderCount: 1}}, nil, 0)
	r.wantRefusal(c, refusal{"the request id for something else", alphaKey, r.replace("order", "order", 8, 1), pb.Reason_REASON_DUPLICATE_ID, ""})
	r.wantBook(c, 0, []*pb.BookLevel{{Price: r.price + 2, Quantity: 7, OrderCount: 1}}, nil, 0)

	gone := ask[*pb.CancelOrderResponse](c, cancelOrder("bye", "order"))
	again(gone, ask[*pb.CancelOrderResponse](c, cancelOrder("bye", "order")))
	r.wantRefusal(c, refusal{"another cancel", alphaKey, cancelOrder("bye-2", "order"), pb.Reason_REASON_TOO_LATE, ""})
	refused := ask[*pb.CancelOrderResponse](c, cancelOrder("bye-3", "nobody"))
	c.submit(r.limit("nobody", buy, 1, 0))
	again(refused, ask[*pb.CancelOrderResponse](c, cancelOrder("bye-3", "nobody")))
	r.wantOrder(c, "nobody", accepted, 1, 0, 1)
}

// concurrentDuplicates sends the same orders from many connections at once: one of each is the first.
func concurrentDuplicates(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	const connections, orders = 6, 16
	var firsts [orders]atomic.Int32
	var ids [orders]sync.Map
	var group sync.WaitGroup
	for n := range connections {
		c := r.dial([]string{alphaKey, alpha2Key}[n%2])
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			for _, i := range rand.New(rand.NewPCG(1, uint64(n)/3)).Perm(orders) { // neighbors send in the same order
				order := with(r.limit(id("same-%d", i), buy, uint64(i)+1, 0), func(o *pb.SubmitOrderRequest) { o.ClientTag = tag(n, n) })
				response, fault := c.try(ctx, order)
				if fault != nil {
					t.Errorf("order %d on connection %d: %v", i, n, fault)
					return
				}
				got := response.(*pb.SubmitOrderResponse)
				if !got.GetDuplicate() {
					firsts[i].Add(1)
				}
				ids[i].Store(got.GetOrderId(), true)
			}
		})
	}
	await(t, "all duplicates are answered", run(group.Wait))
	var total uint64
	for i := range orders {
		total += uint64(i) + 1
		distinct := 0
		ids[i].Range(func(any, any) bool { distinct++; return true })
		if n := firsts[i].Load(); n != 1 || distinct != 1 {
			t.Errorf("order %d: %d first answers and %d order ids, want one of each", i, n, distinct)
		}
	}
	r.wantBook(r.dial(alphaKey), 0, []*pb.BookLevel{{Price: r.price, Quantity: total, OrderCount: orders}}, nil, 0)
}
