package transportstest_test

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// naive is the slow and obvious gateway that the suite's own tests run it with: maps, a slice for each book, one lock, no journal.
// It keeps the contract's rules as far as this version offers them, so that a mutant of a transport is the only thing wrong.
type naive struct {
	keys   map[string]string // empty: everybody is demo
	limits *pb.Limits

	mu          sync.Mutex
	instruments []*pb.Instrument
	last        map[string]int64 // price of the last trade, by symbol
	accounts    map[string]*account
	resting     map[string][]*order // by symbol, in the order of arrival
	orders      uint64
	executions  uint64
	matches     uint64
	changed     chan struct{}            // closed and made anew when a reader may have something to do
	holders     map[string]*naiveSession // by account and session id
	disk        naiveDisk
	leaks       bool // a mutant: events do not wait for their commit
}

type account struct {
	name     string
	events   []*pb.ExecutionReport
	orders   []*order // in the order of entry
	byID     map[string]*order
	requests map[string]answered
}

type order struct {
	*pb.Order
	account *account
	request *pb.SubmitOrderRequest
	first   *pb.SubmitOrderResponse
}

type answered struct{ request, response proto.Message }

func newNaive(keys map[string]string, limits *pb.Limits) *naive {
	g := &naive{keys: keys, limits: limits, last: map[string]int64{}, accounts: map[string]*account{}, resting: map[string][]*order{}}
	g.changed, g.holders = make(chan struct{}), make(map[string]*naiveSession)
	for _, symbol := range []string{"FIRST", "SECOND"} {
		g.instruments = append(g.instruments, &pb.Instrument{
			Symbol: symbol, TickNanos: 1, LotSize: 1, Currency: "USD", Version: 1, ReferencePrice: 2000,
			State: pb.InstrumentState_INSTRUMENT_STATE_OPEN,
		})
	}
	return g
}

// Open implements transports.Gateway.
func (g *naive) Open(_ context.Context, peer transports.Peer) (transports.Session, error) {
	name, ok := g.keys[peer.Key]
	if !ok && (len(g.keys) > 0 || peer.Key != "") {
		return nil, transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "nobody has this key")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	name = cmp.Or(name, "demo")
	if g.accounts[name] == nil {
		g.accounts[name] = &account{name: name, byID: map[string]*order{}, requests: map[string]answered{}}
	}
	return &naiveSession{naive: g, account: g.accounts[name]}, nil
}

type naiveSession struct {
	*naive
	account *account
	over    *transports.Fault // why nothing more is taken; guarded by naive.mu
}

// Handle implements transports.Session.
func (s *naiveSession) Handle(ctx context.Context, x *transports.Exchange) error {
	if err := ctx.Err(); err != nil {
		return transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "over before it began: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return s.over
	}
	if s.disk.hasFailed() {
		return transports.Refuse(pb.Reason_REASON_JOURNAL_UNAVAILABLE, "the disk is broken")
	}
	request := proto.Clone(x.Request) // the caller's memory is not ours
	var response proto.Message
	var err error
	switch q := request.(type) {
	case *pb.SubmitOrderRequest:
		response, err = s.submit(q, x.ReceivedNs)
	case *pb.ReplaceOrderRequest:
		response, err = s.replace(q, x.ReceivedNs)
	case *pb.CancelOrderRequest:
		response, err = s.cancel(q, x.ReceivedNs)
	case *pb.GetOrderRequest:
		response, err = s.get(q)
	case *pb.ListOrdersRequest:
		response, err = s.list(q)
	case *pb.GetBookRequest:
		response, err = s.book(q)
	case *pb.Logon:
		response, err = s.logon(q)
	case *pb.Logout:
		response, s.over = &pb.Logout{}, transports.Refuse(pb.Reason_REASON_MALFORMED, "the session has logged out")
	case *pb.ListInstrumentsRequest:
		response = &pb.ListInstrumentsResponse{Instruments: s.instruments}
	default:
		err = transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%v is not offered", x.Operation)
	}
	if err == nil {
		proto.Reset(x.Response)
		proto.Merge(x.Response, response)
	}
	return err
}

var (
	idPattern     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
	symbolPattern = regexp.MustCompile(`^[A-Z0-9._-]{1,16}$`)
)

// check returns a MALFORMED fault that names the first field that is wrong.
func check(fields ...any) error {
	for i := 0; i < len(fields); i += 2 {
		if !fields[i+1].(bool) {
			return transports.Malformed(fields[i].(string), "out of its bounds")
		}
	}
	return nil
}

func priceOK(price int64) bool     { return price >= -(1<<62) && price <= 1<<62 }
func quantityOK(lots uint64) bool  { return lots > 0 && lots < 1<<40 }
func requestIDOK(name string) bool { return name == "" || idPattern.MatchString(name) }

func checkOrder(q *pb.SubmitOrderRequest) error {
	market := q.Type == pb.OrderType_ORDER_TYPE_MARKET
	tif := q.TimeInForce >= 1 && q.TimeInForce <= 4
	if market {
		tif = q.TimeInForce == 0 || q.TimeInForce == 3 || q.TimeInForce == 4
	}
	err := check("client_order_id", idPattern.MatchString(q.ClientOrderId), "symbol", symbolPattern.MatchString(q.Symbol),
		"side", q.Side == 1 || q.Side == 2, "quantity", quantityOK(q.Quantity), "type", q.Type == 1 || market,
		"price", priceOK(q.Price) && (!market || q.Price == 0), "time_in_force", tif,
		"display_quantity", q.DisplayQuantity == 0 || q.DisplayQuantity < q.Quantity, "minimum_quantity", q.MinimumQuantity <= q.Quantity,
		"self_trade_prevention", q.SelfTradePrevention >= 0 && q.SelfTradePrevention <= 5, "ack_detail", q.AckDetail >= 0 && q.AckDetail <= 2)
	if err != nil {
		return err
	}
	for field, offered := range map[string]bool{
		"time_in_force": q.TimeInForce != 4, "post_only": !q.PostOnly, "display_quantity": q.DisplayQuantity == 0,
		"minimum_quantity": q.MinimumQuantity == 0, "self_trade_prevention": q.SelfTradePrevention <= 1,
	} {
		if !offered {
			fault := transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%s: FOK and this field are not offered", field)
			fault.Field = field
			return fault
		}
	}
	return nil
}

func (s *naiveSession) submit(q *pb.SubmitOrderRequest, now int64) (proto.Message, error) {
	if err := checkOrder(q); err != nil {
		return nil, err
	}
	content, echo := proto.CloneOf(q), q.ClientTag
	content.ClientTag, content.AckDetail = nil, 0
	if q.AckDetail == pb.AckDetail_ACK_DETAIL_MINIMAL {
		echo = nil
	}
	if known := s.account.byID[q.ClientOrderId]; known != nil {
		if proto.Equal(known.request, content) {
			again := proto.CloneOf(known.first)
			again.Duplicate, again.ClientTag = true, echo
			return again, nil
		}
		return &pb.SubmitOrderResponse{
			ClientOrderId: q.ClientOrderId, Status: pb.OrderStatus_ORDER_STATUS_REJECTED, Reason: pb.Reason_REASON_DUPLICATE_ID,
			Text: "used before", ReceivedNs: uint64(now), ClientTag: echo,
		}, nil
	}
	o := &order{account: s.account, request: content, Order: &pb.Order{
		ClientOrderId: q.ClientOrderId, Symbol: q.Symbol, Side: q.Side, Type: q.Type, TimeInForce: q.TimeInForce, Price: q.Price,
		Quantity: q.Quantity, ReceivedNs: uint64(now), SelfTradePrevention: pb.SelfTradePrevention_SELF_TRADE_PREVENTION_NONE,
	}}
	s.account.byID[q.ClientOrderId] = o
	s.account.orders = append(s.account.orders, o)
	text := ""
	var sequence uint64
	if o.Reason = s.refuses(q.Symbol, q.Type, q.Quantity, q.Price); o.Reason != 0 {
		o.Status, text = pb.OrderStatus_ORDER_STATUS_REJECTED, o.Reason.String()
		sequence = s.report(o, &pb.ExecutionReport{Type: pb.ExecutionType_EXECUTION_TYPE_REJECTED, Reason: o.Reason})
	} else {
		s.orders++
		o.OrderId, o.OrderVersion, o.LeavesQuantity = s.orders, 1, q.Quantity
		o.settle()
		sequence = s.report(o, &pb.ExecutionReport{Type: pb.ExecutionType_EXECUTION_TYPE_NEW})
		s.match(o)
	}
	o.first = &pb.SubmitOrderResponse{
		ClientOrderId: q.ClientOrderId, OrderId: o.OrderId, Status: o.Status, Reason: o.Reason, Quantity: o.Quantity,
		FilledQuantity: o.FilledQuantity, LeavesQuantity: o.LeavesQuantity, LastPrice: o.LastPrice, FilledNotional: o.FilledNotional,
		Sequence: sequence, Epoch: 1, OrderVersion: o.OrderVersion, ReceivedNs: uint64(now), Text: text,
	}
	first := proto.CloneOf(o.first)
	first.ClientTag = echo
	return first, nil
}

// refuses holds an order to the limits.
func (g *naive) refuses(symbol string, kind pb.OrderType, quantity uint64, price int64) pb.Reason {
	i := slices.IndexFunc(g.instruments, func(i *pb.Instrument) bool { return i.Symbol == symbol })
	if i < 0 {
		return pb.Reason_REASON_UNKNOWN_SYMBOL
	}
	reference, l := cmp.Or(g.last[symbol], g.instruments[i].ReferencePrice), g.limits
	width := reference * int64(l.GetPriceCollarBps()) / 10000
	hi, notional := bits.Mul64(uint64(max(price, -price)), quantity)
	switch {
	case l.GetMaxQuantity() > 0 && quantity > l.GetMaxQuantity():
		return pb.Reason_REASON_MAX_QUANTITY
	case kind == pb.OrderType_ORDER_TYPE_LIMIT && width > 0 && (price < reference-width || price > reference+width):
		return pb.Reason_REASON_PRICE_COLLAR
	case l.GetMaxNotional() > 0 && (hi > 0 || notional > uint64(l.GetMaxNotional())):
		return pb.Reason_REASON_MAX_NOTIONAL
	}
	return 0
}

// match trades an order with what rests, best price first and then in the order of arrival, and lets the rest rest or go.
func (g *naive) match(o *order) {
	market := o.Type == pb.OrderType_ORDER_TYPE_MARKET
	for o.LeavesQuantity > 0 {
		var best *order
		for _, other := range g.resting[o.Symbol] {
			if other.Side == o.Side || !market && !atLeastAsGood(other.Price, o.Price, other.Side) {
				continue
			}
			if best == nil || best.Price != other.Price && atLeastAsGood(other.Price, best.Price, other.Side) {
				best = other
			}
		}
		if best == nil {
			break
		}
		lots := min(o.LeavesQuantity, best.LeavesQuantity)
		g.matches++
		for i, side := range []*order{o, best} {
			side.FilledQuantity += lots
			side.LeavesQuantity -= lots
			side.LastPrice = best.Price
			side.FilledNotional += best.Price * int64(lots)
			side.OrderVersion++
			side.settle()
			g.report(side, &pb.ExecutionReport{
				Type: pb.ExecutionType_EXECUTION_TYPE_TRADE, MatchId: g.matches, LastPrice: best.Price, LastQuantity: lots,
				Liquidity: []pb.Liquidity{pb.Liquidity_LIQUIDITY_TAKER, pb.Liquidity_LIQUIDITY_MAKER}[i],
			})
		}
		g.last[o.Symbol] = best.Price
		if best.LeavesQuantity == 0 {
			g.remove(best)
		}
	}
	o.settle()
	if o.LeavesQuantity == 0 {
		return
	}
	if market || o.TimeInForce == pb.TimeInForce_TIME_IN_FORCE_IOC {
		o.LeavesQuantity, o.Status = 0, pb.OrderStatus_ORDER_STATUS_CANCELED
		o.OrderVersion++
		g.report(o, &pb.ExecutionReport{Type: pb.ExecutionType_EXECUTION_TYPE_CANCELED, Reason: pb.Reason_REASON_IMMEDIATE_OR_CANCEL})
		return
	}
	g.resting[o.Symbol] = append(g.resting[o.Symbol], o)
}

// atLeastAsGood compares prices from the view of who trades with an order of this side.
func atLeastAsGood(price, than int64, side pb.Side) bool {
	if side == pb.Side_SIDE_SELL {
		return price <= than
	}
	return price >= than
}

func (o *order) settle() {
	switch {
	case o.LeavesQuantity == 0:
		o.Status = pb.OrderStatus_ORDER_STATUS_FILLED
	case o.FilledQuantity > 0:
		o.Status = pb.OrderStatus_ORDER_STATUS_PARTIALLY_FILLED
	default:
		o.Status = pb.OrderStatus_ORDER_STATUS_ACCEPTED
	}
}

func (g *naive) remove(o *order) {
	g.resting[o.Symbol] = slices.DeleteFunc(g.resting[o.Symbol], func(other *order) bool { return other == o })
}

// once answers a replace or cancel, the first time by change, which returns why it is refused.
func (s *naiveSession) once(requestID, orderID string, request proto.Message, now int64, change func(o *order) (uint64, pb.Reason)) (*pb.ReplaceOrderResponse, error) {
	if err := check("request_id", requestIDOK(requestID), "client_order_id", idPattern.MatchString(orderID)); err != nil {
		return nil, err
	}
	r := &pb.ReplaceOrderResponse{
		ClientOrderId: orderID, RequestId: requestID, ReceivedNs: uint64(now), Epoch: 1, Status: pb.OrderStatus_ORDER_STATUS_REJECTED,
	}
	if first, known := s.account.requests[requestID]; known {
		if proto.Equal(first.request, request) {
			again := proto.CloneOf(first.response.(*pb.ReplaceOrderResponse))
			again.Duplicate = true
			return again, nil
		}
		r.Reason, r.Text = pb.Reason_REASON_DUPLICATE_ID, "used before"
		return r, nil
	}
	o := s.account.byID[orderID]
	switch {
	case o == nil:
		r.Reason = pb.Reason_REASON_UNKNOWN_ORDER
	case o.LeavesQuantity == 0:
		r.Reason = pb.Reason_REASON_TOO_LATE
	default:
		r.Sequence, r.Reason = change(o)
	}
	if r.Reason != 0 {
		r.Text = r.Reason.String()
	}
	if o != nil {
		r.OrderId, r.Quantity, r.FilledQuantity, r.LeavesQuantity = o.OrderId, o.Quantity, o.FilledQuantity, o.LeavesQuantity
		r.LastPrice, r.FilledNotional, r.OrderVersion = o.LastPrice, o.FilledNotional, o.OrderVersion
		if r.Reason == 0 {
			r.Status = o.Status
		}
	}
	if requestID != "" {
		s.account.requests[requestID] = answered{request, r}
	}
	return r, nil
}

func (s *naiveSession) replace(q *pb.ReplaceOrderRequest, now int64) (proto.Message, error) {
	if err := check("request_id", requestIDOK(q.RequestId), "client_order_id", idPattern.MatchString(q.ClientOrderId),
		"quantity", quantityOK(q.Quantity), "price", priceOK(q.Price)); err != nil {
		return nil, err
	}
	return s.once(q.RequestId, q.ClientOrderId, q, now, func(o *order) (uint64, pb.Reason) {
		if q.Quantity <= o.FilledQuantity {
			return 0, pb.Reason_REASON_QUANTITY_FILLED
		}
		if reason := s.refuses(o.Symbol, o.Type, q.Quantity, q.Price); reason != 0 {
			return 0, reason
		}
		keeps := q.Price == o.Price && q.Quantity <= o.Quantity
		o.Price, o.Quantity, o.LeavesQuantity = q.Price, q.Quantity, q.Quantity-o.FilledQuantity
		o.OrderVersion++
		sequence := s.report(o, &pb.ExecutionReport{Type: pb.ExecutionType_EXECUTION_TYPE_REPLACED})
		if !keeps {
			s.remove(o)
			s.match(o)
		}
		return sequence, 0
	})
}

func (s *naiveSession) cancel(q *pb.CancelOrderRequest, now int64) (proto.Message, error) {
	r, err := s.once(q.RequestId, q.ClientOrderId, q, now, func(o *order) (uint64, pb.Reason) {
		s.remove(o)
		o.LeavesQuantity, o.Status = 0, pb.OrderStatus_ORDER_STATUS_CANCELED
		o.OrderVersion++
		return s.report(o, &pb.ExecutionReport{Type: pb.ExecutionType_EXECUTION_TYPE_CANCELED}), 0
	})
	if err != nil {
		return nil, err
	}
	return &pb.CancelOrderResponse{
		ClientOrderId: r.ClientOrderId, OrderId: r.OrderId, Status: r.Status, Reason: r.Reason, Quantity: r.Quantity,
		FilledQuantity: r.FilledQuantity, LeavesQuantity: r.LeavesQuantity, LastPrice: r.LastPrice, FilledNotional: r.FilledNotional,
		Sequence: r.Sequence, Duplicate: r.Duplicate, OrderVersion: r.OrderVersion, ReceivedNs: r.ReceivedNs, RequestId: r.RequestId,
		Epoch: r.Epoch, Text: r.Text,
	}, nil
}

func (s *naiveSession) get(q *pb.GetOrderRequest) (proto.Message, error) {
	if err := check("client_order_id", idPattern.MatchString(q.ClientOrderId)); err != nil {
		return nil, err
	}
	o := s.account.byID[q.ClientOrderId]
	if o == nil {
		return nil, transports.Refuse(pb.Reason_REASON_NOT_FOUND, "no order %s", q.ClientOrderId)
	}
	return &pb.GetOrderResponse{Order: o.Order}, nil
}

func (s *naiveSession) list(q *pb.ListOrdersRequest) (proto.Message, error) {
	from, err := strconv.Atoi(cmp.Or(q.PageToken, "0"))
	if err := check("state", q.State >= 0 && q.State <= 2, "page_size", q.PageSize <= 1000,
		"page_token", err == nil && from >= 0 && len(q.PageToken) <= 64); err != nil {
		return nil, err
	}
	r, size := &pb.ListOrdersResponse{}, int(cmp.Or(q.PageSize, 100))
	for i := min(from, len(s.account.orders)); i < len(s.account.orders); i++ {
		o := s.account.orders[i]
		if q.State != pb.ListOrdersState_LIST_ORDERS_STATE_ALL && o.LeavesQuantity == 0 {
			continue
		}
		if len(r.Orders) == size {
			r.NextPageToken = fmt.Sprint(i)
			break
		}
		r.Orders = append(r.Orders, o.Order)
	}
	return r, nil
}

func (s *naiveSession) book(q *pb.GetBookRequest) (proto.Message, error) {
	known := slices.ContainsFunc(s.instruments, func(i *pb.Instrument) bool { return i.Symbol == q.Symbol })
	if err := check("symbol", symbolPattern.MatchString(q.Symbol) && known, "depth", q.Depth <= 5000); err != nil {
		return nil, err
	}
	levels := map[pb.Side]map[int64]*pb.BookLevel{pb.Side_SIDE_BUY: {}, pb.Side_SIDE_SELL: {}}
	for _, o := range s.resting[q.Symbol] {
		side := levels[o.Side]
		if side[o.Price] == nil {
			side[o.Price] = &pb.BookLevel{Price: o.Price}
		}
		side[o.Price].Quantity += o.LeavesQuantity
		side[o.Price].OrderCount++
	}
	best := func(side pb.Side) (list []*pb.BookLevel) {
		for _, level := range levels[side] {
			list = append(list, level)
		}
		slices.SortFunc(list, func(a, b *pb.BookLevel) int {
			if side == pb.Side_SIDE_BUY {
				a, b = b, a
			}
			return cmp.Compare(a.Price, b.Price)
		})
		return list[:min(len(list), int(cmp.Or(q.Depth, 10)))]
	}
	return &pb.GetBookResponse{Symbol: q.Symbol, Bids: best(pb.Side_SIDE_BUY), Asks: best(pb.Side_SIDE_SELL), LastPrice: s.last[q.Symbol]}, nil
}
