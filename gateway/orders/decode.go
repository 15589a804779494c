package orders

import (
	"encoding/binary"
	"fmt"
	"math"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Decode reads what Append wrote, replacing the whole command. It accepts exactly one encoding of each command. Errors wrap ErrEncoding.
func (c *Command) Decode(b []byte) error {
	*c = Command{}
	r := reader{rest: b}
	kind := Kind(r.byte())
	c.Kind = kind
	switch kind {
	case Submit, longSubmit:
		c.Kind = Submit
		c.decodeSubmit(&r, kind == longSubmit)
	case Replace, Cancel:
		c.decodeHead(&r)
		c.RequestID = r.id(true)
		if kind == Replace {
			c.Quantity = r.uvarint()
			c.Price = r.varint()
		}
	case DefineInstrument:
		c.Instrument = r.instrument()
	case DefineAccount, longDefineAccount, DefineFirm:
		c.Name = string(r.text(MaxIDBytes))
		if kind == longDefineAccount {
			c.Kind = DefineAccount
			c.Firm, c.Group = string(r.text(MaxIDBytes)), string(r.text(MaxIDBytes))
			r.must(c.Firm != "" || c.Group != "")
		}
	case SetLimits:
		c.ReceivedNs = r.varint()
		c.Scope = r.scope()
		c.Configured = r.bool()
		c.Limits = r.limits()
	case SetKillSwitch:
		c.ReceivedNs = r.varint()
		c.Scope = r.scope()
		c.Engaged = r.bool()
		c.Text = string(r.bytes(r.uvarint(), MaxTextBytes))
	case EndDay:
		c.ReceivedNs = r.varint()
	case MassCancel, CancelAllAfter, FireTimer, Logon, Logout, ExpireSession:
		c.decodeOfAccount(&r)
	default:
		return fmt.Errorf("%w: unknown kind %d", ErrEncoding, c.Kind)
	}
	if r.failed || len(r.rest) > 0 {
		return fmt.Errorf("%w: kind %d, %d bytes, wrong at byte %d", ErrEncoding, kind, len(b), len(b)-len(r.rest))
	}
	return nil
}

func (c *Command) decodeSubmit(r *reader, long bool) {
	c.decodeHead(r)
	c.Symbol = r.symbol(false)
	c.Side = matching.Side(r.byte())
	c.Type = matching.OrderType(r.byte())
	c.TimeInForce = matching.TimeInForce(r.byte())
	c.Quantity = r.uvarint()
	c.Price = r.varint()
	c.Verdict.Bound = r.varint()
	if !long {
		return
	}
	c.PostOnly = r.bool()
	c.SelfTradePrevention = matching.SelfTradePrevention(r.byte())
	c.DisplayQuantity = r.uvarint()
	c.MinimumQuantity = r.uvarint()
	c.Session = r.small()
	r.must(c.PostOnly || c.SelfTradePrevention != 0 || c.DisplayQuantity != 0 || c.MinimumQuantity != 0 || c.Session != 0)
}

func (c *Command) decodeHead(r *reader) {
	c.Account = r.small()
	c.ReceivedNs = r.varint()
	c.decodeVerdict(r)
	c.ClientOrderID = r.id(false)
}

func (c *Command) decodeVerdict(r *reader) {
	c.Verdict.Reason, c.Verdict.Firm = reasonFrom(r.small())
	c.Verdict.Limit = r.varint()
}

func (c *Command) decodeOfAccount(r *reader) {
	c.Account = r.small()
	c.ReceivedNs = r.varint()
	switch c.Kind { //nolint:exhaustive // Decode sends no other kind here
	case MassCancel:
		c.decodeVerdict(r)
		c.RequestID = r.id(true)
		c.Symbol = r.symbol(true)
		c.Side = matching.Side(r.byte())
	case CancelAllAfter, FireTimer:
		c.TriggerNs = r.varint()
	case Logon:
		c.SessionID = r.id(false)
		c.DisconnectMode = r.byte()
		c.GraceNs = r.varint()
		c.Session = r.small()
	case Logout, ExpireSession:
		c.Session = r.small()
		c.Incarnation = r.word()
	}
}

// reader takes fields off a record; after the first wrong one it gives zeros.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) fail() { r.failed = true; r.rest = nil }

func (r *reader) must(ok bool) {
	if !ok {
		r.fail()
	}
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail()
		return 0
	}
	v := r.rest[0]
	r.rest = r.rest[1:]
	return v
}

func (r *reader) bool() bool {
	v := r.byte()
	r.must(v <= 1)
	return v == 1
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	// The shortest encoding only: a last byte of 0 would be a second encoding of the same number.
	if n <= 0 || n > 1 && r.rest[n-1] == 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// small reads a number that fits 31 bits.
func (r *reader) small() uint32 { return uint32(r.most(math.MaxInt32)) }

// word reads a number that fits 32 bits.
func (r *reader) word() uint32 { return uint32(r.most(math.MaxUint32)) }

func (r *reader) most(most uint64) uint64 {
	v := r.uvarint()
	if v > most {
		r.fail()
		return 0
	}
	return v
}

func (r *reader) bytes(n uint64, most int) []byte {
	if n > uint64(most) || n > uint64(len(r.rest)) {
		r.fail()
		return nil
	}
	v := r.rest[:n]
	r.rest = r.rest[n:]
	return v
}

func (r *reader) text(most int) []byte { return r.bytes(uint64(r.byte()), most) }

func (r *reader) id(mayBeEmpty bool) ID {
	text := r.text(MaxIDBytes)
	if len(text) == 0 && mayBeEmpty {
		return ID{}
	}
	id, ok := ParseID(string(text))
	r.must(ok)
	return id
}

func (r *reader) symbol(mayBeEmpty bool) Symbol {
	text := r.text(MaxSymbolBytes)
	if len(text) == 0 && mayBeEmpty {
		return Symbol{}
	}
	s, ok := ParseSymbol(string(text))
	r.must(ok)
	return s
}

func (r *reader) instrument() *Instrument {
	d := &Instrument{}
	d.Symbol = r.symbol(false)
	d.TickNanos = r.uvarint()
	d.LotSize = r.uvarint()
	d.Currency = string(r.text(3))
	d.State = pb.InstrumentState(r.small())
	d.MinNotional = r.varint()
	d.MaxNotional = r.varint()
	d.ReferencePrice = r.varint()
	return d
}

func (r *reader) scope() Scope {
	firm := r.bool()
	return Scope{Firm: firm, Number: r.small()}
}

func (r *reader) limits() *Limits {
	l := &Limits{}
	l.MaxQuantity = r.uvarint()
	l.MaxNotional = r.varint()
	l.PriceCollarBps = r.word()
	l.MaxOpenOrders = r.word()
	l.MaxOpenNotional = r.varint()
	l.MaxPosition = r.uvarint()
	l.MaxOrderRate = r.word()
	for n := r.most(MaxRestricted); n > 0 && !r.failed; n-- {
		l.Restricted = append(l.Restricted, r.symbol(false))
	}
	r.must(inRisingOrder(l.Restricted))
	return l
}
