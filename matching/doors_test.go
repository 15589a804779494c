package matching_test

import (
	"errors"
	"math"
	"testing"

	"tailgate/matching"
)

// The doors other than Apply.

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
