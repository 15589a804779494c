// Package workload makes the orders of a load test: a seeded, stationary flow over many clients, and messages of an exact size.
//
// # Why the book stays bounded
//
// Every limit order of the flow that may rest crosses every one of the other side: buys are priced at or above the reference price, sells
// at or below it. So at any moment one side of a book is empty, and what rests is the surplus of one side. Each client draws its resting
// orders in blocks of [BlockOrders]: half buys, half sells, the same quantities on both sides, in random order, so a client's surplus
// is zero after every block and never above half a block: BlockOrders/2 x (least quantity + QuantitySpread - 1) lots, which is 40 where one lot
// may be traded. Immediate-or-cancel orders, cancels and replaces that only shrink or reprice remove lots from the side that rests and
// never add any: they move the surplus towards zero. The surplus of a book is therefore bounded by the range of the drawn sum, twice that
// a client, however long the run; requests that are lost can add their own lots, and nothing else can.
//
// The package knows messages and nothing of their way: no transport, no clock, no connection.
package workload
