package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// source is a Source with a log that a test can hold up: a state behind a lock, as the sequencer is.
type source struct {
	mu      sync.Mutex
	state   *orders.State
	feed    *Feed
	last    uint64
	entered int // orders so far

	logMu     sync.Mutex
	held      bool
	failed    error
	committed uint64
	appended  uint64
	waiting   []func()
}

// newSource returns a source with the instrument ACME, the accounts demo (0) and alpha (1), and a feed over it.
func newSource(t testing.TB, options Options) *source {
	t.Helper()
	state, err := orders.New(orders.Options{MaxIDs: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s := &source{state: state}
	s.feed = New(s, options)
	acme, _ := orders.ParseSymbol("ACME")
	s.apply(&orders.Command{Kind: orders.DefineInstrument, Instrument: &orders.Instrument{
		Symbol: acme, TickNanos: 1, LotSize: 1, Currency: "USD", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN,
	}})
	s.apply(&orders.Command{Kind: orders.DefineAccount, Name: "demo"})
	s.apply(&orders.Command{Kind: orders.DefineAccount, Name: "alpha"})
	return s
}

// apply is what the sequencer does with a command.
func (s *source) apply(c *orders.Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var answer orders.Answer
	if journal, err := s.state.Decide(c, &answer); err != nil || !journal {
		panic(fmt.Sprint(journal, err))
	}
	s.logMu.Lock()
	s.appended++
	if !s.held {
		s.committed = s.appended
	}
	s.logMu.Unlock()
	if err := s.state.Apply(c, &answer); err != nil {
		panic(err)
	}
	s.last++
	s.feed.Touched(s.state.Touched())
	if c.Kind == orders.EndDay {
		s.feed.DayEnded(s.state)
	}
}

// enter enters n orders of an account, each one event.
func (s *source) enter(account uint32, n int) {
	for range n {
		c := &orders.Command{
			Kind: orders.Submit, Account: account, Side: matching.Buy, Type: matching.Limit, TimeInForce: matching.Day, Quantity: 1, Price: 100,
		}
		s.entered++
		c.ReceivedNs = int64(s.entered)
		c.ClientOrderID, _ = orders.ParseID(fmt.Sprint("o-", s.entered))
		c.Symbol, _ = orders.ParseSymbol("ACME")
		s.apply(c)
	}
}

func (s *source) endDay() { s.apply(&orders.Command{Kind: orders.EndDay}) }

// hold keeps everything from being committed until release.
func (s *source) hold() {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	s.held = true
}

// release commits everything, or fails for good.
func (s *source) release(err error) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	s.held, s.failed = false, err
	if err == nil {
		s.committed = s.appended
	}
	for _, release := range s.waiting {
		release()
	}
	s.waiting = nil
}

func (s *source) Read(read func(state *orders.State, last uint64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read(s.state, s.last)
}

func (s *source) Committed() uint64 {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	return s.committed
}

func (s *source) Commit(r transports.Releaser, mark uint64) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	if s.held {
		s.waiting = append(s.waiting, func() { r.Release(mark, s.failed) })
		return
	}
	r.Release(mark, s.failed)
}

// all returns every event of an account in an epoch as protobuf encodes it.
func (s *source) all(account, epoch uint32) (list [][]byte) {
	s.Read(func(state *orders.State, _ uint64) {
		for _, r := range state.Events(account, epoch, 1, 1<<30, nil) {
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(message(&r, state.AccountName(account)))
			if err != nil {
				panic(err)
			}
			list = append(list, b)
		}
	})
	return list
}

// take reads n events, which must be there already, and returns copies.
func take(t *testing.T, r *Reader, n int) (list []transports.Event) {
	t.Helper()
	for len(list) < n {
		batch, err := r.Next(context.Background())
		if err != nil {
			t.Fatalf("after %d events: %v", len(list), err)
		}
		for _, e := range batch {
			e.Report = append([]byte(nil), e.Report...)
			list = append(list, e)
		}
	}
	if len(list) != n {
		t.Fatalf("%d events came, want %d", len(list), n)
	}
	return list
}

func openAt(t *testing.T, f *Feed, account, epoch uint32, from uint64) *Reader {
	t.Helper()
	r, err := f.OpenStream(new(Owner), account, epoch, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// quiet reports that nothing comes without waiting for it: the context has ended before.
func quiet(t *testing.T, r *Reader) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if events, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%d events and %v, want none", len(events), err)
	}
}
