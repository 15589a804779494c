package model

import (
	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
)

// happening is what is particular to one event of an order.
type happening struct {
	kind      pb.ExecutionType
	reason    pb.Reason
	price     int64
	lots      uint64
	match     uint64
	liquidity pb.Liquidity
}

// report appends an event with the order as it is now to its account's stream and returns its number.
func (m *Model) report(o *order, eventNs int64, h happening) (sequence uint64) {
	m.executions++
	at := stream{o.account, m.epoch}
	sequence = uint64(len(m.events[at])) + 1
	m.events[at] = append(m.events[at], orders.Report{
		Epoch: m.epoch, Sequence: sequence, Type: h.kind, ExecutionID: m.executions, MatchID: h.match,
		LastPrice: h.price, LastQuantity: h.lots, Liquidity: h.liquidity, Reason: h.reason, EventNs: eventNs,
		Account: o.account, Order: o.now,
	})
	return sequence
}

// openStatus is the status of an order with something open.
func openStatus(o *orders.Order) pb.OrderStatus {
	if o.Filled > 0 {
		return pb.OrderStatus_ORDER_STATUS_PARTIALLY_FILLED
	}
	return pb.OrderStatus_ORDER_STATUS_ACCEPTED
}

// used is how many events of the epoch there are.
func (m *Model) used() (used int) {
	for at, events := range m.events {
		if at.epoch == m.epoch {
			used += len(events)
		}
	}
	return used
}

// places is how many more events the epoch may have. Each resting order has one of them reserved, for its end.
func (m *Model) places() uint64 { return uint64(m.options.MaxEvents - m.used()) }

func (m *Model) resting() uint64 { return uint64(len(m.open())) }

// parts bounds how often an order could trade with those on the other side: once with each, and once more for every part that an
// iceberg may still show.
func (m *Model) parts(taker *order) (parts uint64) {
	for _, o := range m.open() {
		if o.symbol != taker.symbol || o.now.Side == taker.now.Side {
			continue
		}
		parts++
		if o.now.DisplayQuantity > 0 {
			parts += o.now.Leaves/o.now.DisplayQuantity + 1
		}
	}
	return parts
}
