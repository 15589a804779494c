package model

import (
	"math"
	"math/big"
	"slices"

	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Decision is what is to become of a command.
type Decision struct {
	Err     error          // the sentinel of package orders that it is refused with, using up nothing
	Journal bool           // it is to be journaled and applied, with the verdict
	Verdict orders.Verdict //
	Answer  orders.Answer  // the whole answer, where it is neither refused nor journaled
}

// Decide judges a command. It changes nothing.
func (m *Model) Decide(c *orders.Command) Decision {
	switch c.Kind { //nolint:exhaustive // nothing stands against the others
	case orders.Submit:
		return m.decideSubmit(c)
	case orders.Replace, orders.Cancel, orders.MassCancel:
		return m.decideChange(c)
	case orders.DefineAccount:
		return m.decideAccount(c)
	case orders.DefineFirm:
		if _, known := m.firm(c.Name); known {
			return Decision{Err: orders.ErrDefinition}
		}
	case orders.SetLimits, orders.SetKillSwitch:
		if c.Scope.Firm && int(c.Scope.Number) >= len(m.firms) || !c.Scope.Firm && int(c.Scope.Number) >= len(m.accounts) {
			return Decision{Err: orders.ErrDefinition}
		}
	case orders.FireTimer:
		if armed := m.timers[c.Account]; armed == 0 || armed != c.TriggerNs {
			late := m.stale(c)
			late.Answer.TriggerNs = armed
			return late
		}
	case orders.Logon:
		if m.seat(c.Account, c.SessionID) >= 0 {
			break
		}
		if m.sessionsOf(c.Account) >= m.options.MaxSessionsOfAccount {
			return Decision{Err: orders.ErrAccountSessionsFull}
		}
		return Decision{Err: orders.ErrSessionsFull}
	case orders.Logout, orders.ExpireSession:
		if m.ended(c) {
			return m.stale(c)
		}
	}
	return Decision{Journal: true}
}

// stale is the answer to what comes too late to change anything.
func (m *Model) stale(c *orders.Command) Decision {
	return Decision{Answer: orders.Answer{Epoch: m.epoch, ReceivedNs: c.ReceivedNs}}
}

func (m *Model) decideAccount(c *orders.Command) Decision {
	firm, known := m.firm(c.Firm)
	if !known {
		return Decision{Err: orders.ErrDefinition}
	}
	for i, a := range m.accounts {
		if a.name != c.Name {
			continue
		}
		if a.firm == firm && a.group == c.Group {
			return Decision{Err: orders.ErrDefinition}
		}
		if a.firm != firm && firm > 0 {
			open := m.Exposure(orders.Scope{Firm: true, Number: firm - 1}).OpenNotional
			if !open.Add(open, m.Exposure(orders.Scope{Number: uint32(i)}).OpenNotional).IsInt64() {
				return Decision{Err: orders.ErrDefinition}
			}
		}
	}
	return Decision{Journal: true}
}

// refused is a refusal that is not remembered.
func (m *Model) refused(c *orders.Command, reason pb.Reason) Decision {
	return Decision{Answer: orders.Answer{
		Status: pb.OrderStatus_ORDER_STATUS_REJECTED, Reason: reason, Epoch: m.epoch, ReceivedNs: c.ReceivedNs,
	}}
}

// repeated is a first answer again.
func repeated(first orders.Answer) Decision {
	first.Duplicate = true
	return Decision{Answer: first}
}

func (m *Model) decideSubmit(c *orders.Command) Decision {
	if o := m.find(c.Account, c.ClientOrderID); o != nil {
		if sameOrder(&o.entered, c) {
			return repeated(o.answered)
		}
		return m.refused(c, pb.Reason_REASON_DUPLICATE_ID)
	}
	if c.Session > 0 && !m.has(c.Account, c.Session) || contradicts(c) {
		return Decision{Err: orders.ErrInvalid}
	}
	if len(m.orders) >= m.options.MaxIDs {
		return Decision{Err: orders.ErrIDsFull}
	}
	number, known := m.instrument(c.Symbol)
	taker := &order{account: c.Account, symbol: number, group: m.groupOf(c.Account), now: orders.Order{
		Side: c.Side, Leaves: c.Quantity, SelfTradePrevention: c.SelfTradePrevention,
	}}
	trades := uint64(0)
	if known {
		trades = min(c.Quantity, m.parts(taker))
	}
	if m.places() < m.resting()+3+2*trades {
		return Decision{Err: orders.ErrEventsFull}
	}
	if !known {
		return Decision{Journal: true, Verdict: orders.Verdict{Reason: pb.Reason_REASON_UNKNOWN_SYMBOL}}
	}
	e := entry{
		account: c.Account, instrument: number, side: c.Side, price: c.Price, total: c.Quantity, lots: c.Quantity,
		market: c.Type == matching.Market, rests: mayRest(c.Type, c.TimeInForce),
	}
	verdict := m.judge(&e)
	if verdict.Reason != pb.Reason_REASON_UNSPECIFIED {
		return Decision{Journal: true, Verdict: verdict}
	}
	if c.Type == matching.Market {
		e.price = verdict.Bound
	}
	traded := m.wouldTrade(taker, e.price)
	switch {
	case e.rests && !m.hasRoom(nil, number, c.Side, c.Price):
		verdict.Reason = pb.Reason_REASON_BOOK_FULL
	case c.PostOnly && next(m.open(), taker, e.price) != nil:
		verdict.Reason = pb.Reason_REASON_POST_ONLY_WOULD_TAKE
	case c.TimeInForce == matching.FillOrKill && traded < c.Quantity:
		verdict.Reason = pb.Reason_REASON_FILL_OR_KILL
	case traded < c.MinimumQuantity:
		verdict.Reason = pb.Reason_REASON_MINIMUM_QUANTITY
	}
	return Decision{Journal: true, Verdict: verdict}
}

// contradicts tells orders that no book takes: shown in no smaller or in too many parts, with a minimum that cannot be reached, with
// terms of a resting order that never rests, or with a minimum to take and the wish not to take.
func contradicts(c *orders.Command) bool {
	rests := mayRest(c.Type, c.TimeInForce)
	return c.DisplayQuantity > 0 && (c.DisplayQuantity >= c.Quantity || tooManyParts(c.Quantity, c.DisplayQuantity)) ||
		c.MinimumQuantity > c.Quantity ||
		!rests && (c.DisplayQuantity > 0 || c.PostOnly) ||
		c.PostOnly && c.MinimumQuantity > 0
}

func tooManyParts(lots, display uint64) bool { return lots > matching.MaxDisplayParts*display }

// sameOrder compares all that a client asks for.
func sameOrder(a, b *orders.Command) bool {
	return a.Symbol == b.Symbol && a.Side == b.Side && a.Type == b.Type && a.TimeInForce == b.TimeInForce &&
		a.Quantity == b.Quantity && a.Price == b.Price && a.PostOnly == b.PostOnly && a.DisplayQuantity == b.DisplayQuantity &&
		a.MinimumQuantity == b.MinimumQuantity &&
		max(a.SelfTradePrevention, matching.AllowSelfTrade) == max(b.SelfTradePrevention, matching.AllowSelfTrade)
}

func sameRequest(a, b *orders.Command) bool {
	return a.Kind == b.Kind && a.ClientOrderID == b.ClientOrderID && a.Quantity == b.Quantity && a.Price == b.Price &&
		a.Symbol == b.Symbol && a.Side == b.Side
}

func (m *Model) decideChange(c *orders.Command) Decision {
	remembered := !c.RequestID.IsZero()
	if remembered {
		if r := m.findRequest(c.Account, c.RequestID); r != nil {
			if sameRequest(&r.asked, c) {
				return repeated(r.answered)
			}
			return m.refused(c, pb.Reason_REASON_DUPLICATE_ID)
		}
		if len(m.requests) >= m.options.MaxIDs {
			return Decision{Err: orders.ErrIDsFull}
		}
	}
	if c.Kind == orders.Replace {
		trades := uint64(0)
		if o := m.find(c.Account, c.ClientOrderID); o != nil && o.now.Leaves > 0 {
			trades = min(c.Quantity, m.parts(o))
		}
		if m.places() < m.resting()+3+2*trades {
			return Decision{Err: orders.ErrEventsFull}
		}
	}
	verdict, o, err := m.judgeChange(c)
	if err != nil {
		return Decision{Err: err}
	}
	if c.Kind == orders.Cancel && remembered && verdict.Reason != pb.Reason_REASON_UNSPECIFIED && m.places() <= m.resting() {
		return Decision{Err: orders.ErrEventsFull}
	}
	if verdict.Reason == pb.Reason_REASON_UNSPECIFIED || remembered {
		return Decision{Journal: true, Verdict: verdict}
	}
	refused := m.refused(c, verdict.Reason)
	if o != nil {
		as := answerOf(&o.now)
		as.Status, as.Reason, as.Epoch, as.ReceivedNs = refused.Answer.Status, verdict.Reason, m.epoch, c.ReceivedNs
		refused.Answer = as
	}
	if c.Kind == orders.MassCancel {
		refused.Answer.Sequence = uint64(len(m.events[stream{c.Account, m.epoch}]))
	}
	return refused
}

func (m *Model) judgeChange(c *orders.Command) (v orders.Verdict, o *order, err error) {
	if c.Kind == orders.MassCancel {
		if _, known := m.instrument(c.Symbol); !known && c.Symbol != (orders.Symbol{}) {
			v.Reason = pb.Reason_REASON_UNKNOWN_SYMBOL
		}
		return v, nil, nil
	}
	o = m.find(c.Account, c.ClientOrderID)
	switch {
	case o == nil:
		v.Reason = pb.Reason_REASON_UNKNOWN_ORDER
	case o.now.Leaves == 0:
		v.Reason = pb.Reason_REASON_TOO_LATE
	case c.Kind == orders.Replace && c.Quantity <= o.now.Filled:
		v.Reason, v.Limit = pb.Reason_REASON_QUANTITY_FILLED, int64(o.now.Filled)
	case c.Kind == orders.Replace:
		v, err = m.judgeReplace(c, o)
	}
	return v, o, err
}

func (m *Model) judgeReplace(c *orders.Command, o *order) (orders.Verdict, error) {
	lots := c.Quantity - o.now.Filled
	verdict := m.judge(&entry{
		account: o.account, instrument: o.symbol, side: o.now.Side, price: c.Price, total: c.Quantity, lots: lots, rests: true, instead: o,
	})
	switch {
	case verdict.Reason != pb.Reason_REASON_UNSPECIFIED:
	case o.now.DisplayQuantity > 0 && tooManyParts(lots, o.now.DisplayQuantity):
		return verdict, orders.ErrInvalid
	case !m.hasRoom(o, o.symbol, o.now.Side, c.Price):
		verdict.Reason = pb.Reason_REASON_BOOK_FULL
	case o.now.PostOnly && next(m.open(), o, c.Price) != nil:
		verdict.Reason = pb.Reason_REASON_POST_ONLY_WOULD_TAKE
	}
	return verdict, nil
}

// entry is what comes to the limits: a new order, or the rest of one with other terms instead of what it was.
type entry struct {
	account    uint32
	instrument uint32
	side       matching.Side
	price      int64
	total      uint64 // lots of the order
	lots       uint64 // lots that will be open
	market     bool
	rests      bool   // it may rest
	instead    *order // nil for a new order
}

// scopes are who binds an account, in the order in which they are asked.
func (m *Model) scopes(account uint32) []orders.Scope {
	scopes := []orders.Scope{{Number: account}}
	if firm := m.accounts[account].firm; firm > 0 {
		scopes = append(scopes, orders.Scope{Firm: true, Number: firm - 1})
	}
	return scopes
}

// judge asks every limit in the order of the contract: the first that refuses is the reason.
func (m *Model) judge(e *entry) orders.Verdict {
	scopes := m.scopes(e.account)
	in := &m.instruments[e.instrument]
	for _, scope := range scopes {
		if m.killed[scope] {
			return orders.Verdict{Reason: pb.Reason_REASON_KILL_SWITCH, Firm: scope.Firm}
		}
	}
	for _, scope := range scopes {
		if slices.Contains(m.limits[scope].Restricted, in.Symbol) {
			return orders.Verdict{Reason: pb.Reason_REASON_RESTRICTED_SYMBOL, Firm: scope.Firm}
		}
	}
	if in.State != pb.InstrumentState_INSTRUMENT_STATE_OPEN {
		return orders.Verdict{Reason: pb.Reason_REASON_INSTRUMENT_NOT_OPEN}
	}
	for _, scope := range scopes {
		if most := m.limits[scope].MaxQuantity; most > 0 && e.total > most {
			return orders.Verdict{Reason: pb.Reason_REASON_MAX_QUANTITY, Limit: int64(most), Firm: scope.Firm}
		}
	}
	v, price := m.judgePrice(e)
	if v.Reason == pb.Reason_REASON_UNSPECIFIED {
		v = m.judgeNotional(e, price, v)
	}
	if v.Reason == pb.Reason_REASON_UNSPECIFIED {
		v = m.judgeExposure(e, v)
	}
	return v
}

// judgePrice asks the collars. Beside the verdict, for a market order with its bound, it gives the price to reckon the notional with.
func (m *Model) judgePrice(e *entry) (v orders.Verdict, price int64) {
	low, high := matching.MinPrice, matching.MaxPrice
	for _, scope := range m.scopes(e.account) {
		from, to := collar(m.reference(e.instrument), m.limits[scope].PriceCollarBps)
		if !e.market && e.price < from {
			return orders.Verdict{Reason: pb.Reason_REASON_PRICE_COLLAR, Limit: from, Firm: scope.Firm}, 0
		}
		if !e.market && e.price > to {
			return orders.Verdict{Reason: pb.Reason_REASON_PRICE_COLLAR, Limit: to, Firm: scope.Firm}, 0
		}
		low, high = max(low, from), min(high, to)
	}
	if !e.market {
		return orders.Verdict{}, e.price
	}
	v.Bound = high
	if e.side == matching.Sell {
		v.Bound = low
	}
	if low == matching.MinPrice && high == matching.MaxPrice {
		return v, m.reference(e.instrument) // no collar to be pessimistic with
	}
	return v, v.Bound
}

func (m *Model) judgeNotional(e *entry, price int64, v orders.Verdict) orders.Verdict {
	notional := notionalOf(price, e.total)
	in := &m.instruments[e.instrument]
	for _, scope := range m.scopes(e.account) {
		if most := m.limits[scope].MaxNotional; most > 0 && notional.Cmp(big.NewInt(most)) > 0 {
			v.Reason, v.Limit, v.Firm = pb.Reason_REASON_MAX_NOTIONAL, most, scope.Firm
			return v
		}
	}
	if most := bound(in.MaxNotional); notional.Cmp(big.NewInt(most)) > 0 {
		v.Reason, v.Limit = pb.Reason_REASON_MAX_NOTIONAL, most
	} else if notional.Cmp(big.NewInt(in.MinNotional)) < 0 {
		v.Reason, v.Limit = pb.Reason_REASON_MIN_NOTIONAL, in.MinNotional
	}
	return v
}

// judgeExposure asks for what would be open and held if the order rested, or traded, with its whole quantity.
func (m *Model) judgeExposure(e *entry, v orders.Verdict) orders.Verdict {
	scopes := m.scopes(e.account)
	before := make([]Exposure, len(scopes))
	for i, scope := range scopes {
		before[i] = m.exposure(scope, e.instead)
	}
	for i, scope := range scopes {
		if most := m.limits[scope].MaxOpenOrders; e.rests && most > 0 && before[i].OpenOrders+1 > int(most) {
			v.Reason, v.Limit, v.Firm = pb.Reason_REASON_MAX_OPEN_ORDERS, int64(most), scope.Firm
			return v
		}
	}
	for i, scope := range scopes {
		would := new(big.Int).Add(before[i].OpenNotional, notionalOf(e.price, e.lots))
		if most := bound(m.limits[scope].MaxOpenNotional); e.rests && would.Cmp(big.NewInt(most)) > 0 {
			v.Reason, v.Limit, v.Firm = pb.Reason_REASON_MAX_OPEN_NOTIONAL, most, scope.Firm
			return v
		}
	}
	for i, scope := range scopes {
		p := before[i].Positions[e.instrument]
		would := new(big.Int).Add(big.NewInt(p.Net), new(big.Int).SetUint64(p.OpenBuys))
		if e.side == matching.Sell {
			would.Sub(new(big.Int).SetUint64(p.OpenSells), big.NewInt(p.Net))
		}
		would.Add(would, new(big.Int).SetUint64(e.lots))
		if most := bound(int64(m.limits[scope].MaxPosition)); would.Cmp(big.NewInt(most)) > 0 {
			v.Reason, v.Limit, v.Firm = pb.Reason_REASON_MAX_POSITION, most, scope.Firm
			return v
		}
	}
	return v
}

// bound is a limit, or what 63 bits hold where there is none.
func bound(limit int64) int64 {
	if limit == 0 {
		return math.MaxInt64
	}
	return limit
}

// reference is the price that collars are measured from; 0 = none.
func (m *Model) reference(instrument uint32) int64 {
	in := &m.instruments[instrument]
	if in.traded {
		return in.lastPrice
	}
	return in.ReferencePrice
}

// collar is the lowest and the highest price within a distance of the reference.
func collar(reference int64, bps uint32) (low, high int64) {
	if bps == 0 || reference == 0 {
		return matching.MinPrice, matching.MaxPrice
	}
	width := notionalOf(reference, uint64(bps))
	width.Quo(width, big.NewInt(10_000))
	from := new(big.Int).Sub(big.NewInt(reference), width)
	to := new(big.Int).Add(big.NewInt(reference), width)
	low, high = matching.MinPrice, matching.MaxPrice
	if from.Cmp(big.NewInt(low)) > 0 {
		low = from.Int64()
	}
	if to.Cmp(big.NewInt(high)) < 0 {
		high = to.Int64()
	}
	return low, high
}

// notionalOf is |price| x lots.
func notionalOf(price int64, lots uint64) *big.Int {
	n := new(big.Int).Abs(big.NewInt(price))
	return n.Mul(n, new(big.Int).SetUint64(lots))
}

// worstPrice is the price that an order may trade at and no worse one.
func worstPrice(c *orders.Command) int64 {
	if c.Type == matching.Market {
		return c.Verdict.Bound
	}
	return c.Price
}

// hasRoom tells whether the books hold one more order at a price, or this one there instead of where it is.
func (m *Model) hasRoom(instead *order, instrument uint32, side matching.Side, price int64) bool {
	type level struct {
		instrument uint32
		side       matching.Side
		price      int64
	}
	levels := map[level]bool{{instrument, side, price}: true}
	resting := 1
	there := false
	for _, o := range m.open() {
		if o == instead {
			continue
		}
		resting++
		at := level{o.symbol, o.now.Side, o.now.Price}
		there = there || at == level{instrument, side, price}
		levels[at] = true
	}
	return resting <= m.options.MaxOpenOrders && (there || len(levels) <= m.options.MaxLevels)
}
