package feed

import (
	"google.golang.org/protobuf/encoding/protowire"

	"tailgate/gateway/orders"
	"tailgate/matching"
)

// Numbers of the fields of orderentry.v1.ExecutionReport and Order, in the order in which they are written. A test holds what is written
// equal to what protobuf's own encoder writes, to the byte.
const (
	reportSequence     = 1
	reportEpoch        = 2
	reportType         = 3
	reportExecutionID  = 4
	reportMatchID      = 5
	reportOrder        = 6
	reportLastPrice    = 7
	reportLastQuantity = 8
	reportLiquidity    = 9
	reportReason       = 10
	reportEventNs      = 11
	reportAccount      = 12

	orderClientOrderID       = 1
	orderOrderID             = 2
	orderSymbol              = 3
	orderSide                = 4
	orderType                = 5
	orderTimeInForce         = 6
	orderStatus              = 7
	orderReason              = 8
	orderPrice               = 9
	orderQuantity            = 10
	orderFilledQuantity      = 11
	orderLeavesQuantity      = 12
	orderLastPrice           = 13
	orderFilledNotional      = 14
	orderOrderVersion        = 15
	orderReceivedNs          = 16
	orderPostOnly            = 17
	orderDisplayQuantity     = 18
	orderMinimumQuantity     = 19
	orderSelfTradePrevention = 20
)

// AppendReport appends an event of an account as an encoded orderentry.v1.ExecutionReport: fields in the order of their numbers, zero
// values left out, so that the same event has the same bytes for every reader and after every restart. It takes at most
// transports.MaxEventBytes, and no memory but b's.
func AppendReport(b []byte, r *orders.Report, account string) []byte {
	b = appendUint(b, reportSequence, r.Sequence)
	b = appendUint(b, reportEpoch, uint64(r.Epoch))
	b = appendUint(b, reportType, uint64(r.Type))
	b = appendUint(b, reportExecutionID, r.ExecutionID)
	b = appendUint(b, reportMatchID, r.MatchID)

	// The order's length is known when it is written: two bytes are kept for it, enough for 16 KiB, and one is taken back where one will do.
	b = protowire.AppendTag(b, reportOrder, protowire.BytesType)
	start := len(b)
	b = appendOrder(append(b, 0, 0), &r.Order)
	if n := len(b) - start - 2; n < 1<<7 {
		b[start] = byte(n)
		copy(b[start+1:], b[start+2:])
		b = b[:len(b)-1]
	} else {
		b[start], b[start+1] = byte(n)|1<<7, byte(n>>7)
	}

	b = appendUint(b, reportLastPrice, uint64(r.LastPrice))
	b = appendUint(b, reportLastQuantity, r.LastQuantity)
	b = appendUint(b, reportLiquidity, uint64(r.Liquidity))
	b = appendUint(b, reportReason, uint64(r.Reason))
	b = appendFixed(b, reportEventNs, uint64(r.EventNs))
	return appendText(b, reportAccount, account)
}

func appendOrder(b []byte, o *orders.Order) []byte {
	b = appendText(b, orderClientOrderID, o.ClientOrderID.Bytes())
	b = appendUint(b, orderOrderID, o.OrderID)
	b = appendText(b, orderSymbol, o.Symbol.Bytes())
	b = appendUint(b, orderSide, uint64(o.Side))
	b = appendUint(b, orderType, uint64(o.Type))
	b = appendUint(b, orderTimeInForce, uint64(o.TimeInForce))
	b = appendUint(b, orderStatus, uint64(o.Status))
	b = appendUint(b, orderReason, uint64(o.Reason))
	b = appendUint(b, orderPrice, uint64(o.Price))
	b = appendUint(b, orderQuantity, o.Quantity)
	b = appendUint(b, orderFilledQuantity, o.Filled)
	b = appendUint(b, orderLeavesQuantity, o.Leaves)
	b = appendUint(b, orderLastPrice, uint64(o.LastPrice))
	b = appendUint(b, orderFilledNotional, uint64(o.FilledNotional))
	b = appendUint(b, orderOrderVersion, uint64(o.Version))
	b = appendFixed(b, orderReceivedNs, uint64(o.ReceivedNs))
	if o.PostOnly {
		b = appendUint(b, orderPostOnly, 1)
	}
	b = appendUint(b, orderDisplayQuantity, o.DisplayQuantity)
	b = appendUint(b, orderMinimumQuantity, o.MinimumQuantity)
	if o.Type == 0 {
		return b // an order that the account does not have: only its id is known
	}
	return appendUint(b, orderSelfTradePrevention, uint64(max(o.SelfTradePrevention, matching.AllowSelfTrade)))
}

func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendFixed(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), v)
}

func appendText[T string | []byte](b []byte, field protowire.Number, v T) []byte {
	if len(v) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(len(v)))
	return append(b, v...)
}
