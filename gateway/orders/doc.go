// Package orders is what the gateway knows of its accounts' orders: a fold over the journal.
//
// A [State] holds instruments, accounts, the table of ids with the first answer to each, and the matching engine's books. It
// changes in two steps that are never mixed:
//
//	Decide  makes every check once, before the command is journaled, and writes its verdict into the command;
//	Apply   carries the decided command out. It checks nothing, so that a replay of the same commands gives the same state
//	        and the same answers, whatever the limits are by then.
//
// The room must never know clocks (time arrives in the command), files, sockets, protobuf messages or sessions. It has no
// lock: its one writer, the sequencer, calls it from one goroutine at a time.
//
// # Memory
//
// An id costs 16 to 32 bytes of index and about 250 bytes of record until the end of the day. Options.MaxIDs bounds their
// number; a full table refuses new ids with [ErrIDsFull] and never forgets one. Records hold no pointers, so the garbage
// collector does not look into them.
package orders
