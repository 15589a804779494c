package orders

import (
	"slices"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// day holds the records of one epoch. Ids of orders count up over all days: record n of the day is order base + n + 1, but for the
// first ones, which were open at the end of the day before and keep their ids.
type day struct {
	base     uint64
	carried  uint32 // how many of the orders came from the day before; their ids rise too
	orders   slab[order]
	requests slab[request]
	expired  slab[order] // orders that ended with the day before; only events speak of them
}

// order is the record of a client order id, rejected orders included.
type order struct {
	id                  uint64 // for clients and in the books
	clientOrderID       ID
	symbol              Symbol
	side                matching.Side
	orderType           matching.OrderType
	timeInForce         matching.TimeInForce
	selfTradePrevention matching.SelfTradePrevention
	postOnly            bool
	counted             bool // its open part is in the exposures
	rests               bool // it is among its account's open orders
	account             uint32
	instrument          uint32 // meaningless where the symbol is unknown
	session             uint32 // number plus one, 0 = entered without one
	lastRequest         uint32 // links: record number plus one, 0 = none
	nextOfAccount       uint32
	nextOpen            uint32
	previousOpen        uint32
	enteredPrice        int64  // what the client asked for, for comparing a repetition
	enteredLots         uint64 //
	displayQuantity     uint64
	minimumQuantity     uint64
	price               int64
	receivedNs          int64
	now                 quantities
	first               answer
}

// request is the record of the id of a replace, a cancel or a mass cancel.
type request struct {
	requestID     ID
	clientOrderID ID     // not for a mass cancel
	symbol        Symbol // mass cancel
	side          matching.Side
	kind          Kind
	account       uint32
	quantity      uint64
	price         int64
	order         uint32 // record number of the order plus one; 0 = unknown, or a mass cancel
	previous      uint32 // request about the same order before: record number plus one
	receivedNs    int64
	count         uint32 // mass cancel: orders canceled
	first         answer
}

// quantities of an order at one moment.
type quantities struct {
	quantity  uint64
	filled    uint64
	leaves    uint64
	lastPrice int64
	notional  int64
	version   uint32
	status    pb.OrderStatus
}

// answer is the first answer to an id.
type answer struct {
	quantities
	sequence uint64
	limit    int64
	epoch    uint32
	reason   pb.Reason
	firm     bool
}

// lastID is the id of the last order.
func (d *day) lastID() uint64 { return d.base + uint64(d.orders.length) }

// record returns the record number of an order in the books.
func (d *day) record(id uint64) uint32 {
	if id > d.base+uint64(d.carried) {
		return uint32(id - d.base - 1)
	}
	number, _ := d.find(id)
	return number
}

// find returns the record number of an order; it is not found when it ended with an earlier day. id is at most lastID.
func (d *day) find(id uint64) (number uint32, found bool) {
	if id > d.base+uint64(d.carried) {
		return uint32(id - d.base - 1), true
	}
	low, high := uint32(0), d.carried
	for low < high {
		middle := low + (high-low)/2
		if d.orders.at(middle).id < id {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < d.carried && d.orders.at(low).id == id
}

// publicID is what a client sees: a rejected order has none.
func (o *order) publicID() uint64 {
	if o.now.status == pb.OrderStatus_ORDER_STATUS_REJECTED {
		return 0
	}
	return o.id
}

// sameContent says whether a repetition asks for what was asked first; tag, ack_detail and session are not content.
func (o *order) sameContent(c *Command) bool {
	return o.symbol == c.Symbol && o.side == c.Side && o.orderType == c.Type && o.timeInForce == c.TimeInForce &&
		o.enteredLots == c.Quantity && o.enteredPrice == c.Price &&
		o.postOnly == c.PostOnly && o.displayQuantity == c.DisplayQuantity && o.minimumQuantity == c.MinimumQuantity &&
		max(o.selfTradePrevention, matching.AllowSelfTrade) == max(c.SelfTradePrevention, matching.AllowSelfTrade)
}

func (r *request) sameContent(c *Command) bool {
	return r.kind == c.Kind && r.clientOrderID == c.ClientOrderID && r.quantity == c.Quantity && r.price == c.Price &&
		r.symbol == c.Symbol && r.side == c.Side
}

func (s *State) findOrder(account uint32, id ID) (number uint32, ok bool) {
	return s.byID.find(s.byID.hash(&key{account, id}), func(n uint32) bool {
		o := s.today.orders.at(n)
		return o.account == account && o.clientOrderID == id
	})
}

func (s *State) findRequest(account uint32, id ID) (number uint32, ok bool) {
	return s.byRequest.find(s.byRequest.hash(&key{account, id}), func(n uint32) bool {
		r := s.today.requests.at(n)
		return r.account == account && r.requestID == id
	})
}

// listOrder puts a new record into its account's list and the table of ids.
func (s *State) listOrder(o *order, number uint32) {
	a := &s.accounts[o.account]
	if a.last == 0 {
		a.first = number + 1
	} else {
		s.today.orders.at(a.last - 1).nextOfAccount = number + 1
	}
	a.last = number + 1
	s.byID.insert(s.byID.hash(&key{o.account, o.clientOrderID}), number)
}

// addRequest appends a record, behind the earlier ones about its order.
func (s *State) addRequest(r *request) *request {
	record, number := s.today.requests.add()
	*record = *r
	if r.order > 0 {
		o := s.today.orders.at(r.order - 1)
		record.previous = o.lastRequest
		o.lastRequest = number + 1
	}
	s.byRequest.insert(s.byRequest.hash(&key{r.account, r.requestID}), number)
	return record
}

// linkOpen puts an order at the end of its account's open ones.
func (s *State) linkOpen(o *order, number uint32) {
	a := &s.accounts[o.account]
	o.rests = true
	o.previousOpen = a.lastOpen
	if a.lastOpen == 0 {
		a.firstOpen = number + 1
	} else {
		s.today.orders.at(a.lastOpen - 1).nextOpen = number + 1
	}
	a.lastOpen = number + 1
	s.sessions.count(o.session, 1)
}

// unlinkOpen takes an order that has ended out of its account's open ones. Its own links stay: a page that ended at it goes
// on from it.
func (s *State) unlinkOpen(o *order) {
	if !o.rests {
		return
	}
	o.rests = false
	a := &s.accounts[o.account]
	if o.previousOpen == 0 {
		a.firstOpen = o.nextOpen
	} else {
		s.today.orders.at(o.previousOpen - 1).nextOpen = o.nextOpen
	}
	if o.nextOpen == 0 {
		a.lastOpen = o.previousOpen
	} else {
		s.today.orders.at(o.nextOpen - 1).previousOpen = o.previousOpen
	}
	s.sessions.count(o.session, -1)
}

// requestsOf returns the record numbers of the requests about an order, in their order.
func (d *day) requestsOf(o *order) []uint32 {
	var numbers []uint32
	for link := o.lastRequest; link > 0; link = d.requests.at(link - 1).previous {
		numbers = append(numbers, link-1)
	}
	slices.Reverse(numbers)
	return numbers
}
