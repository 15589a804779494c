package matching

// EventKind says what happened.
type EventKind uint8

// The kinds of event. The first event of a command is its one answer: Accepted
// or Rejected for Submit, Canceled or Rejected for Cancel, Replaced or Rejected
// for Replace. Trades, what self-trade prevention cancels and the Canceled
// remainder of an order that may not rest come after it, in the order they happened.
const (
	Accepted EventKind = iota + 1
	Trade
	Canceled
	Replaced
	Rejected
)

// Reason says why something was refused, or canceled without being asked for.
type Reason uint8

// The reasons. All but ReasonNone, ReasonImmediateOrCancel and ReasonSelfTrade
// come with Rejected.
const (
	ReasonNone               Reason = iota
	ReasonImmediateOrCancel         // Canceled: what is left of an order that never rests
	ReasonInvalidCommand            // the command kind is none of ours
	ReasonUnknownInstrument         // no book has this instrument number
	ReasonInvalidSide               // neither Buy nor Sell
	ReasonInvalidOrderType          // neither Limit nor Market
	ReasonInvalidTimeInForce        // none of ours
	ReasonInvalidPrice              // below MinPrice
	ReasonInvalidQuantity           // zero, or the order's total would exceed MaxQuantity
	ReasonDuplicateOrderID          // an order with this id rests
	ReasonUnknownOrder              // no order with this id rests on this instrument
	ReasonAlreadyFilled             // Replace: the new total is at or below what is already filled
	ReasonBookFull                  // Options.MaxOrders or Options.MaxLevels is reached

	ReasonSelfTrade                  // Canceled: by self-trade prevention
	ReasonPostOnlyWouldTake          // a post-only order reaches the other side's best price
	ReasonFillOrKill                 // not all of a fill-or-kill order can trade now
	ReasonMinimumQuantity            // less than the minimum quantity can trade now
	ReasonInvalidSelfTradePrevention // none of ours
	ReasonInvalidDisplayQuantity     // not below the quantity, or below a MaxDisplayParts-th of it
	ReasonInvalidMinimumQuantity     // above the quantity
	ReasonInvalidCombination         // each of the terms is valid, together they contradict; see the package comment
)

// Event is one thing that happened, one cache line long. Events belong to the
// caller, whose slice they were appended to.
//
// The stream alone tells the state of every order. Of an order's quantity Q,
// filled + canceled + leaves = Q at all times:
//
//	Accepted  Quantity = Leaves = the quantity entered
//	Trade     Quantity traded; OrderID is the taker, MakerID the order that
//	          rested; Side is the taker's, Price the maker's; Leaves and
//	          MakerLeaves are what each still has open
//	Canceled  Quantity taken out; Leaves is 0, or with Decrement what is still
//	          open; Side and Price are those of the order, OrderID
//	Replaced  Quantity = the order's new total, filled + Leaves, which becomes Q
//	          (canceled starts again from 0); Leaves = what is open of it before
//	          the trades that follow; Price is the new one
//	Rejected  nothing changed; Side, Price and Quantity repeat the command
//	          (for Replace, Side is the order's where it is known); Leaves is
//	          what a refused Replace leaves open, else 0
//
// A Canceled with ReasonSelfTrade is about one of the two orders that would have
// traded, and MakerID names the one that rested: the event is about the maker
// when OrderID = MakerID, else about the taker. When it strikes both, the maker's
// event comes first.
type Event struct {
	Kind         EventKind
	Reason       Reason
	Side         Side
	LostPriority bool // Replaced: the order went to the back of its queue
	Instrument   uint32

	Sequence    uint64 // of the command that caused it
	OrderID     uint64
	MakerID     uint64 // Trade, and Canceled with ReasonSelfTrade
	Price       int64  // ticks
	Quantity    uint64 // lots
	Leaves      uint64 // lots, of OrderID
	MakerLeaves uint64 // lots, of MakerID; Trade only
}

// String returns the event kind's name, for people to read.
func (k EventKind) String() string {
	switch k {
	case Accepted:
		return "accepted"
	case Trade:
		return "trade"
	case Canceled:
		return "canceled"
	case Replaced:
		return "replaced"
	case Rejected:
		return "rejected"
	}
	return "invalid"
}

// String returns the reason in words, for people to read.
func (r Reason) String() string {
	switch r {
	case ReasonNone:
		return "none"
	case ReasonImmediateOrCancel:
		return "immediate or cancel"
	case ReasonInvalidCommand:
		return "invalid command"
	case ReasonUnknownInstrument:
		return "unknown instrument"
	case ReasonInvalidSide:
		return "invalid side"
	case ReasonInvalidOrderType:
		return "invalid order type"
	case ReasonInvalidTimeInForce:
		return "invalid time in force"
	case ReasonInvalidPrice:
		return "invalid price"
	case ReasonInvalidQuantity:
		return "invalid quantity"
	case ReasonDuplicateOrderID:
		return "duplicate order id"
	case ReasonUnknownOrder:
		return "unknown order"
	case ReasonAlreadyFilled:
		return "already filled"
	case ReasonBookFull:
		return "book full"
	case ReasonSelfTrade:
		return "self-trade"
	case ReasonPostOnlyWouldTake:
		return "post-only would take"
	case ReasonFillOrKill:
		return "fill or kill"
	case ReasonMinimumQuantity:
		return "minimum quantity"
	case ReasonInvalidSelfTradePrevention:
		return "invalid self-trade prevention"
	case ReasonInvalidDisplayQuantity:
		return "invalid display quantity"
	case ReasonInvalidMinimumQuantity:
		return "invalid minimum quantity"
	case ReasonInvalidCombination:
		return "invalid combination"
	}
	return "invalid"
}
