package orders

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// MaxRestricted bounds Limits.Restricted.
const MaxRestricted = 1_000

// Scope names whose limits, kill switch or exposure is meant.
type Scope struct {
	Firm   bool   // a firm, else an account
	Number uint32 // of the firm or account
}

// Limits are the pre-trade limits of an account or a firm; in each, zero = no bound. An order must keep within its account's and
// its firm's. They are checked by Decide alone, MaxOrderRate by whoever calls it.
type Limits struct {
	MaxQuantity     uint64   // lots of one order
	MaxNotional     int64    // ticks x lots of one order
	PriceCollarBps  uint32   // distance from the last trade or reference price, in 1/10,000 of it
	MaxOpenOrders   uint32   // open orders
	MaxOpenNotional int64    // ticks x lots, over what is open of the open orders
	MaxPosition     uint64   // lots in one instrument either way, open orders counted as filled
	Restricted      []Symbol // may not be traded; in rising order, at most MaxRestricted
	MaxOrderRate    uint32   // orders and replaces in a second
}

// Equal reports whether both are the same limits.
func (l *Limits) Equal(other *Limits) bool {
	return l.MaxQuantity == other.MaxQuantity && l.MaxNotional == other.MaxNotional && l.PriceCollarBps == other.PriceCollarBps &&
		l.MaxOpenOrders == other.MaxOpenOrders && l.MaxOpenNotional == other.MaxOpenNotional && l.MaxPosition == other.MaxPosition &&
		l.MaxOrderRate == other.MaxOrderRate && slices.Equal(l.Restricted, other.Restricted)
}

// Validate says which of the limits is out of its bounds, wrapping ErrDefinition.
func (l *Limits) Validate() error {
	switch {
	case l.MaxNotional < 0 || l.MaxOpenNotional < 0:
		return fmt.Errorf("%w: a notional limit is negative; 0 = no bound", ErrDefinition)
	case l.MaxQuantity > math.MaxInt64 || l.MaxPosition > math.MaxInt64:
		return fmt.Errorf("%w: a limit in lots is above %d; 0 = no bound", ErrDefinition, math.MaxInt64)
	case len(l.Restricted) > MaxRestricted:
		return fmt.Errorf("%w: %d restricted symbols, allowed are %d", ErrDefinition, len(l.Restricted), MaxRestricted)
	case !inRisingOrder(l.Restricted):
		return fmt.Errorf("%w: the restricted symbols are not in rising order, each once", ErrDefinition)
	}
	return nil
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
