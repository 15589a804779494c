package sequencer

import (
	"errors"
	"strings"
	"testing"

	"tailgate/gateway/journal"
	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// journalLog makes a journal a Log, as gateway/server does.
type journalLog struct{ *journal.Journal }

func (l journalLog) Commit(r transports.Releaser, mark uint64) { l.Journal.Commit(r, mark) }

var _ Log = journalLog{}

// onJournal returns a sequencer with the instrument ACME on an empty journal, and one order in it that is not committed. The journal
// is closed when the test ends.
func onJournal(t *testing.T, mode journal.SyncMode) (*Sequencer, *journal.Journal) {
	t.Helper()
	j, _, err := journal.Open(journal.Options{Dir: t.TempDir(), Sync: mode, SegmentBytes: journal.MinSegmentBytes}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	s := New(newReplica(t, orders.Options{MaxIDs: 10}), journalLog{j})
	symbol, _ := orders.ParseSymbol("ACME")
	for _, c := range []*orders.Command{
		{Kind: orders.DefineInstrument, Instrument: &orders.Instrument{
			Symbol: symbol, TickNanos: 1, LotSize: 1, Currency: "USD", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN,
		}},
		{Kind: orders.DefineAccount, Name: "demo"},
		order(1, matching.Buy),
	} {
		if err := s.Execute(c, &orders.Answer{}); err != nil {
			t.Fatal(err)
		}
	}
	return s, j
}

type releases chan error

func (r releases) Release(_ uint64, err error) { r <- err }

var journalModes = []journal.SyncMode{journal.SyncOff, journal.SyncOS, journal.SyncAlways}

// TestFencedJournalIsForGood: whoever has lost the log to a writer with a higher term must not tell its clients to try again, and what
// it had taken before is still answered.
func TestFencedJournalIsForGood(t *testing.T) {
	for _, mode := range journalModes {
		s, j := onJournal(t, mode)
		if err := j.Fence(7); err != nil {
			t.Fatal(err)
		}
		f := transports.AsFault(s.Execute(order(2, matching.Buy), &orders.Answer{}))
		if f.Reason != pb.Reason_REASON_JOURNAL_UNAVAILABLE || f.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED || !errors.Is(f, journal.ErrTerm) {
			t.Errorf("%v: got %v (%s)", mode, f, f.Outcome)
		}
		if f.RetryAfter != 0 || strings.Contains(f.Message, "try again") {
			t.Errorf("%v: retry after %v, %q; no time makes it pass", mode, f.RetryAfter, f.Message)
		}
		if err := s.Err(); !errors.Is(err, journal.ErrTerm) {
			t.Errorf("%v: Err is %v", mode, err)
		}
		if err := s.Snapshot(); !errors.Is(err, journal.ErrTerm) {
			t.Errorf("%v: snapshot: %v", mode, err)
		}
		released := make(releases, 1)
		s.Commit(released, 0)
		if err := <-released; err != nil || s.Committed() != 3 {
			t.Errorf("%v: what was taken before: %v, committed up to %d", mode, err, s.Committed())
		}
	}
}

// TestSnapshotCommitsFirst: the state has applied what nobody has committed; its snapshot commits it, and another one is refused.
func TestSnapshotCommitsFirst(t *testing.T) {
	for _, mode := range journalModes {
		s, j := onJournal(t, mode)
		if mode != journal.SyncOff && s.Committed() == 3 { // there appended is committed
			t.Fatalf("%v: the order is committed already", mode)
		}
		if err := j.Snapshot(4, s.state.WriteSnapshot); err == nil {
			t.Errorf("%v: a snapshot of what was never appended", mode)
		}
		if err := s.Snapshot(); err != nil || s.Committed() != 3 || j.Stats().DurableLSN < 3 || j.Stats().SnapshotLSN != 3 {
			t.Errorf("%v: %v, committed up to %d, %+v", mode, err, s.Committed(), j.Stats())
		}
	}
}
