package orders

import (
	"fmt"
	"math"
	"slices"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// decideEndDay: the epochs are numbered with 32 bits.
func (s *State) decideEndDay() (journal bool, err error) {
	if s.epoch == math.MaxUint32 {
		return false, fmt.Errorf("%w: %d days have ended, which are all that there are numbers for", ErrInvalid, s.epoch)
	}
	return true, nil
}

// applyEndDay ends the day. What was the day before is forgotten, what was today becomes it. Open DAY orders expire, which is reported in
// the new epoch; the other open ones go on with their ids and first answers, and with the requests that were about them, since the
// repetition of one must still not be carried out twice. Ids of all else are free again. The cost follows the number of open orders,
// not of the day's.
func (s *State) applyEndDay(out *Answer) error {
	s.epoch++
	s.turnStreams()
	old := s.today
	s.today = s.emptyDay(&s.yesterday)
	s.yesterday = old
	s.byID, s.byRequest = newIndex(s.options.ReserveIDs), newIndex(0)

	var carried, open []uint32
	for number := range s.accounts {
		a := &s.accounts[number]
		open = old.openOf(a, open[:0])
		a.first, a.last, a.firstOpen, a.lastOpen = 0, 0, 0, 0
		for _, n := range open {
			if o := old.orders.at(n); o.timeInForce != matching.Day {
				carried = append(carried, n)
			} else if err := s.expire(o); err != nil {
				return err
			}
			s.sessions.count(old.orders.at(n).session, -1)
		}
		out.Count += uint32(s.accounts[number].events.length)
	}
	slices.Sort(carried)
	s.today.base = old.lastID() - uint64(len(carried))
	s.today.carried = uint32(len(carried))
	for _, n := range carried {
		s.carry(&old, n)
	}
	s.sessions.forget()
	out.Epoch = s.epoch
	return nil
}

// turnStreams begins every account's stream of the new epoch.
func (s *State) turnStreams() {
	for number := range s.accounts {
		a := &s.accounts[number]
		s.store.release(&a.before)
		a.before, a.events = a.events, a.before
	}
	s.store.used = 0
}

// emptyDay makes a day of the chunks of one that is over.
func (s *State) emptyDay(over *day) day {
	return day{
		orders: slab[order]{chunks: over.orders.chunks}, requests: slab[request]{chunks: over.requests.chunks},
		expired: slab[order]{chunks: over.expired.chunks},
	}
}

// expire ends a DAY order of the day that is over. Its events of that day speak of the old record, the last one of a copy.
func (s *State) expire(old *order) error {
	o, number := s.today.expired.add()
	*o = *old
	s.leave(o, o.now.leaves)
	s.booked = s.engine.Apply(&matching.Command{Kind: matching.Cancel, Instrument: o.instrument, OrderID: o.id}, s.booked[:0])
	if s.booked[0].Kind != matching.Canceled {
		return fmt.Errorf("%w: order %s cannot expire: %s", ErrReplay, o.clientOrderID, s.booked[0].Reason)
	}
	o.now.leaves = 0
	o.now.version++
	o.now.status = pb.OrderStatus_ORDER_STATUS_EXPIRED
	e := s.report(o.account, pb.ExecutionType_EXECUTION_TYPE_EXPIRED, pb.Reason_REASON_END_OF_DAY)
	e.about, e.record = aboutExpired, number
	e.snapshot(o)
	return nil
}

// carry takes an order that stays open over into the new day, with the requests about it.
func (s *State) carry(old *day, n uint32) {
	o, number := s.today.orders.add()
	*o = *old.orders.at(n)
	o.lastRequest, o.nextOfAccount, o.nextOpen, o.previousOpen = 0, 0, 0, 0
	s.listOrder(o, number)
	s.linkOpen(o, number)
	for _, m := range old.requestsOf(old.orders.at(n)) {
		r := *old.requests.at(m)
		r.order, r.previous = number+1, 0
		s.addRequest(&r)
	}
}

// openOf appends the record numbers of an account's open orders, in the order of entry.
func (d *day) openOf(a *account, numbers []uint32) []uint32 {
	for link := a.firstOpen; link > 0; {
		numbers = append(numbers, link-1)
		link = d.orders.at(link - 1).nextOpen
	}
	return numbers
}
