package orders

import (
	"encoding/binary"
	"errors"

	pb "tailgate/proto/gen/orderentry/v1"
)

// ErrEncoding means that a journal record is not a command of this version. The record's checksum was right, so either
// another version wrote it, or another program.
var ErrEncoding = errors.New("not a command of this version")

// MaxCommandBytes bounds an encoded command: SetLimits with as many restricted symbols as may be is the longest. An order, a
// replace or a cancel is at most 200 bytes long.
const MaxCommandBytes = 18 << 10

// Longer encodings, of the same kinds: they are written where the shorter one has no place for a field that is not zero.
const (
	longSubmit        Kind = 6
	longDefineAccount Kind = 7
)

// firmBit marks a verdict's reason as the firm's. Reasons are numbers below 1,000.
const firmBit = 1 << 16

// Append appends the command's encoding to b: the kind, then the fields of that kind in the order below, integers as varints
// (signed ones in zigzag), texts with their length before them. A new field needs a new kind: records are kept for years
// and there is no skipping of what is not known.
func (c *Command) Append(b []byte) []byte {
	switch c.Kind {
	case Submit:
		return c.appendSubmit(b)
	case Replace, Cancel:
		b = c.appendHead(append(b, byte(c.Kind)))
		b = appendText(b, c.RequestID.Bytes())
		if c.Kind == Replace {
			b = binary.AppendUvarint(b, c.Quantity)
			b = binary.AppendVarint(b, c.Price)
		}
		return b
	case DefineInstrument:
		return c.Instrument.append(append(b, byte(c.Kind)))
	case DefineAccount:
		if c.Firm == "" && c.Group == "" {
			return appendText(append(b, byte(DefineAccount)), []byte(c.Name))
		}
		b = appendText(append(b, byte(longDefineAccount)), []byte(c.Name))
		b = appendText(b, []byte(c.Firm))
		return appendText(b, []byte(c.Group))
	case DefineFirm:
		return appendText(append(b, byte(c.Kind)), []byte(c.Name))
	case SetLimits:
		b = binary.AppendVarint(append(b, byte(c.Kind)), c.ReceivedNs)
		b = c.Scope.append(b)
		return c.Limits.append(appendBool(b, c.Configured))
	case SetKillSwitch:
		b = binary.AppendVarint(append(b, byte(c.Kind)), c.ReceivedNs)
		b = appendBool(c.Scope.append(b), c.Engaged)
		b = binary.AppendUvarint(b, uint64(len(c.Text)))
		return append(b, c.Text...)
	case EndDay:
		return binary.AppendVarint(append(b, byte(c.Kind)), c.ReceivedNs)
	case MassCancel, CancelAllAfter, FireTimer, Logon, Logout, ExpireSession:
		return c.appendOfAccount(b)
	default:
		return append(b, byte(c.Kind)) // which Decode refuses
	}
}

func (c *Command) appendSubmit(b []byte) []byte {
	long := c.PostOnly || c.SelfTradePrevention != 0 || c.DisplayQuantity != 0 || c.MinimumQuantity != 0 || c.Session != 0
	kind := Submit
	if long {
		kind = longSubmit
	}
	b = c.appendHead(append(b, byte(kind)))
	b = appendText(b, c.Symbol.Bytes())
	b = append(b, byte(c.Side), byte(c.Type), byte(c.TimeInForce))
	b = binary.AppendUvarint(b, c.Quantity)
	b = binary.AppendVarint(b, c.Price)
	b = binary.AppendVarint(b, c.Verdict.Bound)
	if long {
		b = append(appendBool(b, c.PostOnly), byte(c.SelfTradePrevention))
		b = binary.AppendUvarint(b, c.DisplayQuantity)
		b = binary.AppendUvarint(b, c.MinimumQuantity)
		b = binary.AppendUvarint(b, uint64(c.Session))
	}
	return b
}

// appendHead appends what all commands about an order have.
func (c *Command) appendHead(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(c.Account))
	b = binary.AppendVarint(b, c.ReceivedNs)
	b = c.Verdict.append(b)
	return appendText(b, c.ClientOrderID.Bytes())
}

// append leaves out the bound, which only orders have.
func (v *Verdict) append(b []byte) []byte {
	reason := uint64(v.Reason)
	if v.Firm {
		reason |= firmBit
	}
	b = binary.AppendUvarint(b, reason)
	return binary.AppendVarint(b, v.Limit)
}

// appendOfAccount appends commands about an account's orders as a whole, and those about its sessions.
func (c *Command) appendOfAccount(b []byte) []byte {
	b = binary.AppendUvarint(append(b, byte(c.Kind)), uint64(c.Account))
	b = binary.AppendVarint(b, c.ReceivedNs)
	switch c.Kind { //nolint:exhaustive // Append sends no other kind here
	case MassCancel:
		b = c.Verdict.append(b)
		b = appendText(b, c.RequestID.Bytes())
		b = appendText(b, c.Symbol.Bytes())
		b = append(b, byte(c.Side))
	case CancelAllAfter, FireTimer:
		b = binary.AppendVarint(b, c.TriggerNs)
	case Logon:
		b = appendText(b, c.SessionID.Bytes())
		b = append(b, c.DisconnectMode)
		b = binary.AppendVarint(b, c.GraceNs)
		b = binary.AppendUvarint(b, uint64(c.Session))
	case Logout, ExpireSession:
		b = binary.AppendUvarint(b, uint64(c.Session))
		b = binary.AppendUvarint(b, uint64(c.Incarnation))
	}
	return b
}

func (d *Instrument) append(b []byte) []byte {
	b = appendText(b, d.Symbol.Bytes())
	b = binary.AppendUvarint(b, d.TickNanos)
	b = binary.AppendUvarint(b, d.LotSize)
	b = appendText(b, []byte(d.Currency))
	b = binary.AppendUvarint(b, uint64(d.State))
	b = binary.AppendVarint(b, d.MinNotional)
	b = binary.AppendVarint(b, d.MaxNotional)
	return binary.AppendVarint(b, d.ReferencePrice)
}

func (s Scope) append(b []byte) []byte {
	return binary.AppendUvarint(appendBool(b, s.Firm), uint64(s.Number))
}

func (l *Limits) append(b []byte) []byte {
	b = binary.AppendUvarint(b, l.MaxQuantity)
	b = binary.AppendVarint(b, l.MaxNotional)
	b = binary.AppendUvarint(b, uint64(l.PriceCollarBps))
	b = binary.AppendUvarint(b, uint64(l.MaxOpenOrders))
	b = binary.AppendVarint(b, l.MaxOpenNotional)
	b = binary.AppendUvarint(b, l.MaxPosition)
	b = binary.AppendUvarint(b, uint64(l.MaxOrderRate))
	b = binary.AppendUvarint(b, uint64(len(l.Restricted)))
	for i := range l.Restricted {
		b = appendText(b, l.Restricted[i].Bytes())
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendText appends a text of at most 255 bytes.
func appendText(b, text []byte) []byte {
	b = append(b, byte(len(text)))
	return append(b, text...)
}

func reasonFrom(code uint32) (reason pb.Reason, firm bool) {
	return pb.Reason(code &^ firmBit), code&firmBit != 0
}
