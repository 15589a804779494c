package transportstest

import (
	"strings"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

const gammaKey = "key-of-account-gamma-0123456789abcdef"

// twoFirms has the accounts alpha and gamma in the firm f1, and beta in f2.
func twoFirms() GatewayOptions {
	options := twoAccounts()
	options.Keys[gammaKey] = "gamma"
	options.Accounts = map[string]Membership{"alpha": {"f1", "desk"}, "gamma": {"f1", "desk"}, "beta": {"f2", "other"}}
	return options
}

// everyLimit is met at its bound and one past it: of an account by one client, of a firm by two of its accounts together.
func everyLimit(t *testing.T, s *suite) {
	r := s.start(t, twoFirms())
	alpha, gamma, beta := r.dial(alphaKey), r.dial(gammaKey), r.dial(betaKey)
	for _, scope := range []struct {
		name   string
		whose  *pb.Scope
		second *client // who comes to the bound
		says   string
	}{
		{"account", ofAccount("alpha"), alpha, "the account's"},
		{"firm", ofFirm("f1"), gamma, "the firm's"},
	} {
		past := func(c *client, request *pb.SubmitOrderRequest, reason pb.Reason) {
			t.Helper()
			got := c.submit(request)
			if got.GetReason() != reason || !strings.Contains(got.GetText(), scope.says) {
				t.Errorf("%s: %v, %q, want %v of %s", text(request), got.GetReason(), got.GetText(), reason, scope.says)
			}
		}
		order := func(name string, side pb.Side, quantity uint64, offset int64) *pb.SubmitOrderRequest {
			return r.limit(scope.name+"-"+name, side, quantity, offset)
		}
		open := func(c *client, request *pb.SubmitOrderRequest) {
			t.Helper()
			c.becomes(request, accepted, 0, request.GetQuantity())
		}
		clean := func() {
			t.Helper()
			for _, c := range []*client{alpha, gamma} {
				ask[*pb.MassCancelResponse](c, &pb.MassCancelRequest{})
			}
		}

		r.setLimits(scope.whose, &pb.Limits{MaxQuantity: 5})
		open(scope.second, order("lots", buy, 5, -1))
		past(scope.second, order("lots-more", buy, 6, -1), pb.Reason_REASON_MAX_QUANTITY)
		scope.second.is(pb.Reason_REASON_MAX_QUANTITY, r.replace("", scope.name+"-lots", 6, -1))
		r.wantOrder(scope.second, scope.name+"-lots", accepted, 5, 0, 5)
		clean()

		r.setLimits(scope.whose, &pb.Limits{MaxNotional: 10 * r.price})
		open(scope.second, order("notional", buy, 10, 0))
		past(scope.second, order("notional-more", buy, 10, 1), pb.Reason_REASON_MAX_NOTIONAL)
		scope.second.is(pb.Reason_REASON_MAX_NOTIONAL, r.replace("", scope.name+"-notional", 10, 1))
		clean()

		r.setLimits(scope.whose, &pb.Limits{PriceCollarBps: collarBps})
		far := r.price * collarBps / 10000
		open(scope.second, order("high", sell, 1, far))
		open(scope.second, order("low", buy, 1, -far))
		past(scope.second, order("higher", sell, 1, far+1), pb.Reason_REASON_PRICE_COLLAR)
		past(scope.second, order("lower", buy, 1, -far-1), pb.Reason_REASON_PRICE_COLLAR)
		scope.second.is(pb.Reason_REASON_PRICE_COLLAR, r.replace("", scope.name+"-low", 1, -far-1))
		clean()

		r.setLimits(scope.whose, &pb.Limits{MaxOpenOrders: 2})
		open(alpha, order("open-1", buy, 1, -1))
		open(scope.second, order("open-2", buy, 1, -1))
		past(scope.second, order("open-3", buy, 1, -1), pb.Reason_REASON_MAX_OPEN_ORDERS)
		scope.second.becomes(r.immediate(scope.name+"-never-rests", buy, 1, -1), canceled, 0, 0)
		scope.second.is(0, r.replace("", scope.name+"-open-2", 2, -2)) // which is not one more
		scope.second.is(0, cancelOrder("", scope.name+"-open-2"))
		open(scope.second, order("open-4", buy, 1, -1))
		clean()

		r.setLimits(scope.whose, &pb.Limits{MaxOpenNotional: 10 * r.price})
		open(alpha, order("sum-1", buy, 6, 0))
		open(scope.second, order("sum-2", buy, 4, 0))
		past(scope.second, order("sum-3", sell, 1, 1), pb.Reason_REASON_MAX_OPEN_NOTIONAL)
		past(scope.second, with(order("sum-4", buy, 1, 0), priced(1)), pb.Reason_REASON_MAX_OPEN_NOTIONAL)
		open(scope.second, with(order("for-nothing", buy, 1, 0), priced(0)))
		clean()

		r.setLimits(scope.whose, &pb.Limits{MaxPosition: 10})
		open(alpha, order("long-1", buy, 6, -1))
		open(scope.second, order("long-2", buy, 4, -1))
		past(scope.second, order("long-3", buy, 1, -1), pb.Reason_REASON_MAX_POSITION)
		past(scope.second, r.immediate(scope.name+"-long-4", buy, 1, -1), pb.Reason_REASON_MAX_POSITION) // it could fill
		open(scope.second, order("short-1", sell, 10, 1))
		past(scope.second, order("short-2", sell, 1, 1), pb.Reason_REASON_MAX_POSITION)
		clean()

		r.setLimits(scope.whose, &pb.Limits{RestrictedSymbols: []string{r.second}})
		past(scope.second, with(order("restricted", buy, 1, 0), on(r.second)), pb.Reason_REASON_RESTRICTED_SYMBOL)
		open(scope.second, order("unrestricted", buy, 1, 0))
		clean()

		// The other accounts are not bound, and nobody is once the limits are lifted.
		beta.becomes(with(order("of-beta", buy, 99, -1), on(r.second)), accepted, 0, 99)
		r.setLimits(scope.whose, &pb.Limits{})
		open(scope.second, with(order("lifted", buy, 1000, 0), on(r.second)))
		clean()
	}
	// What is filled counts, too.
	r.setLimits(ofAccount("alpha"), &pb.Limits{MaxPosition: 10})
	beta.submit(r.limit("supply", sell, 6, 0))
	alpha.becomes(r.limit("bought", buy, 6, 0), filled, 6, 0)
	alpha.is(pb.Reason_REASON_MAX_POSITION, r.limit("five-more", buy, 5, -1))
	alpha.becomes(r.limit("four-more", buy, 4, -1), accepted, 0, 4)
	alpha.becomes(r.limit("down-to-ten-short", sell, 16, 1), accepted, 0, 16)
	alpha.is(pb.Reason_REASON_MAX_POSITION, r.limit("one-below", sell, 1, 1))
	got, err := r.admin().Exposure(ofAccount("alpha"))
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.GetExposureResponse{
		OpenOrders: 2, OpenNotional: 4*(r.price-1) + 16*(r.price+1),
		Positions: []*pb.Position{{Symbol: r.symbol, NetQuantity: 6, OpenBuyQuantity: 4, OpenSellQuantity: 16}},
	}
	equal(t, got, want)

	// The instrument's own rules.
	alpha.is(pb.Reason_REASON_MIN_NOTIONAL, with(r.limit("too-little", buy, 5, 0), on(r.dear), priced(9_999)))
	alpha.is(0, with(r.limit("just-enough", buy, 5, 0), on(r.dear), priced(10_000)))
	alpha.is(pb.Reason_REASON_INSTRUMENT_NOT_OPEN, with(r.limit("halted", buy, 1, 0), on(r.halted)))
}

// killSwitches block entry and cancel what rests, of an account and of a firm.
func killSwitches(t *testing.T, s *suite) {
	r := s.start(t, twoFirms())
	alpha, gamma, beta := r.dial(alphaKey), r.dial(gammaKey), r.dial(betaKey)
	beta.submit(r.limit("bid", buy, 1, -9))
	for _, scope := range []struct {
		name     string
		whose    *pb.Scope
		canceled uint32
		blocked  []*client
		free     []*client
	}{
		{"account", ofAccount("alpha"), 2, []*client{alpha}, []*client{gamma, beta}},
		{"firm", ofFirm("f1"), 3, []*client{alpha, gamma}, []*client{beta}},
	} {
		name := func(format string, args ...any) string { return scope.name + "-" + id(format, args...) }
		alpha.submit(r.limit(name("day"), buy, 1, -1))
		alpha.submit(with(r.limit(name("gtc"), sell, 1, 1), gtc))
		gamma.submit(r.limit(name("gammas"), buy, 1, -2))
		if n := r.killSwitch(scope.whose, true); n != scope.canceled {
			t.Errorf("the switch of the %s canceled %d orders, want %d", scope.name, n, scope.canceled)
		}
		r.wantOrder(alpha, name("day"), canceled, 1, 0, 0)
		r.wantOrder(alpha, name("gtc"), canceled, 1, 0, 0)
		for i, c := range scope.blocked {
			got := c.submit(r.limit(name("blocked-%d", i), buy, 1, 0))
			if got.GetReason() != pb.Reason_REASON_KILL_SWITCH || !strings.Contains(got.GetText(), "the "+scope.name+"'s") {
				t.Errorf("under the switch of the %s: %s", scope.name, text(got))
			}
			ask[*pb.MassCancelResponse](c, &pb.MassCancelRequest{}) // cancels pass
		}
		for i, c := range scope.free {
			c.becomes(r.limit(name("free-%d", i), buy, 1, -5), accepted, 0, 1)
			ask[*pb.MassCancelResponse](c, &pb.MassCancelRequest{Symbol: r.symbol, Side: buy})
		}
		r.killSwitch(scope.whose, false)
		for i, c := range scope.blocked {
			c.becomes(r.limit(name("lifted-%d", i), buy, 1, -5), accepted, 0, 1)
			ask[*pb.MassCancelResponse](c, &pb.MassCancelRequest{})
		}
	}
}

// orderRate: over the rate of account or firm an order is refused with a time to wait, cancels still pass; who does not heed that is shut out.
func orderRate(t *testing.T, s *suite) {
	options := twoFirms()
	options.Penalty = time.Hour // which nothing here waits for
	r := s.start(t, options)
	alpha, gamma, beta := r.dial(alphaKey), r.dial(gammaKey), r.dial(betaKey)
	alpha.submit(r.limit("rests", buy, 1, -1))
	gamma.submit(r.limit("rests", buy, 1, -1))

	r.setLimits(ofFirm("f1"), &pb.Limits{MaxOrderRate: 1})
	throttled(t, gamma.untilFault("firm"), "firm's")
	gamma.is(0, cancelOrder("", "rests"))
	beta.submit(r.limit("another-firm", buy, 1, -1))
	r.setLimits(ofFirm("f1"), &pb.Limits{})
	gamma.submit(r.limit("without-a-rate", buy, 1, -1))

	r.setLimits(ofAccount("alpha"), &pb.Limits{MaxOrderRate: 1})
	throttled(t, alpha.untilFault("account"), "account's")
	alpha.is(0, cancelOrder("", "rests"))
	gamma.submit(r.limit("another-account", buy, 1, -1))
	stubborn := 0
	eventually(t, "who does not heed the refusals is shut out", func() bool {
		stubborn++
		fault := alpha.untilFault(id("stubborn-%d", stubborn))
		throttled(t, fault, "")
		return strings.Contains(fault.Message, "shut out")
	})
	throttled(t, r.newPeerFault(alphaKey), "shut out")
	throttled(t, r.newPeerFault(alpha2Key), "shut out") // it is the account that is
	gamma.submit(r.limit("not-shut-out", buy, 1, -1))
	r.setLimits(ofAccount("alpha"), &pb.Limits{})
	r.dial(alphaKey).submit(r.limit("admitted-again", buy, 1, -1))
}

// untilFault enters orders until one is refused by the session layer.
func (c *client) untilFault(name string) *transports.Fault {
	c.rig.t.Helper()
	var fault *transports.Fault
	i := 0
	eventually(c.rig.t, "an order is refused by the session layer", func() bool {
		i++
		_, fault = c.begin(c.rig.t.Context(), c.rig.limit(id("%s-%d", name, i), buy, 1, -1)).wait(c.rig.t)
		return fault != nil
	})
	return fault
}

// newPeerFault is what a new connection is told, when it is made or with its first call.
func (r *rig) newPeerFault(key string) *transports.Fault {
	r.t.Helper()
	c, err := r.tryDial(key)
	if err != nil {
		return checkFault(r.t, "dial", err)
	}
	return c.refuse(&pb.GetBookRequest{Symbol: r.symbol})
}

// throttled holds a fault to the first tier of the throttle, or the second one.
func throttled(t *testing.T, fault *transports.Fault, says string) {
	t.Helper()
	wantFault(t, fault, pb.Reason_REASON_THROTTLED, notProcessed)
	if fault != nil && (fault.RetryAfter <= 0 || !strings.Contains(fault.Message, says)) {
		t.Errorf("throttled: %v, retry after %v, want a time and %q", fault, fault.RetryAfter, says)
	}
}
