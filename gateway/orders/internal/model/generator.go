package model

import (
	"fmt"
	"math"
	"math/rand/v2"

	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Generator draws commands from numbers so small that everything meets everything. It looks at the model to aim at what is open,
// armed or logged on, and past it often enough. Its commands are whole: they can be given to a state that it never saw.
type Generator struct {
	// Day is how many commands a day has on average.
	Day int

	random *rand.Rand
	model  *Model
	clock  int64
	ids    int
	past   []orders.Command
}

const (
	accounts = 6
	firms    = 2
)

// NewGenerator returns a generator that looks at a model.
func NewGenerator(seed uint64, m *Model) *Generator {
	return &Generator{Day: 700, random: rand.New(rand.NewPCG(seed, 0)), model: m}
}

// market is an instrument with the prices around which it trades. One has prices so high that sums of notionals pass 63 bits, one
// has prices on both sides of zero.
type market struct {
	symbol    string
	reference int64
	most      uint64 // lots
}

// The last one is defined when limits may have named it for long.
var markets = []market{{"ACME", 100, 20}, {"BOLT", 50, 20}, {"SPRD", -3, 20}, {"HUGE", 1 << 61, 3}, {"LATE", 100, 20}}

// Setup defines instruments, firms and accounts.
func (g *Generator) Setup() (commands []orders.Command) {
	for _, market := range markets[:len(markets)-1] {
		commands = append(commands, orders.Command{Kind: orders.DefineInstrument, Instrument: g.instrument(market)})
	}
	for i := range firms {
		commands = append(commands, orders.Command{Kind: orders.DefineFirm, Name: firmName(i)})
	}
	for i := range accounts {
		commands = append(commands, orders.Command{Kind: orders.DefineAccount, Name: accountName(i), Firm: g.firm(), Group: g.group()})
	}
	return commands
}

func accountName(i int) string { return fmt.Sprint("account", i) }
func firmName(i int) string    { return fmt.Sprint("firm", i) }
func (g *Generator) firm() string {
	return g.oneOf("", firmName(0), firmName(0), firmName(1), firmName(1))
}
func (g *Generator) group() string              { return g.oneOf("", "red", "red", "blue") }
func (g *Generator) oneOf(all ...string) string { return all[g.random.IntN(len(all))] }
func (g *Generator) chance(percent int) bool    { return g.random.IntN(100) < percent }

// Next draws one command.
func (g *Generator) Next() orders.Command {
	g.clock += 1 + g.random.Int64N(1000)
	var c orders.Command
	if g.random.IntN(g.Day) == 0 {
		c.Kind = orders.EndDay
	} else {
		draw := g.random.IntN(1000)
		for _, kind := range []struct {
			of1000 int
			draw   func() orders.Command
		}{
			{566, g.submit}, {165, g.replace}, {45, g.cancel}, {60, g.again}, {15, g.massCancel},
			{25, g.setLimits}, {15, g.setKillSwitch}, {15, g.defineInstrument}, {12, g.defineAccount},
			{30, g.logon}, {12, g.logout}, {12, g.expireSession}, {18, g.cancelAllAfter}, {10, g.fireTimer},
		} {
			if draw -= kind.of1000; draw < 0 {
				c = kind.draw()
				break
			}
		}
	}
	c.ReceivedNs = g.clock
	if c.Kind == orders.Submit || c.Kind == orders.Replace || c.Kind == orders.Cancel || c.Kind == orders.MassCancel {
		g.past = append(g.past, c)
	}
	return c
}

func (g *Generator) account() uint32 { return g.random.Uint32N(accounts) }

// id draws a fresh id mostly, else one of the latest, whosever it is.
func (g *Generator) id(prefix string) orders.ID {
	n := g.ids
	if g.chance(90) {
		g.ids++
	} else {
		n -= g.random.IntN(min(50, n+1))
	}
	id, _ := orders.ParseID(fmt.Sprint(prefix, n))
	return id
}

// requestID is left out now and then.
func (g *Generator) requestID() orders.ID {
	if g.chance(40) {
		return orders.ID{}
	}
	return g.id("r")
}

func (g *Generator) side() matching.Side { return matching.Side(1 + g.random.IntN(2)) }

func (g *Generator) market() market {
	draw := g.random.IntN(100)
	switch {
	case draw < 50:
		return markets[0]
	case draw < 68:
		return markets[1]
	case draw < 82:
		return markets[2]
	case draw < 96:
		return markets[3]
	default:
		return markets[4]
	}
}

// price draws one around the reference: buys a little below, sells a little above, so that some trade and some wait.
func (g *Generator) price(m market, side matching.Side) int64 {
	below := g.random.Int64N(10) - 2
	if g.chance(3) {
		below = g.random.Int64N(61) - 30
	}
	if side == matching.Sell {
		below = -below
	}
	return m.reference - below
}

func (g *Generator) lots(m market) uint64 {
	if g.chance(2) {
		return 1 + g.random.Uint64N(100*m.most)
	}
	return 1 + g.random.Uint64N(m.most)
}

func (g *Generator) submit() orders.Command {
	m := g.market()
	side := g.side()
	c := orders.Command{
		Kind: orders.Submit, Account: g.account(), ClientOrderID: g.id("o"), Symbol: symbol(m.symbol), Side: side,
		Type: matching.Limit, Quantity: g.lots(m), Price: g.price(m, side),
	}
	if g.chance(2) {
		c.Symbol = symbol("NONE")
	}
	switch draw := g.random.IntN(100); {
	case draw < 40:
		c.TimeInForce = matching.Day
	case draw < 65:
		c.TimeInForce = matching.GoodTillCancel
	case draw < 80:
		c.TimeInForce = matching.ImmediateOrCancel
	default:
		c.TimeInForce = matching.FillOrKill
	}
	if !mayRest(c.Type, c.TimeInForce) && g.chance(40) {
		c.Type, c.Price = matching.Market, 0
	}
	if mayRest(c.Type, c.TimeInForce) {
		if g.chance(25) && c.Quantity > 1 {
			c.DisplayQuantity = (c.Quantity+matching.MaxDisplayParts-1)/matching.MaxDisplayParts + g.random.Uint64N(min(5, c.Quantity-1))
		}
		c.PostOnly = g.chance(12)
	}
	if g.chance(12) && !c.PostOnly {
		c.MinimumQuantity = 1 + g.random.Uint64N(c.Quantity)
	}
	if g.chance(60) {
		c.SelfTradePrevention = matching.SelfTradePrevention(g.random.IntN(6))
	}
	if g.chance(1) { // what contradicts itself mostly
		c.PostOnly, c.DisplayQuantity, c.MinimumQuantity = g.chance(50), g.random.Uint64N(25), g.random.Uint64N(25)
	}
	if number, ok := g.session(c.Account, g.chance(98)); ok && g.chance(60) {
		c.Session = number
	}
	return c
}

func symbol(name string) orders.Symbol {
	s, _ := orders.ParseSymbol(name)
	return s
}

// session picks a session, one of an account's own or any, as its number plus one.
func (g *Generator) session(account uint32, own bool) (plusOne uint32, ok bool) {
	if !own {
		return 1 + g.random.Uint32N(10), true
	}
	for _, s := range g.model.Sessions() {
		if s.Account == account {
			plusOne, ok = s.Number+1, true
			if g.chance(50) {
				break
			}
		}
	}
	return plusOne, ok
}

// target is an order to change: an open one mostly.
func (g *Generator) target() (account uint32, o orders.Order) {
	open := g.chance(93)
	for range 3 {
		account = g.account()
		if list := g.model.Orders(account, open); len(list) > 0 && !g.chance(1) {
			return account, list[g.random.IntN(len(list))]
		}
	}
	return account, orders.Order{ClientOrderID: g.id("o"), Quantity: 1, Symbol: symbol(markets[0].symbol), Side: g.side()}
}

func (g *Generator) replace() orders.Command {
	account, o := g.target()
	c := orders.Command{Kind: orders.Replace, Account: account, RequestID: g.requestID(), ClientOrderID: o.ClientOrderID, Quantity: o.Quantity, Price: o.Price}
	for _, m := range markets {
		if o.Symbol == symbol(m.symbol) && g.chance(50) {
			c.Price = g.price(m, o.Side)
		}
	}
	switch g.random.IntN(4) {
	case 0: // as it is
	case 1:
		c.Quantity = 1 + g.random.Uint64N(o.Quantity)
	case 2:
		c.Quantity += 1 + g.random.Uint64N(5)
	default:
		c.Quantity = 1 + g.random.Uint64N(20)
	}
	if o.DisplayQuantity > 0 && g.chance(1) {
		c.Quantity = o.Filled + o.DisplayQuantity*matching.MaxDisplayParts + g.random.Uint64N(2)
	}
	return c
}

func (g *Generator) cancel() orders.Command {
	account, o := g.target()
	return orders.Command{Kind: orders.Cancel, Account: account, RequestID: g.requestID(), ClientOrderID: o.ClientOrderID}
}

// again repeats one of the latest requests, or changes it a little.
func (g *Generator) again() orders.Command {
	if len(g.past) == 0 {
		return g.cancel()
	}
	reach := 100
	if g.chance(20) {
		reach = 2000
	}
	c := g.past[len(g.past)-1-g.random.IntN(min(len(g.past), reach))]
	if g.chance(30) {
		switch g.random.IntN(4) {
		case 0:
			c.Account = g.account()
		case 1:
			c.Side = 3 - max(c.Side, 1)
		case 2:
			c.SelfTradePrevention = 0
		default:
			c.Quantity++
		}
		if c.Kind != orders.Submit {
			c.SelfTradePrevention = 0
		}
		if c.Kind == orders.Replace || c.Kind == orders.Cancel {
			c.Side = 0
		}
		if c.Kind == orders.Cancel || c.Kind == orders.MassCancel {
			c.Quantity = 0
		}
	}
	return c
}

func (g *Generator) massCancel() orders.Command {
	c := orders.Command{Kind: orders.MassCancel, Account: g.account(), RequestID: g.requestID(), Side: matching.Side(g.random.IntN(3))}
	if g.chance(80) {
		c.Symbol = symbol(g.oneOf("ACME", "BOLT", "SPRD", "HUGE", "LATE", "NONE"))
	}
	return c
}

// scope is an account or a firm, one in fifty times one that is not there.
func (g *Generator) scope() orders.Scope {
	s := orders.Scope{Number: g.account()}
	if g.chance(35) {
		s = orders.Scope{Firm: true, Number: g.random.Uint32N(firms)}
	}
	if g.chance(2) {
		s.Number += 100
	}
	return s
}

func (g *Generator) setLimits() orders.Command {
	limits := &orders.Limits{MaxOrderRate: g.random.Uint32N(100)}
	if g.chance(70) {
		limits.MaxQuantity = pick[uint64](g, 0, 0, 18, 19, 500)
		limits.MaxNotional = pick[int64](g, 0, 0, 0, 1800, 1<<62)
		limits.PriceCollarBps = pick[uint32](g, 0, 0, 0, 0, 0, 500, 1000, 2000, 30_000)
		limits.MaxOpenOrders = pick[uint32](g, 0, 0, 4, 8, 12, 25)
		limits.MaxOpenNotional = pick[int64](g, 0, 0, 0, 8000, 1<<62, math.MaxInt64)
		limits.MaxPosition = pick[uint64](g, 0, 0, 100, 150, 300)
	}
	for _, name := range []string{"ACME", "BOLT", "HUGE", "LATE", "SPRD"} {
		if g.chance(1) || name == "LATE" && g.chance(30) {
			limits.Restricted = append(limits.Restricted, symbol(name))
		}
	}
	return orders.Command{Kind: orders.SetLimits, Scope: g.scope(), Limits: limits, Configured: g.chance(30)}
}

func pick[T any](g *Generator, all ...T) T { return all[g.random.IntN(len(all))] }

// setKillSwitch lifts mostly what it finds engaged.
func (g *Generator) setKillSwitch() orders.Command {
	c := orders.Command{Kind: orders.SetKillSwitch, Scope: g.scope(), Engaged: g.chance(15), Text: g.oneOf("", "why not")}
	for number := range uint32(accounts) {
		for _, scope := range []orders.Scope{{Number: number}, {Firm: true, Number: number}} {
			if g.model.killed[scope] && g.chance(90) {
				c.Scope, c.Engaged = scope, false
			}
		}
	}
	return c
}

func (g *Generator) instrument(m market) *orders.Instrument {
	d := &orders.Instrument{
		Symbol: symbol(m.symbol), TickNanos: 1, LotSize: 1, Currency: "USD", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN, ReferencePrice: m.reference,
	}
	if m.symbol == "BOLT" {
		d.MinNotional, d.MaxNotional = 100, 900
	}
	return d
}

// defineInstrument opens mostly what it finds halted.
func (g *Generator) defineInstrument() orders.Command {
	d := g.instrument(markets[g.random.IntN(len(markets))])
	if g.chance(15) {
		d.State = pb.InstrumentState(2 + g.random.IntN(2))
	}
	if g.chance(10) {
		d.ReferencePrice = 0
	}
	if len(g.model.instruments) < len(markets) {
		d = g.instrument(markets[g.random.IntN(len(markets)-1)])
		if g.chance(5) {
			d = g.instrument(markets[len(markets)-1])
		}
	}
	for i := range g.model.instruments {
		if g.model.instruments[i].State != pb.InstrumentState_INSTRUMENT_STATE_OPEN && g.chance(80) {
			d = g.instrument(markets[i])
		}
	}
	return orders.Command{Kind: orders.DefineInstrument, Instrument: d}
}

func (g *Generator) defineAccount() orders.Command {
	c := orders.Command{Kind: orders.DefineAccount, Name: accountName(g.random.IntN(accounts)), Firm: g.firm(), Group: g.group()}
	for i := range firms {
		if g.model.killed[orders.Scope{Firm: true, Number: uint32(i)}] && g.chance(70) {
			c.Firm = firmName(i) // so that it has open orders in spite of the switch
		}
	}
	if g.chance(5) {
		c.Firm = "nobody"
	}
	if g.chance(5) {
		return orders.Command{Kind: orders.DefineFirm, Name: firmName(0)}
	}
	return c
}

func (g *Generator) logon() orders.Command {
	id, _ := orders.ParseID(fmt.Sprint("s", g.random.IntN(3)))
	return orders.Command{
		Kind: orders.Logon, Account: g.account(), SessionID: id, DisconnectMode: uint8(g.random.IntN(3)), GraceNs: g.random.Int64N(3) * 1e9,
	}
}

func (g *Generator) logout() orders.Command { return g.endSession(orders.Logout) }

func (g *Generator) expireSession() orders.Command { return g.endSession(orders.ExpireSession) }

func (g *Generator) endSession(kind orders.Kind) orders.Command {
	c := orders.Command{Kind: kind, Account: g.account(), Session: 1 + g.random.Uint32N(10), Incarnation: 1 + g.random.Uint32N(3)}
	sessions := g.model.Sessions()
	if len(sessions) == 0 || g.chance(10) {
		return c
	}
	s := sessions[g.random.IntN(len(sessions))]
	c.Account, c.Session = s.Account, s.Number+1
	if g.chance(90) {
		c.Incarnation = s.Incarnation
	}
	return c
}

func (g *Generator) cancelAllAfter() orders.Command {
	c := orders.Command{Kind: orders.CancelAllAfter, Account: g.account()}
	if g.chance(75) {
		c.TriggerNs = g.clock + g.random.Int64N(100)
	}
	return c
}

func (g *Generator) fireTimer() orders.Command {
	c := orders.Command{Kind: orders.FireTimer, Account: g.account(), TriggerNs: pick(g, 0, g.clock)}
	if g.chance(90) {
		c.TriggerNs = g.model.timers[c.Account]
	}
	return c
}
