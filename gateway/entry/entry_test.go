package entry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"tailgate/gateway/orders"
	"tailgate/gateway/sequencer"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// memoryLog is a Log without a disk: committed at once.
type memoryLog struct {
	records atomic.Uint64
	fail    error
}

func (l *memoryLog) Append(int64, []byte) (uint64, error) {
	if l.fail != nil {
		return 0, l.fail
	}
	return l.records.Add(1), nil
}
func (l *memoryLog) Commit(r transports.Releaser, mark uint64) { r.Release(mark, nil) }
func (l *memoryLog) Committed() uint64                         { return l.records.Load() }
func (l *memoryLog) Err() error                                { return nil }
func (l *memoryLog) Term() uint64                              { return 1 }
func (l *memoryLog) AppendBatch(int64, [][]byte) (uint64, error) {
	return 0, errors.New("not needed")
}
func (l *memoryLog) Snapshot(uint64, func(io.Writer) error) error { return errors.New("not needed") }

// newGateway returns a gateway with the instrument ACME and the accounts demo and alpha (key "alpha-key").
func newGateway(t testing.TB, keys bool, ids int) (*Gateway, *memoryLog) {
	t.Helper()
	replica, err := sequencer.NewReplica(orders.Options{MaxIDs: ids, ReserveIDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	log := &memoryLog{}
	s := sequencer.New(replica, log)
	acme, _ := orders.ParseSymbol("ACME")
	for _, c := range []orders.Command{
		{Kind: orders.DefineInstrument, Instrument: &orders.Instrument{
			Symbol: acme, TickNanos: 1, LotSize: 1, Currency: "USD", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN, ReferencePrice: 100,
		}},
		{Kind: orders.DefineAccount, Name: DemoAccount},
		{Kind: orders.DefineAccount, Name: "alpha"},
	} {
		var out orders.Answer
		if err := s.Execute(&c, &out); err != nil {
			t.Fatal(err)
		}
	}
	var byHash map[KeyHash]Key
	if keys {
		byHash = map[KeyHash]Key{HashKey("alpha-key"): {Name: "alpha", Role: Trade, Account: 1}}
	}
	g, err := New(s, Config{Keys: byHash})
	if err != nil {
		t.Fatal(err)
	}
	return g, log
}

func order(id string) *pb.SubmitOrderRequest {
	return &pb.SubmitOrderRequest{
		ClientOrderId: id, Symbol: "ACME", Side: pb.Side_SIDE_BUY, Type: pb.OrderType_ORDER_TYPE_LIMIT,
		TimeInForce: pb.TimeInForce_TIME_IN_FORCE_DAY, Quantity: 10, Price: 100,
	}
}

func TestWhoIsLetIn(t *testing.T) {
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	loopback6 := &net.TCPAddr{IP: net.IPv6loopback, Port: 1}
	outside := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
	for _, c := range []struct {
		what string
		keys bool
		peer transports.Peer
		in   bool
	}{
		{"no keys, loopback", false, transports.Peer{Remote: loopback}, true},
		{"no keys, loopback over IPv6", false, transports.Peer{Remote: loopback6}, true},
		{"no keys, in memory", false, transports.Peer{}, true},
		{"no keys, from outside", false, transports.Peer{Remote: outside}, false},
		{"no keys, loopback with a key", false, transports.Peer{Remote: loopback, Key: "alpha-key"}, false},
		{"keys, none sent", true, transports.Peer{Remote: loopback}, false},
		{"keys, a wrong one", true, transports.Peer{Remote: loopback, Key: "alpha-kex"}, false},
		{"keys, the right one from outside", true, transports.Peer{Remote: outside, Key: "alpha-key"}, true},
	} {
		g, _ := newGateway(t, c.keys, 10)
		_, err := g.Open(context.Background(), c.peer)
		if (err == nil) != c.in {
			t.Errorf("%s: %v", c.what, err)
		}
		if err != nil && transports.AsFault(err).Reason != pb.Reason_REASON_UNAUTHENTICATED {
			t.Errorf("%s: %v, want UNAUTHENTICATED", c.what, err)
		}
	}
}

func TestAnybodyIsLetInWhereThatIsSaid(t *testing.T) {
	g, _ := newGateway(t, false, 10)
	g, err := New(g.sequencer, Config{Anybody: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Open(context.Background(), transports.Peer{Remote: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}}); err != nil {
		t.Error(err)
	}
}

func TestKeyHashRoundTrip(t *testing.T) {
	h := HashKey("secret")
	back, err := ParseKeyHash(h.String())
	if err != nil || back != h {
		t.Errorf("%v, %v", back, err)
	}
	for _, wrong := range []string{"", "abc", h.String() + "0", "zz" + h.String()[2:]} {
		if _, err := ParseKeyHash(wrong); err == nil {
			t.Errorf("%q was read as a hash", wrong)
		}
	}
}

func TestJournalThatTakesNothingRefuses(t *testing.T) {
	g, log := newGateway(t, false, 10)
	session, _ := g.Open(context.Background(), transports.Peer{})
	log.fail = errors.New("no space in /data")
	x := transports.Exchange{Operation: transports.SubmitOrder, Request: order("a"), Response: &pb.SubmitOrderResponse{}}
	f := transports.AsFault(session.Handle(context.Background(), &x))
	if f.Reason != pb.Reason_REASON_JOURNAL_UNAVAILABLE || f.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED || f.RetryAfter <= 0 {
		t.Fatalf("got %+v", f)
	}
	log.fail = nil
	if err := session.Handle(context.Background(), &x); err != nil {
		t.Fatalf("the refusal used up the id: %v", err)
	}
	if response, _ := x.Response.(*pb.SubmitOrderResponse); response.GetDuplicate() {
		t.Error("the refusal used up the id: duplicate")
	}
}

// TestOneFirstAnswer: many repetitions of one order at once give one first answer and otherwise duplicates of it.
func TestOneFirstAnswer(t *testing.T) {
	g, _ := newGateway(t, false, 1000)
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

// BenchmarkHandle is the order path behind a transport, without a journal: checks, ids, limits, encoding, match, answer.
func BenchmarkHandle(b *testing.B) {
	const n = 1 << 20
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("bench-%06x", i)
	}
	request := order("")
	request.ClientTag = make([]byte, 64-proto.Size(order(ids[0]))-2)
	response := &pb.SubmitOrderResponse{}
	x := transports.Exchange{Operation: transports.SubmitOrder, Request: request, Response: response}
	var session transports.Session
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%n == 0 {
			b.StopTimer()
			g, _ := newGateway(b, false, n)
			session, _ = g.Open(context.Background(), transports.Peer{})
			b.StartTimer()
		}
		request.ClientOrderId = ids[i%n]
		request.Side = pb.Side(matching.Buy) + pb.Side(i&1)
		x.ReceivedNs = transports.Now()
		if err := session.Handle(context.Background(), &x); err != nil || response.GetDuplicate() {
			b.Fatalf("order %d: %v, duplicate %v", i, err, response.GetDuplicate())
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}
