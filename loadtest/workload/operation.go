package workload

import (
	"fmt"
	"strings"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// BookDepth is how many levels of each side a GetBook of the flow asks for: what the contract gives when none are named.
const BookDepth = 10

// operations are what a flow can be made of, by the words of --operation; the first is the default. Cancels and replaces are shares of the first.
var operations = []struct {
	name string
	op   transports.Operation
}{
	{"submit-order", transports.SubmitOrder},
	{"get-book", transports.GetBook},
}

// OperationNames lists the words that ParseOperation takes.
func OperationNames() []string {
	names := make([]string, len(operations))
	for i, o := range operations {
		names[i] = o.name
	}
	return names
}

// ParseOperation reads the name of an operation.
func ParseOperation(name string) (transports.Operation, error) {
	for _, o := range operations {
		if o.name == name {
			return o.op, nil
		}
	}
	return 0, fmt.Errorf("operation %q: %s are allowed", name, strings.Join(OperationNames(), " and "))
}

// BookOrders are the orders that give the first instrument's book BookDepth levels on each side, in the names of the flow's ids: bids below the
// reference price, asks above it, so that none trades with another.
func (f *Flow) BookOrders() []*pb.SubmitOrderRequest {
	var list []*pb.SubmitOrderRequest
	ids := ids{prefix: f.config.Prefix, taken: f.ids}
	for level := int64(1); level <= BookDepth; level++ {
		for _, side := range []pb.Side{pb.Side_SIDE_BUY, pb.Side_SIDE_SELL} {
			m := f.template(0)
			m.ClientOrderId, _ = ids.take(IDLength)
			m.Side, m.Price, m.Quantity = side, f.config.Instruments[0].ReferencePrice+level, f.least[0]+uint64(level)
			if side == pb.Side_SIDE_BUY {
				m.Price -= 2 * level
			}
			list = append(list, m)
		}
	}
	return list
}

// nextBook reads the same levels of the same book every time.
func (s *Source) nextBook(call *transports.Call) {
	*call = transports.Call{Operation: transports.GetBook, Request: &s.book, Response: &s.bookAnswer}
}

// checkBook holds a book to what every book is: the levels that were asked for, each side in its order and the two apart, and no older than
// the book before.
func (s *Source) checkBook(m *pb.GetBookResponse) (Answer, error) {
	switch {
	case m.Symbol != s.book.Symbol:
		return Answer{}, fmt.Errorf("the book of %q was asked for, the answer has %q", s.book.Symbol, m.Symbol)
	case len(m.Bids) > BookDepth || len(m.Asks) > BookDepth:
		return Answer{}, fmt.Errorf("book of %s: %d bids and %d asks, at most %d of each were asked for", m.Symbol, len(m.Bids), len(m.Asks), BookDepth)
	case len(m.Bids) > 0 && len(m.Asks) > 0 && m.Bids[0].Price >= m.Asks[0].Price:
		return Answer{}, fmt.Errorf("book of %s is crossed: bid %d, ask %d", m.Symbol, m.Bids[0].Price, m.Asks[0].Price)
	case m.LogSequence < s.bookSequence:
		return Answer{}, fmt.Errorf("book of %s goes back in time: log sequence number %d after %d", m.Symbol, m.LogSequence, s.bookSequence)
	}
	for _, side := range []struct {
		name   string
		levels []*pb.BookLevel
		better int64 // sign of the step from a level to a better one
	}{{"bids", m.Bids, 1}, {"asks", m.Asks, -1}} {
		for i, level := range side.levels {
			if level.Quantity == 0 || i > 0 && (side.levels[i-1].Price-level.Price)*side.better <= 0 {
				return Answer{}, fmt.Errorf("book of %s: level %d of the %s (price %d, quantity %d) is empty or out of order", m.Symbol, i+1, side.name, level.Price, level.Quantity)
			}
		}
	}
	s.bookSequence = m.LogSequence
	return Answer{}, nil
}
