package wire

import "tailgate/transports"

// After reports whether serial number a comes after b (RFC 1982 arithmetic on 32 bits: meaningful while they are less than 2^31 apart).
// Counters of credit and correlation ids are compared in no other way.
func After(a, b uint32) bool { return int32(a-b) > 0 }

// Capped is a cost as the 16 bits of a header's X and Y hold it: what is larger is 65,535.
func Capped(cost uint32) uint16 { return uint16(min(cost, 1<<16-1)) }

// MayBeUrgent reports whether a request of this operation may have the class Urgent: those that only take risk away.
func MayBeUrgent(op transports.Operation) bool {
	return op == transports.CancelOrder || op == transports.MassCancel || op == transports.CancelAllAfter
}

// CostModel is what a request costs, as the server announces it. Immutable after the handshake.
type CostModel struct {
	Base uint32 // units of any request, for the work that its size does not show
	Unit uint32 // bytes that one further unit stands for, at least 1
	// Answer holds, by operation, by how many bytes an answer may be larger than its request. Entry 0 is for every operation that has none of its own.
	Answer []uint32
}

// The server's own model: reasoned starting values, not measured ones.
const (
	costBase = 16
	costUnit = 1024
)

// Largest answers of the operations whose answer does not follow the size of the request. Each is the largest encoding of one element (every
// field set to the value with the longest varint) times the contract's largest page.
const (
	listOrdersAnswer      = 1000*256 + transports.ResponseOverhead  // an Order is at most 222 bytes, its tag and length 3
	getBookAnswer         = 2*5000*32 + transports.ResponseOverhead // a BookLevel is at most 28 bytes, its tag and length 2
	listInstrumentsAnswer = 1000*128 + transports.ResponseOverhead  // an Instrument is at most 90 bytes, its tag and length 2
)

// Model returns the cost model of this version's server.
func Model() CostModel {
	ops := transports.Operations()
	answer := make([]uint32, len(ops)+1)
	answer[0] = transports.ResponseOverhead
	for _, op := range ops {
		switch op {
		case transports.ListOrders:
			answer[op] = listOrdersAnswer
		case transports.GetBook:
			answer[op] = getBookAnswer
		case transports.ListInstruments:
			answer[op] = listInstrumentsAnswer
		default:
			answer[op] = transports.ResponseOverhead
		}
	}
	return CostModel{Base: costBase, Unit: costUnit, Answer: answer}
}

// LargestAnswer bounds the payload of the answer to a request of n bytes, in bytes.
func (m *CostModel) LargestAnswer(op transports.Operation, n uint32) uint64 {
	entry := 0
	if int(op) < len(m.Answer) {
		entry = int(op)
	}
	return uint64(n) + uint64(m.Answer[entry])
}

// Cost is what a request of n payload bytes costs: Base + ceil(largest answer / Unit). The largest answer is never below the request, so
// one number bounds the memory both ways.
func (m *CostModel) Cost(op transports.Operation, n uint32) uint32 {
	return m.Base + uint32((m.LargestAnswer(op, n)+uint64(m.Unit)-1)/uint64(m.Unit))
}

// Largest bounds, over all operations, the payload of an answer and the cost of a request of at most n bytes.
func (m *CostModel) Largest(n uint32) (answer uint64, cost uint32) {
	for op := range m.Answer {
		answer = max(answer, m.LargestAnswer(transports.Operation(op), n))
		cost = max(cost, m.Cost(transports.Operation(op), n))
	}
	return answer, cost
}
