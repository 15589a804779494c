package orders

import pb "tailgate/proto/gen/orderentry/v1"

// Report is one event of an account's order: everything that a proto orderentry.v1.ExecutionReport says.
type Report struct {
	Epoch        uint32
	Sequence     uint64
	Type         pb.ExecutionType
	ExecutionID  uint64
	MatchID      uint64 // 0 where it is no trade
	LastPrice    int64  // of this trade, in ticks
	LastQuantity uint64 // of this trade, in lots
	Liquidity    pb.Liquidity
	Reason       pb.Reason
	EventNs      int64 // gateway clock, nanoseconds since 1970
	Account      uint32
	Order        Order // after the event; of a request about an unknown order only the id is there
}
