package sequencer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// fakeLog keeps records in memory and can be told to refuse.
type fakeLog struct {
	records [][]byte
	refuse  error
	failed  error // for good
	held    bool  // nothing is released

	onAppend    func() // between Decide and Apply
	snapshot    bytes.Buffer
	snapshotLSN uint64
}

func (l *fakeLog) Append(_ int64, payload []byte) (uint64, error) {
	if l.refuse != nil {
		return 0, l.refuse
	}
	l.records = append(l.records, slices.Clone(payload))
	if l.onAppend != nil {
		l.onAppend()
	}
	return uint64(len(l.records)), nil
}
func (l *fakeLog) Commit(r transports.Releaser, mark uint64) {
	if !l.held {
		r.Release(mark, l.failed)
	}
}
func (l *fakeLog) Committed() uint64 { return uint64(len(l.records)) }
func (l *fakeLog) Err() error        { return l.failed }

func (l *fakeLog) AppendBatch(timeNs int64, payloads [][]byte) (first uint64, err error) {
	first = uint64(len(l.records)) + 1
	for _, payload := range payloads {
		if _, err := l.Append(timeNs, payload); err != nil {
			return 0, err
		}
	}
	return first, nil
}
func (l *fakeLog) Term() uint64 { return 1 }
func (l *fakeLog) Snapshot(lsn uint64, write func(io.Writer) error) error {
	l.snapshotLSN = lsn
	l.snapshot.Reset()
	return write(&l.snapshot)
}

func newReplica(t *testing.T, options orders.Options) *Replica {
	t.Helper()
	r, err := NewReplica(options)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// started returns a sequencer with the instrument ACME and the account demo.
func started(t *testing.T, options orders.Options) (*Sequencer, *fakeLog) {
	t.Helper()
	log := &fakeLog{}
	s := New(newReplica(t, options), log)
	symbol, _ := orders.ParseSymbol("ACME")
	for _, c := range []orders.Command{
		{Kind: orders.DefineInstrument, Instrument: &orders.Instrument{
			Symbol: symbol, TickNanos: 1, LotSize: 1, Currency: "USD", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN,
		}},
		{Kind: orders.DefineAccount, Name: "demo"},
	} {
		if err := s.Execute(&c, &orders.Answer{}); err != nil {
			t.Fatal(err)
		}
	}
	return s, log
}

func order(n int, side matching.Side) *orders.Command {
	c := &orders.Command{Kind: orders.Submit, Side: side, Type: matching.Limit, TimeInForce: matching.Day, Quantity: 1, Price: 100}
	c.ClientOrderID, _ = orders.ParseID(fmt.Sprint("o-", n))
	c.Symbol, _ = orders.ParseSymbol("ACME")
	return c
}

// TestLogOrderIsStateOrder: whatever many goroutines do at once, a replay of the log alone gives the same book.
func TestLogOrderIsStateOrder(t *testing.T) {
	s, log := started(t, orders.Options{MaxIDs: 10_000})
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 200 {
				if err := s.Execute(order(g*200+i, matching.Side(1+(g+i)%2)), &orders.Answer{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	replica := newReplica(t, orders.Options{MaxIDs: 10_000})
	for i, record := range log.records {
		if err := replica.Replay(uint64(i+1), record); err != nil {
			t.Fatal(err)
		}
	}
	again := New(replica, log)
	symbol, _ := orders.ParseSymbol("ACME")
	show := func(s *Sequencer) (text string) {
		s.Read(func(state *orders.State, last uint64) {
			page, _, _ := state.List(0, false, 0, 2000, nil)
			bids, asks, price, _ := state.Book(symbol, 100, nil, nil)
			text = fmt.Sprint(last, page, bids, asks, price)
		})
		return text
	}
	if was, is := show(s), show(again); was != is {
		t.Errorf("replay gives\n%s\nwas\n%s", is, was)
	}
}

func TestRefusedAppendChangesNothing(t *testing.T) {
	s, log := started(t, orders.Options{MaxIDs: 10})
	log.refuse = errors.New("disk full at /x")
	f := transports.AsFault(s.Execute(order(1, matching.Buy), &orders.Answer{}))
	if f.Reason != pb.Reason_REASON_JOURNAL_UNAVAILABLE || f.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED {
		t.Errorf("got %v (%s)", f, f.Outcome)
	}
	if f.RetryAfter <= 0 || strings.Contains(f.Message, "/x") {
		t.Errorf("retry after %v, %q: wanted are a time, and no path of the server's", f.RetryAfter, f.Message)
	}
	log.failed = log.refuse
	if f = transports.AsFault(s.Execute(order(1, matching.Buy), &orders.Answer{})); f.RetryAfter != 0 || !strings.Contains(f.Message, "restarted") {
		t.Errorf("after a failure for good: retry after %v, %q", f.RetryAfter, f.Message)
	}
	log.refuse, log.failed = nil, nil
	var answer orders.Answer
	if err := s.Execute(order(1, matching.Buy), &answer); err != nil || answer.Duplicate {
		t.Errorf("the same id afterwards: %v, %+v", err, answer)
	}
}

func TestFullTableIsAFault(t *testing.T) {
	s, _ := started(t, orders.Options{MaxIDs: 1})
	if err := s.Execute(order(1, matching.Buy), &orders.Answer{}); err != nil {
		t.Fatal(err)
	}
	f := transports.AsFault(s.Execute(order(2, matching.Buy), &orders.Answer{}))
	if f.Reason != pb.Reason_REASON_ID_TABLE_FULL || f.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED {
		t.Errorf("got %v (%s)", f, f.Outcome)
	}
}

// TestHalfAppliedCommandStopsForGood: somebody else changes the state between Decide and Apply, which nobody can; it makes Apply fail behind
// the append.
func TestHalfAppliedCommandStopsForGood(t *testing.T) {
	s, log := started(t, orders.Options{MaxIDs: 1})
	log.onAppend = func() {
		intruder := order(77, matching.Buy)
		if journal, err := s.state.Decide(intruder, &orders.Answer{}); err != nil || !journal {
			t.Error(journal, err)
		}
		if err := s.state.Apply(intruder, nil); err != nil {
			t.Error(err)
		}
	}
	for _, step := range []struct {
		command *orders.Command
		outcome pb.Outcome
	}{
		{order(0, matching.Buy), pb.Outcome_OUTCOME_UNKNOWN},
		{order(1, matching.Buy), pb.Outcome_OUTCOME_NOT_PROCESSED},
	} {
		f := transports.AsFault(s.Execute(step.command, &orders.Answer{}))
		if f.Reason != pb.Reason_REASON_INTERNAL || f.Outcome != step.outcome || !errors.Is(f, orders.ErrReplay) {
			t.Errorf("got %v (%s), want %s", f, f.Outcome, step.outcome)
		}
	}
	if err := s.Err(); !errors.Is(err, orders.ErrReplay) {
		t.Errorf("Err is %v", err)
	}
	if err := s.Snapshot(); !errors.Is(err, orders.ErrReplay) || log.snapshotLSN != 0 {
		t.Errorf("a state that no replay gives was written as a snapshot (%v)", err)
	}
}

// TestDefinitionWithoutRoomLeavesNoRecord: what Apply could not carry out must not reach the log, or no start would ever get past it.
func TestDefinitionWithoutRoomLeavesNoRecord(t *testing.T) {
	s, log := started(t, orders.Options{MaxIDs: 10})
	define := func(n int) error {
		symbol, _ := orders.ParseSymbol(fmt.Sprint("S", n))
		return s.Execute(&orders.Command{Kind: orders.DefineInstrument, Instrument: &orders.Instrument{Symbol: symbol, TickNanos: 1, LotSize: 1, Currency: "USD"}}, &orders.Answer{})
	}
	for n := range orders.MaxInstruments - 1 { // ACME is the first
		if err := define(n); err != nil {
			t.Fatal(err)
		}
	}
	before := len(log.records)
	if err := define(orders.MaxInstruments); !errors.Is(err, orders.ErrDefinition) {
		t.Errorf("one instrument too many: %v", err)
	}
	if err := s.Execute(&orders.Command{Kind: orders.DefineAccount, Name: "demo"}, &orders.Answer{}); !errors.Is(err, orders.ErrDefinition) {
		t.Errorf("the same account twice: %v", err)
	}
	if len(log.records) != before {
		t.Errorf("%d records were left behind", len(log.records)-before)
	}
	if err := s.Execute(order(1, matching.Buy), &orders.Answer{}); err != nil {
		t.Errorf("an order afterwards: %v", err)
	}
}

func TestReplayNamesTheRecord(t *testing.T) {
	r := newReplica(t, orders.Options{MaxIDs: 10})
	if err := r.Replay(1, []byte{99}); !errors.Is(err, orders.ErrEncoding) || !strings.HasPrefix(err.Error(), "log sequence number 1: not") {
		t.Errorf("got %v", err)
	}
	if err := r.Replay(2, nil); err == nil || r.Last() != 0 {
		t.Errorf("a record was left out: %v, last is %d", err, r.Last())
	}
}

func TestWaitTellsWhatIsKnown(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		log  *fakeLog
		want pb.Reason // UNSPECIFIED = no error
	}{
		"committed":         {context.Background(), &fakeLog{}, 0},
		"the log failed":    {context.Background(), &fakeLog{failed: errors.New("disk")}, pb.Reason_REASON_JOURNAL_UNAVAILABLE},
		"the context ended": {over, &fakeLog{held: true}, pb.Reason_REASON_DEADLINE_EXCEEDED},
	} {
		err := New(newReplica(t, orders.Options{MaxOpenOrders: 10, MaxLevels: 10}), c.log).Wait(c.ctx)
		if (err == nil) != (c.want == 0) {
			t.Errorf("%s: %v", name, err)
		}
		if fault, ok := errors.AsType[*transports.Fault](err); ok && (fault.Reason != c.want || fault.Outcome != pb.Outcome_OUTCOME_UNKNOWN) {
			t.Errorf("%s: %v, %v; want %v, UNKNOWN", name, fault.Reason, fault.Outcome, c.want)
		}
	}
}
