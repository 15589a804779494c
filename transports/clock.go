package transports

import (
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
)

var (
	clockStart   = time.Now()
	clockStartNs = clockStart.UnixNano()
)

// Now is the gateway's clock: nanoseconds since 1970, anchored to the wall clock when the process started and monotonic from there
// on, so that the difference of two stamps is a duration even while the wall clock is being set.
func Now() int64 { return clockStartNs + int64(time.Since(clockStart)) }

// StampSent sets sent_ns of an acknowledgement; other answers have no such stamp. A transport calls it when the answer is
// released, right before the bytes leave, so that the time spent on durability counts as the gateway's.
func StampSent(response proto.Message, now int64) {
	switch m := response.(type) {
	case *pb.SubmitOrderResponse:
		m.SentNs = uint64(now)
	case *pb.ReplaceOrderResponse:
		m.SentNs = uint64(now)
	case *pb.CancelOrderResponse:
		m.SentNs = uint64(now)
	case *pb.MassCancelResponse:
		m.SentNs = uint64(now)
	}
}
