package sequencer

import (
	"io"

	"tailgate/transports"
)

// Log is the ordered log of commands that the sequencer needs: a journal on one disk, or a replicated one. What each method
// promises is what a second implementation must keep; nothing else is relied on.
type Log interface {
	// Append puts a record behind the last one and returns its number, one more than the last one's. The sequencer calls it from one
	// goroutine at a time, under its lock, so it must not wait for a disk or a peer; the payload is copied. An error means that the
	// record is not in the log and never will be: no replay and no other copy of the log shows it. A replicated log appends only
	// while it leads its term; an entry that a later leader drops is answered through Commit, with an error.
	Append(timeNs int64, payload []byte) (lsn uint64, err error)
	// AppendBatch is Append for several records, whose numbers follow each other from first. Either all are taken, or none and there is
	// an error. It is no transaction: until a Commit has released them, a crash or a change of leaders may leave the first ones only.
	AppendBatch(timeNs int64, payloads [][]byte) (first uint64, err error)
	// Commit arranges for one call of r.Release(mark, nil) when all that was appended before is as durable as the log promises (on a
	// replicated log: on as many copies as it takes), or with an error when that can no longer be said; then those records may come
	// back or not, and nobody was told that they would. It is called without the sequencer's lock, from many goroutines.
	Commit(r transports.Releaser, mark uint64)
	// Committed is the log sequence number up to which the promise is kept. It never goes back, and no record up to it is ever lost.
	Committed() uint64
	// Err is why the log takes nothing more until the process is started again, or nil. Losing the lead, or the log to a writer with a
	// higher term, is such a reason: the state has applied what the log may drop. What was appended before is still answered through
	// Commit.
	Err() error
	// Term fences writers: it grows with every new writer of the log, records carry it, and a log refuses the appends of a writer whose
	// term has passed. Constant as long as Err is nil.
	Term() uint64
	// Snapshot keeps what write writes as the state after record lsn, whole or not at all, and may then let go of records up to it. lsn is at
	// most the last appended, committed or not: the log commits everything up to it first, and if it cannot, that is an error and write is
	// not called. An error of write ends it at once, is returned, and nothing remains. It may take long, and is called beside Append.
	Snapshot(lsn uint64, write func(w io.Writer) error) error
}
