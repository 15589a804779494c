package entry

import (
	"time"

	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// The checks of this file are the rules that stand in the proto as buf.validate options, written by hand because the hot path has no
// time for interpreting them; a property test holds the two equal. They also fill the command.

// Bounds of the contract that the proto states.
const (
	maxPrice     = 1 << 62 // ticks, either way
	maxPageSize  = 1000
	pageSize     = 100 // when page_size is 0
	maxTokenSize = 64
	maxDepth     = 5000
	depth        = 10 // when depth is 0
	maxTag       = 1 << 20

	maxTimeoutMs   = 3_600_000
	maxGraceMs     = 60_000
	maxText        = 256
	maxAccountName = 32
)

// The contract's numbers are the engine's: a conversion is enough. Each line fails to compile when they differ.
var (
	_ = [1]struct{}{}[pb.Side_SIDE_BUY-pb.Side(matching.Buy)]
	_ = [1]struct{}{}[pb.Side_SIDE_SELL-pb.Side(matching.Sell)]
	_ = [1]struct{}{}[pb.OrderType_ORDER_TYPE_LIMIT-pb.OrderType(matching.Limit)]
	_ = [1]struct{}{}[pb.OrderType_ORDER_TYPE_MARKET-pb.OrderType(matching.Market)]
	_ = [1]struct{}{}[pb.TimeInForce_TIME_IN_FORCE_DAY-pb.TimeInForce(matching.Day)]
	_ = [1]struct{}{}[pb.TimeInForce_TIME_IN_FORCE_GTC-pb.TimeInForce(matching.GoodTillCancel)]
	_ = [1]struct{}{}[pb.TimeInForce_TIME_IN_FORCE_IOC-pb.TimeInForce(matching.ImmediateOrCancel)]
	_ = [1]struct{}{}[pb.TimeInForce_TIME_IN_FORCE_FOK-pb.TimeInForce(matching.FillOrKill)]
	_ = [1]struct{}{}[pb.SelfTradePrevention_SELF_TRADE_PREVENTION_NONE-pb.SelfTradePrevention(matching.AllowSelfTrade)]
	_ = [1]struct{}{}[pb.SelfTradePrevention_SELF_TRADE_PREVENTION_CANCEL_TAKER-pb.SelfTradePrevention(matching.CancelTaker)]
	_ = [1]struct{}{}[pb.SelfTradePrevention_SELF_TRADE_PREVENTION_CANCEL_MAKER-pb.SelfTradePrevention(matching.CancelMaker)]
	_ = [1]struct{}{}[pb.SelfTradePrevention_SELF_TRADE_PREVENTION_CANCEL_BOTH-pb.SelfTradePrevention(matching.CancelBoth)]
	_ = [1]struct{}{}[pb.SelfTradePrevention_SELF_TRADE_PREVENTION_DECREMENT-pb.SelfTradePrevention(matching.Decrement)]
)

// checkSubmit holds a new order to the contract and fills the command from it.
func checkSubmit(r *pb.SubmitOrderRequest, c *orders.Command) error {
	var ok bool
	if c.ClientOrderID, ok = orders.ParseID(r.GetClientOrderId()); !ok {
		return badID("client_order_id", 1)
	}
	if c.Symbol, ok = orders.ParseSymbol(r.GetSymbol()); !ok {
		return badSymbol()
	}
	if r.GetSide() != pb.Side_SIDE_BUY && r.GetSide() != pb.Side_SIDE_SELL {
		return transports.Malformed("side", "must be SIDE_BUY or SIDE_SELL, is %s", r.GetSide())
	}
	c.Side = matching.Side(r.GetSide())
	if err := checkQuantity(r.GetQuantity()); err != nil {
		return err
	}
	c.Quantity = r.GetQuantity()
	switch r.GetType() {
	case pb.OrderType_ORDER_TYPE_LIMIT:
		if err := checkPrice(r.GetPrice()); err != nil {
			return err
		}
	case pb.OrderType_ORDER_TYPE_MARKET:
		if r.GetPrice() != 0 {
			return transports.Malformed("price", "a market order carries no price, this has %d", r.GetPrice())
		}
	default:
		return transports.Malformed("type", "must be ORDER_TYPE_LIMIT or ORDER_TYPE_MARKET, is %s", r.GetType())
	}
	c.Type = matching.OrderType(r.GetType())
	c.Price = r.GetPrice()
	if err := checkTimeInForce(r, c); err != nil {
		return err
	}
	if r.GetMinimumQuantity() > r.GetQuantity() {
		return transports.Malformed("minimum_quantity", "must not pass quantity (%d), is %d", r.GetQuantity(), r.GetMinimumQuantity())
	}
	if err := checkResting(r); err != nil {
		return err
	}
	if !inEnum(r.GetSelfTradePrevention(), pb.SelfTradePrevention_SELF_TRADE_PREVENTION_DECREMENT) {
		return transports.Malformed("self_trade_prevention", "no such value: %d", r.GetSelfTradePrevention())
	}
	if !inEnum(r.GetAckDetail(), pb.AckDetail_ACK_DETAIL_MINIMAL) {
		return transports.Malformed("ack_detail", "no such value: %d", r.GetAckDetail())
	}
	if len(r.GetClientTag()) > maxTag {
		return transports.Malformed("client_tag", "has %d bytes, at most %d are allowed", len(r.GetClientTag()), maxTag)
	}
	c.PostOnly = r.GetPostOnly()
	c.DisplayQuantity, c.MinimumQuantity = r.GetDisplayQuantity(), r.GetMinimumQuantity()
	c.SelfTradePrevention = matching.SelfTradePrevention(r.GetSelfTradePrevention())
	return nil
}

// checkResting holds what makes sense for an order that may rest only to those that do.
func checkResting(r *pb.SubmitOrderRequest) error {
	rests := r.GetType() == pb.OrderType_ORDER_TYPE_LIMIT &&
		(r.GetTimeInForce() == pb.TimeInForce_TIME_IN_FORCE_DAY || r.GetTimeInForce() == pb.TimeInForce_TIME_IN_FORCE_GTC)
	if r.GetPostOnly() && (!rests || r.GetMinimumQuantity() > 0) {
		return transports.Malformed("post_only", "goes with a limit order of TIME_IN_FORCE_DAY or _GTC and without minimum_quantity: it never takes")
	}
	display, quantity := r.GetDisplayQuantity(), r.GetQuantity()
	switch {
	case display == 0:
		return nil
	case !rests:
		return transports.Malformed("display_quantity", "goes with a limit order of TIME_IN_FORCE_DAY or _GTC: only what rests is shown")
	case display >= quantity:
		return transports.Malformed("display_quantity", "must be below quantity (%d), is %d", quantity, display)
	case quantity > matching.MaxDisplayParts*display:
		return transports.Malformed("display_quantity", "must be at least 1/%d of quantity (%d), is %d", matching.MaxDisplayParts, quantity, display)
	}
	return nil
}

func checkTimeInForce(r *pb.SubmitOrderRequest, c *orders.Command) error {
	market := r.GetType() == pb.OrderType_ORDER_TYPE_MARKET
	switch tif := r.GetTimeInForce(); {
	case !inEnum(tif, pb.TimeInForce_TIME_IN_FORCE_FOK):
		return transports.Malformed("time_in_force", "no such value: %d", tif)
	case market && (tif == pb.TimeInForce_TIME_IN_FORCE_DAY || tif == pb.TimeInForce_TIME_IN_FORCE_GTC):
		return transports.Malformed("time_in_force", "a market order takes TIME_IN_FORCE_IOC, TIME_IN_FORCE_FOK or nothing, has %s", tif)
	case !market && tif == pb.TimeInForce_TIME_IN_FORCE_UNSPECIFIED:
		return transports.Malformed("time_in_force", "a limit order needs TIME_IN_FORCE_DAY, _GTC, _IOC or _FOK")
	case market && tif == pb.TimeInForce_TIME_IN_FORCE_UNSPECIFIED:
		c.TimeInForce = matching.ImmediateOrCancel
	default:
		c.TimeInForce = matching.TimeInForce(tif)
	}
	return nil
}

// checkMassCancel holds a mass cancel to the contract and fills the command from it.
func checkMassCancel(r *pb.MassCancelRequest, c *orders.Command) error {
	var ok bool
	if r.GetRequestId() != "" {
		if c.RequestID, ok = orders.ParseID(r.GetRequestId()); !ok {
			return badID("request_id", 0)
		}
	}
	if r.GetSymbol() != "" {
		if c.Symbol, ok = orders.ParseSymbol(r.GetSymbol()); !ok {
			return badSymbol()
		}
	}
	if !inEnum(r.GetSide(), pb.Side_SIDE_SELL) {
		return transports.Malformed("side", "no such value: %d", r.GetSide())
	}
	c.Side = matching.Side(r.GetSide())
	return nil
}

// checkChange holds the ids of a replace or cancel to the contract and fills the command with them.
func checkChange(requestID, clientOrderID string, c *orders.Command) error {
	var ok bool
	if requestID != "" {
		if c.RequestID, ok = orders.ParseID(requestID); !ok {
			return badID("request_id", 0)
		}
	}
	if c.ClientOrderID, ok = orders.ParseID(clientOrderID); !ok {
		return badID("client_order_id", 1)
	}
	return nil
}

// checkReplace holds a replace to the contract and fills the command from it.
func checkReplace(r *pb.ReplaceOrderRequest, c *orders.Command) error {
	if err := checkChange(r.GetRequestId(), r.GetClientOrderId(), c); err != nil {
		return err
	}
	if err := checkQuantity(r.GetQuantity()); err != nil {
		return err
	}
	c.Quantity, c.Price = r.GetQuantity(), r.GetPrice()
	return checkPrice(r.GetPrice())
}

// checkCancelAllAfter holds a call of the dead-man timer to the contract and fills the command from it.
func checkCancelAllAfter(r *pb.CancelAllAfterRequest, c *orders.Command) error {
	if r.GetTimeoutMs() > maxTimeoutMs {
		return transports.Malformed("timeout_ms", "must be at most %d, is %d", maxTimeoutMs, r.GetTimeoutMs())
	}
	if timeout := time.Duration(r.GetTimeoutMs()) * time.Millisecond; timeout > 0 {
		c.TriggerNs = transports.Now() + int64(timeout)
	}
	return nil
}

// checkLogon holds a logon to the contract and fills the command from it.
func checkLogon(r *pb.Logon, c *orders.Command) error {
	var ok bool
	if c.SessionID, ok = orders.ParseID(r.GetSessionId()); !ok {
		return badID("session_id", 1)
	}
	if !inEnum(r.GetDisconnectMode(), pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT) {
		return transports.Malformed("disconnect_mode", "no such value: %d", r.GetDisconnectMode())
	}
	if r.GetGraceMs() > maxGraceMs {
		return transports.Malformed("grace_ms", "must be at most %d, is %d", maxGraceMs, r.GetGraceMs())
	}
	mode := r.GetDisconnectMode()
	if mode == pb.DisconnectMode_DISCONNECT_MODE_UNSPECIFIED {
		mode = pb.DisconnectMode_DISCONNECT_MODE_NONE
	}
	c.DisconnectMode = uint8(mode)
	c.GraceNs = int64(time.Duration(r.GetGraceMs()) * time.Millisecond)
	return nil
}

func checkLogout(r *pb.Logout) error {
	if n := len(r.GetText()); n > maxText {
		return transports.Malformed("text", "has %d bytes, at most %d are allowed", n, maxText)
	}
	return nil
}

func checkStream(r *pb.StreamExecutionsRequest) error {
	if n := len(r.GetAccount()); n > maxAccountName {
		return transports.Malformed("account", "has %d bytes, at most %d are allowed", n, maxAccountName)
	}
	return nil
}

func checkQuantity(lots uint64) error {
	if lots == 0 || lots > matching.MaxQuantity {
		return transports.Malformed("quantity", "must be 1 to %d lots, is %d", matching.MaxQuantity, lots)
	}
	return nil
}

func checkPrice(ticks int64) error {
	if ticks > maxPrice || ticks < -maxPrice {
		return transports.Malformed("price", "must be -(2^62) to 2^62 ticks, is %d", ticks)
	}
	return nil
}

func badID(field string, least int) error {
	return transports.Malformed(field, "must be %d to %d of [A-Za-z0-9_-]", least, orders.MaxIDBytes)
}

func badSymbol() error {
	return transports.Malformed("symbol", "must be 1 to %d of [A-Z0-9._-]", orders.MaxSymbolBytes)
}

// inEnum tells the defined numbers of an enum that has no gaps.
func inEnum[E ~int32](value, last E) bool { return value >= 0 && value <= last }
