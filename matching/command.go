package matching

import "math"

// Bounds on what a command may carry. A value outside them is refused with a
// reason, never clamped and never wrapped.
const (
	// MaxQuantity is the largest quantity of one order in lots: 2^40-1. With at
	// most [MaxOrdersCeiling] = 2^24 orders resting, the sum of any set of
	// resting orders stays below 2^64, so no level or depth can overflow.
	MaxQuantity uint64 = 1<<40 - 1

	// MinPrice and MaxPrice bound a price in ticks. Negative prices are legal
	// (spreads, energy). MinInt64 is left out so that every price has a negation.
	MinPrice int64 = math.MinInt64 + 1
	MaxPrice int64 = math.MaxInt64
)

// CommandKind says what a command asks for. Zero is refused.
type CommandKind uint8

// The kinds of command.
const (
	Submit  CommandKind = iota + 1 // enter a new order
	Cancel                         // take a resting order out
	Replace                        // change price and quantity of a resting order
)

// Side of the book. Zero is refused. The values are those of FIX tag 54.
type Side uint8

// The sides.
const (
	Buy  Side = 1
	Sell Side = 2
)

// Opposite returns the side that s trades against.
func (s Side) Opposite() Side { return 3 - s }

// OrderType says how the price is meant. Zero is refused.
type OrderType uint8

// The order types.
const (
	// Limit trades at its price or better and may rest.
	Limit OrderType = iota + 1
	// Market is immediate-or-cancel down to Command.Price, the collar, and never
	// rests, whatever its time in force says.
	Market
)

// TimeInForce says how long a limit order lives. Zero is refused.
type TimeInForce uint8

// The times in force.
const (
	Day               TimeInForce = iota + 1 // rests until the end of day
	GoodTillCancel                           // rests until filled or canceled
	ImmediateOrCancel                        // trades what it can now, the rest is canceled
)

// Command is one input of the engine. The caller owns it; the engine reads it
// during Apply and keeps no reference.
//
// Submit uses every field. Cancel uses Kind, Instrument, Sequence and OrderID.
// Replace uses these and Price and Quantity; the order's side and time in force
// stay what they were.
type Command struct {
	Kind        CommandKind
	Side        Side
	Type        OrderType
	TimeInForce TimeInForce
	Instrument  uint32 // a number that AddInstrument was given

	// Sequence is copied into every event that this command causes. The engine
	// reads no meaning into it.
	Sequence uint64

	// OrderID is unique among the orders resting in the engine, over all
	// instruments. It may be used again once its order is gone.
	OrderID uint64

	// Price in ticks, MinPrice to MaxPrice. For Market the worst price to accept.
	Price int64

	// Quantity in lots, 1 to MaxQuantity. For Replace the new total, filled part
	// included (with Options.ModifyIsCancelNew: the new open quantity).
	Quantity uint64
}

// String returns the command kind's name, for people to read.
func (k CommandKind) String() string {
	switch k {
	case Submit:
		return "submit"
	case Cancel:
		return "cancel"
	case Replace:
		return "replace"
	}
	return "invalid"
}

// String returns the side's name, for people to read.
func (s Side) String() string {
	switch s {
	case Buy:
		return "buy"
	case Sell:
		return "sell"
	}
	return "invalid"
}

// String returns the order type's name, for people to read.
func (t OrderType) String() string {
	switch t {
	case Limit:
		return "limit"
	case Market:
		return "market"
	}
	return "invalid"
}

// String returns the time in force's short name, for people to read.
func (t TimeInForce) String() string {
	switch t {
	case Day:
		return "day"
	case GoodTillCancel:
		return "gtc"
	case ImmediateOrCancel:
		return "ioc"
	}
	return "invalid"
}
