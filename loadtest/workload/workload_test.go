package workload_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

var instruments = []workload.Instrument{{Symbol: "ACME", ReferencePrice: 10_000}, {Symbol: "ZORG", ReferencePrice: 2_500}}

func newFlow(t testing.TB, change func(*workload.Config)) *workload.Flow {
	t.Helper()
	config := workload.Config{Seed: 1, Prefix: "abcdef", Size: 64, Clients: 3, Instruments: instruments}
	if change != nil {
		change(&config)
	}
	flow, err := workload.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return flow
}

func nextSubmit(t testing.TB, s *workload.Source) *pb.SubmitOrderRequest {
	t.Helper()
	var call transports.Call
	s.Next(&call)
	m, ok := call.Request.(*pb.SubmitOrderRequest)
	if !ok || call.Operation != transports.SubmitOrder {
		t.Fatalf("%s with a %T, want a new order", call.Operation, call.Request)
	}
	return m
}

// smallest is the size of an order on ACME in the contract's terms: 12-character id, no tag.
const smallest = 31

// TestExactSizes: every order of a flow has the wanted encoded size, at every size from the smallest on and at the large ones.
func TestExactSizes(t *testing.T) {
	sizes := []int{16 << 10, 16<<10 + 1, 16<<10 + 36, 64 << 10, 1<<20 - 1, 1 << 20}
	for size := smallest; size <= 2000; size++ {
		sizes = append(sizes, size)
	}
	for d := -8; d < 60; d++ { // around the second growth of the tag's length prefix
		sizes = append(sizes, 16384+d)
	}
	for _, size := range sizes {
		for _, minimal := range []bool{false, true} {
			if minimal && (size < smallest+2 || size%5 > 0) { // the wish for a small answer takes two bytes
				continue
			}
			s := newFlow(t, func(c *workload.Config) {
				c.Size, c.Minimal, c.Seed, c.Instruments = size, minimal, uint64(size), instruments[:1]
			}).Source(0)
			for range 12 {
				m := nextSubmit(t, s)
				if got := proto.Size(m); got != size {
					t.Fatalf("size %d (minimal: %t): the order has %d bytes: id %q, tag of %d", size, minimal, got, m.ClientOrderId, len(m.ClientTag))
				}
				if n := len(m.ClientOrderId); n < 12 || n > 14 {
					t.Fatalf("size %d: id %q has %d characters, want 12 to 14", size, m.ClientOrderId, n)
				}
			}
		}
	}
}

// TestExactSizesOfAnyInstrument: odd instruments (long symbols, prices that change their length within the spread, negative ones, large
// least quantities) have exact sizes too.
func TestExactSizesOfAnyInstrument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instrument := workload.Instrument{
			Symbol:         rapid.StringMatching(`[A-Z0-9._-]{1,16}`).Draw(t, "symbol"),
			ReferencePrice: rapid.OneOf(rapid.Int64Range(-20, 20), rapid.Int64Range(100, 140), rapid.Int64Range(16370, 16400), rapid.Int64Range(-1<<30, 1<<30)).Draw(t, "price"),
			MinNotional:    rapid.Int64Range(0, 1<<30).Draw(t, "notional"),
		}
		size := rapid.IntRange(80, 3000).Draw(t, "size")
		flow, err := workload.New(workload.Config{Seed: rapid.Uint64().Draw(t, "seed"), Prefix: "abcdef", Size: size, Clients: 1, Instruments: []workload.Instrument{instrument}})
		if err != nil {
			t.Fatal(err)
		}
		s := flow.Source(0)
		var call transports.Call
		for range 50 {
			s.Next(&call)
			m, _ := call.Request.(*pb.SubmitOrderRequest)
			if proto.Size(m) != size {
				t.Fatalf("%d bytes, want %d: %v", proto.Size(m), size, m.ClientOrderId)
			}
			if off := m.Price - instrument.ReferencePrice; off < -workload.PriceSpread || off > workload.PriceSpread {
				t.Fatalf("price %d is not near %d", m.Price, instrument.ReferencePrice)
			}
			if instrument.ReferencePrice > workload.PriceSpread && int64(m.Quantity)*m.Price < instrument.MinNotional {
				t.Fatalf("%d lots at %d are below the least notional %d", m.Quantity, m.Price, instrument.MinNotional)
			}
		}
	})
}

func TestSizesThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		size int
		want string
	}{
		{smallest - 1, "the smallest order has 31 bytes"},
		{0, "the smallest order has 31 bytes"},
		{-5, "the smallest order has 31 bytes"},
		{1<<20 + 1, "the greatest order has 1048576 bytes"},
	} {
		_, err := workload.New(workload.Config{Prefix: "abcdef", Size: c.size, Clients: 1, Instruments: instruments})
		var sizeError *workload.SizeError
		if !errors.As(err, &sizeError) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("size %d: got %v, want a SizeError that says %q", c.size, err, c.want)
		}
	}
}

func TestConfigurationsThatCannotBe(t *testing.T) {
	for want, change := range map[string]func(*workload.Config){
		"0 clients":       func(c *workload.Config) { c.Clients = 0 },
		"65537 clients":   func(c *workload.Config) { c.Clients = 1<<16 + 1 },
		"id prefix":       func(c *workload.Config) { c.Prefix = "short" },
		"no instrument":   func(c *workload.Config) { c.Instruments = nil },
		"shares of":       func(c *workload.Config) { c.CancelShare, c.ReplaceShare = 0.6, 0.5 },
		"cancels (-0.1)":  func(c *workload.Config) { c.CancelShare = -0.1 },
		"replaces (-0.1)": func(c *workload.Config) { c.ReplaceShare = -0.1 },
	} {
		config := workload.Config{Prefix: "abcdef", Size: 64, Clients: 1, Instruments: instruments}
		change(&config)
		if _, err := workload.New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %q", err, want)
		}
	}
}

// fingerprint folds a client's first orders, without the prefix of their ids.
func fingerprint(t *testing.T, flow *workload.Flow, client, orders int) uint64 {
	hash := fnv.New64a()
	s := flow.Source(client)
	for range orders {
		m := nextSubmit(t, s)
		fmt.Fprint(hash, m.ClientOrderId[workload.PrefixLength:], m.Symbol, m.Side, m.TimeInForce, m.Quantity, m.Price, len(m.ClientTag))
		hash.Write(m.ClientTag)
	}
	return hash.Sum64()
}

// TestSameSeedSameFlow: the flow depends on seed and client, not on the run's prefix.
func TestSameSeedSameFlow(t *testing.T) {
	a := fingerprint(t, newFlow(t, nil), 1, 1000)
	if b := fingerprint(t, newFlow(t, func(c *workload.Config) { c.Prefix = workload.RandomPrefix() }), 1, 1000); a != b {
		t.Error("another run with the same seed draws another flow")
	}
	if b := fingerprint(t, newFlow(t, func(c *workload.Config) { c.Seed = 2 }), 1, 1000); a == b {
		t.Error("another seed draws the same flow")
	}
	if b := fingerprint(t, newFlow(t, nil), 2, 1000); a == b {
		t.Error("two clients draw the same flow")
	}
}

// TestIDs: ids are the contract's, unique over clients, whatever their length, and strings that were handed out do not change.
func TestIDs(t *testing.T) {
	allowed := regexp.MustCompile(`^[A-Za-z0-9_-]{12,14}$`)
	for _, size := range []int{smallest, smallest + 1, smallest + 2, 64} {
		flow := newFlow(t, func(c *workload.Config) { c.Size, c.Clients, c.Prefix = size, 50, workload.RandomPrefix() })
		seen := map[string]string{}
		for client := range 50 {
			s := flow.Source(client)
			for range 300 {
				id := nextSubmit(t, s).ClientOrderId
				if !allowed.MatchString(id) {
					t.Fatalf("id %q is not what the contract allows", id)
				}
				if _, used := seen[id]; used {
					t.Fatalf("id %q was used twice", id)
				}
				seen[id] = strings.Clone(id)
			}
		}
		for id, kept := range seen {
			if id != kept {
				t.Fatalf("id %q has become %q", kept, id)
			}
		}
	}
	if a, b := workload.RandomPrefix(), workload.RandomPrefix(); a == b || len(a) != workload.PrefixLength {
		t.Errorf("prefixes %q and %q: want two different ones", a, b)
	}
}

// TestBookStaysBounded runs the flow of many clients through a naive book and watches what rests. It is the claim of the package comment.
func TestBookStaysBounded(t *testing.T) {
	const clients, rounds = 20, 3000
	flow := newFlow(t, func(c *workload.Config) { c.Clients, c.Instruments = clients, instruments[:1] })
	var sources [clients]*workload.Source
	for i := range sources {
		sources[i] = flow.Source(i)
	}
	var bids, asks int64 // lots that rest; every bid is at or above every ask's price, so an arriving order meets all of the other side
	var bought, sold, immediate int64
	const surplus = workload.BlockOrders / 2 * workload.QuantitySpread // of one client within a block; the least quantity is 1
	bound := int64(2 * clients * surplus)
	for range rounds {
		for _, s := range sources {
			m := nextSubmit(t, s)
			quantity := int64(m.Quantity)
			mine, other := &bids, &asks
			switch {
			case m.Side == pb.Side_SIDE_BUY && m.Price >= 10_000:
				bought++
			case m.Side == pb.Side_SIDE_SELL && m.Price <= 10_000:
				mine, other = other, mine
				sold++
			default:
				t.Fatalf("%s at %d does not cross the reference price 10000", m.Side, m.Price)
			}
			traded := min(quantity, *other)
			*other -= traded
			if m.TimeInForce == pb.TimeInForce_TIME_IN_FORCE_DAY {
				*mine += quantity - traded
			} else {
				immediate++
			}
			if bids+asks > bound || bids > 0 && asks > 0 {
				t.Fatalf("%d lots bid and %d asked rest, the bound is %d of one side", bids, asks, bound)
			}
		}
	}
	total := float64(bought + sold)
	if share := float64(immediate) / total; share < 0.23 || share > 0.27 {
		t.Errorf("%.3f of the orders are immediate-or-cancel, want about %v", share, workload.ImmediateShare)
	}
	if share := float64(bought) / total; share < 0.48 || share > 0.52 {
		t.Errorf("%.3f of the orders buy, want about a half", share)
	}
}

// ack is what a well-behaved gateway answers.
func ack(m *pb.SubmitOrderRequest, leaves uint64) *pb.SubmitOrderResponse {
	return &pb.SubmitOrderResponse{
		ClientOrderId: m.ClientOrderId, OrderId: 7, Status: pb.OrderStatus_ORDER_STATUS_ACCEPTED, Quantity: m.Quantity, LeavesQuantity: leaves,
		ClientTag: bytes.Clone(m.ClientTag), ReceivedNs: 1000, SentNs: 1500,
	}
}

// TestCheckFindsWrongAnswers: each way in which an answer can be wrong is an error that says how.
func TestCheckFindsWrongAnswers(t *testing.T) {
	for _, c := range []struct {
		name    string
		spoil   func(*pb.SubmitOrderResponse)
		minimal bool
		want    string // empty: no error
	}{
		{name: "right", spoil: func(*pb.SubmitOrderResponse) {}},
		{name: "rejected", spoil: func(m *pb.SubmitOrderResponse) {
			m.Status, m.OrderId, m.Quantity = pb.OrderStatus_ORDER_STATUS_REJECTED, 0, 0
		}},
		{name: "other id", spoil: func(m *pb.SubmitOrderResponse) { m.ClientOrderId = "x" }, want: `has the id "x"`},
		{name: "tag of another request", spoil: func(m *pb.SubmitOrderResponse) { m.ClientTag[0]++ }, want: "tag of 31 bytes that is not the 31 bytes due"},
		{name: "short tag", spoil: func(m *pb.SubmitOrderResponse) { m.ClientTag = m.ClientTag[:5] }, want: "tag of 5 bytes that is not the 31 bytes due"},
		{name: "rejected, no tag", spoil: func(m *pb.SubmitOrderResponse) {
			m.Status, m.ClientTag = pb.OrderStatus_ORDER_STATUS_REJECTED, nil
		}, want: "tag of 0 bytes"},
		{name: "minimal", minimal: true, spoil: func(m *pb.SubmitOrderResponse) { m.ClientTag = nil }},
		{name: "minimal with a tag", minimal: true, spoil: func(*pb.SubmitOrderResponse) {}, want: "is not the 0 bytes due"},
		{name: "duplicate", spoil: func(m *pb.SubmitOrderResponse) { m.Duplicate = true }, want: "says duplicate"},
		{name: "quantity", spoil: func(m *pb.SubmitOrderResponse) { m.Quantity++ }, want: "has quantity"},
		{name: "filled too much", spoil: func(m *pb.SubmitOrderResponse) { m.FilledQuantity = m.Quantity }, want: "pass its quantity"},
		{name: "no order id", spoil: func(m *pb.SubmitOrderResponse) { m.OrderId = 0 }, want: "without an order id"},
		{name: "no status", spoil: func(m *pb.SubmitOrderResponse) { m.Status = 0 }, want: "has the status ORDER_STATUS_UNSPECIFIED"},
		{name: "no stamps", spoil: func(m *pb.SubmitOrderResponse) { m.ReceivedNs = 0 }, want: "stamps that cannot be"},
		{name: "stamps backwards", spoil: func(m *pb.SubmitOrderResponse) { m.SentNs = 999 }, want: "stamps that cannot be"},
	} {
		s := newFlow(t, func(config *workload.Config) { config.Minimal, config.Instruments = c.minimal, instruments[:1] }).Source(0)
		var call transports.Call
		s.Next(&call)
		m, _ := call.Request.(*pb.SubmitOrderRequest)
		response := ack(m, 1)
		c.spoil(response)
		call.Response = response
		answer, err := s.Check(&call)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want an error that says %q", c.name, err, c.want)
		case c.want == "" && (!answer.HasServer || answer.Server != 500 || answer.Rejected != (c.name == "rejected")):
			t.Errorf("%s: got %+v, want 500 ns at the server", c.name, answer)
		}
	}
}

// TestTagsTellRequestsApart: two requests in a row never carry the same tag, so that one's answer is not taken for the other's.
func TestTagsTellRequestsApart(t *testing.T) {
	s := newFlow(t, func(c *workload.Config) { c.Size = 1024 }).Source(0)
	var last []byte
	for range 5000 {
		tag := nextSubmit(t, s).ClientTag
		if bytes.Equal(tag, last) {
			t.Fatal("the same tag twice in a row")
		}
		last = bytes.Clone(tag)
	}
}

// TestCancelsAndReplaces: their shares are kept where orders stay open, they name the open order, and their answers are checked too.
func TestCancelsAndReplaces(t *testing.T) {
	s := newFlow(t, func(c *workload.Config) { c.CancelShare, c.ReplaceShare, c.Instruments = 0.2, 0.3, instruments[:1] }).Source(0)
	var call transports.Call
	count := map[transports.Operation]int{}
	openID, open := "", uint64(0)
	ids := map[string]bool{}
	for range 20_000 {
		s.Next(&call)
		count[call.Operation]++
		switch m := call.Request.(type) {
		case *pb.SubmitOrderRequest:
			call.Response = ack(m, m.Quantity)
			openID, open = m.ClientOrderId, m.Quantity
		case *pb.CancelOrderRequest:
			if m.ClientOrderId != openID || ids[m.RequestId] {
				t.Fatalf("cancel %q of %q, but %q is open", m.RequestId, m.ClientOrderId, openID)
			}
			ids[m.RequestId] = true
			call.Response = &pb.CancelOrderResponse{
				RequestId: m.RequestId, ClientOrderId: m.ClientOrderId, Status: pb.OrderStatus_ORDER_STATUS_CANCELED, Quantity: open, ReceivedNs: 1, SentNs: 2,
			}
			openID = ""
		case *pb.ReplaceOrderRequest:
			if m.ClientOrderId != openID || ids[m.RequestId] || m.Quantity > open || m.Quantity == 0 || m.Price < 10_000-workload.PriceSpread || m.Price > 10_000+workload.PriceSpread {
				t.Fatalf("replace %q of %q by %d at %d, but %q with %d is open", m.RequestId, m.ClientOrderId, m.Quantity, m.Price, openID, open)
			}
			ids[m.RequestId], open = true, m.Quantity
			call.Response = &pb.ReplaceOrderResponse{
				RequestId: m.RequestId, ClientOrderId: m.ClientOrderId, Status: pb.OrderStatus_ORDER_STATUS_ACCEPTED, Quantity: open, LeavesQuantity: open, ReceivedNs: 1, SentNs: 2,
			}
		}
		if _, err := s.Check(&call); err != nil {
			t.Fatal(err)
		}
	}
	// A turn that finds nothing open becomes a new order; with every order left open that happens after a cancel only.
	cancels, replaces := float64(count[transports.CancelOrder])/20_000, float64(count[transports.ReplaceOrder])/20_000
	if cancels < 0.15 || cancels > 0.21 || replaces < 0.22 || replaces > 0.31 {
		t.Errorf("%.3f cancels and %.3f replaces, want nearly 0.2 and 0.3", cancels, replaces)
	}

	// Wrong answers to them are found.
	for s.Next(&call); call.Operation != transports.CancelOrder; s.Next(&call) {
		if m, ok := call.Request.(*pb.SubmitOrderRequest); ok {
			call.Response = ack(m, m.Quantity)
			if _, err := s.Check(&call); err != nil {
				t.Fatal(err)
			}
		}
	}
	call.Response = &pb.CancelOrderResponse{RequestId: "another"}
	if _, err := s.Check(&call); err == nil || !strings.Contains(err.Error(), `"another"`) {
		t.Errorf("a cancel answered with another id: %v", err)
	}
	s.Forget()
	for range 50 {
		if s.Next(&call); call.Operation != transports.SubmitOrder {
			t.Fatalf("%s, though nothing is known to be open", call.Operation)
		}
	}
}

// TestBareEcho: with a floor as the peer only id and tag are checked.
func TestBareEcho(t *testing.T) {
	s := newFlow(t, func(c *workload.Config) { c.EchoOnly, c.Minimal = true, true }).Source(0)
	m := nextSubmit(t, s)
	call := transports.Call{Response: &pb.SubmitOrderResponse{ClientOrderId: m.ClientOrderId, ClientTag: m.ClientTag}}
	if answer, err := s.Check(&call); err != nil || answer.HasServer {
		t.Errorf("got %+v, %v", answer, err)
	}
	call.Response = &pb.SubmitOrderResponse{ClientOrderId: m.ClientOrderId}
	if _, err := s.Check(&call); err == nil {
		t.Error("an echo without the tag is taken for right")
	}
}

// TestNextDoesNotAllocate: one string for 64 ids is all that a request costs.
func TestNextDoesNotAllocate(t *testing.T) {
	s := newFlow(t, func(c *workload.Config) { c.Size = 64 << 10 }).Source(0)
	var call transports.Call
	if n := testing.AllocsPerRun(6400, func() { s.Next(&call) }); n > 0.02 {
		t.Errorf("%v allocations a request, want 1 for 64", n)
	}
}

func BenchmarkNext(b *testing.B) {
	s := newFlow(b, nil).Source(0)
	var call transports.Call
	b.ReportAllocs()
	for b.Loop() {
		s.Next(&call)
	}
}

// TestSizesByClient: every client's orders have one size, each size has its share of the clients, and neither goes by their numbers.
func TestSizesByClient(t *testing.T) {
	const clients = 500
	mix := []workload.Share{{Size: 64, Weight: 50}, {Size: 64 << 10, Weight: 30}, {Size: 1 << 10, Weight: 20}}
	f, err := workload.New(workload.Config{Seed: 3, Prefix: workload.RandomPrefix(), Mix: mix, ByClient: true, Clients: clients, Instruments: []workload.Instrument{{Symbol: "ACME", ReferencePrice: 10_000}}})
	if err != nil {
		t.Fatal(err)
	}
	var shares, ofAccount [3]int
	for i := range clients {
		s := f.Source(i)
		for range 5 {
			var call transports.Call
			s.Next(&call)
			if size := proto.Size(call.Request); size != mix[s.Class()].Size {
				t.Fatalf("client %d of class %d sends an order of %d bytes", i, s.Class(), size)
			}
		}
		shares[s.Class()]++
		if i%2 == 0 {
			ofAccount[s.Class()]++
		}
	}
	if shares != [3]int{250, 150, 100} {
		t.Errorf("clients by size %v, want 250, 150, 100", shares)
	}
	for class, n := range ofAccount {
		if all := shares[class]; n < all/4 || n > all*3/4 {
			t.Errorf("%d of %d clients of class %d have even numbers: accounts go by these", n, all, class)
		}
	}
	if s, err := workload.New(workload.Config{Prefix: workload.RandomPrefix(), Mix: mix, Clients: 1, Instruments: []workload.Instrument{{Symbol: "ACME", ReferencePrice: 10_000}}}); err != nil || s.Source(0).Class() != -1 {
		t.Errorf("drawn for each order: %v", err)
	}
}
