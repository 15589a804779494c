package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"tailgate/gateway/journal"
	"tailgate/gateway/orders"
	"tailgate/gateway/server"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
)

// asked is one request of the kill test and what became of it; the response is nil where its outcome is unknown.
type asked struct {
	operation         transports.Operation
	request, response proto.Message
}

// trader sends a random mix of orders, replaces, cancels and mass cancels, each with an id of its own, until its connection breaks.
type trader struct {
	name   string
	client transports.Client
	random *rand.Rand
	sent   int
	own    []string // ids of its orders that may be open
}

var symbols = []string{"ACME", "BOLT"}

// next makes the next request.
func (w *trader) next() (transports.Operation, proto.Message) {
	w.sent++
	id := fmt.Sprintf("%s-%d", w.name, w.sent)
	choice := w.random.IntN(100)
	switch {
	case choice < 12 && len(w.own) > 0:
		return transports.CancelOrder, &pb.CancelOrderRequest{RequestId: id, ClientOrderId: w.pick()}
	case choice < 24 && len(w.own) > 0:
		return transports.ReplaceOrder, &pb.ReplaceOrderRequest{
			RequestId: id, ClientOrderId: w.pick(), Quantity: 1 + w.random.Uint64N(8), Price: w.price("ACME"),
		}
	case choice == 99:
		return transports.MassCancel, &pb.MassCancelRequest{RequestId: id, Symbol: "BOLT", Side: pb.Side_SIDE_BUY}
	}
	w.own = append(w.own, id)
	order := &pb.SubmitOrderRequest{
		ClientOrderId: id, Symbol: symbols[w.random.IntN(len(symbols))], Side: pb.Side(1 + w.random.IntN(2)),
		Type: pb.OrderType_ORDER_TYPE_LIMIT, TimeInForce: pb.TimeInForce(1 + w.random.IntN(4)), Quantity: 1 + w.random.Uint64N(5),
	}
	order.Price = w.price(order.GetSymbol())
	if order.GetQuantity() > 1 && choice > 90 && order.GetTimeInForce() <= pb.TimeInForce_TIME_IN_FORCE_GTC {
		order.DisplayQuantity = 1
	}
	return transports.SubmitOrder, order
}

// pick takes one of the trader's last orders.
func (w *trader) pick() string {
	last := w.own[max(0, len(w.own)-8):]
	return last[w.random.IntN(len(last))]
}

func (w *trader) price(symbol string) int64 {
	return map[string]int64{"ACME": 10_000, "BOLT": 5_000}[symbol] + w.random.Int64N(7) - 3
}

// acknowledgement is what the answers of the operations here have in common.
type acknowledgement interface {
	GetDuplicate() bool
	GetStatus() pb.OrderStatus
}

// killRounds is TAILGATE_KILL_ROUNDS, or ten.
func killRounds(t *testing.T) int {
	text := os.Getenv("TAILGATE_KILL_ROUNDS")
	if text == "" {
		return 10
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("TAILGATE_KILL_ROUNDS is %q, needed is a number from 1", text)
	}
	return n
}

// TestKillLosesNothingThatWasAcked ends the process without warning at a random moment, while clients of every transport trade,
// and starts it again on the same, growing journal. After each start some, and after the last one all acked requests get their first answer
// again, to the byte but for the duplicate flag and the stamp of sending; those in doubt have an answer or get one now, once;
// and every order and book of the gateway is that of a fold over its journal.
func TestKillLosesNothingThatWasAcked(t *testing.T) {
	rounds := killRounds(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	var done []asked
	for round := range rounds {
		p := startProcess(t, dir)
		if len(done) > 0 {
			checkAgain(t, p, done[random.IntN(len(done)):], 50)
		}
		done = append(done, tradeUntilKilled(t, p, random, round)...)
	}

	p := startProcess(t, dir)
	defer p.kill(t)
	acked, entered := checkAgain(t, p, done, len(done))
	t.Logf("%d kills, %d acked requests all there with their first answer; of %d in doubt %d had taken effect", rounds, acked, len(done)-acked, entered)
	compareWithReplay(t, p, dir)
}

// tradeUntilKilled lets two traders on every transport trade until a random number of answers has come, kills the process, and returns
// every request.
func tradeUntilKilled(t *testing.T, p *process, random *rand.Rand, round int) []asked {
	t.Helper()
	killAfter := 50 + random.IntN(2000)
	var mu sync.Mutex
	var all []asked
	answers := 0
	enough := make(chan struct{})
	var wait sync.WaitGroup
	for name := range p.addresses {
		if name == server.AdminListener {
			continue
		}
		for worker := range 2 {
			w := &trader{
				name: fmt.Sprintf("%d-%s-%d", round, name, worker), client: dialProcess(t, p, name),
				random: rand.New(rand.NewPCG(random.Uint64(), 1)),
			}
			wait.Go(func() {
				defer w.client.Close()
				for {
					op, request := w.next()
					response, err := do(w.client, op, request)
					if err != nil {
						response = nil
					}
					mu.Lock()
					all = append(all, asked{op, request, response})
					if err == nil {
						if answers++; answers == killAfter {
							close(enough)
						}
					}
					mu.Unlock()
					if err == nil {
						continue
					}
					if fault, ok := errors.AsType[*transports.Fault](err); !ok || fault.Reason != pb.Reason_REASON_CONNECTION_LOST {
						t.Errorf("%s: %v, want an answer or a lost connection", w.name, err)
					}
					return
				}
			})
		}
	}
	<-enough
	p.kill(t)
	wait.Wait()
	return all
}

// checkAgain sends at most n requests again, over every transport in turn, and compares answers that had come with those that come now.
func checkAgain(t *testing.T, p *process, done []asked, n int) (acked, entered int) {
	t.Helper()
	var clients []transports.Client
	for _, name := range all.Names() {
		clients = append(clients, dialProcess(t, p, name))
	}
	defer func() {
		for _, client := range clients {
			_ = client.Close()
		}
	}()
	for i, a := range done[:min(n, len(done))] {
		again, err := do(clients[i%len(clients)], a.operation, a.request)
		if err != nil {
			t.Fatalf("%s %v: %v", a.operation, a.request, err)
		}
		duplicate := again.(acknowledgement).GetDuplicate()
		if a.response == nil {
			if duplicate {
				entered++
			}
			continue
		}
		acked++
		if !duplicate {
			t.Fatalf("%s %v was acked\n%v\nand is not known after the restart:\n%v", a.operation, a.request, a.response, again)
		}
		if first, now := withoutStamp(a.response), withoutStamp(again); !proto.Equal(first, now) {
			t.Fatalf("%s %v\nfirst answer %v\nnow          %v", a.operation, a.request, first, now)
		}
	}
	return acked, entered
}

// withoutStamp is an answer without what a repetition says otherwise.
func withoutStamp(m proto.Message) proto.Message {
	m = proto.Clone(m)
	fields := m.ProtoReflect().Descriptor().Fields()
	m.ProtoReflect().Clear(fields.ByName("duplicate"))
	m.ProtoReflect().Clear(fields.ByName("sent_ns"))
	return m
}

// compareWithReplay folds the journal anew and holds the running gateway's orders and books to it.
func compareWithReplay(t *testing.T, p *process, dir string) {
	t.Helper()
	state, err := orders.New(orders.Options{})
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for entry, err := range journal.Entries(dir, nil, 1) {
		var c orders.Command
		if err == nil {
			err = c.Decode(entry.Payload)
		}
		if err == nil {
			err = state.Apply(&c, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		last = entry.LSN
	}
	client := dialProcess(t, p, "tcp")
	defer client.Close()
	for _, symbol := range symbols {
		response, err := do(client, transports.GetBook, &pb.GetBookRequest{Symbol: symbol, Depth: 5000})
		if err != nil {
			t.Fatal(err)
		}
		got := response.(*pb.GetBookResponse)
		s, _ := orders.ParseSymbol(symbol)
		bids, asks, lastPrice, _ := state.Book(s, 5000, nil, nil)
		if !sameLevels(got.GetBids(), bids) || !sameLevels(got.GetAsks(), asks) || got.GetLastPrice() != lastPrice || got.GetLogSequence() != last {
			t.Errorf("book %s of the gateway\n%v\nof the journal up to %d\n%v\n%v", symbol, got, last, bids, asks)
		}
	}
	account, _ := state.Account("demo")
	compared, seen := 0, make(map[string]bool)
	for token := ""; ; {
		response, err := do(client, transports.ListOrders, &pb.ListOrdersRequest{
			State: pb.ListOrdersState_LIST_ORDERS_STATE_ALL, PageSize: 1000, PageToken: token,
		})
		if err != nil {
			t.Fatal(err)
		}
		page := response.(*pb.ListOrdersResponse)
		for _, o := range page.GetOrders() {
			id, _ := orders.ParseID(o.GetClientOrderId())
			want, ok := state.Order(account, id)
			if !ok || seen[o.GetClientOrderId()] || o.GetOrderId() != want.OrderID || o.GetStatus() != want.Status ||
				o.GetFilledQuantity() != want.Filled || o.GetLeavesQuantity() != want.Leaves || o.GetOrderVersion() != want.Version {
				t.Errorf("order of the gateway, seen before: %v\n%v\nof the journal: %+v", seen[o.GetClientOrderId()], o, want)
			}
			seen[o.GetClientOrderId()] = true
			compared++
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if n := state.Usage().OrderIDs; compared != n {
		t.Errorf("the gateway lists %d orders, its journal has %d", compared, n)
	}
}

func sameLevels(got []*pb.BookLevel, want []matching.Level) bool {
	return slices.EqualFunc(got, want, func(g *pb.BookLevel, w matching.Level) bool {
		return g.GetPrice() == w.Price && g.GetQuantity() == w.Quantity && g.GetOrderCount() == w.Orders
	})
}
