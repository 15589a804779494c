package entry

import (
	"strconv"
	"sync"

	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Reads copy what they need under the writer's lock and build messages outside of it.

// read handles the reads.
func (s *session) read(x *transports.Exchange) error {
	switch request := x.Request.(type) {
	case *pb.GetOrderRequest:
		if response, ok := x.Response.(*pb.GetOrderResponse); ok {
			return s.getOrder(request, response)
		}
	case *pb.ListOrdersRequest:
		if response, ok := x.Response.(*pb.ListOrdersResponse); ok {
			return s.listOrders(request, response)
		}
	case *pb.GetBookRequest:
		if response, ok := x.Response.(*pb.GetBookResponse); ok {
			return s.getBook(request, response)
		}
	case *pb.ListInstrumentsRequest:
		if response, ok := x.Response.(*pb.ListInstrumentsResponse); ok {
			return s.listInstruments(response)
		}
	}
	return mismatch(x)
}

func (s *session) getOrder(request *pb.GetOrderRequest, response *pb.GetOrderResponse) error {
	if err := s.trades(reading); err != nil {
		return err
	}
	id, ok := orders.ParseID(request.GetClientOrderId())
	if !ok {
		return badID("client_order_id", 1)
	}
	var order orders.Order
	s.gateway.sequencer.Read(func(state *orders.State, _ uint64) { order, ok = state.Order(s.Key.Account, id) })
	if !ok {
		return transports.Refuse(pb.Reason_REASON_NOT_FOUND, "the account has no order %s", id)
	}
	response.Order = orderMessage(&order)
	return nil
}

// page is the room that one ListOrders needs under the lock.
type page struct{ orders []orders.Order }

var pages = sync.Pool{New: func() any { return &page{orders: make([]orders.Order, 0, pageSize)} }}

func (s *session) listOrders(request *pb.ListOrdersRequest, response *pb.ListOrdersResponse) error {
	if err := s.trades(reading); err != nil {
		return err
	}
	if !inEnum(request.GetState(), pb.ListOrdersState_LIST_ORDERS_STATE_ALL) {
		return transports.Malformed("state", "no such value: %d", request.GetState())
	}
	n := int(request.GetPageSize())
	if n > maxPageSize {
		return transports.Malformed("page_size", "must be at most %d, is %d", maxPageSize, n)
	}
	if n == 0 {
		n = pageSize
	}
	var after uint64
	if token := request.GetPageToken(); token != "" {
		number, err := strconv.ParseUint(token, 36, 64)
		if err != nil || number == 0 || len(token) > maxTokenSize {
			return badToken()
		}
		after = number
	}
	p, _ := pages.Get().(*page)
	defer pages.Put(p)
	var next uint64
	var ok bool
	open := request.GetState() != pb.ListOrdersState_LIST_ORDERS_STATE_ALL
	s.gateway.sequencer.Read(func(state *orders.State, _ uint64) {
		p.orders, next, ok = state.List(s.Key.Account, open, after, n, p.orders[:0])
	})
	if !ok {
		return badToken()
	}
	response.Orders = make([]*pb.Order, len(p.orders))
	for i := range p.orders {
		response.Orders[i] = orderMessage(&p.orders[i])
	}
	response.NextPageToken = ""
	if next > 0 {
		response.NextPageToken = strconv.FormatUint(next, 36)
	}
	return nil
}

func badToken() error {
	return transports.Malformed("page_token", "is not a next_page_token of a page before")
}

// levels is the room that one GetBook needs under the lock.
type levels struct{ bids, asks []matching.Level }

var levelsPool = sync.Pool{New: func() any { return new(levels) }}

func (s *session) getBook(request *pb.GetBookRequest, response *pb.GetBookResponse) error {
	if err := s.admit(reading); err != nil {
		return err
	}
	symbol, ok := orders.ParseSymbol(request.GetSymbol())
	if !ok {
		return badSymbol()
	}
	n := int(request.GetDepth())
	if n > maxDepth {
		return transports.Malformed("depth", "must be at most %d, is %d", maxDepth, n)
	}
	if n == 0 {
		n = depth
	}
	l, _ := levelsPool.Get().(*levels)
	defer levelsPool.Put(l)
	s.gateway.sequencer.Read(func(state *orders.State, last uint64) {
		l.bids, l.asks, response.LastPrice, ok = state.Book(symbol, n, l.bids[:0], l.asks[:0])
		response.LogSequence = last
	})
	if !ok {
		f := transports.Refuse(pb.Reason_REASON_MALFORMED, "no instrument has the symbol %s; ListInstruments names all", symbol)
		f.Field = "symbol"
		return f
	}
	response.Symbol = request.GetSymbol()
	response.Bids, response.Asks = levelMessages(l.bids), levelMessages(l.asks)
	return nil
}

func (s *session) listInstruments(response *pb.ListInstrumentsResponse) error {
	if err := s.admit(reading); err != nil {
		return err
	}
	var list []orders.Instrument
	s.gateway.sequencer.Read(func(state *orders.State, _ uint64) { list = state.Instruments(nil) })
	response.Instruments = make([]*pb.Instrument, len(list))
	for i := range list {
		d := &list[i]
		response.Instruments[i] = &pb.Instrument{
			Symbol: d.Symbol.String(), TickNanos: d.TickNanos, LotSize: d.LotSize, Currency: d.Currency,
			State: d.State, Version: d.Version,
			MinNotional: d.MinNotional, MaxNotional: d.MaxNotional, ReferencePrice: d.ReferencePrice,
		}
	}
	return nil
}

func levelMessages(list []matching.Level) []*pb.BookLevel {
	backing := make([]pb.BookLevel, len(list))
	messages := make([]*pb.BookLevel, len(list))
	for i, l := range list {
		m := &backing[i]
		m.Price, m.Quantity, m.OrderCount = l.Price, l.Quantity, l.Orders
		messages[i] = m
	}
	return messages
}

func orderMessage(o *orders.Order) *pb.Order {
	return &pb.Order{
		ClientOrderId: o.ClientOrderID.String(), OrderId: o.OrderID, Symbol: o.Symbol.String(),
		Side: pb.Side(o.Side), Type: pb.OrderType(o.Type), TimeInForce: pb.TimeInForce(o.TimeInForce),
		Status: o.Status, Reason: o.Reason, Price: o.Price,
		Quantity: o.Quantity, FilledQuantity: o.Filled, LeavesQuantity: o.Leaves,
		LastPrice: o.LastPrice, FilledNotional: o.FilledNotional, OrderVersion: o.Version, ReceivedNs: uint64(o.ReceivedNs),
		PostOnly: o.PostOnly, DisplayQuantity: o.DisplayQuantity, MinimumQuantity: o.MinimumQuantity,
		SelfTradePrevention: pb.SelfTradePrevention(max(o.SelfTradePrevention, matching.AllowSelfTrade)),
	}
}
