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
// partly filled keeps its place.
//
// A LIMIT order with time in force DAY or GTC rests with what it could not trade.
// IOC never rests, what is left of it is canceled. FOK trades all of it at once,
// over as many levels as that takes, or is refused. MARKET is bounded by the price
// in its command, the collar that the caller computed, and never rests: with FOK
// it is all or nothing, with any other time in force it is IOC.
//
// POST_ONLY is refused when its price reaches the other side's best, whoever stands
// there, at entry and by a replace. A minimum quantity is refused when less than
// that would trade at entry; it has no meaning afterwards.
//
// A display quantity makes an iceberg: only the shown part has its place in the
// queue. When that has traded, the next part is shown, at the back of the queue at
// that price; an incoming order that wants more takes these parts in their turn
// before it goes on to the next level. What is hidden can trade, so it counts for
// FOK and minimum quantities, but no depth shows it. As an incoming order an
// iceberg takes with all it has.
//
// A replace names the order's new total, which counts what is already filled;
// a total at or below that is refused. When only the quantity goes down (or
// nothing changes) the order keeps its place, and an iceberg gives up hidden lots
// first; otherwise it goes to the back of its new queue with a full part shown,
// and trades first if its new price crosses. With Options.ModifyIsCancelNew a
// replace is a cancel and a new order under the same id instead: priority is
// always lost and the quantity named is the new open quantity.
//
// # Self-trade prevention
//
// When an incoming order meets one of its own account group, the incoming order's
// word decides (for a replace the word it was entered with): they trade; or what is
// left of the incoming one is canceled; or the resting one, hidden part included;
// or both; or, with Decrement, each loses the smaller of the two open quantities
// (of an iceberg all that is open, hidden lots first), which counts as canceled, so
// that at least one of them is gone. What meets no
// order of its group is not touched, and nothing rests crossed in any case.
//
// FOK and minimum quantities count only what prevention would let the order trade,
// in the order in which it would: with CancelTaker and CancelBoth up to the first
// order of its own group, with CancelMaker everything else, with Decrement what is
// left to trade after each order of its own has taken its share. A FOK therefore
// gets past its own orders with CancelMaker only.
//
// # Combinations of terms
//
// What contradicts itself is refused with [ReasonInvalidCombination]; what is
// merely implied is accepted.
//
//	POST_ONLY with IOC, FOK or MARKET         refused: it could neither take nor rest
//	POST_ONLY with a minimum quantity         refused: it must take and must not
//	display quantity with IOC, FOK or MARKET  refused: nothing of it ever rests
//	minimum quantity with FOK                 FOK, the stronger, decides
//	minimum quantity with IOC or MARKET       the minimum or nothing, then IOC
//	minimum and display quantity              the minimum at entry, then an iceberg
//	POST_ONLY and display quantity            an iceberg that is never the taker
//	POST_ONLY and a prevention                refused by price before prevention has a say
//	MARKET with DAY or GTC                    IOC
//	a prevention with group 0                 nothing to prevent
//
// An order is looked at in this order, and the first reason found is the answer: its
// own terms, its id, room in the book, then what it asks of the other side.
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
