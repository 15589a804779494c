package transportstest

import (
	"math"
	"slices"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// eventsOfEverything makes every kind of event, with every reason that an order that was open can end for, and compares the streams with the
// answers, with the orders, and over transports.
func eventsOfEverything(t *testing.T, s *suite) {
	r := s.start(t, twoFirms(), func(r *rig) { r.decrements = true })
	alpha, beta := r.dial(alphaKey), r.dial(betaKey)
	live := r.follow(alphaKey, &pb.StreamExecutionsRequest{})
	var answers []numbered
	submit := func(order *pb.SubmitOrderRequest) {
		t.Helper()
		answers = append(answers, alpha.submit(order))
	}
	submit(r.limit("bid", buy, 9, 0))
	submit(r.limit("refused", buy, 1<<40-1, 1<<30)) // more notional than 63 bits hold
	beta.becomes(r.limit("crosses", sell, 4, 0), filled, 4, 0)
	answers = append(answers,
		ask[*pb.ReplaceOrderResponse](alpha, r.replace("up", "bid", 12, 0)),
		ask[*pb.ReplaceOrderResponse](alpha, r.replace("too-low", "bid", 4, 0)),
		ask[*pb.CancelOrderResponse](alpha, cancelOrder("cancel", "bid")),
		ask[*pb.CancelOrderResponse](alpha, cancelOrder("cancel-again", "bid")),
		ask[*pb.CancelOrderResponse](alpha, cancelOrder("of-nobody", "nobody")),
	)
	submit(with(r.limit("iceberg", sell, 10, 1), showing(4)))
	beta.becomes(r.limit("takes-two-parts", buy, 6, 1), filled, 6, 0)
	submit(r.immediate("takes-nothing", buy, 3, -5))
	submit(r.limit("own-bid", buy, 5, -1))
	for i, p := range []prevention{
		pb.SelfTradePrevention_SELF_TRADE_PREVENTION_CANCEL_TAKER, pb.SelfTradePrevention_SELF_TRADE_PREVENTION_DECREMENT,
		pb.SelfTradePrevention_SELF_TRADE_PREVENTION_CANCEL_MAKER,
	} {
		submit(with(r.immediate(id("own-%d", i), sell, 2, -1), preventing(p)))
	}
	submit(with(r.limit("post-only", buy, 1, 9), posting))
	submit(r.limit("mass-1", buy, 1, -7))
	submit(r.limit("mass-2", buy, 1, -8))
	mass := ask[*pb.MassCancelResponse](alpha, &pb.MassCancelRequest{Side: buy})
	submit(r.limit("killed", buy, 1, -7))
	r.killSwitch(ofAccount("alpha"), true)
	submit(r.limit("blocked", buy, 1, -7))
	r.killSwitch(ofAccount("alpha"), false)
	submit(r.limit("timed", buy, 1, -7))
	ask[*pb.CancelAllAfterResponse](alpha, &pb.CancelAllAfterRequest{TimeoutMs: 1})
	r.awaitOrder(alphaKey, "timed", canceled)
	lost := r.direct(alphaKey)
	lost.named(&pb.Logon{SessionId: "lost", DisconnectMode: canceling})
	lost.submit(r.limit("of-a-lost-session", buy, 1, -7))
	lost.lose()
	r.awaitOrder(alphaKey, "of-a-lost-session", canceled)
	submit(r.limit("last", buy, 2, 0))

	epoch := mass.GetEpoch()
	last := answers[len(answers)-1].GetSequence()
	events := live.upTo(epoch, last)
	r.gapFree("alpha", events, epoch, 1)
	for _, a := range answers {
		r.announces(events, a)
	}
	r.folds(alpha, events)
	if e := events[mass.GetSequence()-1]; e.GetReason() != pb.Reason_REASON_MASS_CANCEL || events[mass.GetSequence()].GetReason() == pb.Reason_REASON_MASS_CANCEL {
		t.Errorf("the mass cancel was answered with number %d, which is %s", mass.GetSequence(), text(e))
	}
	betas := r.read(betaKey, &pb.StreamExecutionsRequest{}, epoch, 5)
	r.gapFree("beta", betas, epoch, 1)
	r.bothSides(slices.Concat(events, betas))
	r.tabled("alpha", events)
	r.tabled("beta", betas)

	expired, next := r.endDay()
	over := live.upTo(next, uint64(expired))[len(events):]
	r.tabled("alpha", over)
	reasons := map[pb.Reason]bool{}
	for _, e := range slices.Concat(events, over) {
		reasons[e.GetReason()] = true
	}
	for _, reason := range reasonsOfEvents {
		if !reasons[reason] {
			t.Errorf("no event has the reason %v", reason)
		}
	}
}

// reasonsOfEvents are those that stand on reports of orders that were open.
var reasonsOfEvents = []pb.Reason{
	pb.Reason_REASON_KILL_SWITCH, pb.Reason_REASON_SELF_TRADE, pb.Reason_REASON_IMMEDIATE_OR_CANCEL, pb.Reason_REASON_MASS_CANCEL,
	pb.Reason_REASON_CANCEL_ON_DISCONNECT, pb.Reason_REASON_CANCEL_ALL_AFTER, pb.Reason_REASON_END_OF_DAY,
}

// bothSides: each trade has two sides, which agree; each execution has an id of its own.
func (r *rig) bothSides(events []*pb.ExecutionReport) {
	r.t.Helper()
	executions, matches := map[uint64]bool{}, map[uint64][]*pb.ExecutionReport{}
	for _, e := range events {
		if e.GetExecutionId() == 0 || executions[e.GetExecutionId()] {
			r.t.Errorf("execution id %d is 0 or stands twice", e.GetExecutionId())
		}
		executions[e.GetExecutionId()] = true
		if e.GetType() == pb.ExecutionType_EXECUTION_TYPE_TRADE {
			matches[e.GetMatchId()] = append(matches[e.GetMatchId()], e)
		} else if e.GetMatchId() != 0 || e.GetLiquidity() != 0 || e.GetLastQuantity() != 0 {
			r.t.Errorf("no trade, but it says what one says: %s", text(e))
		}
	}
	for match, sides := range matches {
		if len(sides) != 2 {
			r.t.Errorf("trade %d has %d sides", match, len(sides))
			continue
		}
		a, b := sides[0], sides[1]
		if match == 0 || a.GetLastPrice() != b.GetLastPrice() || a.GetLastQuantity() != b.GetLastQuantity() || a.GetLastQuantity() == 0 ||
			a.GetOrder().GetSide() == b.GetOrder().GetSide() || a.GetLiquidity()+b.GetLiquidity() != pb.Liquidity_LIQUIDITY_MAKER+pb.Liquidity_LIQUIDITY_TAKER {
			r.t.Errorf("the sides of trade %d do not agree:\n%s\n%s", match, text(a), text(b))
		}
	}
	if len(matches) == 0 {
		r.t.Error("there was no trade")
	}
}

// places: a stream begins where it is asked to, catches up, and goes on; a place that does not exist is refused.
func places(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c, other := r.dial(alphaKey), r.dial(betaKey)
	empty := r.follow(alphaKey, &pb.StreamExecutionsRequest{})
	c.submit(r.limit("bid", buy, 50, 0))
	for i := range 10 {
		other.submit(r.immediate(id("hit-%d", i), sell, 1, 0)) // fills of others are events of alpha
	}
	head := c.submit(r.limit("another", buy, 1, -1))
	epoch, next := head.GetEpoch(), head.GetSequence()+1
	all := empty.upTo(epoch, next-1)
	r.gapFree("alpha", all, epoch, 1)
	r.announces(all, head)
	r.tabled("alpha", all)
	readers := map[uint64]*reader{}
	for _, from := range []uint64{0, 1, 2, 7, next - 1, next} {
		readers[from] = r.follow(alphaKey, &pb.StreamExecutionsRequest{FromSequence: from, Epoch: uint32(from%2) * epoch, Account: []string{"", "alpha"}[from%2]})
	}
	eventually(t, "all streams are open", func() bool { return r.probe.openReaders() == len(readers)+1 })
	tail := c.submit(r.limit("behind", buy, 1, -2))
	all = empty.upTo(epoch, tail.GetSequence())
	for from, x := range readers {
		sameEvents(t, id("from %d", from), x.upTo(epoch, tail.GetSequence()), all[max(from, 1)-1:])
	}
	r.bothSides(slices.Concat(all, r.read(betaKey, &pb.StreamExecutionsRequest{}, epoch, 20)))

	r.refusedStream(alphaKey, &pb.StreamExecutionsRequest{FromSequence: tail.GetSequence() + 2}, pb.Reason_REASON_MALFORMED, "from_sequence")
	r.refusedStream(alphaKey, &pb.StreamExecutionsRequest{FromSequence: math.MaxUint64}, pb.Reason_REASON_MALFORMED, "from_sequence")
	r.refusedStream(alphaKey, &pb.StreamExecutionsRequest{Epoch: epoch + 1}, pb.Reason_REASON_MALFORMED, "epoch")
	r.refusedStream(alphaKey, &pb.StreamExecutionsRequest{Epoch: math.MaxUint32, FromSequence: 1}, pb.Reason_REASON_MALFORMED, "epoch")
	r.refusedStream(alphaKey, &pb.StreamExecutionsRequest{Account: "beta"}, pb.Reason_REASON_PERMISSION_DENIED, "account")
	r.refusedStream(alphaKey, &pb.StreamExecutionsRequest{Account: "nobody"}, pb.Reason_REASON_PERMISSION_DENIED, "account")
	r.refusedStream("nobodys-key-0123456789abcdef", &pb.StreamExecutionsRequest{}, pb.Reason_REASON_UNAUTHENTICATED, "")
}

const readerKey = "key-of-a-drop-copy-0123456789abcdef"

// dropCopy: a key that only reads gets the accounts that it names, the same bytes, and nothing else.
func dropCopy(t *testing.T, s *suite) {
	options := twoFirms()
	options.DropCopies = map[string][]string{readerKey: {"alpha", "gamma"}}
	r := s.start(t, options)
	alpha, gamma := r.dial(alphaKey), r.dial(gammaKey)
	alpha.submit(r.limit("bid", buy, 5, 0))
	last := gamma.submit(r.immediate("hit", sell, 2, 0))
	for account, of := range map[string]struct {
		key  string
		last uint64
	}{"alpha": {alphaKey, 2}, "gamma": {gammaKey, 2}} {
		own := r.read(of.key, &pb.StreamExecutionsRequest{}, last.GetEpoch(), of.last)
		copied := r.read(readerKey, &pb.StreamExecutionsRequest{Account: account, FromSequence: 1}, last.GetEpoch(), of.last)
		sameEvents(t, "the drop copy of "+account, copied, own)
	}
	r.refusedStream(readerKey, &pb.StreamExecutionsRequest{Account: "beta"}, pb.Reason_REASON_PERMISSION_DENIED, "account")
	r.refusedStream(readerKey, &pb.StreamExecutionsRequest{}, pb.Reason_REASON_MALFORMED, "account")
	c := r.dial(readerKey)
	r.wantRefusal(c, refusal{"it does not trade", "", r.limit("order", buy, 1, 0), pb.Reason_REASON_PERMISSION_DENIED, ""})
	r.wantRefusal(c, refusal{"it does not cancel", "", &pb.MassCancelRequest{}, pb.Reason_REASON_PERMISSION_DENIED, ""})
	r.wantOrder(alpha, "bid", partly, 5, 2, 3)
}

// eventsOverEpochs: the day that is over is sent to its end and then the present one; what came before it is let go.
func eventsOverEpochs(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	live := r.follow(alphaKey, &pb.StreamExecutionsRequest{})
	first := c.submit(r.limit("expires", buy, 1, 0)).GetEpoch()
	live.upTo(first, 1)
	c.submit(with(r.limit("stays", buy, 1, 0), gtc))
	c.submit(with(r.limit("goes", buy, 1, 0), gtc))
	end := ask[*pb.CancelOrderResponse](c, cancelOrder("", "goes")).GetSequence()
	r.endDay()
	second := first + 1
	last := c.submit(r.limit("next-day", buy, 1, 0)).GetSequence()
	all := live.upTo(second, last)
	r.gapFree("alpha", all, first, 1)
	if e := all[end]; e.GetEpoch() != second || e.GetType() != pb.ExecutionType_EXECUTION_TYPE_EXPIRED || e.GetReason() != pb.Reason_REASON_END_OF_DAY ||
		e.GetOrder().GetStatus() != pb.OrderStatus_ORDER_STATUS_EXPIRED || e.GetOrder().GetClientOrderId() != "expires" {
		t.Errorf("the first event of the new epoch is %s", text(e))
	}
	for _, from := range []uint64{1, 3, end} {
		sameEvents(t, id("from %d of the day before", from), r.read(alphaKey, &pb.StreamExecutionsRequest{Epoch: first, FromSequence: from}, second, last), all[from-1:])
	}
	sameEvents(t, "behind the end of the day before", r.read(alphaKey, &pb.StreamExecutionsRequest{Epoch: first, FromSequence: end + 1}, second, last), all[end:])
	sameEvents(t, "from the start of the present epoch", r.read(alphaKey, &pb.StreamExecutionsRequest{}, second, last), all[end:])
	r.refusedStream(alphaKey, &pb.StreamExecutionsRequest{Epoch: first, FromSequence: end + 2}, pb.Reason_REASON_MALFORMED, "from_sequence")
	r.endDay()
	r.refusedStream(alphaKey, &pb.StreamExecutionsRequest{Epoch: first, FromSequence: 1}, pb.Reason_REASON_MALFORMED, "epoch")
	third := live.upTo(second+1, 1)
	r.gapFree("alpha", third, first, 1)
	r.tabled("alpha", third)
}

// moment is what something that must not come is given to come. What does not is not failed by it.
const moment = 100 * time.Millisecond

// eventsWait: an event leaves only when its commit is released, as its answer does.
func eventsWait(t *testing.T, s *suite) {
	options := twoAccounts()
	options.Disk = true
	r := s.start(t, options)
	c := r.dial(alphaKey)
	x := r.follow(alphaKey, &pb.StreamExecutionsRequest{})
	before := c.submit(r.limit("before", buy, 1, 0))
	x.upTo(before.GetEpoch(), before.GetSequence())
	release := r.probe.inner.(Disk).HoldDisk()
	t.Cleanup(release)
	call := c.begin(t.Context(), r.limit("held", buy, 1, 0))
	eventually(t, "the order has reached the gateway", func() bool { return r.probe.handledOrders()["held"] == 1 })
	late := r.follow(alphaKey, &pb.StreamExecutionsRequest{FromSequence: before.GetSequence() + 1})
	<-time.After(moment)
	opened := transports.Now()
	release()
	response, fault := call.wait(t)
	if fault != nil {
		t.Fatalf("the held call: %v", fault)
	}
	held := response.(*pb.SubmitOrderResponse)
	if sent := int64(held.GetSentNs()); sent < opened {
		t.Errorf("answered %v before the release", time.Duration(opened-sent))
	}
	for what, box := range map[string]*inbox{"that was open": x.inbox, "that was opened meanwhile": late.inbox} {
		r.announces(box.upTo(held.GetEpoch(), held.GetSequence()), held)
		if at := box.at[len(box.at)-1]; at < opened {
			t.Errorf("a stream %s had the event %v before the release", what, time.Duration(opened-at))
		}
	}
}

// eventsOfFailedCommit never leave: the streams end.
func eventsOfFailedCommit(t *testing.T, s *suite) {
	options := twoAccounts()
	options.Disk = true
	r := s.start(t, options)
	c := r.dial(alphaKey)
	x := r.follow(alphaKey, &pb.StreamExecutionsRequest{})
	before := c.submit(r.limit("before", buy, 1, 0))
	x.upTo(before.GetEpoch(), before.GetSequence())
	r.probe.inner.(Disk).BreakDisk()
	wantFault(t, c.refuse(r.limit("lost", buy, 1, 0)), pb.Reason_REASON_JOURNAL_UNAVAILABLE, unknown)
	// A stream has entered nothing that could be in doubt, so the outcome is the transport's word on requests that it did not answer.
	if fault := x.ended(); fault.Reason != pb.Reason_REASON_JOURNAL_UNAVAILABLE {
		t.Errorf("the stream ended with %v", fault)
	}
	if events := x.all(); len(events) != 1 {
		t.Errorf("%d events came, want the one that was committed; the last is %s", len(events), lastOf(events))
	}
	late := r.follow(alphaKey, &pb.StreamExecutionsRequest{FromSequence: before.GetSequence() + 1})
	if fault := late.ended(); fault.Reason != pb.Reason_REASON_JOURNAL_UNAVAILABLE {
		t.Errorf("a stream that begins where nothing was committed ended with %v", fault)
	}
	if events := late.all(); len(events) != 0 {
		t.Errorf("an event left that was never committed: %s", lastOf(events))
	}
}

// slowReader: one that takes nothing is cut within its time, while others get every event and every answer.
func slowReader(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts(), withLimits(transports.Limits{WriteTimeout: time.Second}))
	c, direct := r.dial(alphaKey), r.direct(alphaKey).Client
	epoch := c.submit(r.limit("changes", buy, 5, -1)).GetEpoch()
	gate := make(chan struct{})
	slow := r.follow(alphaKey, &pb.StreamExecutionsRequest{}, func(b *inbox) { b.gate = gate })
	fast := r.follow(alphaKey, &pb.StreamExecutionsRequest{})
	eventually(t, "both streams are open", func() bool { return r.probe.openReaders() == 2 })
	last := uint64(1)
	change := transports.Call{
		Operation: transports.ReplaceOrder, Request: r.replace("", "changes", 4, -1), Response: &pb.ReplaceOrderResponse{},
	}
	eventually(t, "the slow reader is cut", func() bool {
		for range 1000 {
			change.Request.(*pb.ReplaceOrderRequest).Quantity ^= 1
			if err := direct.Do(t.Context(), &change); err != nil {
				t.Fatal(err)
			}
		}
		last = c.submit(r.immediate(id("beside-%d", last), sell, 1, 1)).GetSequence() + 1
		fast.reach(epoch, last)
		return r.probe.openReaders() == 1
	})
	events := fast.upTo(epoch, last)
	r.gapFree("alpha", events, epoch, 1)
	close(gate)
	fault := slow.ended()
	if fault.Reason != pb.Reason_REASON_SLOW_READER && fault.Reason != pb.Reason_REASON_CONNECTION_LOST { // the word may not have got through
		t.Errorf("the slow reader ended with %v", fault)
	}
	had := slow.all()
	t.Logf("cut after %d events, of which it had %d", last, len(had))
	sameEvents(t, "what the slow reader had", had, events[:len(had)])
	next := uint64(len(had)) + 1
	sameEvents(t, "where the slow reader goes on", r.read(alphaKey, &pb.StreamExecutionsRequest{FromSequence: next}, epoch, last), events[next-1:])
}

// tooManyReaders: a reader more than there may be is refused, and admitted when another has left.
func tooManyReaders(t *testing.T, s *suite) {
	options := twoAccounts()
	options.MaxReaders = 2
	r := s.start(t, options)
	first, second := r.follow(alphaKey, &pb.StreamExecutionsRequest{}), r.follow(betaKey, &pb.StreamExecutionsRequest{})
	eventually(t, "both streams are open", func() bool { return r.probe.openReaders() == 2 })
	r.refusedStream(alphaKey, &pb.StreamExecutionsRequest{}, pb.Reason_REASON_OVERLOADED, "")
	first.stop()
	await(t, "the first stream ends", first.done)
	eventually(t, "the reader has left", func() bool { return r.probe.openReaders() == 1 })
	got := r.dial(alphaKey).submit(r.limit("order", buy, 1, 0))
	r.read(alphaKey, &pb.StreamExecutionsRequest{}, got.GetEpoch(), got.GetSequence())
	if events := second.all(); len(events) != 0 {
		t.Errorf("beta got %s", lastOf(events))
	}
}

// streamsDrain: a stream ends with the server and says why.
func streamsDrain(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	x := r.follow(alphaKey, &pb.StreamExecutionsRequest{})
	got := c.submit(r.limit("before", buy, 1, 0))
	x.upTo(got.GetEpoch(), got.GetSequence())
	if err := r.server.Shutdown(t.Context()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	wantFault(t, x.ended(), pb.Reason_REASON_DRAINING, notProcessed)
}
