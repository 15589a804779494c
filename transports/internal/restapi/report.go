package restapi

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "tailgate/proto/gen/orderentry/v1"
)

// appendReport appends an execution report as one line of JSON: protobuf's JSON mapping as in other answers (names of the contract, zero
// values written), but always the same bytes, where protojson varies its white space from build to build. A test holds it to protojson, field
// by field.
func appendReport(b []byte, r *pb.ExecutionReport) []byte {
	b = append(b, '{')
	b = appendWide(b, "sequence", r.GetSequence())
	b = appendNumber(b, "epoch", uint64(r.GetEpoch()))
	b = appendEnum(b, "type", r.GetType())
	b = appendWide(b, "execution_id", r.GetExecutionId())
	b = appendWide(b, "match_id", r.GetMatchId())
	b = append(appendName(b, "order"), ':')
	if r.GetOrder() == nil {
		b = append(b, "null"...)
	} else {
		b = appendOrder(b, r.GetOrder())
	}
	b = appendSigned(b, "last_price", r.GetLastPrice())
	b = appendWide(b, "last_quantity", r.GetLastQuantity())
	b = appendEnum(b, "liquidity", r.GetLiquidity())
	b = appendEnum(b, "reason", r.GetReason())
	b = appendWide(b, "event_ns", r.GetEventNs())
	b = appendText(b, "account", r.GetAccount())
	return append(b, '}')
}

func appendOrder(b []byte, o *pb.Order) []byte {
	b = append(b, '{')
	b = appendText(b, "client_order_id", o.GetClientOrderId())
	b = appendWide(b, "order_id", o.GetOrderId())
	b = appendText(b, "symbol", o.GetSymbol())
	b = appendEnum(b, "side", o.GetSide())
	b = appendEnum(b, "type", o.GetType())
	b = appendEnum(b, "time_in_force", o.GetTimeInForce())
	b = appendEnum(b, "status", o.GetStatus())
	b = appendEnum(b, "reason", o.GetReason())
	b = appendSigned(b, "price", o.GetPrice())
	b = appendWide(b, "quantity", o.GetQuantity())
	b = appendWide(b, "filled_quantity", o.GetFilledQuantity())
	b = appendWide(b, "leaves_quantity", o.GetLeavesQuantity())
	b = appendSigned(b, "last_price", o.GetLastPrice())
	b = appendSigned(b, "filled_notional", o.GetFilledNotional())
	b = appendNumber(b, "order_version", uint64(o.GetOrderVersion()))
	b = appendWide(b, "received_ns", o.GetReceivedNs())
	b = append(appendName(b, "post_only"), ':')
	b = strconv.AppendBool(b, o.GetPostOnly())
	b = appendWide(b, "display_quantity", o.GetDisplayQuantity())
	b = appendWide(b, "minimum_quantity", o.GetMinimumQuantity())
	b = appendEnum(b, "self_trade_prevention", o.GetSelfTradePrevention())
	return append(b, '}')
}

// appendName appends a member's name, and the comma before it where it is not the first. Names of the contract need no escapes.
func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"')
}

// appendWide appends a number of 64 bits, which JSON has as text.
func appendWide(b []byte, name string, v uint64) []byte {
	b = append(appendName(b, name), `:"`...)
	return append(strconv.AppendUint(b, v, 10), '"')
}

func appendSigned(b []byte, name string, v int64) []byte {
	b = append(appendName(b, name), `:"`...)
	return append(strconv.AppendInt(b, v, 10), '"')
}

func appendNumber(b []byte, name string, v uint64) []byte {
	return strconv.AppendUint(append(appendName(b, name), ':'), v, 10)
}

// appendEnum appends a value's name in the contract, or the number of one that it does not have.
func appendEnum(b []byte, name string, v protoreflect.Enum) []byte {
	b = append(appendName(b, name), ':')
	value := v.Descriptor().Values().ByNumber(v.Number())
	if value == nil {
		return strconv.AppendInt(b, int64(v.Number()), 10)
	}
	b = append(b, '"')
	b = append(b, value.Name()...)
	return append(b, '"')
}

func appendText(b []byte, name, text string) []byte {
	b = append(appendName(b, name), ':')
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendEscaped(b, text)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// appendEscaped is for texts that the contract's ids and symbols never are.
func appendEscaped(b []byte, text string) []byte {
	escaped, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always encodes
	}
	return append(b, escaped...)
}
