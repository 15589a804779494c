package matching

import "math"

// Bounds on what a command may carry. A value outside them is refused with a
// reason, never clamped and never wrapped.
const (
	// MaxQuantity is the largest quantity of one order in lots: 2^40-1. With at
	// most [MaxOrdersCeiling] = 2^24 orders resting, the sum of any set of
	// resting orders stays below 2^64, so no level or depth can overflow.
	MaxQuantity uint64 = 1<<40 - 1

	// MaxDisplayParts bounds how many parts an order with a display quantity is
	// shown in, and with it how many trades one resting order can cause in one
	// command: its quantity is at most MaxDisplayParts x DisplayQuantity.
	MaxDisplayParts uint64 = 1000

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
	// Market is bounded by Command.Price, the collar, and never rests: it is
	// fill-or-kill when its time in force says so, else immediate-or-cancel.
	Market
)

// TimeInForce says how long an order lives. Zero is refused.
type TimeInForce uint8

// The times in force.
const (
	Day               TimeInForce = iota + 1 // rests until the end of day
	GoodTillCancel                           // rests until filled or canceled
	ImmediateOrCancel                        // trades what it can now, the rest is canceled
	FillOrKill                               // trades all of it now, or is refused
)

// SelfTradePrevention says what happens when an incoming order meets a resting
// one of its own account group (Command.Group). The incoming order's word counts,
// the resting one's does not. The values are the contract's; zero means
// AllowSelfTrade.
type SelfTradePrevention uint8

// The self-trade preventions.
const (
	AllowSelfTrade SelfTradePrevention = iota + 1 // they trade
	CancelTaker                                   // what is left of the incoming order is canceled
	CancelMaker                                   // the resting order is canceled
	CancelBoth                                    // both are canceled
	Decrement                                     // both shrink by the smaller open quantity, which counts as canceled
)

// Command is one input of the engine. The caller owns it; the engine reads it
// during Apply and keeps no reference.
//
// Submit uses every field. Cancel uses Kind, Instrument, Sequence and OrderID.
// Replace uses these and Price and Quantity; everything else of the order stays
// what it was, but for MinimumQuantity, which is about entry only.
type Command struct {
	Kind        CommandKind
	Side        Side
	Type        OrderType
	TimeInForce TimeInForce

	// PostOnly refuses the order, or its replace, rather than let it trade at once.
	PostOnly            bool
	SelfTradePrevention SelfTradePrevention

	Instrument uint32 // a number that AddInstrument was given

	// Group is the account group for self-trade prevention; 0 = in no group, never
	// prevented.
	Group uint32

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

	// DisplayQuantity is how many lots the order shows at a time once it rests
	// (iceberg), below Quantity and at least Quantity / MaxDisplayParts; 0 = all.
	DisplayQuantity uint64

	// MinimumQuantity is how many lots must trade at entry, at most Quantity; with
	// less the order is refused. 0 = any.
	MinimumQuantity uint64
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
	case FillOrKill:
		return "fok"
	}
	return "invalid"
}

// String returns the prevention's name, for people to read.
func (p SelfTradePrevention) String() string {
	switch p {
	case 0, AllowSelfTrade:
		return "allow-self-trade"
	case CancelTaker:
		return "cancel-taker"
	case CancelMaker:
		return "cancel-maker"
	case CancelBoth:
		return "cancel-both"
	case Decrement:
		return "decrement"
	}
	return "invalid"
}
