package orders

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

func drawID(t *rapid.T, label string) ID {
	id, ok := ParseID(rapid.StringMatching(`[A-Za-z0-9_-]{1,32}`).Draw(t, label))
	if !ok {
		t.Fatalf("%s: the alphabet and ParseID differ", label)
	}
	return id
}

func drawSymbol(t *rapid.T) Symbol {
	s, ok := ParseSymbol(rapid.StringMatching(`[A-Z0-9._-]{1,16}`).Draw(t, "symbol"))
	if !ok {
		t.Fatal("the alphabet and ParseSymbol differ")
	}
	return s
}

// kinds are all that a journal may hold.
var kinds = []Kind{
	DefineInstrument, DefineAccount, Submit, Replace, Cancel, DefineFirm, SetLimits, SetKillSwitch,
	MassCancel, CancelAllAfter, FireTimer, Logon, Logout, ExpireSession, EndDay,
}

// drawCommand draws any command that a journal may hold.
func drawCommand(t *rapid.T) Command {
	c := Command{Kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
	switch c.Kind {
	case DefineInstrument:
		c.Instrument = &Instrument{
			Symbol: drawSymbol(t), TickNanos: rapid.Uint64().Draw(t, "tick"), LotSize: rapid.Uint64().Draw(t, "lot"),
			Currency: rapid.StringMatching(`[A-Z]{3}`).Draw(t, "currency"), State: pb.InstrumentState(rapid.IntRange(1, 3).Draw(t, "state")),
			MinNotional: rapid.Int64().Draw(t, "min"), MaxNotional: rapid.Int64().Draw(t, "max"), ReferencePrice: rapid.Int64().Draw(t, "reference"),
		}
	case DefineAccount:
		c.Name = drawID(t, "name").String()
		c.Firm, c.Group = drawName(t, "firm"), drawName(t, "group")
	case DefineFirm:
		c.Name = drawID(t, "name").String()
	case SetLimits:
		c.ReceivedNs = rapid.Int64().Draw(t, "received")
		c.Scope, c.Configured, c.Limits = drawScope(t), rapid.Bool().Draw(t, "configured"), drawLimits(t)
	case SetKillSwitch:
		c.ReceivedNs = rapid.Int64().Draw(t, "received")
		c.Scope, c.Engaged = drawScope(t), rapid.Bool().Draw(t, "engaged")
		c.Text = rapid.StringN(0, MaxTextBytes, MaxTextBytes).Draw(t, "text")
	case EndDay:
		c.ReceivedNs = rapid.Int64().Draw(t, "received")
	default:
		c.Account = rapid.Uint32Range(0, MaxAccounts-1).Draw(t, "account")
		c.ReceivedNs = rapid.Int64().Draw(t, "received")
		drawOfAccount(t, &c)
	}
	return c
}

// drawOfAccount draws what the kinds that an account sends have of their own.
func drawOfAccount(t *rapid.T, c *Command) {
	switch c.Kind {
	case Submit, Replace, Cancel:
		c.ClientOrderID = drawID(t, "order")
		fallthrough
	case MassCancel:
		c.Verdict.Reason = pb.Reason(rapid.IntRange(0, 300).Draw(t, "reason"))
		c.Verdict.Limit = rapid.Int64().Draw(t, "limit")
		c.Verdict.Firm = rapid.Bool().Draw(t, "of the firm")
		if c.Kind != Submit && rapid.Bool().Draw(t, "remembered") {
			c.RequestID = drawID(t, "request")
		}
	case CancelAllAfter, FireTimer:
		c.TriggerNs = rapid.Int64().Draw(t, "trigger")
	case Logon:
		c.SessionID, c.DisconnectMode = drawID(t, "session"), rapid.Uint8().Draw(t, "mode")
		c.GraceNs = rapid.Int64().Draw(t, "grace")
		c.Session = rapid.Uint32Range(0, 1<<31-1).Draw(t, "session number")
	default: // Logout, ExpireSession
		c.Session, c.Incarnation = rapid.Uint32Range(0, 1<<31-1).Draw(t, "session"), rapid.Uint32().Draw(t, "incarnation")
	}
	if c.Kind == Submit || c.Kind == Replace {
		c.Quantity = rapid.Uint64().Draw(t, "quantity")
		c.Price = rapid.Int64().Draw(t, "price")
	}
	if c.Kind == MassCancel && rapid.Bool().Draw(t, "of a symbol") {
		c.Symbol = drawSymbol(t)
	}
	if c.Kind == MassCancel {
		c.Side = matching.Side(rapid.IntRange(0, 2).Draw(t, "side"))
	}
	if c.Kind == Submit {
		c.Symbol = drawSymbol(t)
		c.Side = matching.Side(rapid.IntRange(1, 2).Draw(t, "side"))
		c.Type = matching.OrderType(rapid.IntRange(1, 2).Draw(t, "type"))
		c.TimeInForce = matching.TimeInForce(rapid.IntRange(1, 4).Draw(t, "tif"))
		c.Verdict.Bound = rapid.Int64().Draw(t, "bound")
		if rapid.Bool().Draw(t, "long") {
			c.PostOnly = rapid.Bool().Draw(t, "post only")
			c.SelfTradePrevention = matching.SelfTradePrevention(rapid.IntRange(0, 5).Draw(t, "self-trade"))
			c.DisplayQuantity, c.MinimumQuantity = rapid.Uint64().Draw(t, "display"), rapid.Uint64().Draw(t, "minimum")
			c.Session = rapid.Uint32Range(0, 1<<31-1).Draw(t, "session")
		}
	}
}

func drawName(t *rapid.T, label string) string {
	if rapid.Bool().Draw(t, "no "+label) {
		return ""
	}
	return drawID(t, label).String()
}

func drawScope(t *rapid.T) Scope {
	return Scope{Firm: rapid.Bool().Draw(t, "firm"), Number: rapid.Uint32Range(0, 1<<31-1).Draw(t, "number")}
}

func drawLimits(t *rapid.T) *Limits {
	l := &Limits{
		MaxQuantity: rapid.Uint64().Draw(t, "max quantity"), MaxNotional: rapid.Int64().Draw(t, "max notional"),
		PriceCollarBps: rapid.Uint32().Draw(t, "collar"), MaxOpenOrders: rapid.Uint32().Draw(t, "max open orders"),
		MaxOpenNotional: rapid.Int64().Draw(t, "max open notional"), MaxPosition: rapid.Uint64().Draw(t, "max position"),
		MaxOrderRate: rapid.Uint32().Draw(t, "rate"),
	}
	for range rapid.IntRange(0, 5).Draw(t, "restricted") {
		l.Restricted = append(l.Restricted, drawSymbol(t))
	}
	slices.SortFunc(l.Restricted, Symbol.Compare)
	l.Restricted = slices.Compact(l.Restricted)
	return l
}

func TestCommandRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t)
		text := c.Append(nil)
		if len(text) > MaxCommandBytes {
			t.Fatalf("encoded to %d bytes, MaxCommandBytes is %d", len(text), MaxCommandBytes)
		}
		var back Command
		if err := back.Decode(text); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, c) {
			t.Fatalf("came back as %+v, was %+v", back, c)
		}
		for cut := range text {
			if err := back.Decode(text[:cut]); !errors.Is(err, ErrEncoding) {
				t.Fatalf("cut to %d of %d bytes: %v, want ErrEncoding", cut, len(text), err)
			}
		}
		if err := back.Decode(append(text, 0)); !errors.Is(err, ErrEncoding) {
			t.Fatalf("with a byte too many: %v, want ErrEncoding", err)
		}
	})
}

// TestOldRecordsStayWhatTheyWere: these bytes stand in journals.
func TestOldRecordsStayWhatTheyWere(t *testing.T) {
	order := limit(3, "abc-1", matching.Buy, 7, -3)
	order.ReceivedNs = 5
	request := replace(3, "r1", "abc-1", 9, 4)
	for _, step := range []struct {
		command *Command
		want    string
	}{
		{order, "03" + "030a0000" + "056162632d31" + "0441434d45" + "010101" + "07" + "05" + "00"},
		{request, "04" + "03000000" + "056162632d31" + "027231" + "09" + "08"},
		{cancel(3, "", "abc-1"), "05" + "03000000" + "056162632d31" + "00"},
		{&Command{Kind: DefineAccount, Name: "demo"}, "02" + "0464656d6f"},
	} {
		if got := fmt.Sprintf("%x", step.command.Append(nil)); got != step.want {
			t.Errorf("kind %d is written as %s, want %s", step.command.Kind, got, step.want)
		}
	}
}

// TestLongestCommand: with as many restricted symbols as may be, SetLimits still fits.
func TestLongestCommand(t *testing.T) {
	limits := Limits{
		MaxQuantity: matching.MaxQuantity, MaxNotional: math.MaxInt64, PriceCollarBps: MaxPriceCollarBps, MaxOpenOrders: math.MaxUint32,
		MaxOpenNotional: math.MaxInt64, MaxPosition: math.MaxInt64, MaxOrderRate: math.MaxUint32,
	}
	for i := range MaxRestricted {
		limits.Restricted = append(limits.Restricted, symbol(fmt.Sprintf("ABCDEFGHIJKL%04d", i)))
	}
	if err := limits.Validate(); err != nil {
		t.Fatal(err)
	}
	c := Command{Kind: SetLimits, Scope: Scope{Firm: true, Number: MaxAccounts}, Limits: &limits}
	if n := len(c.Append(nil)); n > MaxCommandBytes {
		t.Errorf("%d bytes, MaxCommandBytes is %d", n, MaxCommandBytes)
	}
}

// FuzzDecode: whatever decodes encodes back to the same bytes, so a command has one encoding.
func FuzzDecode(f *testing.F) {
	order := limit(0, "abc-1", matching.Buy, 7, -3)
	f.Add(order.Append(nil))
	order.PostOnly, order.Session = true, 9
	f.Add(order.Append(nil))
	for _, c := range []Command{
		{Kind: DefineAccount, Name: "demo"},
		{Kind: DefineAccount, Name: "demo", Firm: "fund", Group: "desk"},
		{Kind: SetLimits, Scope: Scope{Firm: true}, Limits: &Limits{Restricted: []Symbol{symbol("A"), symbol("B")}}},
		{Kind: SetKillSwitch, Engaged: true, Text: "why"},
		{Kind: MassCancel, Symbol: symbol("A"), RequestID: id("r1"), Side: matching.Buy},
		{Kind: FireTimer, TriggerNs: 7},
		{Kind: Logon, SessionID: id("s1"), DisconnectMode: 2, GraceNs: 5, Session: 1},
		{Kind: ExpireSession, Session: 1, Incarnation: 2},
		{Kind: EndDay},
	} {
		f.Add(c.Append(nil))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c Command
		if err := c.Decode(text); err != nil {
			if !errors.Is(err, ErrEncoding) {
				t.Fatalf("%v does not wrap ErrEncoding", err)
			}
			return
		}
		if back := c.Append(nil); !bytes.Equal(back, text) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", text, c, back)
		}
	})
}
