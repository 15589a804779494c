package orders

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// contents lists everything that a client can see of a state.
func contents(s *State, accounts int) []string {
	var lines []string
	for account := range accounts {
		for _, open := range []bool{false, true} {
			for after := uint64(0); ; {
				var page []Order
				page, after, _ = s.List(uint32(account), open, after, 7, nil)
				for _, o := range page {
					lines = append(lines, fmt.Sprintf("%d %v %+v", account, open, o))
				}
				if after == 0 {
					break
				}
			}
		}
		lines = append(lines, fmt.Sprint("sequence ", s.accounts[account].events.length))
	}
	for _, name := range []string{"ACME", "BOLT"} {
		bids, asks, last, _ := s.Book(symbol(name), 1000, nil, nil)
		lines = append(lines, fmt.Sprint(name, bids, asks, last))
	}
	return lines
}

// TestFold drives random commands and holds after each: quantities add up, an answer repeats, open lists are the open orders in
// the order of entry; and at the end: a replay under larger sizes gives the same contents and the same first answers.
func TestFold(t *testing.T) {
	const accounts, steps = 3, 4000
	random := rand.New(rand.NewPCG(1, 2))
	options := Options{MaxIDs: steps, MaxOpenOrders: 200, MaxLevels: 20}
	r := newRig(t, options, "alpha", "beta", "gamma")
	for account := range uint32(accounts) {
		r.limits(account, Limits{MaxQuantity: 90, MaxNotional: 10_000, PriceCollarBps: 1000})
	}
	type asked struct {
		command Command
		answer  Answer
	}
	var history []asked
	refusals := make(map[pb.Reason]int)
	for step := range steps {
		account := uint32(random.IntN(accounts))
		order := fmt.Sprint("o", random.IntN(steps/2))
		var c *Command
		switch random.IntN(10) {
		case 0:
			c = cancel(account, fmt.Sprint("r", step), order)
		case 1:
			c = cancel(account, "", order)
		case 2, 3:
			c = replace(account, fmt.Sprint("r", step), order, 1+random.Uint64N(100), 85+random.Int64N(30))
		case 4:
			c = market(account, order, matching.Side(1+random.IntN(2)), 1+random.Uint64N(100))
		default:
			c = limit(account, order, matching.Side(1+random.IntN(2)), 1+random.Uint64N(100), 85+random.Int64N(30))
			c.TimeInForce = matching.TimeInForce(1 + random.IntN(3))
		}
		if random.IntN(50) == 0 && c.Kind == Submit {
			c.Symbol = symbol("NOPE")
		}
		answer := r.do(c)
		refusals[answer.Reason]++
		if !answer.Duplicate && answer.Sequence > 0 {
			history = append(history, asked{*c, answer})
		}
		for i := range int(r.state.today.orders.length) {
			o := r.state.today.orders.at(uint32(i))
			if rejected := o.now.status == pb.OrderStatus_ORDER_STATUS_REJECTED; rejected != (o.first.reason != 0) {
				t.Fatalf("step %d: order %d: status %s with reason %s", step, i, o.now.status, o.first.reason)
			} else if ended := o.now.filled + o.now.leaves; ended > o.now.quantity || o.now.leaves > 0 && ended != o.now.quantity {
				t.Fatalf("step %d: order %d: filled %d and leaves %d of %d", step, i, o.now.filled, o.now.leaves, o.now.quantity)
			} else if full := o.now.filled == o.now.quantity; !rejected && o.now.leaves == 0 && full != (o.now.status == pb.OrderStatus_ORDER_STATUS_FILLED) {
				t.Fatalf("step %d: order %d: %s with %d of %d filled", step, i, o.now.status, o.now.filled, o.now.quantity)
			}
			if step%100 != 0 && i < int(r.state.today.orders.length)-50 {
				continue
			}
			if resting, rests := r.state.engine.Order(uint64(i + 1)); rests != (o.now.leaves > 0) || rests && resting.Leaves != o.now.leaves {
				t.Fatalf("step %d: order %d has %d leaves, the book %d (rests %v)", step, i, o.now.leaves, resting.Leaves, rests)
			}
		}
	}
	for _, reason := range []pb.Reason{
		0, pb.Reason_REASON_DUPLICATE_ID, pb.Reason_REASON_UNKNOWN_ORDER, pb.Reason_REASON_TOO_LATE, pb.Reason_REASON_QUANTITY_FILLED,
		pb.Reason_REASON_MAX_QUANTITY, pb.Reason_REASON_PRICE_COLLAR, pb.Reason_REASON_UNKNOWN_SYMBOL,
	} {
		if refusals[reason] == 0 {
			t.Errorf("the flow never met %s", reason)
		}
	}
	live := contents(r.state, accounts)
	other := r.replayed(Options{MaxIDs: 2 * steps, MaxOpenOrders: 1000, MaxLevels: 100})
	if again := contents(other, accounts); !slices.Equal(live, again) {
		t.Fatal("the replay differs from what was")
	}
	for _, h := range history {
		for name, state := range map[string]*State{"live": r.state, "replayed": other} {
			c := h.command
			var out Answer
			journal, err := state.Decide(&c, &out)
			if journal || err != nil {
				if c.Kind != Submit && c.RequestID.IsZero() {
					continue // not remembered, so not repeated
				}
				t.Fatalf("%s: %s asked again would enter (%v)", name, c.ClientOrderID, err)
			}
			want := h.answer
			want.Duplicate = true
			if c.Kind != Submit && c.RequestID.IsZero() {
				continue
			}
			if out != want {
				t.Fatalf("%s: %s asked again got %+v, first %+v", name, c.ClientOrderID, out, h.answer)
			}
		}
	}
}

// TestBookFullIsDecidedOnce: what was refused for lack of room stays refused when the journal is replayed with more room.
func TestBookFullIsDecidedOnce(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 100, MaxOpenOrders: 2, MaxLevels: 2}, "alpha")
	r.do(limit(0, "a", matching.Buy, 1, 98))
	r.do(limit(0, "b", matching.Buy, 1, 99))
	if a := r.do(limit(0, "c", matching.Buy, 1, 97)); a.Reason != pb.Reason_REASON_BOOK_FULL {
		t.Fatalf("third order of two: %s", brief(a))
	}
	if live, again := contents(r.state, 1), contents(r.replayed(Options{MaxIDs: 100}), 1); !slices.Equal(live, again) {
		t.Fatalf("replayed with more room:\n%q\nwas\n%q", again, live)
	}
}

func TestPagesGoOnFromAnOrderThatHasEnded(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 100}, "alpha")
	for i := range 6 {
		r.do(limit(0, fmt.Sprint("o", i), matching.Buy, 1, 100))
	}
	page, next, _ := r.state.List(0, true, 0, 2, nil)
	if len(page) != 2 || next == 0 {
		t.Fatalf("first page has %d orders, next %d", len(page), next)
	}
	r.do(cancel(0, "", "o1"))
	r.do(cancel(0, "", "o2"))
	page, next, _ = r.state.List(0, true, next, 10, nil)
	var got []string
	for _, o := range page {
		got = append(got, o.ClientOrderID.String())
	}
	if want := []string{"o3", "o4", "o5"}; !slices.Equal(got, want) || next != 0 {
		t.Errorf("second page is %v (next %d), want %v", got, next, want)
	}
	if page, _, ok := r.state.List(0, false, 77, 10, nil); ok || len(page) != 0 {
		t.Errorf("a cursor that nobody gave returned %d orders", len(page))
	}
}
