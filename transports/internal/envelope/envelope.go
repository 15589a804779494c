// Package envelope puts the messages of a session, TradeRequest and TradeResponse, together and takes them apart without decoding what is
// inside: an event leaves in the bytes that every other reader gets, an answer is encoded straight into its place, and a request is
// decoded once, into memory of the caller's.
//
// The bytes are protobuf and nothing else: tests hold every function to protobuf-go. The package must never know a transport, or what is
// inside of what it wraps.
package envelope

import (
	"errors"
	"fmt"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"

	"tailgate/transports"
)

// Member is the field number of what an envelope carries; 0 = nothing, or nothing that this version knows.
type Member protowire.Number

// Members of a TradeResponse. Those of answers are [Answer]'s.
const (
	Execution Member = 7
	Error     Member = 8
	// Goodbye is the Logout of the gateway: the answer to a client's, or the end that nobody asked for.
	Goodbye Member = 9
)

// requests and answers are the members that carry an operation's messages.
var requests = map[transports.Operation]Member{
	transports.Logon: 2, transports.SubmitOrder: 3, transports.ReplaceOrder: 4, transports.CancelOrder: 5,
	transports.MassCancel: 6, transports.Logout: 7,
}

var answers = map[transports.Operation]Member{
	transports.Logon: 2, transports.SubmitOrder: 3, transports.ReplaceOrder: 4, transports.CancelOrder: 5,
	transports.MassCancel: 6, transports.Logout: Goodbye,
}

// operations is the inverse of requests.
var operations = func() (list [lastRequest + 1]transports.Operation) {
	for op, member := range requests {
		list[member] = op
	}
	return list
}()

const (
	lastRequest  Member = 7
	lastResponse Member = 9
)

// Request is the member of a TradeRequest that asks for op, 0 where a session has no such request.
func Request(op transports.Operation) Member { return requests[op] }

// Answer is the member of a TradeResponse that answers op, 0 where a session has no such answer.
func Answer(op transports.Operation) Member { return answers[op] }

// Operation is the inverse of [Request], 0 for any other member.
func (m Member) Operation() transports.Operation {
	if m < 0 || m > lastRequest {
		return 0
	}
	return operations[m]
}

// Parts is an envelope taken apart. Payload points into it.
type Parts struct {
	Correlation uint64
	Member      Member
	Payload     []byte
}

// SplitRequest takes a TradeRequest apart. It refuses what is no protobuf, but does not look into the payload.
func SplitRequest(b []byte) (Parts, error) { return split(b, lastRequest) }

// SplitResponse takes a TradeResponse apart, as SplitRequest does.
func SplitResponse(b []byte) (Parts, error) { return split(b, lastResponse) }

var errCut = errors.New("malformed protobuf: the message is cut off, or a number is too long")

// split reads an envelope whose members are 2 to last.
func split(b []byte, last Member) (Parts, error) {
	var p Parts
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return Parts{}, errCut
		}
		b = b[n:]
		switch {
		case num == 1 && typ == protowire.VarintType:
			if p.Correlation, n = protowire.ConsumeVarint(b); n < 0 {
				return Parts{}, errCut
			}
		case num >= 2 && Member(num) <= last && typ == protowire.BytesType:
			payload, size := protowire.ConsumeBytes(b)
			if size < 0 {
				return Parts{}, errCut
			}
			if n = size; Member(num) == p.Member {
				// The same member again is merged into the first (protobuf encoding, "Last One Wins"), which is what the bytes
				// of both in a row decode to.
				payload = append(append(make([]byte, 0, len(p.Payload)+len(payload)), p.Payload...), payload...)
			}
			p.Member, p.Payload = Member(num), payload
		default:
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return Parts{}, fmt.Errorf("malformed protobuf: field %d: %w", num, protowire.ParseError(n))
			}
		}
		b = b[n:]
	}
	return p, nil
}

// HeadSize is how many bytes AppendHead appends.
func HeadSize(correlation uint64, payload int) int {
	size := 1 + sizeVarint(uint64(payload))
	if correlation != 0 {
		size += 1 + sizeVarint(correlation)
	}
	return size
}

// MaxHead bounds HeadSize.
const MaxHead = 1 + 10 + 1 + 10

// AppendHead appends what stands before the payload of an envelope of either kind; payload is its size.
func AppendHead(b []byte, correlation uint64, member Member, payload int) []byte {
	if correlation != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), correlation)
	}
	return protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(member), protowire.BytesType), uint64(payload))
}

func sizeVarint(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
