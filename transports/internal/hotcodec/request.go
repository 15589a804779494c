package hotcodec

import (
	"unicode/utf8"

	pb "tailgate/proto/gen/orderentry/v1"
)

// DecodeSubmitOrderRequest resets m and fills it from b without allocating. The strings and bytes of m point into b: they are valid
// until b changes, and m must then be decoded again or reset before anybody reads it. An error wraps [ErrMalformed]; m means nothing then.
func DecodeSubmitOrderRequest(b []byte, m *pb.SubmitOrderRequest) error {
	m.Reset()
	for len(b) > 0 {
		tag, v, payload, rest, err := field(b)
		if err != nil {
			return err
		}
		b = rest
		switch tag {
		case 1<<3 | bytesType:
			if !utf8.Valid(payload) {
				return errUTF8("client_order_id")
			}
			m.ClientOrderId = alias(payload)
		case 2<<3 | bytesType:
			if !utf8.Valid(payload) {
				return errUTF8("symbol")
			}
			m.Symbol = alias(payload)
		case 3<<3 | varintType:
			m.Side = pb.Side(v)
		case 4<<3 | varintType:
			m.Type = pb.OrderType(v)
		case 5<<3 | varintType:
			m.TimeInForce = pb.TimeInForce(v)
		case 6<<3 | varintType:
			m.Quantity = v
		case 7<<3 | varintType:
			m.Price = int64(v)
		case 8<<3 | varintType:
			m.PostOnly = v != 0
		case 9<<3 | varintType:
			m.DisplayQuantity = v
		case 10<<3 | varintType:
			m.MinimumQuantity = v
		case 11<<3 | varintType:
			m.SelfTradePrevention = pb.SelfTradePrevention(v)
		case 12<<3 | varintType:
			m.AckDetail = pb.AckDetail(v)
		case 15<<3 | bytesType:
			m.ClientTag = payload
		}
	}
	return nil
}

// SizeSubmitOrderRequest is the number of bytes that [AppendSubmitOrderRequest] adds.
func SizeSubmitOrderRequest(m *pb.SubmitOrderRequest) int {
	return sizeBytes(1, len(m.ClientOrderId)) + sizeBytes(1, len(m.Symbol)) +
		sizeNumber(1, uint64(m.Side)) + sizeNumber(1, uint64(m.Type)) + sizeNumber(1, uint64(m.TimeInForce)) +
		sizeNumber(1, m.Quantity) + sizeNumber(1, uint64(m.Price)) + sizeNumber(1, boolNumber(m.PostOnly)) +
		sizeNumber(1, m.DisplayQuantity) + sizeNumber(1, m.MinimumQuantity) +
		sizeNumber(1, uint64(m.SelfTradePrevention)) + sizeNumber(1, uint64(m.AckDetail)) +
		sizeBytes(1, len(m.ClientTag))
}

// AppendSubmitOrderRequest appends m's encoding to b, the bytes that protobuf-go writes. It fails on a string that is not valid UTF-8,
// and b is then unchanged.
func AppendSubmitOrderRequest(b []byte, m *pb.SubmitOrderRequest) ([]byte, error) {
	if err := validString("client_order_id", m.ClientOrderId); err != nil {
		return b, err
	}
	if err := validString("symbol", m.Symbol); err != nil {
		return b, err
	}
	b = appendString(b, 1, m.ClientOrderId)
	b = appendString(b, 2, m.Symbol)
	b = appendNumber(b, 3, uint64(m.Side))
	b = appendNumber(b, 4, uint64(m.Type))
	b = appendNumber(b, 5, uint64(m.TimeInForce))
	b = appendNumber(b, 6, m.Quantity)
	b = appendNumber(b, 7, uint64(m.Price))
	b = appendNumber(b, 8, boolNumber(m.PostOnly))
	b = appendNumber(b, 9, m.DisplayQuantity)
	b = appendNumber(b, 10, m.MinimumQuantity)
	b = appendNumber(b, 11, uint64(m.SelfTradePrevention))
	b = appendNumber(b, 12, uint64(m.AckDetail))
	return appendBytes(b, 15, m.ClientTag), nil
}
