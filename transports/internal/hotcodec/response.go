package hotcodec

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	pb "tailgate/proto/gen/orderentry/v1"
)

// SizeSubmitOrderResponse is the number of bytes that [AppendSubmitOrderResponse] adds.
func SizeSubmitOrderResponse(m *pb.SubmitOrderResponse) int {
	size := sizeBytes(1, len(m.ClientOrderId)) + sizeNumber(1, m.OrderId) + sizeNumber(1, uint64(m.Status)) + sizeNumber(1, uint64(m.Reason)) +
		sizeNumber(1, m.Quantity) + sizeNumber(1, m.FilledQuantity) + sizeNumber(1, m.LeavesQuantity) +
		sizeNumber(1, uint64(m.LastPrice)) + sizeNumber(1, uint64(m.FilledNotional)) + sizeNumber(1, m.Sequence) +
		sizeNumber(1, boolNumber(m.Duplicate)) + sizeNumber(1, uint64(m.OrderVersion)) +
		9 + sizeBytes(1, len(m.ClientTag)) + sizeNumber(2, uint64(m.Epoch)) + sizeBytes(2, len(m.Text))
	if m.ReceivedNs != 0 {
		size += 9
	}
	return size
}

// AppendSubmitOrderResponse appends m's encoding to b: the bytes that protobuf-go writes, except that sent_ns is there even where it
// is zero. sentNs is where its eight bytes (little-endian) start, counted from the start of m's encoding, so that the stamp can be set
// when the answer leaves. It fails on a string that is not valid UTF-8, and b is then unchanged.
func AppendSubmitOrderResponse(b []byte, m *pb.SubmitOrderResponse) (encoded []byte, sentNs int, err error) {
	if err := validString("client_order_id", m.ClientOrderId); err != nil {
		return b, 0, err
	}
	if err := validString("text", m.Text); err != nil {
		return b, 0, err
	}
	start := len(b)
	b = appendString(b, 1, m.ClientOrderId)
	b = appendNumber(b, 2, m.OrderId)
	b = appendNumber(b, 3, uint64(m.Status))
	b = appendNumber(b, 4, uint64(m.Reason))
	b = appendNumber(b, 5, m.Quantity)
	b = appendNumber(b, 6, m.FilledQuantity)
	b = appendNumber(b, 7, m.LeavesQuantity)
	b = appendNumber(b, 8, uint64(m.LastPrice))
	b = appendNumber(b, 9, uint64(m.FilledNotional))
	b = appendNumber(b, 10, m.Sequence)
	b = appendNumber(b, 11, boolNumber(m.Duplicate))
	b = appendNumber(b, 12, uint64(m.OrderVersion))
	if m.ReceivedNs != 0 {
		b = binary.LittleEndian.AppendUint64(protowire.AppendTag(b, 13, protowire.Fixed64Type), m.ReceivedNs)
	}
	b = protowire.AppendTag(b, 14, protowire.Fixed64Type)
	sentNs = len(b) - start
	b = binary.LittleEndian.AppendUint64(b, m.SentNs)
	b = appendBytes(b, 15, m.ClientTag)
	b = appendNumber(b, 16, uint64(m.Epoch))
	return appendString(b, 17, m.Text), sentNs, nil
}

// AppendSubmitOrderResponseHead appends everything of m's encoding but the bytes of client_tag, which must follow: the fields are those of
// [AppendSubmitOrderResponse] with client_tag moved to the end, which protobuf allows. It is for a tag that stands in memory already, behind room for the
// head. m.ClientTag must not be empty.
func AppendSubmitOrderResponseHead(b []byte, m *pb.SubmitOrderResponse) (encoded []byte, sentNs int, err error) {
	tag := m.ClientTag
	m.ClientTag = nil
	b, sentNs, err = AppendSubmitOrderResponse(b, m)
	m.ClientTag = tag
	if err != nil {
		return b, 0, err
	}
	return protowire.AppendVarint(protowire.AppendTag(b, 15, protowire.BytesType), uint64(len(tag))), sentNs, nil
}

// DecodeSubmitOrderResponse resets m and fills it from b. Nothing of m points into b. It does not allocate where the answer's id is
// clientOrderID (the string is shared), the text is empty, and m.ClientTag has the room: the tag is written over the bytes that m.ClientTag
// held before, so who wants to keep those takes them out of m first. An error wraps [ErrMalformed]; m means nothing then.
func DecodeSubmitOrderResponse(b []byte, m *pb.SubmitOrderResponse, clientOrderID string) error {
	room := m.ClientTag[:0]
	m.Reset()
	m.ClientTag = room
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
			if m.ClientOrderId = clientOrderID; alias(payload) != clientOrderID {
				m.ClientOrderId = string(payload)
			}
		case 2<<3 | varintType:
			m.OrderId = v
		case 3<<3 | varintType:
			m.Status = pb.OrderStatus(v)
		case 4<<3 | varintType:
			m.Reason = pb.Reason(v)
		case 5<<3 | varintType:
			m.Quantity = v
		case 6<<3 | varintType:
			m.FilledQuantity = v
		case 7<<3 | varintType:
			m.LeavesQuantity = v
		case 8<<3 | varintType:
			m.LastPrice = int64(v)
		case 9<<3 | varintType:
			m.FilledNotional = int64(v)
		case 10<<3 | varintType:
			m.Sequence = v
		case 11<<3 | varintType:
			m.Duplicate = v != 0
		case 12<<3 | varintType:
			m.OrderVersion = uint32(v)
		case 13<<3 | fixed64Type:
			m.ReceivedNs = v
		case 14<<3 | fixed64Type:
			m.SentNs = v
		case 15<<3 | bytesType:
			m.ClientTag = append(m.ClientTag[:0], payload...)
		case 16<<3 | varintType:
			m.Epoch = uint32(v)
		case 17<<3 | bytesType:
			if !utf8.Valid(payload) {
				return errUTF8("text")
			}
			m.Text = string(payload)
		}
	}
	return nil
}
