package server

import (
	"tailgate/gateway/journal"
	"tailgate/transports"
)

// journalLog makes a journal the sequencer's Log: the two packages do not know each other.
type journalLog struct{ *journal.Journal }

// Commit implements sequencer.Log.
func (l journalLog) Commit(r transports.Releaser, mark uint64) { l.Journal.Commit(r, mark) }
