// Package hotcodec encodes and decodes the two messages of the hot path, SubmitOrderRequest and SubmitOrderResponse, by hand and without
// allocating.
//
// The bytes are protobuf and nothing else: every function is fuzzed to agree with protobuf-go, on what it refuses too. What it adds is
// memory that the caller keeps: a decoded request points into the frame that it came in, an encoded answer goes straight into
// the out-buffer, and the place of sent_ns in it is known, so that the stamp can be set when the answer leaves.
//
// Fields that the contract does not have are checked for well-formedness and dropped on decoding, and never written: a message
// with unknown fields keeps its known ones only. The package must never know a transport, a socket or what an order means.
package hotcodec

import (
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed is what every refusal of a decoder wraps.
var ErrMalformed = errors.New("malformed protobuf")

// errUTF8 is protobuf's rule for proto3 strings.
func errUTF8(field string) error {
	return fmt.Errorf("%w: %s is not valid UTF-8", ErrMalformed, field)
}

// Tags: field number << 3 | wire type (protobuf encoding, "Message Structure").
const (
	varintType  = uint64(protowire.VarintType)
	fixed64Type = uint64(protowire.Fixed64Type)
	bytesType   = uint64(protowire.BytesType)
)

// varint reads one base-128 number. n is 0 where there is none: truncated, or more than 64 bits.
func varint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1 // nearly always: tags, enums, small quantities
	}
	v, n = protowire.ConsumeVarint(b)
	return v, max(n, 0)
}

// field reads the tag in front of b and, for a wire type of varint or bytes, its value. rest is what follows; a field of any other
// type is left to skip, and rest then starts behind the tag.
func field(b []byte) (tag, v uint64, payload, rest []byte, err error) {
	tag, n := varint(b)
	if n == 0 {
		return 0, 0, nil, nil, fmt.Errorf("%w: a tag is cut off or too long", ErrMalformed)
	}
	if num := tag >> 3; num < uint64(protowire.MinValidNumber) || num > uint64(protowire.MaxValidNumber) {
		return 0, 0, nil, nil, fmt.Errorf("%w: %d is no field number", ErrMalformed, num)
	}
	b = b[n:]
	switch tag & 7 {
	case varintType:
		if v, n = varint(b); n == 0 {
			return 0, 0, nil, nil, fmt.Errorf("%w: field %d is cut off or too long", ErrMalformed, tag>>3)
		}
		return tag, v, nil, b[n:], nil
	case bytesType:
		if v, n = varint(b); n == 0 || v > uint64(len(b)-n) {
			return 0, 0, nil, nil, fmt.Errorf("%w: field %d is cut off", ErrMalformed, tag>>3)
		}
		end := n + int(v)
		return tag, 0, b[n:end:end], b[end:], nil
	case fixed64Type:
		if v, n = protowire.ConsumeFixed64(b); n < 0 {
			return 0, 0, nil, nil, fmt.Errorf("%w: field %d is cut off", ErrMalformed, tag>>3)
		}
		return tag, v, nil, b[n:], nil
	default: // 32 bits or a group: no field of ours
		if n = protowire.ConsumeFieldValue(protowire.Number(tag>>3), protowire.Type(tag&7), b); n < 0 {
			return 0, 0, nil, nil, fmt.Errorf("%w: field %d: %w", ErrMalformed, tag>>3, protowire.ParseError(n))
		}
		return tag, 0, nil, b[n:], nil
	}
}

// alias returns the bytes as a string that shares their memory.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Sizes and writers leave out zero values, as proto3 does.

func sizeVarint(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// sizeNumber is the size of a numeric field whose tag has tagSize bytes.
func sizeNumber(tagSize int, v uint64) int {
	if v == 0 {
		return 0
	}
	return tagSize + sizeVarint(v)
}

// sizeBytes is the size of a string or bytes field of n bytes.
func sizeBytes(tagSize, n int) int {
	if n == 0 {
		return 0
	}
	return tagSize + sizeVarint(uint64(n)) + n
}

func appendNumber(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

func boolNumber(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}

func validString(name, s string) error {
	if !utf8.ValidString(s) {
		return errUTF8(name)
	}
	return nil
}
