package server

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"tailgate/gateway/journal/journaltest"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// acks are the answers that clients have, by request id.
type acks struct {
	mu       sync.Mutex
	requests map[string]*transports.Exchange // request and first answer
}

func (a *acks) add(id string, x *transports.Exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests[id] = x
}

// copy returns what is there at this moment.
func (a *acks) copy() map[string]*transports.Exchange {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.requests)
}

// trade sends orders, cancels and replaces, each with an id of its own, until ctx ends or an answer does not come.
func (a *acks) trade(ctx context.Context, session transports.Session, name string, random *rand.Rand) {
	last := ""
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("%s-%d", name, i)
		x := &transports.Exchange{Operation: transports.SubmitOrder, ReceivedNs: transports.Now()}
		switch choice := random.IntN(10); {
		case choice == 0 && last != "":
			x.Operation, x.Request = transports.CancelOrder, &pb.CancelOrderRequest{RequestId: id, ClientOrderId: last}
		case choice == 1 && last != "":
			x.Operation = transports.ReplaceOrder
			x.Request = &pb.ReplaceOrderRequest{RequestId: id, ClientOrderId: last, Quantity: 1 + random.Uint64N(5), Price: 10_000 + random.Int64N(5)}
		default:
			x.Request, last = limitOrder(id, pb.Side(1+random.IntN(2)), 1+random.Uint64N(5), 10_000+random.Int64N(5)), id
		}
		x.Response = x.Operation.NewResponse()
		if transports.Do(ctx, session, x) != nil {
			return
		}
		a.add(id, x)
	}
}

// TestPowerCutLosesNothingThatWasAcked is the model of a power cut under the whole order path with sync: always. At a random call of the
// disk the power goes: what was written since the last sync is there, not there, or torn, page by page in any order. A gateway that
// starts on what is left knows every request that was acked before, by its first answer. TAILGATE_POWER_CUTS sets how many cuts one
// growing journal has; snapshots are made meanwhile.
func TestPowerCutLosesNothingThatWasAcked(t *testing.T) {
	cuts := 10
	if text := os.Getenv("TAILGATE_POWER_CUTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("TAILGATE_POWER_CUTS is %q, needed is a number from 1", text)
		}
		cuts = n
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	disk := journaltest.NewDisk()
	known := &acks{requests: make(map[string]*transports.Exchange)}
	for cut := range cuts {
		var promised map[string]*transports.Exchange
		disk, promised = tradeUntilPowerCut(t, disk, known, random, cut)
		known.requests = promised // what was acked after the cut, by a gateway that did not know it was off, was never acked
		s := openPowered(t, disk)
		checkPromised(t, s, promised)
		if cut%2 == 0 { // whole, beside those that the cuts meet half made
			if err := s.snapshots.Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
			s.snapshots.make(context.Background())
		}
		stop(t, s)
	}
	if len(disk.Paths(".snap")) == 0 {
		t.Error("no start was from a snapshot: the test has lost half of its subject")
	}
	t.Logf("%d cuts, %d acked requests all there with their first answer", cuts, len(known.requests))
}

func openPowered(t *testing.T, disk *journaltest.Disk) *Server {
	t.Helper()
	c := quiet(t)
	c.Journal.Dir, c.Journal.Sync, c.Journal.SegmentBytes, c.Journal.SnapshotEvery = "journal", "always", 128<<10, 0
	s, err := openOver(context.Background(), c, nil, disk)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tradeUntilPowerCut returns the disk as the power left it at a random call, and what had been acked by then.
func tradeUntilPowerCut(t *testing.T, disk *journaltest.Disk, known *acks, random *rand.Rand, round int) (*journaltest.Disk, map[string]*transports.Exchange) {
	t.Helper()
	s := openPowered(t, disk)
	var mu sync.Mutex
	var left *journaltest.Disk
	var promised map[string]*transports.Exchange
	ctx, end := context.WithCancel(context.Background())
	countdown := 20 + random.IntN(400)
	cutSeed := random.Uint64()
	disk.Intercept(func(journaltest.Call) *journaltest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if countdown--; countdown == 0 {
			promised = known.copy() // before the cut, so that each of them was acked before it
			left = disk.PowerCut(rand.New(rand.NewPCG(cutSeed, 1)))
			end()
		}
		return nil
	})
	var wait sync.WaitGroup
	for worker := range 4 {
		session, err := s.Gateway().Open(ctx, transports.Peer{})
		if err != nil {
			t.Fatal(err)
		}
		traffic := rand.New(rand.NewPCG(random.Uint64(), 2))
		wait.Go(func() { known.trade(ctx, session, fmt.Sprintf("%d-%d", round, worker), traffic) })
	}
	s.snapshots.Now()
	wait.Wait()
	stop(t, s)
	if left == nil {
		t.Fatalf("the disk was called less than it should: %d calls before the cut were left", countdown)
	}
	return left, promised
}

func checkPromised(t *testing.T, s *Server, promised map[string]*transports.Exchange) {
	t.Helper()
	session, err := s.Gateway().Open(context.Background(), transports.Peer{})
	if err != nil {
		t.Fatal(err)
	}
	for id, first := range promised {
		again := &transports.Exchange{Operation: first.Operation, ReceivedNs: transports.Now(), Request: first.Request, Response: first.Operation.NewResponse()}
		if err := transports.Do(context.Background(), session, again); err != nil {
			t.Fatal(err)
		}
		if !again.Response.(interface{ GetDuplicate() bool }).GetDuplicate() {
			t.Fatalf("%s was acked before the cut\n%v\nand is not known after it", id, first.Response)
		}
		if a, b := withoutStamp(first.Response), withoutStamp(again.Response); !proto.Equal(a, b) {
			t.Fatalf("%s\nfirst answer %v\nnow          %v", id, a, b)
		}
	}
}

// withoutStamp is an answer without what a repetition says otherwise.
func withoutStamp(m proto.Message) proto.Message {
	m = proto.Clone(m)
	fields := m.ProtoReflect().Descriptor().Fields()
	m.ProtoReflect().Clear(fields.ByName("duplicate"))
	m.ProtoReflect().Clear(fields.ByName("sent_ns"))
	return m
}
