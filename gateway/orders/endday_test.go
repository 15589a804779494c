package orders

import (
	"fmt"
	"testing"
	"time"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

func gtc(c *Command) *Command {
	c.TimeInForce = matching.GoodTillCancel
	return c
}

// TestEndOfDay: what expires, what stays, which ids are free, and what repetitions get.
func TestEndOfDay(t *testing.T) {
	const buy, sell = matching.Buy, matching.Sell
	r := newRig(t, Options{MaxIDs: 100}, "alpha", "beta")
	r.limits(1, Limits{MaxPosition: 4})
	stay := gtc(limit(0, "stay", buy, 10, 100))
	first := r.do(stay)
	r.play(t, []step{
		{limit(0, "day", buy, 5, 99), "ACCEPTED"},
		{gtc(limit(1, "hit", sell, 4, 100)), "FILLED"},
		{gtc(limit(0, "gone", buy, 1, 98)), "ACCEPTED"},
		{cancel(0, "c1", "gone"), "CANCELED"},
		{of("NOPE", limit(0, "bad", buy, 1, 1)), "REJECTED UNKNOWN_SYMBOL: no instrument has the symbol NOPE; ListInstruments names all"},
		{replace(0, "r1", "stay", 9, 100), "PARTIALLY_FILLED"},
		{replace(0, "r2", "stay", 8, 100), "PARTIALLY_FILLED"},
		{replace(0, "r3", "day", 6, 99), "ACCEPTED"},
		{limit(0, "day2", sell, 5, 120), "ACCEPTED"},
		{killSwitch(Scope{Number: 1}, true), ""},
		{&Command{Kind: CancelAllAfter, Account: 1, TriggerNs: 99}, ""},
	})
	yesterday := r.story(0, 1)
	a := r.do(&Command{Kind: EndDay})
	if a.Count != 2 || a.Epoch != 2 || r.state.Epoch() != 2 {
		t.Errorf("the end of the day is answered with %+v", a)
	}
	wantLines(t, "the day before, still", r.story(0, 1), yesterday)
	wantLines(t, "the new day", r.story(0, 2), []string{
		"#1 EXPIRED END_OF_DAY day EXPIRED 0/0/6 v3", "#2 EXPIRED END_OF_DAY day2 EXPIRED 0/0/5 v2",
	})
	if o, ok := r.state.Order(0, id("stay")); !ok || o.OrderID != first.OrderID || o.Filled != 4 || o.Leaves != 4 || o.Quantity != 8 {
		t.Errorf("what is good till canceled is now %+v (%v)", o, ok)
	}
	for _, name := range []string{"day", "day2", "gone", "bad"} {
		if _, ok := r.state.Order(0, id(name)); ok {
			t.Errorf("%s is still there", name)
		}
	}
	// Repetitions: of the order that stays and of requests about it, the first answer with its own epoch; of all else, new.
	if again := r.do(stay); !again.Duplicate || again.Sequence != first.Sequence || again.Epoch != 1 || again.OrderID != first.OrderID {
		t.Errorf("the order again: %+v, first %+v", again, first)
	}
	if again := r.do(replace(0, "r1", "stay", 9, 100)); !again.Duplicate || again.Quantity != 9 || again.Epoch != 1 {
		t.Errorf("its replace again: %+v", again)
	}
	r.play(t, []step{
		{cancel(0, "r3", "day"), "REJECTED UNKNOWN_ORDER: the account has no order day"},
		{limit(0, "day", buy, 3, 97), "ACCEPTED"},
		{limit(1, "k", sell, 1, 100), "REJECTED KILL_SWITCH: the account's kill switch is engaged: nothing new is entered until it is lifted"},
		{killSwitch(Scope{Number: 1}, false), ""},
		{gtc(limit(1, "hit", sell, 1, 100)), "REJECTED MAX_POSITION: with this order, and everything open on its side filled, the account's position would pass its limit of 4 lots"},
		{&Command{Kind: FireTimer, Account: 1, TriggerNs: 99}, "CANCELED"},
		{cancel(0, "c9", "stay"), "CANCELED"},
	})
	// Order ids go on: seven orders were entered on the first day.
	if o, _ := r.state.Order(0, id("day")); o.OrderID != 7 {
		t.Errorf("the new day's first order is number %d, want 7", o.OrderID)
	}
	// The order that stayed keeps its id until the end of the day in which it ended.
	if again := r.do(stay); !again.Duplicate {
		t.Errorf("after its cancel: %+v", again)
	}
	r.do(&Command{Kind: EndDay})
	if len(r.story(0, 1)) != 0 || len(r.story(0, 2)) == 0 {
		t.Error("of two days before there should be nothing left, of the day before everything")
	}
	if a := r.do(stay); a.Duplicate || a.Epoch != 3 {
		t.Errorf("a day later: %+v", a)
	}
}

// TestPagesOverTheEndOfADay: a page's token goes on behind its order, also where that was let go.
func TestPagesOverTheEndOfADay(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 100}, "alpha", "beta")
	for i := range 8 {
		c := limit(0, fmt.Sprint("o", i), matching.Buy, 1, 100)
		if i%2 == 1 {
			gtc(c)
		}
		r.do(c)
	}
	r.do(gtc(limit(1, "other", matching.Buy, 1, 100)))
	_, after3, _ := r.state.List(0, true, 0, 3, nil) // ends at o2, which expires
	_, after4, _ := r.state.List(0, true, 0, 4, nil) // ends at o3, which stays
	r.do(&Command{Kind: EndDay})
	r.do(limit(0, "new", matching.Buy, 1, 100))
	for name, cursor := range map[string]uint64{"o3 o5 o7 new": after3, "o5 o7 new": after4, "o1 o3 o5 o7 new": 0} {
		for _, open := range []bool{false, true} {
			got := ""
			page, next, ok := r.state.List(0, open, cursor, 10, nil)
			for i, o := range page {
				if i > 0 {
					got += " "
				}
				got += o.ClientOrderID.String()
			}
			if got != name || next != 0 || !ok {
				t.Errorf("behind %d (open %v): %q, next %d, %v, want %q", cursor, open, got, next, ok, name)
			}
		}
	}
	if _, _, ok := r.state.List(1, true, after4, 10, nil); ok {
		t.Error("another account's cursor was taken")
	}
}

// TestManyDays: the records of two days are used again and again, and nothing of an old day shows through.
func TestManyDays(t *testing.T) {
	f := newFlow(t, 9, Options{MaxIDs: 400})
	for day := range 12 {
		for range 150 {
			f.try(f.next())
		}
		f.rig.do(&Command{Kind: EndDay})
		if live, again := f.rig.state.Digest(), f.rig.replayed(f.rig.options).Digest(); live != again {
			t.Fatalf("after day %d the replay differs", day)
		}
		for account := range uint32(flowAccounts) {
			page, _, _ := f.rig.state.List(account, false, 0, 1000, nil)
			for _, o := range page {
				if o.TimeInForce != matching.GoodTillCancel || o.Leaves == 0 || o.Status == pb.OrderStatus_ORDER_STATUS_EXPIRED {
					t.Fatalf("after day %d account %d still has %+v", day, account, o)
				}
			}
		}
	}
}

// BenchmarkEndDay is the end of a day with 100,000 open orders, half of them good till canceled, of 1,000 accounts. The writer's
// lock is held all the while.
func BenchmarkEndDay(b *testing.B) {
	const orders, accounts = 100_000, 1_000
	var took time.Duration
	for b.Loop() {
		b.StopTimer()
		names := make([]string, accounts)
		for i := range names {
			names[i] = fmt.Sprint("a", i)
		}
		r := newRig(b, Options{MaxIDs: 1 << 20, MaxOpenOrders: orders}, names...)
		for i := range orders {
			c := limit(uint32(i%accounts), fmt.Sprint("o", i), matching.Side(1+i%2), 10, int64(100+i%2*10))
			if i/accounts%2 == 0 {
				gtc(c)
			}
			r.do(c)
		}
		b.StartTimer()
		start := time.Now()
		if a := r.do(&Command{Kind: EndDay}); a.Count != orders/2 {
			b.Fatalf("%d orders expired", a.Count)
		}
		took += time.Since(start)
	}
	b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "ms/day")
}
