package orders

import (
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Kind says what a command asks for. The numbers stand in journals and never change.
type Kind uint8

// The kinds of command.
const (
	DefineInstrument Kind = 1
	DefineAccount    Kind = 2
	Submit           Kind = 3
	Replace          Kind = 4
	Cancel           Kind = 5
)

// Command is one input of the state. The caller owns it and may reuse it after Apply. Which fields count depends on the
// kind; Decide fills the verdict.
type Command struct {
	Kind       Kind
	Account    uint32 // number of the account
	ReceivedNs int64  // gateway clock, nanoseconds since 1970

	ClientOrderID ID // Submit, Replace, Cancel: the order
	RequestID     ID // Replace, Cancel: the request, zero = not remembered

	Symbol      Symbol // Submit, DefineInstrument
	Side        matching.Side
	Type        matching.OrderType
	TimeInForce matching.TimeInForce
	Quantity    uint64 // lots; Replace: the new total
	Price       int64  // ticks; 0 for a market order

	Instrument *Instrument // DefineInstrument only
	Name       string      // DefineAccount only, 1 to 32 bytes

	Verdict Verdict
}

// Verdict is what Decide found. It is journaled with the command, so that no check is ever made twice.
type Verdict struct {
	Reason pb.Reason // why it is refused; UNSPECIFIED = carry it out
	Limit  int64     // the figure that refused it, for the answer's text: lots, ticks, or ticks x lots
	Bound  int64     // market orders: the worst price to accept, in ticks
}

// Instrument is a definition of an instrument. Bounds and units are those of proto orderentry.v1.Instrument.
type Instrument struct {
	Symbol         Symbol
	TickNanos      uint64
	LotSize        uint64
	Currency       string // three letters
	State          pb.InstrumentState
	Version        uint32 // given by Apply
	MinNotional    int64
	MaxNotional    int64
	ReferencePrice int64
}

// Limits are the pre-trade limits. They are checked by Decide alone.
type Limits struct {
	MaxQuantity    uint64 // lots of one order; 0 = matching.MaxQuantity
	MaxNotional    int64  // ticks x lots of one order; 0 = math.MaxInt64
	PriceCollarBps uint32 // distance from the last trade or reference price, in 1/10,000 of it; 0 = no collar
}
