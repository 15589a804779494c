package transportstest

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// refusal is one request that is not granted, or one that prepares the next (reason 0). A reason below 100 is a fault with
// outcome NOT_PROCESSED that names the field; one from 100 on is an answer with status REJECTED.
type refusal struct {
	name    string
	key     string
	request proto.Message
	reason  pb.Reason
	field   string
}

const (
	maxQuantity = 1000      // lots, in the refusals' gateway
	collarBps   = 500       // 5 %, there
	mostLots    = 1<<40 - 1 // the contract's greatest quantity
)

func refusals(t *testing.T, s *suite) {
	options := twoAccounts()
	options.Limits = &pb.Limits{MaxQuantity: maxQuantity, PriceCollarBps: collarBps}
	r := s.start(t, options)
	clients := map[string]*client{alphaKey: r.dial(alphaKey), betaKey: r.dial(betaKey)}
	for _, row := range r.refusals() {
		before := r.probe.handledOrders()
		r.wantRefusal(clients[row.key], row)
		order, isOrder := row.request.(*pb.SubmitOrderRequest)
		if isOrder && row.reason > 0 && row.reason < 100 && r.probe.handledOrders()[order.GetClientOrderId()] != before[order.GetClientOrderId()] {
			t.Errorf("%s: not processed, but the gateway answered it", row.name)
		}
	}
	r.wantBook(clients[alphaKey], 0, nil, nil, r.price)
}

// refusals are all that can be provoked from outside with one request.
func (r *rig) refusals() []refusal {
	order := func(id string, change func(o *pb.SubmitOrderRequest)) *pb.SubmitOrderRequest {
		return with(r.limit(id, buy, 5, -1), change)
	}
	far := r.price * collarBps / 10000
	rows := []refusal{
		// Business rules.
		{"unknown symbol", alphaKey, order("u1", func(o *pb.SubmitOrderRequest) { o.Symbol = "NO.SUCH.SYMBOL" }), pb.Reason_REASON_UNKNOWN_SYMBOL, ""},
		{"more than the maximum quantity", alphaKey, r.limit("q1", buy, maxQuantity+1, -1), pb.Reason_REASON_MAX_QUANTITY, ""},
		{"the greatest quantity", alphaKey, r.limit("q2", buy, mostLots, -1), pb.Reason_REASON_MAX_QUANTITY, ""},
		{"bid below the collar", alphaKey, r.limit("c1", buy, 1, -far-1), pb.Reason_REASON_PRICE_COLLAR, ""},
		{"bid above the collar", alphaKey, r.limit("c2", buy, 1, far+1), pb.Reason_REASON_PRICE_COLLAR, ""},
		{"offer above the collar", alphaKey, r.limit("c3", sell, 1, far+1), pb.Reason_REASON_PRICE_COLLAR, ""},
		{"offer below the collar", alphaKey, r.limit("c4", sell, 1, -far-1), pb.Reason_REASON_PRICE_COLLAR, ""},
		{"a refused id is used up: the same again", alphaKey, r.limit("c4", sell, 1, -far-1), pb.Reason_REASON_PRICE_COLLAR, ""},
		{"a refused id is used up: something else", alphaKey, r.limit("c4", sell, 1, 1), pb.Reason_REASON_DUPLICATE_ID, ""},

		// Order rules.
		{"an order", alphaKey, r.limit("used", buy, 10, 0), 0, ""},
		{"its id with another quantity", alphaKey, r.limit("used", buy, 11, 0), pb.Reason_REASON_DUPLICATE_ID, ""},
		{"its id with another price", alphaKey, r.limit("used", buy, 10, -1), pb.Reason_REASON_DUPLICATE_ID, ""},
		{"its id with the other side", alphaKey, r.limit("used", sell, 10, 0), pb.Reason_REASON_DUPLICATE_ID, ""},
		{"its id with another time in force", alphaKey, with(r.limit("used", buy, 10, 0), func(o *pb.SubmitOrderRequest) { o.TimeInForce = pb.TimeInForce_TIME_IN_FORCE_GTC }), pb.Reason_REASON_DUPLICATE_ID, ""},
		{"its id in another instrument", alphaKey, with(r.limit("used", buy, 10, 0), func(o *pb.SubmitOrderRequest) { o.Symbol = r.second }), pb.Reason_REASON_DUPLICATE_ID, ""},
		{"its id of another account", betaKey, r.limit("used", buy, 1, -1), 0, ""},
		{"cancel that", betaKey, cancelOrder("", "used"), 0, ""},
		{"cancel an unknown order", alphaKey, cancelOrder("", "nobody"), pb.Reason_REASON_UNKNOWN_ORDER, ""},
		{"replace an unknown order", alphaKey, r.replace("", "nobody", 1, 0), pb.Reason_REASON_UNKNOWN_ORDER, ""},
		{"an order of alpha", alphaKey, r.limit("alphas", buy, 1, -1), 0, ""},
		{"cancel another account's order", betaKey, cancelOrder("", "alphas"), pb.Reason_REASON_UNKNOWN_ORDER, ""},
		{"replace another account's order", betaKey, r.replace("", "alphas", 1, 0), pb.Reason_REASON_UNKNOWN_ORDER, ""},
		{"read another account's order", betaKey, &pb.GetOrderRequest{ClientOrderId: "alphas"}, pb.Reason_REASON_NOT_FOUND, ""},
		{"read an unknown order", alphaKey, &pb.GetOrderRequest{ClientOrderId: "nobody"}, pb.Reason_REASON_NOT_FOUND, ""},
		{"a fill of 4", betaKey, r.immediate("hits", sell, 4, 0), 0, ""},
		{"replace to less than is filled", alphaKey, r.replace("", "used", 3, 0), pb.Reason_REASON_QUANTITY_FILLED, ""},
		{"replace to what is filled", alphaKey, r.replace("", "used", 4, 0), pb.Reason_REASON_QUANTITY_FILLED, ""},
		{"replace to more than the maximum", alphaKey, r.replace("", "used", maxQuantity+1, 0), pb.Reason_REASON_MAX_QUANTITY, ""},
		{"replace beyond the collar", alphaKey, r.replace("", "used", 10, -far-1), pb.Reason_REASON_PRICE_COLLAR, ""},
		{"cancel", alphaKey, cancelOrder("", "used"), 0, ""},
		{"cancel a canceled order", alphaKey, cancelOrder("", "used"), pb.Reason_REASON_TOO_LATE, ""},
		{"replace a canceled order", alphaKey, r.replace("", "used", 10, 0), pb.Reason_REASON_TOO_LATE, ""},
		{"cancel a filled order", betaKey, cancelOrder("", "hits"), pb.Reason_REASON_TOO_LATE, ""},
		{"replace a filled order", betaKey, r.replace("", "hits", 10, 0), pb.Reason_REASON_TOO_LATE, ""},
		{"cancel a refused order", alphaKey, cancelOrder("", "c1"), pb.Reason_REASON_TOO_LATE, ""},
		{"clean up", alphaKey, cancelOrder("", "alphas"), 0, ""},
	}

	malformed := func(name, field string, request proto.Message) {
		rows = append(rows, refusal{name, alphaKey, request, pb.Reason_REASON_MALFORMED, field})
	}
	for _, bad := range badIDs {
		malformed("submit, id: "+bad.name, "client_order_id", r.limit(bad.id, buy, 1, 0))
		malformed("replace, id: "+bad.name, "client_order_id", r.replace("r", bad.id, 1, 0))
		malformed("cancel, id: "+bad.name, "client_order_id", cancelOrder("r", bad.id))
		malformed("get, id: "+bad.name, "client_order_id", &pb.GetOrderRequest{ClientOrderId: bad.id})
		if bad.id != "" {
			malformed("replace, request id: "+bad.name, "request_id", r.replace(bad.id, "o", 1, 0))
			malformed("cancel, request id: "+bad.name, "request_id", cancelOrder(bad.id, "o"))
		}
		symbol := strings.ToUpper(bad.id)
		malformed("book, symbol: "+bad.name, "symbol", &pb.GetBookRequest{Symbol: symbol})
		if bad.id != ".." { // which is well-formed, and nobody's
			malformed("submit, symbol: "+bad.name, "symbol", order("s", func(o *pb.SubmitOrderRequest) { o.Symbol = symbol }))
		}
	}
	malformed("nothing at all", "client_order_id", &pb.SubmitOrderRequest{})
	malformed("a lower-case symbol", "symbol", order("m", func(o *pb.SubmitOrderRequest) { o.Symbol = strings.ToLower(o.Symbol) + "x" }))
	malformed("no side", "side", order("m", func(o *pb.SubmitOrderRequest) { o.Side = 0 }))
	malformed("an undefined side", "side", order("m", func(o *pb.SubmitOrderRequest) { o.Side = 3 }))
	malformed("a negative side", "side", order("m", func(o *pb.SubmitOrderRequest) { o.Side = -1 }))
	malformed("no type", "type", order("m", func(o *pb.SubmitOrderRequest) { o.Type = 0 }))
	malformed("an undefined type", "type", order("m", func(o *pb.SubmitOrderRequest) { o.Type = math.MaxInt32 }))
	malformed("no time in force", "time_in_force", order("m", func(o *pb.SubmitOrderRequest) { o.TimeInForce = 0 }))
	malformed("an undefined time in force", "time_in_force", order("m", func(o *pb.SubmitOrderRequest) { o.TimeInForce = 5 }))
	malformed("a market order for the day", "time_in_force", with(r.market("m", buy, 1), func(o *pb.SubmitOrderRequest) { o.TimeInForce = pb.TimeInForce_TIME_IN_FORCE_DAY }))
	malformed("quantity 0", "quantity", order("m", func(o *pb.SubmitOrderRequest) { o.Quantity = 0 }))
	malformed("more than the greatest quantity", "quantity", order("m", func(o *pb.SubmitOrderRequest) { o.Quantity = mostLots + 1 }))
	malformed("quantity above 63 bits", "quantity", order("m", func(o *pb.SubmitOrderRequest) { o.Quantity = 1 << 63 }))
	malformed("price above 2^62", "price", order("m", func(o *pb.SubmitOrderRequest) { o.Price = 1<<62 + 1 }))
	malformed("price below -2^62", "price", order("m", func(o *pb.SubmitOrderRequest) { o.Price = -(1 << 62) - 1 }))
	malformed("a market order with a price", "price", with(r.market("m", buy, 1), func(o *pb.SubmitOrderRequest) { o.Price = r.price }))
	malformed("undefined self-trade prevention", "self_trade_prevention", order("m", func(o *pb.SubmitOrderRequest) { o.SelfTradePrevention = 6 }))
	malformed("an undefined ack detail", "ack_detail", order("m", func(o *pb.SubmitOrderRequest) { o.AckDetail = 3 }))
	malformed("display quantity not below quantity", "display_quantity", order("m", func(o *pb.SubmitOrderRequest) { o.DisplayQuantity = o.Quantity }))
	malformed("minimum quantity above quantity", "minimum_quantity", order("m", func(o *pb.SubmitOrderRequest) { o.MinimumQuantity = o.Quantity + 1 }))
	malformed("replace to quantity 0", "quantity", r.replace("", "o", 0, 0))
	malformed("replace to a quantity above 63 bits", "quantity", r.replace("", "o", math.MaxUint64, 0))
	malformed("replace to a price above 2^62", "price", &pb.ReplaceOrderRequest{ClientOrderId: "o", Quantity: 1, Price: math.MaxInt64})
	malformed("list an undefined state", "state", &pb.ListOrdersRequest{State: 3})
	malformed("list a page too large", "page_size", &pb.ListOrdersRequest{PageSize: 1001})
	malformed("list behind a token nobody gave", "page_token", &pb.ListOrdersRequest{PageToken: "not/a token?&=%"})
	malformed("list behind a token too long", "page_token", &pb.ListOrdersRequest{PageToken: strings.Repeat("1", 65)})
	malformed("a book too deep", "depth", &pb.GetBookRequest{Symbol: r.symbol, Depth: 5001})
	malformed("the book of an unknown symbol", "symbol", &pb.GetBookRequest{Symbol: "NO.SUCH.SYMBOL"})
	rows = append(rows,
		// A refusal by the session layer does not use up the id, and has left nothing behind.
		refusal{"a malformed id was not used up", alphaKey, r.limit("m", buy, 1, -1), 0, ""},
		refusal{"and its order can be canceled", alphaKey, cancelOrder("r", "m"), 0, ""},
	)
	return rows
}

// wantRefusal makes the call of one row and checks what it says.
func (r *rig) wantRefusal(c *client, row refusal) {
	t := r.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	response, fault := c.try(ctx, row.request)
	switch {
	case row.reason > 0 && row.reason < 100:
		if fault == nil {
			t.Errorf("%s: answered %s, want %v", row.name, text(response), row.reason)
		} else if fault.Reason != row.reason || fault.Outcome != notProcessed || fault.Field != row.field {
			t.Errorf("%s: %v, %v, field %q; want %v, %v, field %q (%v)", row.name,
				fault.Reason, fault.Outcome, fault.Field, row.reason, notProcessed, row.field, fault)
		}
	case fault != nil:
		t.Errorf("%s: fault %v, want an answer with reason %v", row.name, fault, row.reason)
	default:
		if a, ok := response.(ack); ok && (a.GetReason() != row.reason || (a.GetStatus() == rejected) != (row.reason != 0)) {
			t.Errorf("%s: %v %v, want reason %v: %s", row.name, a.GetStatus(), a.GetReason(), row.reason, text(response))
		}
	}
}

// limits are checked before the book, one gateway for each.
func limits(t *testing.T, s *suite) {
	options := twoAccounts()
	start := func(limits *pb.Limits) (*rig, *client) {
		options.Limits = limits
		r := s.start(t, options)
		return r, r.dial(alphaKey)
	}
	at := func(c *client, request proto.Message, reason pb.Reason) {
		t.Helper()
		c.rig.wantRefusal(c, refusal{text(request), alphaKey, request, reason, ""})
	}
	r, _ := start(nil)
	price := r.price // which is the same in the next
	r, c := start(&pb.Limits{MaxNotional: 10 * price})
	at(c, r.limit("at-it", buy, 10, 0), 0)
	at(c, r.limit("above", buy, 11, 0), pb.Reason_REASON_MAX_NOTIONAL)
	at(c, r.limit("far-above", buy, mostLots, 0), pb.Reason_REASON_MAX_NOTIONAL)
}

// keys decide who speaks, when the connection is made.
func keys(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	for _, wrong := range []struct{ name, key string }{
		{"none", ""}, {"unknown", "key-that-nobody-has-0123456789abcdef"}, {"in other letters", strings.ToUpper(alphaKey)},
		{"cut", alphaKey[:len(alphaKey)-1]}, {"longer", alphaKey + "0"}, {"short", "k"},
	} {
		c, err := r.tryDial(wrong.key)
		if err == nil {
			t.Errorf("key %s: admitted", wrong.name)
			_ = c.Close()
			continue
		}
		fault := checkFault(t, "dial with key "+wrong.name, err)
		s.see(fault.Reason)
		wantFault(t, fault, pb.Reason_REASON_UNAUTHENTICATED, notProcessed)
		if wrong.key != "" && len(wrong.key) > 8 && strings.Contains(err.Error(), wrong.key) {
			t.Errorf("key %s: the error shows the key: %v", wrong.name, err)
		}
		if s.rows != nil {
			s.rows.add(Row{Case: s.caseName, Call: "dial with key " + wrong.name, Answer: observed(nil, fault)})
		}
	}
	// Two keys of an account see one account.
	r.dial(alphaKey).submit(r.limit("by-the-first-key", buy, 1, 0))
	r.wantOrder(r.dial(alpha2Key), "by-the-first-key", accepted, 1, 0, 1)
}

// noKeys: a gateway without configured keys gives every loopback client one account.
func noKeys(t *testing.T, s *suite) {
	r := s.start(t, GatewayOptions{})
	r.dial("").submit(r.limit("anybody", buy, 1, 0))
	r.wantOrder(r.dial(""), "anybody", accepted, 1, 0, 1)
}

// encodingRefused: protobuf strings are UTF-8, so a request with another string cannot be sent. Which words say so is the
// codec's.
func encodingRefused(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	for _, request := range []proto.Message{
		r.limit("not\xffUTF-8", buy, 1, 0),
		with(r.limit("symbol", buy, 1, 0), func(o *pb.SubmitOrderRequest) { o.Symbol = "\xc3\x28" }),
		cancelOrder("\x80", "o"),
	} {
		wantFault(t, c.refuse(request), pb.Reason_REASON_MALFORMED, notProcessed)
	}
	c.submit(r.limit("still-works", buy, 1, 0))
}

func unknownOperation(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	for _, op := range []transports.Operation{0, transports.StreamExecutions + 1, math.MaxUint16} {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		err := c.Do(ctx, &transports.Call{Operation: op, Request: &pb.ListInstrumentsRequest{}, Response: &pb.ListInstrumentsResponse{}})
		cancel()
		fault, _ := errors.AsType[*transports.Fault](err)
		wantFault(t, fault, pb.Reason_REASON_UNIMPLEMENTED, notProcessed)
		if fault != nil {
			s.see(fault.Reason)
		}
	}
	c.submit(r.limit("still-works", buy, 1, 0))
}
