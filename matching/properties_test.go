package matching_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
	"tailgate/matching"
)

// small bounds make a short list of commands reach every rule.
var small = matching.Options{MaxOrders: 6, MaxLevels: 4, MaxInstruments: 4}

// anyCommand draws commands like flow, in a form that shrinks to a short list.
// One in ten has one field that may be out of its bounds.
func anyCommand() *rapid.Generator[matching.Command] {
	price := rapid.OneOf(
		rapid.Int64Range(-2, 2),
		rapid.Int64Range(-2, 2),
		rapid.SampledFrom([]int64{matching.MinPrice, -1 << 40, -64, 63, 64, 4095, 4096, 1 << 40, matching.MaxPrice}),
	)
	return rapid.Custom(func(t *rapid.T) matching.Command {
		cmd := matching.Command{
			Kind: rapid.SampledFrom([]matching.CommandKind{
				matching.Submit, matching.Submit, matching.Submit, matching.Replace, matching.Cancel,
			}).Draw(t, "kind"),
			Side: rapid.SampledFrom([]matching.Side{matching.Buy, matching.Sell}).Draw(t, "side"),
			Type: rapid.SampledFrom([]matching.OrderType{
				matching.Limit, matching.Limit, matching.Limit, matching.Limit, matching.Market,
			}).Draw(t, "type"),
			TimeInForce: rapid.SampledFrom([]matching.TimeInForce{
				matching.Day, matching.GoodTillCancel, matching.GoodTillCancel, matching.GoodTillCancel,
				matching.ImmediateOrCancel, matching.FillOrKill,
			}).Draw(t, "tif"),
			Instrument: uint32(rapid.IntRange(0, 1).Draw(t, "instrument")),
			OrderID:    rapid.Uint64Range(0, 15).Draw(t, "id"),
			Price:      price.Draw(t, "price"),
			Quantity:   rapid.Uint64Range(1, 10).Draw(t, "quantity"),
			PostOnly:   rapid.IntRange(0, 4).Draw(t, "post-only") == 4,
			Group:      rapid.Uint32Range(0, 2).Draw(t, "group"),
			SelfTradePrevention: rapid.SampledFrom([]matching.SelfTradePrevention{
				0, matching.AllowSelfTrade, matching.CancelTaker, matching.CancelMaker, matching.CancelBoth, matching.Decrement,
			}).Draw(t, "prevention"),
		}
		switch rapid.IntRange(0, 5).Draw(t, "term") {
		case 4:
			cmd.DisplayQuantity = rapid.Uint64Range(1, 5).Draw(t, "display")
		case 5:
			cmd.MinimumQuantity = rapid.Uint64Range(1, cmd.Quantity).Draw(t, "minimum")
		}
		switch rapid.IntRange(0, 79).Draw(t, "spoil") {
		case 70:
			cmd.Kind = matching.CommandKind(rapid.Uint8().Draw(t, "any kind"))
		case 71:
			cmd.Side = matching.Side(rapid.Uint8().Draw(t, "any side"))
		case 72:
			cmd.Type = matching.OrderType(rapid.Uint8().Draw(t, "any type"))
		case 73:
			cmd.TimeInForce = matching.TimeInForce(rapid.Uint8().Draw(t, "any tif"))
		case 74:
			cmd.Instrument = rapid.Uint32().Draw(t, "any instrument")
		case 75:
			cmd.Price = rapid.SampledFrom([]int64{math.MinInt64, matching.MinPrice}).Draw(t, "edge price")
		case 76:
			cmd.Quantity = rapid.SampledFrom([]uint64{
				0, matching.MaxQuantity, matching.MaxQuantity + 1, math.MaxUint64,
			}).Draw(t, "edge quantity")
		case 77:
			cmd.SelfTradePrevention = matching.SelfTradePrevention(rapid.Uint8().Draw(t, "any prevention"))
		case 78:
			cmd.DisplayQuantity = rapid.SampledFrom([]uint64{cmd.Quantity, matching.MaxQuantity, math.MaxUint64}).Draw(t, "edge display")
		case 79:
			cmd.MinimumQuantity = rapid.SampledFrom([]uint64{cmd.Quantity + 1, math.MaxUint64}).Draw(t, "edge minimum")
		}
		return cmd
	})
}

func drawCommands(t *rapid.T) []matching.Command {
	commands := rapid.SliceOfN(anyCommand(), 1, 60).Draw(t, "commands")
	for i := range commands {
		commands[i].Sequence = uint64(i)
	}
	return commands
}

func drawOptions(t *rapid.T) matching.Options {
	options := small
	options.ModifyIsCancelNew = rapid.Bool().Draw(t, "cancel-new")
	return options
}

// newSmall returns an engine with books 0 and 1.
func newSmall(options matching.Options) (*matching.Engine, error) {
	e, err := matching.NewEngine(options)
	if err != nil {
		return nil, err
	}
	return e, errors.Join(e.AddInstrument(0), e.AddInstrument(1))
}

func applyAll(e *matching.Engine, commands []matching.Command) (events []matching.Event) {
	for i := range commands {
		events = e.Apply(&commands[i], events)
	}
	return events
}

func check(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// step is one command with what was there before and what came of it.
type step struct {
	matching.Command
	engine *matching.Engine // after the command
	before []matching.Order // that rested
	events []matching.Event
}

// took adds up what the command's own order traded.
func (s *step) took() (lots uint64) {
	for _, ev := range s.events {
		if ev.Kind == matching.Trade {
			lots += ev.Quantity
		}
	}
	return lots
}

// terms returns what the command's order asked for when it was entered.
func (s *step) terms() matching.Order {
	if s.Kind == matching.Submit {
		return matching.Order{
			ID: s.OrderID, Side: s.Side, Group: s.Group, PostOnly: s.PostOnly,
			SelfTradePrevention: s.SelfTradePrevention, DisplayQuantity: s.DisplayQuantity,
		}
	}
	return s.restedBefore(s.OrderID)
}

// restedBefore returns the order with this id that rested before, or a zero one.
func (s *step) restedBefore(id uint64) matching.Order {
	for _, o := range s.before {
		if o.ID == id {
			return o
		}
	}
	return matching.Order{}
}

// everyStep looks at an engine after each of any commands.
func everyStep(t *testing.T, look func(t *rapid.T, s *step)) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := newSmall(drawOptions(t))
		check(t, err)
		for _, cmd := range drawCommands(t) {
			s := step{Command: cmd, engine: e, before: slices.Collect(e.Orders())}
			s.events = e.Apply(&cmd, nil)
			look(t, &s)
		}
	})
}

func TestNeverCrossedOrLocked(t *testing.T) {
	everyStep(t, func(t *rapid.T, s *step) {
		bid, bids := s.engine.Best(s.Instrument, matching.Buy)
		ask, asks := s.engine.Best(s.Instrument, matching.Sell)
		if bids && asks && bid.Price >= ask.Price {
			t.Fatalf("best bid %d, best ask %d after %+v", bid.Price, ask.Price, s.Command)
		}
	})
}

// The account of every order, kept from events alone, adds up and ends as the
// engine sees it.
func TestFilledCanceledLeavesIsEntered(t *testing.T) {
	type account struct{ entered, filled, canceled uint64 }
	rapid.Check(t, func(t *rapid.T) {
		e, err := newSmall(drawOptions(t))
		check(t, err)
		accounts := map[uint64]*account{}
		of := func(id uint64) *account {
			if accounts[id] == nil {
				accounts[id] = &account{}
			}
			return accounts[id]
		}
		adds := func(id, leaves uint64) {
			if a := of(id); a.filled+a.canceled+leaves != a.entered {
				t.Fatalf("order %d: %+v and leaves %d", id, *a, leaves)
			}
		}
		for _, cmd := range drawCommands(t) {
			for _, ev := range e.Apply(&cmd, nil) {
				switch ev.Kind {
				case matching.Accepted:
					accounts[ev.OrderID] = &account{entered: ev.Quantity}
				case matching.Replaced:
					of(ev.OrderID).entered, of(ev.OrderID).canceled = ev.Quantity, 0
				case matching.Canceled:
					of(ev.OrderID).canceled += ev.Quantity
				case matching.Trade:
					of(ev.OrderID).filled += ev.Quantity
					of(ev.MakerID).filled += ev.Quantity
					adds(ev.MakerID, ev.MakerLeaves)
				case matching.Rejected:
					continue
				}
				adds(ev.OrderID, ev.Leaves)
			}
			for id, a := range accounts {
				if o, rests := e.Order(id); a.entered-a.filled-a.canceled != o.Leaves || rests && a.filled != o.Filled() {
					t.Fatalf("order %d: %+v, the engine has %+v", id, *a, o)
				}
			}
		}
	})
}

func TestDepthIsTheSumOfItsOrders(t *testing.T) {
	everyStep(t, func(t *rapid.T, s *step) {
		for _, side := range []matching.Side{matching.Buy, matching.Sell} {
			want := levelsOf(slices.Collect(s.engine.Orders()), s.Instrument, side)
			if got := s.engine.Depth(s.Instrument, side, math.MaxInt, nil); !slices.Equal(got, want) {
				t.Fatalf("depth %+v, the orders show %+v", got, want)
			}
		}
	})
}

// No trade is worse than the taker's price, and each is at the maker's.
func TestLimitIsNeverViolated(t *testing.T) {
	everyStep(t, func(t *rapid.T, s *step) {
		for _, ev := range s.events {
			if ev.Kind != matching.Trade {
				continue
			}
			if maker := s.restedBefore(ev.MakerID); ev.Price != maker.Price ||
				ev.Side == matching.Buy && ev.Price > s.Price || ev.Side == matching.Sell && ev.Price < s.Price {
				t.Fatalf("%+v of %+v, the maker was %+v", ev, s.Command, maker)
			}
		}
	})
}

func TestFillOrKillIsNeverPartial(t *testing.T) {
	everyStep(t, func(t *rapid.T, s *step) {
		if s.Kind == matching.Submit && s.TimeInForce == matching.FillOrKill && s.took() != 0 && s.took() != s.Quantity {
			t.Fatalf("%+v took %d", s.Command, s.took())
		}
		if s.Kind == matching.Submit && s.TimeInForce == matching.FillOrKill && s.events[0].Kind == matching.Accepted && s.took() == 0 {
			t.Fatalf("%+v was accepted and took nothing", s.Command)
		}
	})
}

func TestCancelOfTheBestLeavesNoGhostLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := newSmall(drawOptions(t))
		check(t, err)
		applyAll(e, drawCommands(t))
		for { // cancel the order that stands first until nothing is left
			orders := slices.Collect(e.Orders())
			for instrument := range uint32(2) {
				for _, side := range []matching.Side{matching.Buy, matching.Sell} {
					var want matching.Level
					if levels := levelsOf(orders, instrument, side); len(levels) > 0 {
						want = levels[0]
					}
					if best, ok := e.Best(instrument, side); ok != (want.Orders > 0) || best != want {
						t.Fatalf("instrument %d: best %v is %+v, %t, the orders say %+v", instrument, side, best, ok, want)
					}
				}
			}
			if len(orders) == 0 {
				return
			}
			e.Apply(&matching.Command{Kind: matching.Cancel, Instrument: orders[0].Instrument, OrderID: orders[0].ID}, nil)
		}
	})
}

// The same commands give the same events, into a buffer with or without room.
func TestReplayIsEqualToTheByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options, commands := drawOptions(t), drawCommands(t)
		first, err := newSmall(options)
		check(t, err)
		second, err := newSmall(options)
		check(t, err)
		events := applyAll(first, commands)
		var again []matching.Event
		for i := range commands {
			again = append(again, second.Apply(&commands[i], nil)...)
		}
		if !slices.Equal(events, again) {
			t.Fatalf("first  %+v\nagain  %+v", events, again)
		}
	})
}

// On every event and on the whole book; the ledger agrees.
func TestFastEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, err := newTwins(drawOptions(t), 0, 1)
		check(t, err)
		for _, cmd := range drawCommands(t) {
			_, err := w.apply(&cmd)
			check(t, err)
		}
	})
}

// Neither at entry nor by a replace.
func TestPostOnlyNeverTakes(t *testing.T) {
	everyStep(t, func(t *rapid.T, s *step) {
		if terms := s.terms(); terms.PostOnly && s.took() > 0 {
			t.Fatalf("%+v took %d", s.Command, s.took())
		}
	})
}

func TestMinimumQuantityOrNothing(t *testing.T) {
	everyStep(t, func(t *rapid.T, s *step) {
		if s.Kind == matching.Submit && s.events[0].Kind == matching.Accepted && s.took() < s.MinimumQuantity {
			t.Fatalf("%+v took %d", s.Command, s.took())
		}
	})
}

// No order shows more than its display quantity, and one that shows less than that
// has traded of the part it shows or hides nothing.
func TestIcebergShowsItsDisplayQuantity(t *testing.T) {
	everyStep(t, func(t *rapid.T, s *step) {
		for o := range s.engine.Orders() {
			most := o.Leaves
			if o.DisplayQuantity > 0 {
				most = min(most, o.DisplayQuantity)
			}
			if o.Shown < 1 || o.Shown > most {
				t.Fatalf("%+v", o)
			}
			if was := s.restedBefore(o.ID); was.ID == 0 && o.ID == s.OrderID && o.Shown != most {
				t.Fatalf("a new order shows too little: %+v", o)
			}
		}
	})
}

// With a prevention orders of one group do not trade, and what it cancels is of
// the two that met; without one nothing is canceled for it.
func TestPreventionOnTheTakersWord(t *testing.T) {
	everyStep(t, func(t *rapid.T, s *step) {
		taker := s.terms()
		prevents := taker.Group != 0 && taker.SelfTradePrevention > matching.AllowSelfTrade
		for _, ev := range s.events {
			own := s.restedBefore(ev.MakerID).Group == taker.Group // where the event names a maker
			switch {
			case ev.Kind == matching.Trade && prevents && own:
				t.Fatalf("%+v traded within its group: %+v", taker, ev)
			case ev.Kind == matching.Canceled && ev.Reason == matching.ReasonSelfTrade && !(prevents && own):
				t.Fatalf("%+v: not its own group or not its word: %+v", taker, ev)
			case ev.OrderID != s.OrderID && (ev.Kind != matching.Canceled || ev.Reason != matching.ReasonSelfTrade || ev.OrderID != ev.MakerID):
				t.Fatalf("%+v: an event of another order: %+v", taker, ev)
			}
		}
	})
}

// A refused command leaves every order as it was, and Check had said so.
func TestRefusalChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := newSmall(drawOptions(t))
		check(t, err)
		for _, cmd := range drawCommands(t) {
			before := slices.Collect(e.Orders())
			foreseen := e.Check(&cmd)
			events := e.Apply(&cmd, nil)
			if refused := events[0].Kind == matching.Rejected; refused != (foreseen != matching.ReasonNone) ||
				refused && (len(events) != 1 || events[0].Reason != foreseen) {
				t.Fatalf("Check says %v of %+v, Apply %+v", foreseen, cmd, events)
			}
			if events[0].Kind == matching.Rejected && !slices.Equal(before, slices.Collect(e.Orders())) {
				t.Fatalf("%+v was refused and changed the book", cmd)
			}
		}
	})
}

// An engine restored from another's orders goes on like that one.
func TestRestoreIsLossless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options, before, after := drawOptions(t), drawCommands(t), drawCommands(t)
		original, err := newSmall(options)
		check(t, err)
		applyAll(original, before)
		restored, err := newSmall(options)
		check(t, err)
		for o := range original.Orders() {
			check(t, restored.Restore(o))
		}
		check(t, restored.CheckInvariants())
		if want, got := applyAll(original, after), applyAll(restored, after); !slices.Equal(want, got) {
			t.Fatalf("original %+v\nrestored %+v", want, got)
		}
		if want, got := slices.Collect(original.Orders()), slices.Collect(restored.Orders()); !slices.Equal(want, got) {
			t.Fatalf("original %+v\nrestored %+v", want, got)
		}
	})
}
