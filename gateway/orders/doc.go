// Package orders is what the gateway knows of its accounts and their orders: a fold over the journal.
//
// A [State] holds instruments, accounts and firms with their limits and exposure, the table of ids with the first answer to each, the
// numbered events of every account, sessions, dead-man timers, and the matching engine's books. It changes in two steps that
// are never mixed:
//
//	Decide  makes every check once, before the command is journaled, and writes its verdict into the command;
//	Apply   carries the decided command out. It checks nothing, so that a replay of the same commands gives the same state
//	        and the same answers, whatever the limits and the sizes of tables are by then.
//
// Everything that changes an outcome is a command: limits, kill switches, logons and their ends, timers that fire, the end of the
// day. The room must never know clocks (time arrives in the command, and whoever calls finds out that a timer is due), files,
// sockets, protobuf messages or connections. It has no lock: its one writer, the sequencer, calls it from one goroutine at a time.
//
// # Checks
//
// An order is refused by the first of these that holds, in each the account's limit before the firm's: kill switch, restricted
// symbol, instrument not open, quantity, price collar, notional, open orders, open notional, position, and then what the book
// says (see matching). Open orders and open notional are asked of orders that may rest, the position of all, as if everything open on the
// order's side were filled. A replace is asked as the order that it would make, with its present part taken out first. A
// cancel is never refused by a limit. The exposure that the checks look at is at all times the sum over open orders and trades; a sum
// that 63 bits would not hold is refused like one above the limit.
//
// # Events
//
// What happens to an account's orders is numbered from 1 in each epoch without a gap, and kept until the end of the day after. The
// answer to an order, replace or cancel is one of these events. Within one command the taker's answer comes first, then in the order
// of the book's events each trade, the taker's side before the maker's, and each cancel. Orders that are canceled or expire together
// come account by account, each account's in the order of entry.
//
// # Days
//
// The end of the day begins a new epoch. DAY orders expire in it. What is good till canceled goes on with its id and
// first answer, and with the requests about it; every other id is free again. Order ids, execution ids and match ids go on.
//
// # Memory
//
// Until the end of the day an order costs 272 bytes of record, a request 216, each with 16 to 32 bytes of index, and an event 96;
// an order that trades once causes two or three events. The records of one more day are kept for those who read its events.
// Options.MaxIDs and Options.MaxEvents bound the numbers: a full table refuses new ids with [ErrIDsFull], a full store new orders
// with [ErrEventsFull] while it still has room for the end of every order that rests, and neither ever forgets. Records hold no
// pointers, so the garbage collector does not look into them, and the chunks of a day that is over are used for the next one.
package orders
