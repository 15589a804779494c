package matching_test

import (
	"errors"
	"fmt"
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
				matching.Day, matching.GoodTillCancel, matching.GoodTillCancel, matching.ImmediateOrCancel,
			}).Draw(t, "tif"),
			Instrument: uint32(rapid.IntRange(0, 1).Draw(t, "instrument")),
			OrderID:    rapid.Uint64Range(0, 15).Draw(t, "id"),
			Price:      price.Draw(t, "price"),
			Quantity:   rapid.Uint64Range(1, 10).Draw(t, "quantity"),
		}
		switch rapid.IntRange(0, 69).Draw(t, "spoil") {
		case 63:
			cmd.Kind = matching.CommandKind(rapid.Uint8().Draw(t, "any kind"))
		case 64:
			cmd.Side = matching.Side(rapid.Uint8().Draw(t, "any side"))
		case 65:
			cmd.Type = matching.OrderType(rapid.Uint8().Draw(t, "any type"))
		case 66:
			cmd.TimeInForce = matching.TimeInForce(rapid.Uint8().Draw(t, "any tif"))
		case 67:
			cmd.Instrument = rapid.Uint32().Draw(t, "any instrument")
		case 68:
			cmd.Price = rapid.SampledFrom([]int64{math.MinInt64, matching.MinPrice}).Draw(t, "edge price")
		case 69:
			cmd.Quantity = rapid.SampledFrom([]uint64{
				0, matching.MaxQuantity, matching.MaxQuantity + 1, math.MaxUint64,
			}).Draw(t, "edge quantity")
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

// The invariants, the ledger and the naive engine hold for any commands.
func TestPropertyTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, err := newTwins(drawOptions(t), 0, 1)
		check(t, err)
		for _, cmd := range drawCommands(t) {
			_, err := w.apply(&cmd)
			check(t, err)
		}
	})
}

// The same commands give the same events, into a buffer with or without room.
func TestPropertyReplay(t *testing.T) {
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

// An engine restored from another's orders goes on like that one.
func TestPropertyRestore(t *testing.T) {
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

// A walk that is left early has shown the beginning.
func TestOrdersStopsEarly(t *testing.T) {
	e, err := newSmall(small)
	if err != nil {
		t.Fatal(err)
	}
	applyAll(e, []matching.Command{
		{Kind: matching.Submit, Side: matching.Buy, Type: matching.Limit, TimeInForce: matching.Day, OrderID: 1, Price: 1, Quantity: 1},
		{Kind: matching.Submit, Side: matching.Buy, Type: matching.Limit, TimeInForce: matching.Day, OrderID: 2, Price: 2, Quantity: 1},
	})
	for o := range e.Orders() {
		if o.ID != 2 {
			t.Errorf("order %d comes first, want 2", o.ID)
		}
		break
	}
}

func TestRestoreRefuses(t *testing.T) {
	good := matching.Order{ID: 9, Side: matching.Buy, TimeInForce: matching.Day, Price: 10, Quantity: 5, Leaves: 3, Shown: 2, DisplayQuantity: 2}
	for name, spoil := range map[string]func(*matching.Order){
		"unknown instrument":               func(o *matching.Order) { o.Instrument = 3 },
		"instrument range":                 func(o *matching.Order) { o.Instrument = math.MaxUint32 },
		"side":                             func(o *matching.Order) { o.Side = 0 },
		"time in force":                    func(o *matching.Order) { o.TimeInForce = matching.ImmediateOrCancel },
		"price":                            func(o *matching.Order) { o.Price = math.MinInt64 },
		"quantity":                         func(o *matching.Order) { o.Quantity = matching.MaxQuantity + 1 },
		"no leaves":                        func(o *matching.Order) { o.Leaves = 0 },
		"leaves":                           func(o *matching.Order) { o.Leaves = 6 },
		"shows nothing":                    func(o *matching.Order) { o.Shown = 0 },
		"shows too much":                   func(o *matching.Order) { o.Shown = 3 },
		"shows more than is open":          func(o *matching.Order) { o.DisplayQuantity, o.Shown = 9, 4 },
		"hides without a display quantity": func(o *matching.Order) { o.DisplayQuantity = 0 },
		"display quantity":                 func(o *matching.Order) { o.DisplayQuantity = matching.MaxQuantity + 1 },
		"too many parts": func(o *matching.Order) {
			o.Quantity, o.Leaves = 2*matching.MaxDisplayParts+1, 2*matching.MaxDisplayParts+1
		},
		"self-trade prevention": func(o *matching.Order) { o.SelfTradePrevention = matching.Decrement + 1 },
		"duplicate":             func(o *matching.Order) { o.ID = 1 },
		"locked":                func(o *matching.Order) { o.Price = 20 },
		"crossed":               func(o *matching.Order) { o.Price = 21 },
	} {
		t.Run(name, func(t *testing.T) {
			e, err := newSmall(small)
			if err != nil {
				t.Fatal(err)
			}
			ask := matching.Order{ID: 1, Side: matching.Sell, TimeInForce: matching.Day, Price: 20, Quantity: 1, Leaves: 1, Shown: 1}
			if err := errors.Join(e.Restore(ask), e.Restore(good)); err != nil {
				t.Fatal(err)
			}
			bad := good
			bad.ID = 10
			spoil(&bad)
			if err := e.Restore(bad); !errors.Is(err, matching.ErrRestore) {
				t.Errorf("Restore(%+v) returned %v", bad, err)
			}
			if err := e.CheckInvariants(); err != nil || e.Resting() != 2 {
				t.Errorf("%d orders rest afterwards, want 2: %v", e.Resting(), err)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	for _, bad := range []matching.Options{
		{MaxOrders: -1}, {MaxOrders: matching.MaxOrdersCeiling + 1},
		{MaxLevels: -1}, {MaxOrders: 5, MaxLevels: 6},
		{MaxInstruments: -1}, {MaxInstruments: matching.MaxInstrumentsCeiling + 1},
	} {
		if _, err := matching.NewEngine(bad); !errors.Is(err, matching.ErrOptions) {
			t.Errorf("NewEngine(%+v) returned %v", bad, err)
		}
	}
	got, err := matching.Options{MaxOrders: 7}.Resolve()
	want := matching.Options{MaxOrders: 7, MaxLevels: 7, MaxInstruments: matching.DefaultMaxInstruments}
	if got != want || err != nil {
		t.Errorf("MaxOrders 7 resolves to %+v, %v, want %+v", got, err, want)
	}
}

func TestAddInstrument(t *testing.T) {
	e, err := newSmall(small)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []uint32{0, 1, 4, math.MaxUint32} {
		if err := e.AddInstrument(bad); !errors.Is(err, matching.ErrInstrument) {
			t.Errorf("AddInstrument(%d) returned %v", bad, err)
		}
	}
	if err := e.AddInstrument(3); err != nil {
		t.Error(err)
	}
}

// What is not there reads as empty.
func TestViewsOfNothing(t *testing.T) {
	e, err := newSmall(small)
	if err != nil {
		t.Fatal(err)
	}
	for _, instrument := range []uint32{0, 2, math.MaxUint32} {
		for side := range matching.Side(4) {
			if best, ok := e.Best(instrument, side); ok {
				t.Errorf("Best(%d, %v) is %v", instrument, side, best)
			}
			if levels := e.Depth(instrument, side, 5, nil); len(levels) > 0 {
				t.Errorf("Depth(%d, %v) is %v", instrument, side, levels)
			}
		}
	}
	if o, ok := e.Order(1); ok {
		t.Errorf("Order(1) is %v", o)
	}
}

// FuzzApply reads bytes as commands, eight a command, and compares the engines.
// The low bits of a byte choose among what is valid, its high bits may spoil it.
func FuzzApply(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte("\x00" + "\x00\x00\x01\x01\x00\x05\x09\x00" + "\x00\x01\x01\x02\x00\x05\x04\x00" + "\x02\x00\x01\x01\x00\x04\x06\x00"))
	f.Add([]byte("\x01" + "\x00\x00\x01\x01\x00\x05\x09\x00" + "\x02\x01\x01\x01\x00\x05\x04\x00" + "\x01\x00\x01\x01\x00\x04\x06\x00"))
	pick := func(b byte, choices byte) byte {
		if b >= 0xf0 {
			return b - 0xf0 // 0 and what lies beyond the last are invalid
		}
		return 1 + b%choices
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		options := small
		options.ModifyIsCancelNew = data[0]&1 == 1
		w, err := newTwins(options, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		sequence := uint64(0)
		for chunk := range slices.Chunk(data[1:], 8) {
			if len(chunk) < 8 || sequence == 1000 { // beyond that the naive engine only costs time
				return
			}
			cmd := matching.Command{
				Kind: matching.CommandKind(pick(chunk[0], 3)), Side: matching.Side(pick(chunk[1], 2)),
				Type: matching.Limit + matching.OrderType(chunk[4]>>3&1), TimeInForce: matching.TimeInForce(pick(chunk[2], 3)),
				Instrument: uint32(chunk[4] & 7 / 3), Sequence: sequence, OrderID: uint64(chunk[3]),
				// The shifts take the values over their whole range and past its ends.
				Price:    int64(int8(chunk[5])) << (chunk[7] & 63),
				Quantity: uint64(chunk[6]) << (chunk[4] >> 4 * 4),
			}
			if _, err := w.apply(&cmd); err != nil {
				t.Fatal(fmt.Errorf("command %d: %w", sequence, err))
			}
			sequence++
		}
	})
}
