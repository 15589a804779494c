package orders

import (
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Kind says what a command asks for. The numbers stand in journals and never change. Numbers 6 and 7 are longer encodings of
// Submit and DefineAccount; see Append.
type Kind uint8

// The kinds of command.
const (
	DefineInstrument Kind = 1  // Instrument
	DefineAccount    Kind = 2  // Name, Firm, Group; of a known account it changes firm and group
	Submit           Kind = 3  // an order
	Replace          Kind = 4  // another price and quantity for an order
	Cancel           Kind = 5  // what is open of an order
	DefineFirm       Kind = 8  // Name
	SetLimits        Kind = 9  // Scope, Limits, Configured
	SetKillSwitch    Kind = 10 // Scope, Engaged, Text
	MassCancel       Kind = 11 // RequestID, Symbol (zero = all), Side (zero = both)
	CancelAllAfter   Kind = 12 // TriggerNs: arms the account's dead-man timer, 0 disarms it
	FireTimer        Kind = 13 // TriggerNs: the dead-man timer that was armed for then has fired
	Logon            Kind = 14 // SessionID, DisconnectMode, GraceNs
	Logout           Kind = 15 // Session, Incarnation
	ExpireSession    Kind = 16 // Session, Incarnation: its connection is lost and its grace time has passed
	EndDay           Kind = 17
)

// Command is one input of the state. The caller owns it and what it points to, and may reuse both after Apply. Which fields count
// depends on the kind, all others are zero; Decide fills the verdict. What a new order has stands first, in three cache lines.
type Command struct {
	Kind       Kind
	Account    uint32 // number of the account; not for definitions, limits, kill switches and the end of the day
	ReceivedNs int64  // gateway clock, nanoseconds since 1970; not journaled with definitions

	ClientOrderID       ID     // Submit, Replace, Cancel: the order
	Symbol              Symbol // Submit, MassCancel
	Side                matching.Side
	Type                matching.OrderType
	TimeInForce         matching.TimeInForce
	SelfTradePrevention matching.SelfTradePrevention // zero and AllowSelfTrade are the same
	PostOnly            bool
	Session             uint32 // number plus one of the session, 0 = entered without one; also Logout and ExpireSession, and Logon, where Decide fills it in
	Quantity            uint64 // lots; Replace: the new total
	Price               int64  // ticks; 0 for a market order
	DisplayQuantity     uint64 // lots
	MinimumQuantity     uint64 // lots

	Verdict Verdict

	RequestID ID // Replace, Cancel, MassCancel: the request, zero = not remembered

	SessionID      ID     // Logon
	DisconnectMode uint8  // Logon: number of proto orderentry.v1.DisconnectMode
	Incarnation    uint32 // Logout, ExpireSession: which logon of the session is meant
	GraceNs        int64  // Logon: how long a lost connection may take to return, in nanoseconds
	TriggerNs      int64  // CancelAllAfter, FireTimer: nanoseconds since 1970

	Scope      Scope   // SetLimits, SetKillSwitch
	Limits     *Limits // SetLimits only
	Configured bool    // SetLimits: they come from the configuration
	Engaged    bool    // SetKillSwitch
	Text       string  // SetKillSwitch: why, at most MaxTextBytes; for those who read the journal

	Instrument *Instrument // DefineInstrument only
	Name       string      // DefineAccount, DefineFirm: 1 to 32 bytes
	Firm       string      // DefineAccount: name of a defined firm, empty = none
	Group      string      // DefineAccount: account group for self-trade prevention, at most 32 bytes, empty = none
}

// MaxTextBytes bounds Command.Text.
const MaxTextBytes = 256

// Verdict is what Decide found. It is journaled with the command, so that no check is ever made twice.
type Verdict struct {
	Reason pb.Reason // why it is refused; UNSPECIFIED = carry it out
	Limit  int64     // the figure that refused it, for the answer's text: lots, ticks, ticks x lots, or orders
	Bound  int64     // market orders: the worst price to accept, in ticks
	Firm   bool      // the limit or kill switch that refused it is the firm's
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
