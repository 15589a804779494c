package orders

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// flow draws commands of every kind over few accounts, prices and ids, so that everything meets everything.
type flow struct {
	random   *rand.Rand
	rig      *rig
	sessions []SessionInfo
	trigger  int64
	lasting  bool // no end of day
}

const flowAccounts = 4

// newFlow returns a flow over the accounts alpha and beta of the firm one, gamma of the firm two and delta of none.
func newFlow(t testing.TB, seed uint64, options Options) *flow {
	f := &flow{random: rand.New(rand.NewPCG(seed, 0)), rig: newRig(t, options)}
	for _, name := range []string{"one", "two"} {
		f.rig.do(&Command{Kind: DefineFirm, Name: name})
	}
	for _, c := range []Command{{Name: "alpha", Firm: "one", Group: "desk"}, {Name: "beta", Firm: "one"}, {Name: "gamma", Firm: "two", Group: "desk"}, {Name: "delta"}} {
		c.Kind = DefineAccount
		f.rig.do(&c)
	}
	return f
}

func (f *flow) id(of int) ID { return id(fmt.Sprint("o", f.random.IntN(of))) }

func (f *flow) account() uint32 { return uint32(f.random.IntN(flowAccounts)) }

func (f *flow) scope() Scope {
	if f.random.IntN(2) == 0 {
		return Scope{Firm: true, Number: uint32(f.random.IntN(2))}
	}
	return Scope{Number: f.account()}
}

// next draws a command.
func (f *flow) next() *Command {
	if f.random.IntN(5) > 0 {
		return f.order()
	}
	c := &Command{Account: f.account()}
	switch f.random.IntN(13) {
	case 0:
		c.Kind, c.Scope, c.Limits, c.Configured = SetLimits, f.scope(), f.limits(), f.random.IntN(2) == 0
	case 1:
		c.Kind, c.Scope, c.Engaged = SetKillSwitch, f.scope(), f.random.IntN(6) == 0
	case 2:
		c.Kind, c.RequestID, c.Side = MassCancel, id(fmt.Sprint("m", f.random.IntN(100))), matching.Side(f.random.IntN(3))
	case 3:
		c.Kind, c.Symbol = MassCancel, symbol([]string{"ACME", "BOLT", "NOPE"}[f.random.IntN(3)])
	case 4:
		f.trigger = int64(f.random.IntN(3))
		c.Kind, c.TriggerNs = CancelAllAfter, f.trigger
	case 5:
		c.Kind, c.TriggerNs = FireTimer, f.trigger
	case 6, 7:
		c.Kind, c.SessionID, c.DisconnectMode, c.GraceNs = Logon, id(fmt.Sprint("s", f.random.IntN(3))), uint8(1+f.random.IntN(2)), 5
	case 8, 9:
		c.Kind = []Kind{Logout, ExpireSession}[f.random.IntN(2)]
		f.session(c)
	case 10:
		if !f.lasting && f.random.IntN(4) == 0 {
			return &Command{Kind: EndDay}
		}
		return f.order()
	case 11:
		d, _ := f.rig.state.Instrument(symbol("BOLT"))
		d.State = pb.InstrumentState(1 + f.random.IntN(2))
		d.MinNotional = int64(f.random.IntN(4000))
		return &Command{Kind: DefineInstrument, Instrument: &d}
	default:
		name := f.rig.state.AccountName(c.Account)
		_, group := f.rig.state.Membership(c.Account)
		c = &Command{Kind: DefineAccount, Name: name, Firm: []string{"", "one", "two"}[f.random.IntN(3)], Group: group}
		if firm, _ := f.rig.state.Membership(f.rig.state.accountNumber[name]); firm == c.Firm {
			return f.order()
		}
	}
	return c
}

// session fills in a session that is known, if there is one.
func (f *flow) session(c *Command) {
	f.sessions = f.sessions[:0]
	f.rig.state.Sessions(func(info SessionInfo) bool {
		f.sessions = append(f.sessions, info)
		return true
	})
	if len(f.sessions) > 0 {
		info := f.sessions[f.random.IntN(len(f.sessions))]
		c.Account, c.Session, c.Incarnation = info.Account, info.Number+1, info.Incarnation
	}
}

func (f *flow) limits() *Limits {
	pick := func(most int) uint64 {
		if f.random.IntN(3) > 0 {
			return 0
		}
		return uint64(most/2 + f.random.IntN(most))
	}
	l := &Limits{
		MaxQuantity: pick(100), MaxNotional: int64(pick(10_000)), PriceCollarBps: uint32(pick(2000)), MaxOpenOrders: uint32(pick(8)),
		MaxOpenNotional: int64(pick(12_000)), MaxPosition: pick(300), MaxOrderRate: uint32(pick(10)),
	}
	if f.random.IntN(4) == 0 {
		l.Restricted = []Symbol{symbol("BOLT"), symbol("LATER")}
	}
	return l
}

// open draws one of the account's open orders, or any id where there is none.
func (f *flow) open(account uint32) string {
	if page, _, _ := f.rig.state.List(account, true, 0, 20, nil); len(page) > 0 {
		return page[f.random.IntN(len(page))].ClientOrderID.String()
	}
	return f.id(300).String()
}

// order draws an order, a replace or a cancel.
func (f *flow) order() *Command {
	account, quantity, price := f.account(), 1+f.random.Uint64N(100), 85+f.random.Int64N(30)
	switch f.random.IntN(10) {
	case 0:
		return cancel(account, "", f.id(300).String())
	case 1:
		return cancel(account, fmt.Sprint("r", f.random.IntN(500)), f.id(300).String())
	case 2, 3:
		return replace(account, fmt.Sprint("r", f.random.IntN(1000)), f.open(account), 1+f.random.Uint64N(quantity), price)
	case 4:
		return market(account, f.id(300).String(), matching.Side(1+f.random.IntN(2)), quantity)
	}
	c := limit(account, f.id(300).String(), matching.Side(1+f.random.IntN(2)), quantity, price)
	c.TimeInForce = matching.TimeInForce(1 + f.random.IntN(4))
	if f.random.IntN(3) == 0 {
		c.Symbol = symbol("BOLT")
		c.Price *= 2
	}
	if f.random.IntN(40) == 0 {
		c.Symbol = symbol("NOPE")
	}
	rests := c.TimeInForce <= matching.GoodTillCancel
	switch f.random.IntN(8) {
	case 0:
		c.PostOnly = rests
	case 1:
		c.MinimumQuantity = 1 + f.random.Uint64N(quantity)
	case 2:
		if rests && quantity > 1 {
			c.DisplayQuantity = 1 + f.random.Uint64N(quantity-1)
		}
	case 3:
		f.session(c)
		c.Incarnation = 0
	}
	c.SelfTradePrevention = matching.SelfTradePrevention(f.random.IntN(6))
	return c
}

// try decides, journals and applies, and accepts that there is no room.
func (f *flow) try(c *Command) (out Answer, journaled bool) {
	f.rig.t.Helper()
	f.rig.clock++
	c.ReceivedNs = f.rig.clock
	journal, err := f.rig.state.Decide(c, &out)
	if err != nil || !journal {
		return out, false
	}
	f.rig.journal = append(f.rig.journal, c.Append(nil))
	if err := f.rig.state.Apply(c, &out); err != nil {
		f.rig.t.Fatalf("%+v: %v", c, err)
	}
	return out, true
}

// apply decodes a record and applies it. A definition's time is not in its record.
func apply(t testing.TB, s *State, record []byte) Answer {
	t.Helper()
	var c Command
	var out Answer
	if err := c.Decode(record); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(&c, &out); err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return out
}

// same compares the answer to a command with that to its replay.
func same(c *Command, out, again Answer) bool {
	if c.Kind == DefineInstrument || c.Kind == DefineAccount {
		again.ReceivedNs = out.ReceivedNs
	}
	return again == out
}

// TestReplayIsEqual: after every command of every kind the state is the one that the journal's bytes give.
func TestReplayIsEqual(t *testing.T) {
	const steps = 3000
	f := newFlow(t, 1, Options{MaxIDs: 1000, MaxSessions: 6})
	twin := f.rig.replayed(Options{MaxIDs: 5000, MaxEvents: 1 << 20})
	done := make(map[Kind]int)
	answers := make(map[pb.Reason]int)
	types := make(map[pb.ExecutionType]int)
	for step := range steps {
		c := f.next()
		out, journaled := f.try(c)
		answers[out.Reason]++
		if !journaled {
			continue
		}
		done[c.Kind]++
		record := f.rig.journal[len(f.rig.journal)-1]
		if again := apply(t, twin, record); !same(c, out, again) {
			t.Fatalf("step %d: %+v was answered with\n%+v, its replay with\n%+v", step, c, out, again)
		}
		if f.rig.state.Digest() != twin.Digest() {
			t.Fatalf("step %d: after %+v the replayed state differs", step, c)
		}
		for _, account := range f.rig.state.Touched() {
			next, _ := f.rig.state.EventRange(account, f.rig.state.Epoch())
			for _, r := range f.rig.state.Events(account, f.rig.state.Epoch(), next-1, 1, nil) {
				types[r.Type]++
			}
		}
	}
	for _, kind := range kinds {
		if done[kind] == 0 && kind != DefineFirm {
			t.Errorf("the flow carried out no command of kind %d", kind)
		}
	}
	for reason := pb.Reason_REASON_UNKNOWN_SYMBOL; reason <= pb.Reason_REASON_BOOK_FULL; reason++ {
		unusual := reason == pb.Reason_REASON_BOOK_FULL || reason == pb.Reason_REASON_SELF_TRADE
		if pb.Reason_name[int32(reason)] != "" && answers[reason] == 0 && !unusual {
			t.Errorf("the flow never met %s", reason)
		}
	}
	for kind := pb.ExecutionType_EXECUTION_TYPE_NEW; kind <= pb.ExecutionType_EXECUTION_TYPE_EXPIRED; kind++ {
		if types[kind] == 0 {
			t.Errorf("the flow never ended with a report of %s", kind)
		}
	}
}
