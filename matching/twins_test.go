package matching_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"tailgate/matching"
	"tailgate/matching/internal/naive"
)

// twins runs the fast engine, the naive one and a ledger side by side.
type twins struct {
	fast   *matching.Engine
	naive  *naive.Engine
	ledger *ledger

	instruments       []uint32
	fastBuf, naiveBuf []matching.Event
	orders            []matching.Order
	levels            []matching.Level
}

func newTwins(options matching.Options, instruments ...uint32) (*twins, error) {
	fast, err := matching.NewEngine(options)
	if err != nil {
		return nil, err
	}
	w := &twins{fast: fast, naive: naive.New(fast.Options()), ledger: newLedger(), instruments: instruments}
	for _, instrument := range instruments {
		if err := fast.AddInstrument(instrument); err != nil {
			return nil, err
		}
		w.naive.AddInstrument(instrument)
	}
	return w, nil
}

// apply gives both engines the command and compares every event, the whole book,
// its levels, and the account that the events alone allow to be kept.
func (w *twins) apply(cmd *matching.Command) ([]matching.Event, error) {
	foreseen := w.fast.Check(cmd)
	w.fastBuf = w.fast.Apply(cmd, w.fastBuf[:0])
	w.naiveBuf = w.naive.Apply(cmd, w.naiveBuf[:0])
	if !slices.Equal(w.fastBuf, w.naiveBuf) {
		return nil, fmt.Errorf("%+v:\nfast  %+v\nnaive %+v", *cmd, w.fastBuf, w.naiveBuf)
	}
	refused := matching.ReasonNone
	if w.naiveBuf[0].Kind == matching.Rejected {
		refused = w.naiveBuf[0].Reason
	}
	if foreseen != refused {
		return nil, fmt.Errorf("%+v: Check says %v, Apply %v", *cmd, foreseen, refused)
	}
	if err := w.compareBooks(); err != nil {
		return nil, fmt.Errorf("after %+v: %w", *cmd, err)
	}
	if err := w.fast.CheckInvariants(); err != nil {
		return nil, fmt.Errorf("after %+v: %w", *cmd, err)
	}
	if err := w.ledger.record(cmd, w.fastBuf); err != nil {
		return nil, err
	}
	if err := w.ledger.compare(w.orders); err != nil {
		return nil, fmt.Errorf("after %+v: %w", *cmd, err)
	}
	return w.fastBuf, nil
}

func (w *twins) compareBooks() error {
	w.orders = slices.AppendSeq(w.orders[:0], w.fast.Orders())
	if want := w.naive.Orders(); !slices.Equal(w.orders, want) {
		return fmt.Errorf("\nfast  %+v\nnaive %+v", w.orders, want)
	}
	if w.fast.Resting() != len(w.orders) {
		return fmt.Errorf("Resting is %d, the walk has %d orders", w.fast.Resting(), len(w.orders))
	}
	for _, o := range w.orders {
		if got, ok := w.fast.Order(o.ID); !ok || got != o {
			return fmt.Errorf("Order(%d) is %+v, %t, the walk has %+v", o.ID, got, ok, o)
		}
	}
	for _, instrument := range w.instruments {
		for _, side := range []matching.Side{matching.Buy, matching.Sell} {
			want := levelsOf(w.orders, instrument, side)
			for _, n := range []int{0, 1, 3, math.MaxInt} {
				w.levels = w.fast.Depth(instrument, side, n, w.levels[:0])
				if !slices.Equal(w.levels, want[:min(n, len(want))]) {
					return fmt.Errorf("instrument %d, %v, depth %d is %v, the orders give %v", instrument, side, n, w.levels, want)
				}
			}
			best, ok := w.fast.Best(instrument, side)
			if ok != (len(want) > 0) || ok && best != want[0] {
				return fmt.Errorf("instrument %d: best %v is %v, %t, the orders give %v", instrument, side, best, ok, want)
			}
		}
	}
	return nil
}

// levelCount is how many levels all the books have.
func (w *twins) levelCount() int {
	count := 0
	for _, instrument := range w.instruments {
		for _, side := range []matching.Side{matching.Buy, matching.Sell} {
			count += len(w.fast.Depth(instrument, side, math.MaxInt, w.levels[:0]))
		}
	}
	return count
}

// levelsOf adds up one side's orders, which stand in the order of the walk.
func levelsOf(orders []matching.Order, instrument uint32, side matching.Side) []matching.Level {
	var levels []matching.Level
	for _, o := range orders {
		if o.Instrument != instrument || o.Side != side {
			continue
		}
		if last := len(levels) - 1; last < 0 || levels[last].Price != o.Price {
			levels = append(levels, matching.Level{Price: o.Price})
		}
		last := &levels[len(levels)-1]
		last.Quantity += o.Shown
		last.Orders++
	}
	return levels
}

// flow draws commands that collide: few ids, few prices, small quantities, and
// now and then something no engine should take.
type flow struct {
	*rand.Rand
	instruments []uint32
	ids         uint64
	prices      int64 // around zero
	quantity    uint64
	deep        bool // most orders are new ones, priced to rest
}

// next draws the next command; resting are the orders that rest now.
func (f *flow) next(sequence uint64, resting []matching.Order) matching.Command {
	cmd := matching.Command{
		Kind:        [...]matching.CommandKind{matching.Submit, matching.Submit, matching.Submit, matching.Cancel, matching.Replace}[f.IntN(5)],
		Side:        matching.Buy + matching.Side(f.IntN(2)),
		Type:        matching.Limit,
		TimeInForce: matching.Day + matching.TimeInForce(f.IntN(2)),
		Sequence:    sequence,
		OrderID:     f.Uint64N(f.ids),
		Price:       f.Int64N(f.prices) - f.prices/2,
		Quantity:    1 + f.Uint64N(f.quantity),
	}
	if f.deep && f.IntN(5) < 2 {
		cmd.Kind = matching.Submit
		if cmd.Price = f.Int64N(f.prices/2) - 2; cmd.Side == matching.Buy {
			cmd.Price = -cmd.Price
		}
	}
	// An id usually comes back on the same instrument, so that it is found there.
	cmd.Instrument = f.instruments[cmd.OrderID%uint64(len(f.instruments))]
	if f.IntN(20) == 0 {
		cmd.Instrument = f.instruments[f.IntN(len(f.instruments))]
	}
	if cmd.Kind != matching.Submit && len(resting) > 0 && f.IntN(4) > 0 {
		// Most cancels and replaces find an order, and half of these replaces leave
		// its price alone, so that it may keep its place.
		o := resting[f.IntN(len(resting))]
		cmd.OrderID, cmd.Instrument = o.ID, o.Instrument
		if f.IntN(2) == 0 {
			cmd.Price = o.Price
		}
	}
	f.terms(&cmd)
	switch f.IntN(10) {
	case 0:
		cmd.TimeInForce = matching.ImmediateOrCancel
	case 1:
		cmd.Type = matching.Market
	case 2:
		cmd.TimeInForce = matching.FillOrKill
		if f.IntN(3) == 0 {
			cmd.Type = matching.Market
		}
	case 3:
		if f.IntN(10) == 0 {
			f.spoil(&cmd)
		}
	}
	return cmd
}

// terms gives an order, independently of one another and of its time in force,
// the terms that are off in a plain one: a few account groups with every
// prevention, and with each of the others one order in five.
func (f *flow) terms(cmd *matching.Command) {
	cmd.Group = uint32(f.IntN(4))
	cmd.SelfTradePrevention = matching.SelfTradePrevention(f.IntN(6))
	cmd.PostOnly = f.IntN(5) == 0
	if f.IntN(5) == 0 {
		cmd.DisplayQuantity = 1 + f.Uint64N(cmd.Quantity) // all of it is refused
	}
	if f.IntN(5) == 0 {
		cmd.MinimumQuantity = 1 + f.Uint64N(cmd.Quantity)
	}
}

// spoil gives one field a value at or outside its bounds.
func (f *flow) spoil(cmd *matching.Command) {
	switch f.IntN(12) {
	case 0:
		cmd.Kind = matching.CommandKind(f.IntN(2)) * (matching.Replace + 1)
	case 1:
		cmd.Side = matching.Side(f.IntN(2)) * (matching.Sell + 1)
	case 2:
		cmd.Type = matching.OrderType(f.IntN(2)) * (matching.Market + 1)
	case 3:
		cmd.TimeInForce = matching.TimeInForce(f.IntN(2)) * (matching.FillOrKill + 1)
	case 4:
		cmd.Instrument = [...]uint32{f.instruments[0] + 1, math.MaxUint32}[f.IntN(2)]
	case 5:
		cmd.Price = math.MinInt64
	case 6:
		cmd.Price = [...]int64{matching.MinPrice, matching.MaxPrice}[f.IntN(2)]
	case 7:
		cmd.Quantity = [...]uint64{0, matching.MaxQuantity + 1, math.MaxUint64}[f.IntN(3)]
	case 8:
		cmd.Quantity = matching.MaxQuantity
	case 9:
		cmd.SelfTradePrevention = [...]matching.SelfTradePrevention{matching.Decrement + 1, math.MaxUint8}[f.IntN(2)]
	case 10:
		cmd.Quantity = 7 * matching.MaxDisplayParts
		cmd.DisplayQuantity = [...]uint64{6, 7, 8, cmd.Quantity, matching.MaxQuantity, math.MaxUint64}[f.IntN(6)]
	case 11:
		cmd.MinimumQuantity = [...]uint64{cmd.Quantity + 1, math.MaxUint64}[f.IntN(2)]
	}
}

// TestTwins is the proof of the fast engine: seeded flows in which everything
// collides, compared with the naive engine after every message.
// MATCHING_DIFF_MESSAGES sets how many messages each of the four flows has; a
// million took one and a half minutes of processor time.
func TestTwins(t *testing.T) {
	messages := 50_000
	if raceEnabled {
		messages = 5_000
	}
	if text := os.Getenv("MATCHING_DIFF_MESSAGES"); text != "" {
		var err error
		if messages, err = strconv.Atoi(text); err != nil || messages < 1 {
			t.Fatalf("MATCHING_DIFF_MESSAGES=%q is not a positive number", text)
		}
	}
	for _, shape := range []struct {
		name    string
		options matching.Options
		flow    flow
		reasons []matching.Reason // that this shape must meet
		full    bool              // it must reach both bounds
	}{
		{
			name:    "several instruments, tight bounds",
			options: matching.Options{MaxOrders: 20, MaxLevels: 16, MaxInstruments: 8},
			flow:    flow{instruments: []uint32{0, 3, 7}, ids: 60, prices: 12, quantity: 20},
			reasons: []matching.Reason{
				matching.ReasonImmediateOrCancel, matching.ReasonInvalidCommand, matching.ReasonUnknownInstrument,
				matching.ReasonInvalidSide, matching.ReasonInvalidOrderType, matching.ReasonInvalidTimeInForce,
				matching.ReasonInvalidPrice, matching.ReasonInvalidQuantity, matching.ReasonDuplicateOrderID,
				matching.ReasonUnknownOrder, matching.ReasonBookFull, matching.ReasonInvalidSelfTradePrevention,
				matching.ReasonInvalidDisplayQuantity, matching.ReasonInvalidMinimumQuantity,
			},
			full: true,
		},
		{
			name:    "one deep book",
			options: matching.Options{MaxOrders: 64, MaxLevels: 40, MaxInstruments: 1},
			flow:    flow{instruments: []uint32{0}, ids: 300, prices: 30, quantity: 20, deep: true},
			reasons: []matching.Reason{matching.ReasonDuplicateOrderID, matching.ReasonUnknownOrder, matching.ReasonBookFull},
		},
	} {
		for _, cancelNew := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cancel-new %t", shape.name, cancelNew), func(t *testing.T) {
				t.Parallel()
				options, flow := shape.options, shape.flow
				options.ModifyIsCancelNew = cancelNew
				flow.Rand = rand.New(rand.NewPCG(1, 2))
				w, err := newTwins(options, flow.instruments...)
				if err != nil {
					t.Fatal(err)
				}
				kinds, reasons := map[matching.EventKind]int{}, map[matching.Reason]int{}
				mostOrders, mostLevels := 0, 0
				for i := range messages {
					cmd := flow.next(uint64(i), w.orders)
					events, err := w.apply(&cmd)
					if err != nil {
						t.Fatalf("message %d: %v", i, err)
					}
					for _, ev := range events {
						kinds[ev.Kind]++
						reasons[ev.Reason]++
					}
					mostOrders = max(mostOrders, w.fast.Resting())
					mostLevels = max(mostLevels, w.levelCount())
				}
				t.Logf("kinds %v, reasons %v, at most %d orders on %d levels", kinds, reasons, mostOrders, mostLevels)
				if messages < 50_000 {
					return
				}
				// A flow that never meets a rule proves nothing about it.
				for kind := matching.Accepted; kind <= matching.Rejected; kind++ {
					if kinds[kind] == 0 {
						t.Errorf("the flow caused no %v", kind)
					}
				}
				for _, reason := range []matching.Reason{
					matching.ReasonSelfTrade, matching.ReasonPostOnlyWouldTake, matching.ReasonFillOrKill,
					matching.ReasonMinimumQuantity, matching.ReasonInvalidCombination,
				} {
					if reasons[reason] == 0 {
						t.Errorf("the flow met no %v", reason)
					}
				}
				if !cancelNew && reasons[matching.ReasonAlreadyFilled] == 0 {
					t.Error("the flow met no replace at or below what was filled")
				}
				if shape.full && (mostOrders < options.MaxOrders || mostLevels < options.MaxLevels) {
					t.Errorf("at most %d orders on %d levels: the bounds were not reached", mostOrders, mostLevels)
				}
				for _, reason := range shape.reasons {
					if reasons[reason] == 0 {
						t.Errorf("the flow met no %v", reason)
					}
				}
			})
		}
	}
}
