// Package matching is the pure core of Tailgate: a limit order book with
// price-time priority. A [Command] goes in, [Event]s come out, and nothing
// else happens.
//
// # What this room must never know
//
// Clocks, goroutines, locks, I/O, logging, protobuf, floating point, the order
// in which a Go map iterates. Time and sequence arrive in the command. The
// same commands applied to two engines with the same [Options] therefore give
// the same events to the byte, on any machine and on any day; recovery from a
// journal, replicas and tests all rest on that one property.
//
// # What the caller must do
//
// One writer: an [Engine] has no lock, so every call, the reading ones too,
// comes from one goroutine at a time. Journal first: a command is made durable
// before [Engine.Apply] sees it, because an outcome cannot be taken back.
// Business checks first as well (limits, collars, accounts, sessions): the
// engine knows order ids and instrument numbers, not who owns them. The caller
// also chooses the order ids; they should not come from clients unchanged,
// because the id table's hash has no secret.
//
// # Rules
//
// The best price trades first, and at one price the order that has waited
// longest. Trades print at the resting order's price. An order that was only
// partly filled keeps its place. A LIMIT order with time in force DAY or GTC
// rests with what it could not trade; IOC and MARKET never rest, what is left
// of them is canceled. MARKET is IOC bounded by the price in its command, the
// collar that the caller computed.
//
// A replace names the order's new total, which counts what is already filled;
// a total at or below that is refused. When only the quantity goes down (or
// nothing changes) the order keeps its place, otherwise it goes to the back of
// its new queue, and trades first if its new price crosses. With
// Options.ModifyIsCancelNew a replace is a cancel and a new order under the
// same id instead: priority is always lost and the quantity named is the new
// open quantity.
//
// # Memory and bounds
//
// All memory is reserved and touched in [NewEngine]: the orders, the price
// levels, the id table. Nothing grows afterwards, so there is no rehash, no
// copy and no page fault of the engine's own making in the tail. An order that
// would not fit is refused with [ReasonBookFull] before it trades; cancels and
// orders that never rest always have room. Apply allocates only when the
// caller's event slice is too short.
package matching
