package orders

import (
	"fmt"

	pb "tailgate/proto/gen/orderentry/v1"
)

// Report is one event of an account's order: everything that a proto orderentry.v1.ExecutionReport says.
type Report struct {
	Epoch        uint32
	Sequence     uint64
	Type         pb.ExecutionType
	ExecutionID  uint64
	MatchID      uint64 // 0 where it is no trade
	LastPrice    int64  // of this trade, in ticks
	LastQuantity uint64 // of this trade, in lots
	Liquidity    pb.Liquidity
	Reason       pb.Reason
	EventNs      int64 // gateway clock, nanoseconds since 1970
	Account      uint32
	Order        Order // after the event; of a request about an unknown order only the id is there
}

// event is what the store keeps of a report, 96 bytes without pointers: what changes of an order stands here, the rest in its record.
type event struct {
	executionID  uint64
	matchID      uint64
	eventNs      int64
	lastQuantity uint64
	price        int64 // of the order
	quantity     uint64
	filled       uint64
	leaves       uint64
	lastPrice    int64 // of the order's last trade; in a trade this one's
	notional     int64
	record       uint32 // number in the table that about names
	version      uint32
	reason       uint16
	kind         uint8 // pb.ExecutionType
	status       uint8 // pb.OrderStatus
	liquidity    uint8 // pb.Liquidity
	about        uint8
}

// What an event's record is.
const (
	aboutOrder   = iota // in day.orders
	aboutExpired        // in day.expired
	aboutUnknown        // in day.requests, whose order is unknown
)

// eventChunkLength makes a chunk 12 KiB, one of Go's size classes.
const eventChunkLength = 128

type eventChunk [eventChunkLength]event

// stream is one account's events of one epoch, numbered from 1.
type stream struct {
	chunks []*eventChunk
	length uint64
}

// at returns event number n, which is at least 1.
func (t *stream) at(n uint64) *event {
	return &t.chunks[(n-1)/eventChunkLength][(n-1)%eventChunkLength]
}

// eventStore has the chunks that no stream holds, and counts the present epoch's events.
type eventStore struct {
	free []*eventChunk
	used int
}

// reserve allocates and touches chunks for n events.
func (e *eventStore) reserve(n int) {
	for len(e.free)*eventChunkLength < n {
		chunk := new(eventChunk)
		for i := range chunk {
			chunk[i].about = aboutOrder
		}
		e.free = append(e.free, chunk)
	}
}

// add returns the room for a stream's next event.
func (e *eventStore) add(t *stream) *event {
	at := t.length % eventChunkLength
	if at == 0 {
		t.chunks = append(t.chunks, e.take())
	}
	t.length++
	e.used++
	return &t.chunks[len(t.chunks)-1][at]
}

func (e *eventStore) take() *eventChunk {
	last := len(e.free) - 1
	if last < 0 {
		return new(eventChunk)
	}
	chunk := e.free[last]
	e.free[last] = nil
	e.free = e.free[:last]
	return chunk
}

// release takes a stream's chunks back.
func (e *eventStore) release(t *stream) {
	e.free = append(e.free, t.chunks...)
	*t = stream{}
}

// report stores the next event of an account.
func (s *State) report(account uint32, kind pb.ExecutionType, reason pb.Reason) *event {
	a := &s.accounts[account]
	if a.touched != s.applied {
		a.touched = s.applied
		s.touched = append(s.touched, account)
	}
	if s.store.used >= s.options.MaxEvents && s.failed == nil {
		s.failed = fmt.Errorf("%w: %w: it holds %d", ErrReplay, ErrEventsFull, s.options.MaxEvents)
	}
	s.executions++
	e := s.store.add(&a.events)
	e.executionID, e.matchID, e.eventNs, e.lastQuantity = s.executions, 0, s.eventNs, 0
	e.kind, e.reason, e.liquidity = uint8(kind), uint16(reason), 0
	return e
}

// reportOrder stores an event of an order as it is now.
func (s *State) reportOrder(o *order, number uint32, kind pb.ExecutionType, reason pb.Reason) *event {
	e := s.report(o.account, kind, reason)
	e.about, e.record = aboutOrder, number
	e.snapshot(o)
	return e
}

func (e *event) snapshot(o *order) {
	e.price = o.price
	e.quantity, e.filled, e.leaves = o.now.quantity, o.now.filled, o.now.leaves
	e.lastPrice, e.notional = o.now.lastPrice, o.now.notional
	e.version, e.status = o.now.version, uint8(o.now.status)
}

// reportUnknown stores the refusal of a request about an order that the account has not.
func (s *State) reportUnknown(account, request uint32, reason pb.Reason) {
	e := s.report(account, pb.ExecutionType_EXECUTION_TYPE_REJECTED, reason)
	*e = event{
		executionID: e.executionID, eventNs: e.eventNs, kind: e.kind, reason: e.reason, about: aboutUnknown, record: request,
	}
}

// roomForEvents reports whether the store has room for the events of an order or a replace that takes part in at most so many trades,
// and after it still for the end of every order that rests. Besides two events a trade (a maker that self-trade prevention cancels
// or shrinks causes two at most as well) there is the answer, the end of what is left, and one more order that may rest.
func (s *State) roomForEvents(trades uint64) bool {
	return uint64(s.options.MaxEvents-s.store.used) >= uint64(s.engine.Resting())+3+2*trades
}

// roomForRefusal is the same for the refusal of a cancel.
func (s *State) roomForRefusal() bool {
	return s.options.MaxEvents-s.store.used > s.engine.Resting()
}

func (s *State) eventsFull() error {
	return fmt.Errorf("%w: it holds max_events = %d until the end of the day, and keeps room for the cancels of what rests", ErrEventsFull, s.options.MaxEvents)
}

// Epoch is the present one. It begins with 1 and the end of the day moves it on.
func (s *State) Epoch() uint32 { return s.epoch }

// Touched lists the accounts that got events by the last Apply, each once. It is valid until the next one.
func (s *State) Touched() []uint32 { return s.touched }

// streamOf returns an account's events of an epoch and what they speak of.
func (s *State) streamOf(account, epoch uint32) (t *stream, d *day, ok bool) {
	switch {
	case int(account) >= len(s.accounts):
		return nil, nil, false
	case epoch == s.epoch:
		return &s.accounts[account].events, &s.today, true
	case epoch == s.epoch-1 && epoch > 0:
		return &s.accounts[account].before, &s.yesterday, true
	}
	return nil, nil, false
}

// EventRange returns the number that the next event of an account in an epoch has or would have; ok for the present epoch and the
// one before it.
func (s *State) EventRange(account, epoch uint32) (next uint64, ok bool) {
	t, _, ok := s.streamOf(account, epoch)
	if !ok {
		return 0, false
	}
	return t.length + 1, true
}

// Events appends at most n reports of an account's events in an epoch, from a number on (0 is taken for 1). None where that is
// beyond the last one, or where the epoch is neither the present one nor the one before it.
func (s *State) Events(account, epoch uint32, from uint64, n int, out []Report) []Report {
	t, d, ok := s.streamOf(account, epoch)
	if !ok {
		return out
	}
	for from = max(from, 1); from <= t.length && n > 0; n-- {
		out = append(out, Report{Epoch: epoch, Sequence: from, Account: account})
		d.describe(t.at(from), &out[len(out)-1])
		from++
	}
	return out
}

// describe fills a report from its event.
func (d *day) describe(e *event, r *Report) {
	r.Type, r.Reason, r.Liquidity = pb.ExecutionType(e.kind), pb.Reason(e.reason), pb.Liquidity(e.liquidity)
	r.ExecutionID, r.MatchID, r.EventNs = e.executionID, e.matchID, e.eventNs
	if r.Type == pb.ExecutionType_EXECUTION_TYPE_TRADE {
		r.LastPrice, r.LastQuantity = e.lastPrice, e.lastQuantity
	}
	var o *order
	switch e.about {
	case aboutUnknown:
		r.Order.ClientOrderID = d.requests.at(e.record).clientOrderID
		return
	case aboutExpired:
		o = d.expired.at(e.record)
	default:
		o = d.orders.at(e.record)
	}
	o.view(&r.Order)
	r.Order.Status, r.Order.Price, r.Order.Version = pb.OrderStatus(e.status), e.price, e.version
	r.Order.Quantity, r.Order.Filled, r.Order.Leaves = e.quantity, e.filled, e.leaves
	r.Order.LastPrice, r.Order.FilledNotional = e.lastPrice, e.notional
}
