package orders

import (
	"encoding/binary"
	"errors"
	"fmt"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// ErrEncoding means that a journal record is not a command of this version. The record's checksum was right, so either
// another version wrote it, or another program.
var ErrEncoding = errors.New("not a command of this version")

// MaxCommandBytes bounds an encoded command.
const MaxCommandBytes = 256

// Append appends the command's encoding to b: the kind, then the fields of that kind in the order below, integers as varints
// (signed ones in zigzag), texts with their length before them. A new field needs a new kind: records are kept for years
// and there is no skipping of what is not known.
func (c *Command) Append(b []byte) []byte {
	b = append(b, byte(c.Kind))
	switch c.Kind {
	case DefineInstrument:
		d := c.Instrument
		b = appendText(b, d.Symbol.Bytes())
		b = binary.AppendUvarint(b, d.TickNanos)
		b = binary.AppendUvarint(b, d.LotSize)
		b = appendText(b, []byte(d.Currency))
		b = binary.AppendUvarint(b, uint64(d.State))
		b = binary.AppendVarint(b, d.MinNotional)
		b = binary.AppendVarint(b, d.MaxNotional)
		b = binary.AppendVarint(b, d.ReferencePrice)
	case DefineAccount:
		b = appendText(b, []byte(c.Name))
	case Submit:
		b = c.appendHead(b)
		b = appendText(b, c.Symbol.Bytes())
		b = append(b, byte(c.Side), byte(c.Type), byte(c.TimeInForce))
		b = binary.AppendUvarint(b, c.Quantity)
		b = binary.AppendVarint(b, c.Price)
		b = binary.AppendVarint(b, c.Verdict.Bound)
	case Replace:
		b = c.appendHead(b)
		b = appendText(b, c.RequestID.Bytes())
		b = binary.AppendUvarint(b, c.Quantity)
		b = binary.AppendVarint(b, c.Price)
	case Cancel:
		b = c.appendHead(b)
		b = appendText(b, c.RequestID.Bytes())
	}
	return b
}

// appendHead appends what all commands of an account have.
func (c *Command) appendHead(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(c.Account))
	b = binary.AppendVarint(b, c.ReceivedNs)
	b = binary.AppendUvarint(b, uint64(c.Verdict.Reason))
	b = binary.AppendVarint(b, c.Verdict.Limit)
	return appendText(b, c.ClientOrderID.Bytes())
}

func appendText(b, text []byte) []byte {
	b = append(b, byte(len(text)))
	return append(b, text...)
}

// Decode reads what Append wrote, replacing the whole command. It accepts exactly one encoding of each command. Errors wrap ErrEncoding.
func (c *Command) Decode(b []byte) error {
	*c = Command{}
	r := reader{rest: b}
	c.Kind = Kind(r.byte())
	switch c.Kind {
	case DefineInstrument:
		d := &Instrument{}
		d.Symbol = r.symbol()
		d.TickNanos = r.uvarint()
		d.LotSize = r.uvarint()
		d.Currency = string(r.text(3))
		d.State = pb.InstrumentState(r.small())
		d.MinNotional = r.varint()
		d.MaxNotional = r.varint()
		d.ReferencePrice = r.varint()
		c.Instrument = d
	case DefineAccount:
		c.Name = string(r.text(MaxIDBytes))
	case Submit:
		c.decodeHead(&r)
		c.Symbol = r.symbol()
		c.Side = matching.Side(r.byte())
		c.Type = matching.OrderType(r.byte())
		c.TimeInForce = matching.TimeInForce(r.byte())
		c.Quantity = r.uvarint()
		c.Price = r.varint()
		c.Verdict.Bound = r.varint()
	case Replace:
		c.decodeHead(&r)
		c.RequestID = r.id(true)
		c.Quantity = r.uvarint()
		c.Price = r.varint()
	case Cancel:
		c.decodeHead(&r)
		c.RequestID = r.id(true)
	default:
		return fmt.Errorf("%w: unknown kind %d", ErrEncoding, c.Kind)
	}
	if r.failed || len(r.rest) > 0 {
		return fmt.Errorf("%w: kind %d, %d bytes, wrong at byte %d", ErrEncoding, c.Kind, len(b), len(b)-len(r.rest))
	}
	return nil
}

func (c *Command) decodeHead(r *reader) {
	c.Account = r.small()
	c.ReceivedNs = r.varint()
	c.Verdict.Reason = pb.Reason(r.small())
	c.Verdict.Limit = r.varint()
	c.ClientOrderID = r.id(false)
}

// reader takes fields off a record; after the first wrong one it gives zeros.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) fail() { r.failed = true; r.rest = nil }

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail()
		return 0
	}
	v := r.rest[0]
	r.rest = r.rest[1:]
	return v
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
func (r *reader) small() uint32 {
	v := r.uvarint()
	if v > 1<<31-1 {
		r.fail()
		return 0
	}
	return uint32(v)
}

func (r *reader) text(most int) []byte {
	n := int(r.byte())
	if n > most || n > len(r.rest) {
		r.fail()
		return nil
	}
	v := r.rest[:n]
	r.rest = r.rest[n:]
	return v
}

func (r *reader) id(mayBeEmpty bool) ID {
	text := r.text(MaxIDBytes)
	if len(text) == 0 && mayBeEmpty {
		return ID{}
	}
	id, ok := ParseID(string(text))
	if !ok {
		r.fail()
	}
	return id
}

func (r *reader) symbol() Symbol {
	s, ok := ParseSymbol(string(r.text(MaxSymbolBytes)))
	if !ok {
		r.fail()
	}
	return s
}
