package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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
// and starts it again on the same, growing journal of many segments; of ten kills one comes while a snapshot is being made beside the trading, and one
// right after another one was. After each start
// some, and after the last one all acked requests get their first answer again, to the byte but for the duplicate flag and the stamp of
// sending; those in doubt have an answer or get one now, once; and every order and book of the gateway, which then starts from a snapshot, is
// that of a fold over its journal from the first record on.
func TestKillLosesNothingThatWasAcked(t *testing.T) {
	rounds := killRounds(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte("journal: {segment_bytes: 131072, snapshot_every: 10000, keep_segments: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() *process { return startProcess(t, dir, "--config", file) }
	var done []asked
	for round := range rounds {
		p := start()
		if len(done) > 0 {
			checkAgain(t, p, done[random.IntN(len(done)):], 50)
		}
		moment := killMoment{after: 50 + random.IntN(2000)}
		switch round % 10 {
		case 2:
			moment = killMoment{after: random.IntN(20), dir: dir, snapshot: snapshotsBeingMade}
		case 6:
			moment = killMoment{after: random.IntN(100), dir: dir, snapshot: snapshotsMade, before: snapshots(dir, snapshotsMade)}
		}
		done = append(done, tradeUntilKilled(t, p, random, round, &moment)...)
	}
	made := snapshots(dir, snapshotsMade)
	if len(made) == 0 && rounds >= 10 {
		t.Error("no snapshot is left, so no start was from one")
	}

	p := start()
	defer p.kill(t)
	acked, entered := checkAgain(t, p, done, len(done))
	t.Logf("%d kills, %d acked requests all there with their first answer; of %d in doubt %d had taken effect; %d snapshots are left",
		rounds, acked, len(done)-acked, entered, len(made))
	compareWithReplay(t, p, dir)
}

// Snapshots in a journal's folder: being written, and whole.
const (
	snapshotsBeingMade = "snapshot.tmp"
	snapshotsMade      = "*.snap"
)

// snapshots lists them.
func snapshots(dir, pattern string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, pattern)) // its only error is a pattern that is none
	return names
}

// killMoment is when the process is killed: after so many answers, counted, where a snapshot is named, from when there is another one.
type killMoment struct {
	after         int
	dir, snapshot string // "" = whenever
	before        []string
}

// mostAnswers is how many come at most before there must be a snapshot: many times snapshot_every.
const mostAnswers = 200_000

// come says whether it has come.
func (m *killMoment) come(answers int) bool {
	if m.snapshot != "" && answers < mostAnswers {
		if now := snapshots(m.dir, m.snapshot); len(now) == 0 || slices.Equal(now, m.before) {
			return false
		}
		m.snapshot = ""
		m.after += answers
	}
	return answers >= m.after
}

// tradeUntilKilled lets two traders on every transport trade until the moment has come, kills the process, and returns every request.
func tradeUntilKilled(t *testing.T, p *process, random *rand.Rand, round int, moment *killMoment) []asked {
	t.Helper()
	var mu sync.Mutex // guards all below
	var all []asked
	var ends []error // of traders
	answers, over := 0, false
	enough, ended := make(chan struct{}), make(chan struct{})
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
					response, err := doPatiently(w.client, op, request)
					mu.Lock()
					if err != nil {
						all = append(all, asked{op, request, nil})
						ends = append(ends, fmt.Errorf("%s: %w", w.name, err))
						mu.Unlock()
						return
					}
					all = append(all, asked{op, request, response})
					answers++
					if !over && moment.come(answers) {
						over = true
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
	}
	go func() {
		wait.Wait()
		close(ended)
	}()
	early := false
	select {
	case <-enough:
	case <-ended:
		early = true
	}
	p.kill(t)
	<-ended
	for _, err := range ends {
		if fault, ok := errors.AsType[*transports.Fault](err); early || !ok || fault.Reason != pb.Reason_REASON_CONNECTION_LOST {
			t.Errorf("%v, want an answer, or a lost connection after the kill", err)
		}
	}
	switch {
	case early:
		t.Fatal("every trader had ended before the kill")
	case moment.snapshot != "":
		t.Fatalf("no snapshot %s in %d answers", moment.snapshot, answers)
	}
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
		again, err := doPatiently(clients[i%len(clients)], a.operation, a.request)
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
