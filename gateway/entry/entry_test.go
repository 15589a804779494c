package entry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"tailgate/gateway/orders"
	"tailgate/gateway/sequencer"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// memoryLog is a Log without a disk: committed at once. It keeps the records where a test wants to replay them.
type memoryLog struct {
	lsn     atomic.Uint64
	keep    bool
	records [][]byte // guarded by the sequencer's lock
	fail    atomic.Pointer[error]

	onAppend func() // nil, or called under the sequencer's lock
	onCommit func() // nil, or called before a commit is released
}

func (l *memoryLog) Append(_ int64, payload []byte) (uint64, error) {
	if fail := l.fail.Load(); fail != nil {
		return 0, *fail
	}
	if l.onAppend != nil {
		l.onAppend()
	}
	if l.keep {
		l.records = append(l.records, slices.Clone(payload))
	}
	return l.lsn.Add(1), nil
}
func (l *memoryLog) AppendBatch(int64, [][]byte) (uint64, error) { return 0, errors.ErrUnsupported }
func (l *memoryLog) Commit(r transports.Releaser, mark uint64) {
	if l.onCommit != nil {
		l.onCommit()
	}
	r.Release(mark, nil)
}
func (l *memoryLog) Committed() uint64                              { return l.lsn.Load() }
func (l *memoryLog) Err() error                                     { return nil }
func (l *memoryLog) Term() uint64                                   { return 1 }
func (l *memoryLog) Snapshot(uint64, func(w io.Writer) error) error { return errors.ErrUnsupported }

// refuse makes the log refuse records, nil makes it take them again.
func (l *memoryLog) refuse(err error) {
	if err == nil {
		l.fail.Store(nil)
		return
	}
	l.fail.Store(&err)
}

// newGateway returns a gateway with the instrument ACME and the accounts demo (0), alpha (1) and beta (2).
func newGateway(t testing.TB, keys map[string]Key, ids int) (*Gateway, *memoryLog) {
	t.Helper()
	return configured(t, Config{Keys: hashed(keys)}, ids)
}

func configured(t testing.TB, c Config, ids int) (*Gateway, *memoryLog) {
	t.Helper()
	replica, err := sequencer.NewReplica(orders.Options{MaxIDs: ids, ReserveIDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	log := &memoryLog{keep: ids < 1<<16}
	s := sequencer.New(replica, log)
	acme, _ := orders.ParseSymbol("ACME")
	for _, definition := range []orders.Command{
		{Kind: orders.DefineInstrument, Instrument: &orders.Instrument{
			Symbol: acme, TickNanos: 1, LotSize: 1, Currency: "USD", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN, ReferencePrice: 100,
		}},
		{Kind: orders.DefineFirm, Name: "firm"},
		{Kind: orders.DefineAccount, Name: DemoAccount},
		{Kind: orders.DefineAccount, Name: "alpha", Firm: "firm"},
		{Kind: orders.DefineAccount, Name: "beta"},
	} {
		var out orders.Answer
		if err := s.Execute(&definition, &out); err != nil {
			t.Fatal(err)
		}
	}
	g, err := New(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return g, log
}

// replayed returns a sequencer over what is in another one's log.
func replayed(t testing.TB, log *memoryLog) (*sequencer.Sequencer, *memoryLog) {
	t.Helper()
	replica, err := sequencer.NewReplica(orders.Options{MaxIDs: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	again := &memoryLog{keep: true, records: slices.Clone(log.records)}
	for i, record := range again.records {
		if err := replica.Replay(uint64(i+1), record); err != nil {
			t.Fatal(err)
		}
	}
	again.lsn.Store(uint64(len(again.records)))
	return sequencer.New(replica, again), again
}

// restarted returns a gateway over what is in another one's log, as after a crash. It journals what became of lost sessions.
func restarted(t testing.TB, log *memoryLog, keys map[string]Key) (*Gateway, *memoryLog) {
	t.Helper()
	s, again := replayed(t, log)
	g, err := New(s, Config{Keys: hashed(keys)})
	if err != nil {
		t.Fatal(err)
	}
	return g, again
}

func order(id string) *pb.SubmitOrderRequest {
	return &pb.SubmitOrderRequest{
		ClientOrderId: id, Symbol: "ACME", Side: pb.Side_SIDE_BUY, Type: pb.OrderType_ORDER_TYPE_LIMIT,
		TimeInForce: pb.TimeInForce_TIME_IN_FORCE_DAY, Quantity: 10, Price: 100,
	}
}

// open returns a session of the peer with a key, or of a loopback client where it is empty.
func open(t testing.TB, g *Gateway, key string) *session {
	t.Helper()
	s, err := g.Open(context.Background(), transports.Peer{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return s.(*session)
}

func hashed(keys map[string]Key) map[KeyHash]Key {
	byHash := make(map[KeyHash]Key)
	for key, what := range keys {
		byHash[HashKey(key)] = what
	}
	return byHash
}

func TestJournalThatTakesNothingRefuses(t *testing.T) {
	g, log := newGateway(t, nil, 10)
	session, _ := g.Open(context.Background(), transports.Peer{})
	log.refuse(errors.New("no space in /data"))
	x := transports.Exchange{Operation: transports.SubmitOrder, Request: order("a"), Response: &pb.SubmitOrderResponse{}}
	f := transports.AsFault(session.Handle(context.Background(), &x))
	if f.Reason != pb.Reason_REASON_JOURNAL_UNAVAILABLE || f.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED || f.RetryAfter <= 0 {
		t.Fatalf("got %+v", f)
	}
	log.refuse(nil)
	if err := session.Handle(context.Background(), &x); err != nil {
		t.Fatalf("the refusal used up the id: %v", err)
	}
	if response, _ := x.Response.(*pb.SubmitOrderResponse); response.GetDuplicate() {
		t.Error("the refusal used up the id: duplicate")
	}
}

// TestOneFirstAnswer: many repetitions of one order at once give one first answer and otherwise duplicates of it.
func TestOneFirstAnswer(t *testing.T) {
	g, _ := newGateway(t, nil, 1000)
	var firsts atomic.Int32
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			session, err := g.Open(context.Background(), transports.Peer{})
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 100 {
				response := &pb.SubmitOrderResponse{}
				x := transports.Exchange{Operation: transports.SubmitOrder, Request: order(fmt.Sprint("o", i)), Response: response}
				if err := transports.Do(context.Background(), session, &x); err != nil {
					t.Error(err)
					return
				}
				if !response.GetDuplicate() {
					firsts.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if n := firsts.Load(); n != 100 {
		t.Errorf("%d first answers to 100 ids", n)
	}
}
