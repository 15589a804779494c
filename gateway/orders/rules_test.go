package orders

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// brief is an answer as one line: status, reason, then filled/leaves/quantity, notional, version, sequence, and what is special.
func brief(a Answer) string {
	s := strings.TrimPrefix(a.Status.String(), "ORDER_STATUS_")
	if a.Reason != pb.Reason_REASON_UNSPECIFIED {
		s += " " + strings.TrimPrefix(a.Reason.String(), "REASON_")
	}
	s += fmt.Sprintf(" %d/%d/%d notional %d v%d #%d", a.Filled, a.Leaves, a.Quantity, a.FilledNotional, a.Version, a.Sequence)
	if a.Duplicate {
		s += " duplicate"
	}
	return s
}

// TestRules is a script: each line does one thing and says its whole answer. Accounts 0 and 1; limits: 1,000 lots, 150,000 notional,
// a collar of 50 % around 100 (or the last trade).
func TestRules(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 1000}, "alpha", "beta")
	r.limits(0, Limits{MaxQuantity: 1000, MaxNotional: 150_000, PriceCollarBps: 5000})
	r.limits(1, Limits{MaxQuantity: 1000, MaxNotional: 150_000, PriceCollarBps: 5000})
	unknown := limit(0, "x1", matching.Buy, 1, 100)
	unknown.Symbol = symbol("NOPE")
	other := limit(0, "a1", matching.Buy, 11, 100)
	ioc := limit(1, "b4", matching.Sell, 50, 100)
	ioc.TimeInForce = matching.ImmediateOrCancel
	steps := []struct {
		what    string
		command *Command
		want    string
	}{
		{"rests", limit(0, "a1", matching.Buy, 10, 100), "ACCEPTED 0/10/10 notional 0 v1 #1"},
		{"the same again", limit(0, "a1", matching.Buy, 10, 100), "ACCEPTED 0/10/10 notional 0 v1 #1 duplicate"},
		{"the same id, other content", other, "REJECTED DUPLICATE_ID 0/0/0 notional 0 v0 #0"},
		{"the same id of another account is another order", limit(1, "a1", matching.Buy, 10, 99), "ACCEPTED 0/10/10 notional 0 v1 #1"},
		{"crosses and takes a part", limit(1, "b1", matching.Sell, 4, 98), "FILLED 4/0/4 notional 400 v2 #2"},
		{"the first answer stays the first answer", limit(0, "a1", matching.Buy, 10, 100), "ACCEPTED 0/10/10 notional 0 v1 #1 duplicate"},
		{"quantity down to what is filled", replace(0, "r1", "a1", 4, 100), "REJECTED QUANTITY_FILLED 4/6/10 notional 400 v2 #3"},
		{"quantity down, filled lots included", replace(0, "r2", "a1", 8, 100), "PARTIALLY_FILLED 4/4/8 notional 400 v3 #4"},
		{"that request again", replace(0, "r2", "a1", 8, 100), "PARTIALLY_FILLED 4/4/8 notional 400 v3 #4 duplicate"},
		{"its id for another request", cancel(0, "r2", "a1"), "REJECTED DUPLICATE_ID 0/0/0 notional 0 v0 #0"},
		{"IOC takes two levels, the rest is canceled", ioc, "CANCELED 4/0/50 notional 400 v3 #4"},
		{"too late", cancel(0, "c1", "a1"), "REJECTED TOO_LATE 8/0/8 notional 800 v4 #6"},
		{"too late, not remembered", cancel(0, "", "a1"), "REJECTED TOO_LATE 8/0/8 notional 800 v4 #0"},
		{"unknown", cancel(0, "", "nobody"), "REJECTED UNKNOWN_ORDER 0/0/0 notional 0 v0 #0"},
		{"unknown symbol", unknown, "REJECTED UNKNOWN_SYMBOL 0/0/1 notional 0 v0 #7"},
		{"a rejected id is used up", unknown, "REJECTED UNKNOWN_SYMBOL 0/0/1 notional 0 v0 #7 duplicate"},
		{"too many lots", limit(0, "x2", matching.Buy, 1001, 100), "REJECTED MAX_QUANTITY 0/0/1001 notional 0 v0 #8"},
		{"too much notional", limit(0, "x3", matching.Buy, 1000, 150), "ACCEPTED 0/1000/1000 notional 0 v1 #9"},
		{"more notional by a replace", replace(0, "", "x3", 1000, 151), "REJECTED PRICE_COLLAR 0/1000/1000 notional 0 v1 #0"},
		{"cancel", cancel(0, "c2", "x3"), "CANCELED 0/0/1000 notional 0 v2 #10"},
		{"cancel again, same request", cancel(0, "c2", "x3"), "CANCELED 0/0/1000 notional 0 v2 #10 duplicate"},
		{"collar below", limit(0, "x4", matching.Sell, 1, 49), "REJECTED PRICE_COLLAR 0/0/1 notional 0 v0 #11"},
		{"market takes what stands, the rest is canceled", market(0, "m1", matching.Sell, 12), "CANCELED 10/0/12 notional 990 v3 #12"},
		{"market with nobody there", market(0, "m2", matching.Sell, 5), "CANCELED 0/0/5 notional 0 v2 #15"},
	}
	for _, step := range steps {
		if got := brief(r.do(step.command)); got != step.want {
			t.Errorf("%s:\n got %s\nwant %s", step.what, got, step.want)
		}
	}
}

func TestText(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 1000}, "alpha")
	r.limits(0, Limits{MaxQuantity: 1000, MaxNotional: 50_000, PriceCollarBps: 5000})
	r.do(limit(0, "open", matching.Buy, 10, 100))
	for _, step := range []struct {
		command *Command
		want    string
	}{
		{limit(0, "t1", matching.Buy, 1001, 100), "quantity 1001 is above the account's limit of 1000 lots"},
		{limit(0, "t2", matching.Buy, 900, 100), "price 100 x quantity 900 is above the account's notional limit of 50000"},
		{limit(0, "t3", matching.Buy, 1, 151), "price 151 is outside the account's price collar, which ends at 150"},
		{cancel(0, "", "none"), "the account has no order none"},
		{limit(0, "open", matching.Sell, 10, 100), "id open was used before for something else; take another id"},
		{replace(0, "", "open", 2000, 100), "quantity 2000 is above the account's limit of 1000 lots"},
	} {
		first := r.do(step.command)
		if got := first.Text(step.command); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
		again := r.do(step.command)
		if got := again.Text(step.command); got != step.want {
			t.Errorf("repeated: got %q, want %q", got, step.want)
		}
	}
}

func TestHaltedInstrumentAndNotionalBounds(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 1000}, "alpha")
	define := func(change func(*Instrument)) {
		d, _ := r.state.Instrument(symbol("ACME"))
		change(&d)
		r.do(&Command{Kind: DefineInstrument, Instrument: &d})
	}
	r.do(limit(0, "rests", matching.Buy, 1, 100))
	define(func(d *Instrument) { d.State = pb.InstrumentState_INSTRUMENT_STATE_HALTED })
	if a := r.do(limit(0, "h1", matching.Buy, 1, 100)); a.Reason != pb.Reason_REASON_INSTRUMENT_NOT_OPEN {
		t.Errorf("halted: new order got %s", brief(a))
	}
	if a := r.do(cancel(0, "", "rests")); a.Status != pb.OrderStatus_ORDER_STATUS_CANCELED {
		t.Errorf("halted: cancel got %s", brief(a))
	}
	define(func(d *Instrument) {
		d.State, d.MinNotional, d.MaxNotional = pb.InstrumentState_INSTRUMENT_STATE_OPEN, 500, 1000
	})
	for quantity, want := range map[uint64]pb.Reason{
		4: pb.Reason_REASON_MIN_NOTIONAL, 5: 0, 10: 0, 11: pb.Reason_REASON_MAX_NOTIONAL,
	} {
		if a := r.do(limit(0, fmt.Sprint("n", quantity), matching.Buy, quantity, 100)); a.Reason != want {
			t.Errorf("%d lots at 100 with 500 to 1000: got %s, want %s", quantity, a.Reason, want)
		}
	}
	// 2^62 x 2^40 does not fit 63 bits: a refusal, never a wrap.
	if a := r.do(limit(0, "big", matching.Buy, 1<<40-1, 1<<62)); a.Reason != pb.Reason_REASON_MAX_NOTIONAL {
		t.Errorf("overflow: got %s", brief(a))
	}
	if d, _ := r.state.Instrument(symbol("ACME")); d.Version != 3 {
		t.Errorf("version %d after three definitions", d.Version)
	}
}

func TestFullTableRefusesAndForgetsNothing(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 2}, "alpha")
	r.do(limit(0, "a", matching.Buy, 1, 100))
	r.do(limit(0, "b", matching.Buy, 1, 100))
	var out Answer
	if _, err := r.state.Decide(limit(0, "c", matching.Buy, 1, 100), &out); !errors.Is(err, ErrIDsFull) {
		t.Fatalf("third id of two: %v, want ErrIDsFull", err)
	}
	if a := r.do(limit(0, "a", matching.Buy, 1, 100)); !a.Duplicate {
		t.Errorf("a repetition in a full table got %s", brief(a))
	}
	r.do(cancel(0, "r1", "a"))
	r.do(cancel(0, "r2", "zzz"))
	if _, err := r.state.Decide(cancel(0, "r3", "b"), &out); !errors.Is(err, ErrIDsFull) {
		t.Errorf("third request id of two: %v, want ErrIDsFull", err)
	}
	if a := r.do(cancel(0, "", "b")); a.Status != pb.OrderStatus_ORDER_STATUS_CANCELED {
		t.Errorf("a cancel without a request id in a full table got %s", brief(a))
	}
}

func TestReplayThatDoesNotFitIsAnError(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 10}, "alpha")
	for i := range 10 {
		r.do(limit(0, fmt.Sprint("o", i), matching.Buy, 1, int64(90+i)))
	}
	state, err := New(Options{MaxIDs: 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range r.journal {
		var c Command
		if err := c.Decode(record); err != nil {
			t.Fatal(err)
		}
		if err := state.Apply(&c, nil); err != nil {
			if !errors.Is(err, ErrReplay) {
				t.Errorf("%v does not wrap ErrReplay", err)
			}
			return
		}
	}
	t.Error("ten orders fitted a table of five")
}
