package matching

import (
	"errors"
	"strconv"
)

// Ceilings and defaults of [Options].
const (
	MaxOrdersCeiling      = 1 << 24 // with MaxQuantity it keeps every sum below 2^64
	MaxInstrumentsCeiling = 1 << 16

	DefaultMaxOrders      = 1 << 17
	DefaultMaxLevels      = 1 << 14
	DefaultMaxInstruments = 1 << 10
)

// Options fix an engine's rules and its memory. They decide outcomes: a caller
// that replays commands journals what Check said of each, or replays with the
// options of the first run.
type Options struct {
	// MaxOrders is how many orders may rest at once, over all instruments, 1 to
	// MaxOrdersCeiling; 0 means DefaultMaxOrders. Each costs 84 to 100 bytes.
	MaxOrders int

	// MaxLevels is how many price levels may exist at once, over all instruments
	// and both sides, 1 to MaxOrders; 0 means DefaultMaxLevels, or MaxOrders
	// where that is less. Each costs about 330 bytes.
	MaxLevels int

	// MaxInstruments bounds instrument numbers: 0 to MaxInstruments-1. From 1 to
	// MaxInstrumentsCeiling; 0 means DefaultMaxInstruments. Each costs 20 bytes.
	MaxInstruments int

	// ModifyIsCancelNew makes Replace a cancel and a new order under the same id:
	// priority is always lost and Command.Quantity is the new open quantity. What
	// was filled before stays part of the order's total.
	ModifyIsCancelNew bool
}

// Faults of the caller, told apart with errors.Is. A refused order is never
// one of these; it is an event.
var (
	// ErrOptions comes from NewEngine for a value out of its bounds.
	ErrOptions = errors.New("matching: option out of bounds")
	// ErrInstrument comes from AddInstrument for a number out of bounds or known.
	ErrInstrument = errors.New("matching: instrument not added")
	// ErrRestore comes from Restore for an order that cannot have rested there.
	ErrRestore = errors.New("matching: order not restored")
)

// fault adds to a sentinel which value was wrong and what to do about it.
type fault struct {
	sentinel error
	detail   string
}

func (f *fault) Error() string { return f.sentinel.Error() + ": " + f.detail }
func (f *fault) Unwrap() error { return f.sentinel }

// Resolve returns the options with zeros replaced by their defaults, or an
// error that wraps ErrOptions and names the option and its bounds.
func (o Options) Resolve() (Options, error) {
	resolve := func(name string, value *int, byDefault, ceiling int) error {
		if *value == 0 {
			*value = min(byDefault, ceiling)
		}
		if *value < 1 || *value > ceiling {
			return &fault{ErrOptions, name + " is " + strconv.Itoa(*value) +
				", set it to 1 to " + strconv.Itoa(ceiling) + " or to 0 for the default"}
		}
		return nil
	}
	if err := resolve("MaxOrders", &o.MaxOrders, DefaultMaxOrders, MaxOrdersCeiling); err != nil {
		return o, err
	}
	if err := resolve("MaxLevels", &o.MaxLevels, DefaultMaxLevels, o.MaxOrders); err != nil {
		return o, err
	}
	err := resolve("MaxInstruments", &o.MaxInstruments, DefaultMaxInstruments, MaxInstrumentsCeiling)
	return o, err
}
