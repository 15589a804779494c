package orders

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"tailgate/matching"
)

// Bounds of Limits.
const (
	MaxRestricted     = 1_000     // symbols
	MaxPriceCollarBps = 1_000_000 // 100 times the price
)

// Scope names whose limits, kill switch or exposure is meant.
type Scope struct {
	Firm   bool   // a firm, else an account
	Number uint32 // of the firm or account
}

// Limits are the pre-trade limits of an account or a firm; in each, zero = no bound. An order must keep within its account's and
// its firm's. They are checked by Decide alone, MaxOrderRate by whoever calls it.
type Limits struct {
	MaxQuantity     uint64   // lots of one order; at most matching.MaxQuantity
	MaxNotional     int64    // ticks x lots of one order
	PriceCollarBps  uint32   // distance from the last trade or reference price, in 1/10,000 of it; at most MaxPriceCollarBps
	MaxOpenOrders   uint32   // open orders
	MaxOpenNotional int64    // ticks x lots, over what is open of the open orders
	MaxPosition     uint64   // lots in one instrument either way, open orders counted as filled; at most 2^63-1
	Restricted      []Symbol // may not be traded; in rising order, at most MaxRestricted
	MaxOrderRate    uint32   // orders and replaces in a second
}

// Equal reports whether both are the same limits.
func (l *Limits) Equal(other *Limits) bool {
	return l.MaxQuantity == other.MaxQuantity && l.MaxNotional == other.MaxNotional && l.PriceCollarBps == other.PriceCollarBps &&
		l.MaxOpenOrders == other.MaxOpenOrders && l.MaxOpenNotional == other.MaxOpenNotional && l.MaxPosition == other.MaxPosition &&
		l.MaxOrderRate == other.MaxOrderRate && slices.Equal(l.Restricted, other.Restricted)
}

// LimitError says which limit is out of its bounds, and what is allowed. It wraps ErrDefinition.
type LimitError struct {
	Field   string // as the configuration and the contract name it, e.g. "max_quantity", "restricted_symbols[2]"
	Problem string
}

// Error implements error.
func (e *LimitError) Error() string { return ErrDefinition.Error() + ": " + e.Field + ": " + e.Problem }

// Unwrap returns ErrDefinition.
func (e *LimitError) Unwrap() error { return ErrDefinition }

// Problems lists all that is out of its bounds. It is the one place that knows them, for the configuration and for AdminService alike.
func (l *Limits) Problems() (problems []*LimitError) {
	most := func(field string, value, most uint64, none string) {
		if value > most {
			problems = append(problems, &LimitError{field, fmt.Sprintf("is %d, allowed are 0 (%s) to %d", value, none, most)})
		}
	}
	notNegative := func(field string, value int64) {
		if value < 0 {
			problems = append(problems, &LimitError{field, fmt.Sprintf("is %d, allowed are 0 (no bound) to %d", value, int64(math.MaxInt64))})
		}
	}
	most("max_quantity", l.MaxQuantity, matching.MaxQuantity, "no bound")
	notNegative("max_notional", l.MaxNotional)
	most("price_collar_bps", uint64(l.PriceCollarBps), MaxPriceCollarBps, "no collar")
	notNegative("max_open_notional", l.MaxOpenNotional)
	most("max_position", l.MaxPosition, math.MaxInt64, "no bound")
	switch {
	case len(l.Restricted) > MaxRestricted:
		problems = append(problems, &LimitError{"restricted_symbols", fmt.Sprintf("has %d symbols, allowed are 0 to %d", len(l.Restricted), MaxRestricted)})
	case !inRisingOrder(l.Restricted):
		problems = append(problems, &LimitError{"restricted_symbols", "is not in rising order, each symbol once"})
	}
	return problems
}

// Validate returns the first of Problems, or nil.
func (l *Limits) Validate() error {
	if problems := l.Problems(); len(problems) > 0 {
		return problems[0]
	}
	return nil
}

// Restrict sets Restricted to symbols as people write them: in any order, some perhaps twice. It returns those that are none.
func (l *Limits) Restrict(symbols []string) (problems []*LimitError) {
	l.Restricted = nil
	for i, text := range symbols {
		symbol, ok := ParseSymbol(text)
		if !ok {
			problems = append(problems, &LimitError{fmt.Sprintf("restricted_symbols[%d]", i), fmt.Sprintf("is %q, needed are 1 to %d of [A-Z0-9._-]", text, MaxSymbolBytes)})
			continue
		}
		l.Restricted = append(l.Restricted, symbol)
	}
	slices.SortFunc(l.Restricted, Symbol.Compare)
	l.Restricted = slices.Compact(l.Restricted)
	return problems
}

func (l *Limits) clone() Limits {
	c := *l
	c.Restricted = slices.Clone(l.Restricted)
	return c
}

// Compare orders symbols by their bytes.
func (s Symbol) Compare(other Symbol) int { return bytes.Compare(s.Bytes(), other.Bytes()) }

func inRisingOrder(symbols []Symbol) bool {
	for i := 1; i < len(symbols); i++ {
		if symbols[i-1].Compare(symbols[i]) >= 0 {
			return false
		}
	}
	return true
}
