package transportstest

import (
	"slices"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// deadManTimer is armed, prolonged and disarmed; a disarmed one never fires.
func deadManTimer(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	c.submit(r.limit("rests", buy, 1, 0))
	after := func(ms uint32) uint64 {
		t.Helper()
		return ask[*pb.CancelAllAfterResponse](c, &pb.CancelAllAfterRequest{TimeoutMs: ms}).GetTriggerNs() // verify compares it with the clock
	}
	after(0)
	first := after(1_800_000)
	if second := after(3_600_000); second <= first {
		t.Errorf("prolonged from %d to %d", first, second)
	}
	after(0)
	c.is(0, &pb.CancelAllAfterRequest{TimeoutMs: 3_600_000})
	r.wantRefusal(c, refusal{"more than an hour", "", &pb.CancelAllAfterRequest{TimeoutMs: 3_600_001}, pb.Reason_REASON_MALFORMED, "timeout_ms"})
	r.wantOrder(c, "rests", accepted, 1, 0, 1)
}

// deadManTimerFires: what is not prolonged in time cancels everything of the account; what is does not.
func deadManTimerFires(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	alpha, beta := r.dial(alphaKey), r.dial(betaKey)
	after := func(c *client, d time.Duration) {
		t.Helper()
		ask[*pb.CancelAllAfterResponse](c, &pb.CancelAllAfterRequest{TimeoutMs: uint32(d / time.Millisecond)})
	}
	prolonged := inTime(t, func(d time.Duration) string {
		name := id("prolonged-%d", d.Milliseconds())
		alpha.submit(r.limit(name, buy, 1, 0))
		after(alpha, d)
		after(alpha, time.Hour)
		return name
	})
	beta.submit(r.limit("day", buy, 1, -1))
	beta.submit(with(r.limit("gtc", sell, 1, 1), gtc))
	after(beta, 2*firstTime)
	r.awaitOrder(betaKey, "day", canceled)
	r.awaitOrder(betaKey, "gtc", canceled)
	beta.becomes(r.limit("it-fires-once", buy, 1, -1), accepted, 0, 1)
	r.wantOrder(alpha, prolonged, accepted, 1, 0, 1)
}

// firstTime is what inTime begins with.
const firstTime = 100 * time.Millisecond

// inTime does what is only right within a time that it says, with a longer one each time until it has been quick enough: a machine may
// be slow, and then proves nothing.
func inTime[R any](t *testing.T, do func(d time.Duration) R) R {
	t.Helper()
	for d := firstTime; ; d *= 2 {
		began := time.Now()
		result := do(d)
		if time.Since(began) < d {
			return result
		}
		if d > bound {
			t.Fatalf("not even %v are enough for what takes a moment", d)
		}
	}
}

// awaitOrder polls an order, beside the transport, until it has a status.
func (r *rig) awaitOrder(key, name string, status pb.OrderStatus) {
	r.t.Helper()
	direct := r.direct(key)
	eventually(r.t, "order "+name+" is "+status.String(), func() bool {
		return ask[*pb.GetOrderResponse](direct, &pb.GetOrderRequest{ClientOrderId: name}).GetOrder().GetStatus() == status
	})
}

// endOfDay: DAY orders expire and their ids are free, GTC orders stay with all they have, a new epoch numbers its answers from the beginning.
func endOfDay(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c, other := r.dial(alphaKey), r.dial(betaKey)
	stays := with(r.limit("stays", buy, 5, 0), gtc)
	first := c.submit(stays)
	c.submit(r.limit("goes", buy, 5, -1))
	c.submit(with(r.limit("gone-before", buy, 5, -2), gtc))
	c.is(0, cancelOrder("cancel", "gone-before"))
	other.becomes(r.immediate("takes-two", sell, 2, 0), filled, 2, 0)
	replaced := ask[*pb.ReplaceOrderResponse](c, r.replace("replace", "stays", 4, 0))
	c.is(pb.Reason_REASON_UNKNOWN_ORDER, cancelOrder("of-nobody", "nobody"))

	expired, epoch := r.endDay()
	if expired != 1 || epoch != first.GetEpoch()+1 {
		t.Errorf("the end of epoch %d expired %d orders and began epoch %d, want 1 order", first.GetEpoch(), expired, epoch)
	}
	r.wantOrder(c, "stays", partly, 4, 2, 2)
	for _, gone := range []string{"goes", "gone-before"} {
		r.wantRefusal(c, refusal{gone, "", &pb.GetOrderRequest{ClientOrderId: gone}, pb.Reason_REASON_NOT_FOUND, ""})
	}
	var all []string
	for _, o := range ask[*pb.ListOrdersResponse](c, &pb.ListOrdersRequest{State: pb.ListOrdersState_LIST_ORDERS_STATE_ALL}).GetOrders() {
		all = append(all, o.GetClientOrderId())
	}
	if !slices.Equal(all, []string{"stays"}) {
		t.Errorf("the new day has the orders %q", all)
	}
	r.wantBook(c, 0, []*pb.BookLevel{{Price: r.price, Quantity: 2, OrderCount: 1}}, nil, r.price)

	// Nothing enters twice: ids of what goes on are still those, with their first answers.
	sameAnswer(t, first, c.submit(stays))
	if again := ask[*pb.ReplaceOrderResponse](c, r.replace("replace", "stays", 4, 0)); !again.GetDuplicate() || again.GetEpoch() != replaced.GetEpoch() || again.GetSequence() != replaced.GetSequence() {
		t.Errorf("the replace of the day before again: %s, first %s", text(again), text(replaced))
	}
	// All others are free.
	anew := c.becomes(r.limit("goes", buy, 7, -1), accepted, 0, 7)
	if anew.GetDuplicate() || anew.GetEpoch() != epoch || anew.GetSequence() != 2 || anew.GetOrderId() <= first.GetOrderId() {
		t.Errorf("an order of the new day under an id of the old one: %s, want epoch %d, sequence 2 (behind one expired order)", text(anew), epoch)
	}
	if got := ask[*pb.CancelOrderResponse](c, cancelOrder("cancel", "goes")); got.GetDuplicate() || got.GetStatus() != canceled {
		t.Errorf("a request id of the old day: %s", text(got))
	}
	other.becomes(r.immediate("takes-the-rest", sell, 2, 0), filled, 2, 0)
	r.wantOrder(c, "stays", filled, 4, 4, 0)
}

// fill makes n calls beside the transport.
func (r *rig) fill(key string, n int, request func(i int) *pb.SubmitOrderRequest) {
	r.t.Helper()
	direct := r.direct(key)
	for i := range n {
		if _, fault := direct.try(r.t.Context(), request(i)); fault != nil {
			r.t.Fatalf("order %d of %d: %v", i, n, fault)
		}
	}
}

// idsFull: a full table refuses new orders, forgets none, and lets cancels through.
func idsFull(t *testing.T, s *suite) {
	const size = 1000
	options := twoAccounts()
	options.MaxIDs = size
	r := s.start(t, options)
	c := r.dial(alphaKey)
	order := r.limit("first", buy, 1, 0)
	first := c.submit(order)
	r.fill(betaKey, size-1, func(i int) *pb.SubmitOrderRequest { return r.immediate(id("fill-%d", i), buy, 1, -1) })
	for range 2 {
		c.is(pb.Reason_REASON_ID_TABLE_FULL, r.limit("one-too-many", buy, 1, 0))
	}
	sameAnswer(t, first, c.submit(order))
	c.is(0, r.replace("", "first", 2, 0))
	c.is(0, cancelOrder("", "first"))
	r.endDay()
	c.becomes(r.limit("one-too-many", buy, 1, 0), accepted, 0, 1) // the refusals have not used it up
}

// eventsFull: a full store refuses orders and replaces, and cancels find room.
func eventsFull(t *testing.T, s *suite) {
	const size = 10_000
	options := twoAccounts()
	options.MaxEvents = size
	r := s.start(t, options)
	c, direct := r.dial(alphaKey), r.direct(betaKey)
	c.submit(r.limit("rests", buy, 1, 0))
	c.submit(r.limit("rests-too", buy, 1, 0))
	var fault *transports.Fault
	for i := 0; fault == nil && i <= size; i++ {
		_, fault = direct.try(t.Context(), r.immediate(id("fill-%d", i), buy, 1, -1))
	}
	wantFault(t, fault, pb.Reason_REASON_EVENT_STORE_FULL, notProcessed)
	for range 2 {
		c.is(pb.Reason_REASON_EVENT_STORE_FULL, r.limit("one-too-many", buy, 1, 0))
	}
	c.is(pb.Reason_REASON_EVENT_STORE_FULL, r.replace("", "rests", 2, 0))
	c.is(0, cancelOrder("", "rests"))
	c.is(0, &pb.MassCancelRequest{})
	r.wantOrder(c, "rests-too", canceled, 1, 0, 0)
	r.endDay()
	c.becomes(r.limit("one-too-many", buy, 1, 0), accepted, 0, 1)
}

// bookFull refuses what would rest.
func bookFull(t *testing.T, s *suite) {
	const size = 1000
	options := twoAccounts()
	options.MaxBookOrders = size
	r := s.start(t, options)
	c := r.dial(alphaKey)
	r.fill(betaKey, size, func(i int) *pb.SubmitOrderRequest { return r.limit(id("fill-%d", i), sell, 1, int64(i)) })
	for range 2 { // the second is the first answer again
		c.is(pb.Reason_REASON_BOOK_FULL, r.limit("one-too-many", buy, 1, -1))
	}
	c.becomes(r.immediate("takes", buy, 1, 0), filled, 1, 0)
	c.becomes(r.limit("rests", buy, 1, -1), accepted, 0, 1)
}
