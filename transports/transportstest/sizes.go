package transportstest

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// tagEcho: what comes back is the tag to the byte, which every answer's check compares; here are the sizes that matter.
func tagEcho(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	details := []pb.AckDetail{pb.AckDetail_ACK_DETAIL_FULL, pb.AckDetail_ACK_DETAIL_UNSPECIFIED, pb.AckDetail_ACK_DETAIL_MINIMAL}
	for i, size := range []int{0, 1, 33, 127, 128, 4095, 16<<10 - 1, 16 << 10, 64 << 10, 256<<10 + 1} {
		for j, detail := range details {
			c.submit(with(r.immediate(id("tag-%d-%d", i, j), buy, 1, 0), func(o *pb.SubmitOrderRequest) {
				o.ClientTag, o.AckDetail = tag(j, size), detail
			}))
		}
	}
}

// largestRequest: a request of exactly the listener's limit is taken and echoed, with the default limit and with a small one.
func largestRequest(t *testing.T, s *suite) {
	for _, limit := range []int{0, 4096} {
		r := s.start(t, twoAccounts(), withLimits(transports.Limits{MaxRequestBytes: limit}))
		c := r.dial(alphaKey)
		size := r.listen.Limits.WithDefaults().MaxRequestBytes
		for i, detail := range []pb.AckDetail{pb.AckDetail_ACK_DETAIL_FULL, pb.AckDetail_ACK_DETAIL_MINIMAL} {
			order := with(r.immediate(id("largest-%d-%d", limit, i), buy, 1, 0), func(o *pb.SubmitOrderRequest) { o.AckDetail = detail })
			c.submit(exactly(order, size))
			c.submit(exactly(with(order, func(o *pb.SubmitOrderRequest) { o.ClientOrderId += "-less" }), size-1))
		}
	}
}

// oversizeRequest: one byte more is refused before it costs anything, whether the client knows the server's limit or not, and
// nobody else notices.
func oversizeRequest(t *testing.T, s *suite) {
	const limit = 8192
	r := s.start(t, twoAccounts(), withLimits(transports.Limits{MaxRequestBytes: limit}))
	bystander := r.dial(betaKey)
	stop := bystander.keepAsking()
	for _, clients := range []struct {
		name  string
		limit int
	}{{"with the server's limit", limit}, {"with a limit of its own", 0}, {"with a larger limit", 4 << 20}} {
		for i, size := range []int{limit + 1, limit + 700, 1<<20 + 1} {
			c := r.dial(alphaKey, func(d *transports.DialConfig) { d.Limits.MaxRequestBytes = clients.limit })
			order := exactly(r.limit(id("oversize-%d-%d", clients.limit, i), buy, 1, 0), size)
			fault := c.refuse(order)
			wantFault(t, fault, pb.Reason_REASON_TOO_LARGE, notProcessed)

			// Either this connection goes on or the next one does, and the id is unused.
			fits := proto.CloneOf(order)
			fits.ClientTag = nil
			if _, fault := c.try(t.Context(), fits); fault != nil {
				wantOutcome(t, fault, notProcessed)
				c = r.dial(alphaKey)
				c.submit(fits)
			}
			if n := r.probe.handledOrders()[order.GetClientOrderId()]; n != 1 {
				t.Errorf("client %s, %d bytes: the gateway answered the order %d times, want once, when it fitted", clients.name, size, n)
			}
		}
	}
	stop()
}
