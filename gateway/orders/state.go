package orders

import (
	"errors"
	"fmt"
	"math"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Defaults and ceilings of Options.
const (
	DefaultMaxIDs = 4 << 20
	MaxIDsCeiling = 1 << 30
	MaxAccounts   = 10_000
	MaxFirms      = 10_000

	DefaultMaxEvents   = 16 << 20
	DefaultMaxSessions = 10_000
	// MaxInstruments is what one answer to ListInstruments holds. A definition is never forgotten.
	MaxInstruments = 1_000
)

// Faults, told apart with errors.Is. A business refusal is never one of these; it is an Answer.
var (
	// ErrIDsFull comes from Decide for an id that has no room in the table. It uses up no id.
	ErrIDsFull = errors.New("the table of ids is full")
	// ErrDefinition comes from Decide for an instrument or account that has no room or is there already. It changes nothing.
	ErrDefinition = errors.New("cannot be defined")
	// ErrInvalid comes from Decide for a command that the contract does not allow. It changes nothing and uses up no id.
	ErrInvalid = errors.New("not a valid command")
	// ErrEventsFull comes from Decide for an order or replace whose events could find no room. It uses up no id.
	ErrEventsFull = errors.New("the store of events is full")
	// ErrSessionsFull comes from Decide for the logon of a session that has no room in the table.
	ErrSessionsFull = errors.New("the table of sessions is full")
	// ErrReplay comes from Apply when the command cannot have been decided by this state: a journal that does not fit the
	// options, or a damaged one.
	ErrReplay = errors.New("the command does not fit the state")
)

// Options size a state.
type Options struct {
	// MaxIDs bounds the ids of orders, and as many ids of requests, until the end of the day. 0 = DefaultMaxIDs, at most MaxIDsCeiling.
	MaxIDs int
	// ReserveIDs is for how many orders memory is taken and touched at the start, so that the first ones cost no page fault. At most MaxIDs.
	ReserveIDs int
	// MaxOpenOrders and MaxLevels bound what rests, as in matching.Options; 0 = its defaults.
	MaxOpenOrders int
	MaxLevels     int
	// MaxEvents bounds the events of one epoch over all accounts; 0 = DefaultMaxEvents.
	MaxEvents int
	// MaxSessions bounds the sessions that are known; 0 = DefaultMaxSessions.
	MaxSessions int
	// Limits are checked before the book.
	Limits Limits
}

// State is the fold. See the package comment; not safe for concurrent use.
type State struct {
	options  Options
	engine   *matching.Engine
	events   []matching.Event // of one command, reused
	orders   slab[order]
	byID     index
	requests slab[request]
	byReq    index

	accounts      []account
	accountNumber map[string]uint32
	instruments   []instrument
	bySymbol      map[Symbol]uint32
	epoch         uint32
}

// account is one account's place in the state.
type account struct {
	name      string
	sequence  uint64 // of the last event
	first     uint32 // its orders in the order of entry: record number plus one, 0 = none
	last      uint32
	firstOpen uint32
	lastOpen  uint32
}

// instrument is a definition with what trading did to it.
type instrument struct {
	Instrument
	lastPrice int64 // of the last trade
	traded    bool
}

// order is the record of a client order id, rejected orders included.
type order struct {
	clientOrderID ID
	symbol        Symbol
	side          matching.Side
	orderType     matching.OrderType
	timeInForce   matching.TimeInForce
	account       uint32
	instrument    uint32 // meaningless where the symbol is unknown
	nextOfAccount uint32 // links: record number plus one, 0 = none
	nextOpen      uint32
	previousOpen  uint32
	enteredPrice  int64  // what the client asked for, for comparing a repetition
	enteredLots   uint64 //
	price         int64
	receivedNs    int64
	now           quantities
	first         answer
}

// request is the record of a replace's or cancel's id.
type request struct {
	requestID     ID
	clientOrderID ID
	kind          Kind
	account       uint32
	quantity      uint64
	price         int64
	orderNumber   uint32 // record number of the order plus one; 0 = unknown
	receivedNs    int64
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
	reason   pb.Reason
}

// New returns an empty state: no accounts, no instruments, epoch 1.
func New(options Options) (*State, error) {
	if options.MaxIDs == 0 {
		options.MaxIDs = DefaultMaxIDs
	}
	if options.MaxIDs < 1 || options.MaxIDs > MaxIDsCeiling {
		return nil, fmt.Errorf("max_ids is %d, allowed are 1 to %d", options.MaxIDs, MaxIDsCeiling)
	}
	if options.ReserveIDs < 0 || options.ReserveIDs > options.MaxIDs {
		return nil, fmt.Errorf("reserve_ids is %d, allowed are 0 to max_ids (%d)", options.ReserveIDs, options.MaxIDs)
	}
	if options.Limits.MaxQuantity == 0 || options.Limits.MaxQuantity > matching.MaxQuantity {
		options.Limits.MaxQuantity = matching.MaxQuantity
	}
	if options.Limits.MaxNotional <= 0 {
		options.Limits.MaxNotional = math.MaxInt64
	}
	engine, err := matching.NewEngine(matching.Options{
		MaxOrders: options.MaxOpenOrders, MaxLevels: options.MaxLevels, MaxInstruments: MaxInstruments,
	})
	if err != nil {
		return nil, err
	}
	s := &State{
		options: options, engine: engine, epoch: 1,
		byID: newIndex(options.ReserveIDs), byReq: newIndex(0),
		accountNumber: make(map[string]uint32), bySymbol: make(map[Symbol]uint32),
	}
	s.orders.reserve(options.ReserveIDs)
	return s, nil
}

// Apply carries out a decided command and writes the answer to out (nil where nobody waits for it, as in a replay). The only
// error is ErrReplay, and then the state must not be used any more.
func (s *State) Apply(c *Command, out *Answer) error {
	if c.Kind == DefineInstrument {
		return s.applyInstrument(c.Instrument)
	}
	if c.Kind == DefineAccount {
		return s.applyAccount(c.Name)
	}
	if uint64(c.Account) >= uint64(len(s.accounts)) {
		return fmt.Errorf("%w: account %d was never defined", ErrReplay, c.Account)
	}
	switch c.Kind {
	case Submit:
		return s.applySubmit(c, out)
	case Replace, Cancel:
		return s.applyChange(c, out)
	default:
		return fmt.Errorf("%w: unknown kind %d", ErrReplay, c.Kind)
	}
}

func (s *State) applyInstrument(definition *Instrument) error {
	number, known := s.bySymbol[definition.Symbol]
	if !known {
		number = uint32(len(s.instruments))
		if err := s.engine.AddInstrument(number); err != nil {
			return fmt.Errorf("%w: %w", ErrReplay, err)
		}
		s.instruments = append(s.instruments, instrument{})
		s.bySymbol[definition.Symbol] = number
	}
	i := &s.instruments[number]
	version := i.Version + 1
	i.Instrument = *definition
	i.Version = version
	return nil
}

func (s *State) applyAccount(name string) error {
	if _, known := s.accountNumber[name]; known || name == "" || len(s.accounts) == MaxAccounts {
		return fmt.Errorf("%w: account %q defined twice, empty, or more than %d accounts", ErrReplay, name, MaxAccounts)
	}
	s.accountNumber[name] = uint32(len(s.accounts))
	s.accounts = append(s.accounts, account{name: name})
	return nil
}

func (s *State) applySubmit(c *Command, out *Answer) error {
	if int(s.orders.length) >= s.options.MaxIDs {
		return fmt.Errorf("%w: %w: it holds %d", ErrReplay, ErrIDsFull, s.options.MaxIDs)
	}
	a := &s.accounts[c.Account]
	o, number := s.orders.add()
	*o = order{
		clientOrderID: c.ClientOrderID, symbol: c.Symbol, side: c.Side, orderType: c.Type, timeInForce: c.TimeInForce,
		account: c.Account, enteredPrice: c.Price, enteredLots: c.Quantity, price: c.Price, receivedNs: c.ReceivedNs,
	}
	o.now.quantity = c.Quantity
	s.byID.insert(s.byID.hash(&key{c.Account, c.ClientOrderID}), number)
	if a.last == 0 {
		a.first = number + 1
	} else {
		s.orders.at(a.last - 1).nextOfAccount = number + 1
	}
	a.last = number + 1

	a.sequence++
	sequence := a.sequence
	if c.Verdict.Reason != pb.Reason_REASON_UNSPECIFIED {
		o.now.status = pb.OrderStatus_ORDER_STATUS_REJECTED
	} else {
		instrument, known := s.bySymbol[c.Symbol]
		if !known {
			return fmt.Errorf("%w: instrument %s was never defined", ErrReplay, c.Symbol)
		}
		o.instrument = instrument
		o.now.leaves = c.Quantity
		o.now.version = 1
		price := c.Price
		if c.Type == matching.Market {
			price = c.Verdict.Bound
		}
		if err := s.match(&matching.Command{
			Kind: matching.Submit, Side: c.Side, Type: c.Type, TimeInForce: c.TimeInForce,
			Instrument: instrument, OrderID: orderID(number), Price: price, Quantity: c.Quantity,
		}); err != nil {
			return err
		}
		if o.now.leaves > 0 {
			s.linkOpen(a, o, number)
		}
	}
	o.first = answer{quantities: o.now, sequence: sequence, limit: c.Verdict.Limit, reason: c.Verdict.Reason}
	if out != nil {
		s.answerOrder(out, o, number)
	}
	return nil
}

// applyChange carries out a replace or a cancel.
func (s *State) applyChange(c *Command, out *Answer) error {
	a := &s.accounts[c.Account]
	number, known := s.findOrder(c.Account, c.ClientOrderID)
	a.sequence++
	first := answer{sequence: a.sequence, limit: c.Verdict.Limit, reason: c.Verdict.Reason}
	if c.Verdict.Reason == pb.Reason_REASON_UNSPECIFIED {
		if !known {
			return fmt.Errorf("%w: order %s was never entered", ErrReplay, c.ClientOrderID)
		}
		o := s.orders.at(number)
		change := matching.Command{
			Kind: matching.Cancel, Instrument: o.instrument, OrderID: orderID(number), Price: c.Price, Quantity: c.Quantity,
		}
		if c.Kind == Replace {
			change.Kind = matching.Replace
		}
		if err := s.match(&change); err != nil {
			return err
		}
	}
	if known {
		first.quantities = s.orders.at(number).now
	}
	if c.Verdict.Reason != pb.Reason_REASON_UNSPECIFIED {
		first.status = pb.OrderStatus_ORDER_STATUS_REJECTED
	}
	if !c.RequestID.IsZero() {
		if int(s.requests.length) >= s.options.MaxIDs {
			return fmt.Errorf("%w: %w: it holds %d", ErrReplay, ErrIDsFull, s.options.MaxIDs)
		}
		r, requestNumber := s.requests.add()
		*r = request{
			requestID: c.RequestID, clientOrderID: c.ClientOrderID, kind: c.Kind, account: c.Account,
			quantity: c.Quantity, price: c.Price, receivedNs: c.ReceivedNs, first: first,
		}
		if known {
			r.orderNumber = number + 1
		}
		s.byReq.insert(s.byReq.hash(&key{c.Account, c.RequestID}), requestNumber)
	}
	if out != nil {
		s.fill(out, &first, c.ReceivedNs)
		if known {
			out.OrderID = s.publicID(number)
		}
	}
	return nil
}

// match applies a command to the books and carries the events into the records.
func (s *State) match(command *matching.Command) error {
	s.events = s.engine.Apply(command, s.events[:0])
	for i := range s.events {
		e := &s.events[i]
		o := s.orders.at(recordNumber(e.OrderID))
		switch e.Kind {
		case matching.Accepted:
		case matching.Trade:
			s.fillOrder(recordNumber(e.OrderID), e.Price, e.Quantity)
			s.fillOrder(recordNumber(e.MakerID), e.Price, e.Quantity)
			in := &s.instruments[e.Instrument]
			in.lastPrice, in.traded = e.Price, true
		case matching.Canceled:
			o.now.leaves = 0
			o.now.version++
			o.now.status = pb.OrderStatus_ORDER_STATUS_CANCELED
			if e.Reason == matching.ReasonImmediateOrCancel {
				s.accounts[o.account].sequence++ // an event of its own; a cancel's event is its answer
			}
			s.unlinkOpen(o, recordNumber(e.OrderID))
		case matching.Replaced:
			o.price = e.Price
			o.now.quantity = e.Quantity
			o.now.leaves = e.Leaves
			o.now.version++
		case matching.Rejected:
			return fmt.Errorf("%w: order %s is refused by the book: %s (at most %d orders, %d price levels)", ErrReplay,
				o.clientOrderID, e.Reason, s.engine.Options().MaxOrders, s.engine.Options().MaxLevels)
		}
		if e.Kind == matching.Accepted || e.Kind == matching.Replaced {
			o.now.status = openStatus(o.now.filled)
		}
	}
	return nil
}

// fillOrder books one trade on one side of it, and counts its event.
func (s *State) fillOrder(number uint32, price int64, lots uint64) {
	o := s.orders.at(number)
	o.now.filled += lots
	o.now.leaves -= lots
	o.now.lastPrice = price
	o.now.notional = addNotional(o.now.notional, price, lots)
	o.now.version++
	s.accounts[o.account].sequence++
	if o.now.leaves > 0 {
		o.now.status = pb.OrderStatus_ORDER_STATUS_PARTIALLY_FILLED
		return
	}
	o.now.status = pb.OrderStatus_ORDER_STATUS_FILLED
	s.unlinkOpen(o, number)
}

func openStatus(filled uint64) pb.OrderStatus {
	if filled > 0 {
		return pb.OrderStatus_ORDER_STATUS_PARTIALLY_FILLED
	}
	return pb.OrderStatus_ORDER_STATUS_ACCEPTED
}

// orderID is the id of a record in the books and for clients: unique as long as records are.
func orderID(number uint32) uint64       { return uint64(number) + 1 }
func recordNumber(orderID uint64) uint32 { return uint32(orderID - 1) }

// publicID is what a client sees: a rejected order has none.
func (s *State) publicID(number uint32) uint64 {
	if s.orders.at(number).now.status == pb.OrderStatus_ORDER_STATUS_REJECTED {
		return 0
	}
	return orderID(number)
}

// linkOpen puts an order at the end of its account's open ones.
func (s *State) linkOpen(a *account, o *order, number uint32) {
	o.previousOpen = a.lastOpen
	if a.lastOpen == 0 {
		a.firstOpen = number + 1
	} else {
		s.orders.at(a.lastOpen - 1).nextOpen = number + 1
	}
	a.lastOpen = number + 1
}

// unlinkOpen takes an order that has ended out of its account's open ones. Its own links stay: a page that ended at it goes
// on from it.
func (s *State) unlinkOpen(o *order, number uint32) {
	a := &s.accounts[o.account]
	if o.previousOpen == 0 && a.firstOpen != number+1 {
		return // it never rested
	}
	if o.previousOpen == 0 {
		a.firstOpen = o.nextOpen
	} else {
		s.orders.at(o.previousOpen - 1).nextOpen = o.nextOpen
	}
	if o.nextOpen == 0 {
		a.lastOpen = o.previousOpen
	} else {
		s.orders.at(o.nextOpen - 1).previousOpen = o.previousOpen
	}
}
