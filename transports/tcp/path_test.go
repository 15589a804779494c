package tcp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/credit"
	"tailgate/transports/tcp/internal/wire"
)

// nullSession looks at the deadline, acknowledges and echoes, and releases inside Commit.
type nullSession struct{ transports.NoEvents }

func (nullSession) Handle(ctx context.Context, x *transports.Exchange) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= 0 {
		return transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "the deadline passed")
	}
	request, response := x.Request.(*pb.SubmitOrderRequest), x.Response.(*pb.SubmitOrderResponse)
	response.ClientOrderId, response.ClientTag = request.ClientOrderId, request.ClientTag
	response.Status, response.Quantity = pb.OrderStatus_ORDER_STATUS_ACCEPTED, request.Quantity
	response.OrderId, response.Sequence, response.ReceivedNs = 7, 9, uint64(x.ReceivedNs)
	return nil
}
func (nullSession) Commit(r transports.Releaser, mark uint64) { r.Release(mark, nil) }
func (nullSession) Close()                                    {}

// path is a server connection without a socket: bytes are put into its in-buffer, and what it sends goes to /dev/null.
func path(t testing.TB) *conn {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := null.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	t.Cleanup(func() { _, _, _ = null.Close(), near.Close(), far.Close() })
	s := &server{model: wire.Model(), log: slog.New(slog.DiscardHandler), ctx: context.Background()}
	s.setLimits(transports.Limits{}.WithDefaults(), credit.Config{Floor: 16 * 82}) // for a batch of 16 orders of 64 KiB
	c := newConn(s, near)
	c.session, c.used, c.maxPayload = nullSession{}, firstCounter, 1<<32-1
	c.start(raw, false)
	c.openShare()
	return c
}

// requests is n REQUEST frames of an order of about size bytes, from correlation id first on.
func requests(t testing.TB, first uint32, n, size int) []byte {
	t.Helper()
	order := &pb.SubmitOrderRequest{
		ClientOrderId: "order-000001", Symbol: "TG.A", Side: pb.Side_SIDE_BUY, Type: pb.OrderType_ORDER_TYPE_LIMIT,
		TimeInForce: pb.TimeInForce_TIME_IN_FORCE_GTC, Quantity: 10, Price: 100,
	}
	order.ClientTag = make([]byte, max(0, size-proto.Size(order)-3))
	payload, err := proto.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for i := range n {
		b = append(b, wire.Frame(wire.Header{Type: wire.Request, Code: uint16(transports.SubmitOrder), Correlation: first + uint32(i)}, payload)...)
	}
	return b
}

// feed does what fill and process do with frames that came in one read.
func feed(t testing.TB, c *conn, frames []byte) {
	c.borrow = max(c.borrow, len(frames))
	c.lend()
	c.w += copy(c.in.B[c.w:], frames)
	c.exchange.ReceivedNs = transports.Now()
	if last, next := c.process(); next != nextRead {
		t.Fatalf("the connection ended: %q", last)
	}
}

// renumber moves the correlation ids of n frames of the same length on.
func renumber(frames []byte, n int, first uint32) {
	for i := range n {
		at := i * (len(frames) / n)
		h := wire.Parse(frames[at:])
		h.Correlation = first + uint32(i)
		h.Put(frames[at:])
	}
}

func TestServerPathDoesNotAllocate(t *testing.T) {
	for _, test := range []struct {
		size, batch int
		deadline    uint32 // of the first, in µs, 0 = none
	}{{64, 1, 0}, {64, 1, 60_000_000}, {64, 16, 60_000_000}, {64 << 10, 1, 0}, {64 << 10, 1, 60_000_000}} {
		c := path(t)
		frames := requests(t, 0, test.batch, test.size)
		h := wire.Parse(frames)
		h.Aux = test.deadline
		h.Put(frames)
		run := func() {
			renumber(frames, test.batch, c.last+1)
			feed(t, c, frames)
		}
		run()
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%d at a time of %d bytes, %d µs to go: %v allocations, want 0", test.batch, test.size, test.deadline, n)
		}
	}
}

// batches is a source of as many full batches of small events as are asked for, and then of a fault.
type batches struct {
	events []transports.Event
	left   int
	over   *transports.Fault
}

func newBatches() *batches {
	b := &batches{over: transports.Refuse(pb.Reason_REASON_DRAINING, "no more")}
	for n := range uint64(transports.MaxEvents) {
		b.events = append(b.events, transports.Event{Epoch: 1, Sequence: n + 1, Report: make([]byte, 120)})
	}
	return b
}

func (b *batches) Place() (uint32, uint64) { return 1, 1 }
func (b *batches) Close()                  {}

func (b *batches) Next(context.Context) ([]transports.Event, error) {
	if b.left--; b.left < 0 {
		return nil, b.over
	}
	return b.events, nil
}

func TestEventPathDoesNotAllocate(t *testing.T) {
	c, source := path(t), newBatches()
	s := &stream{conn: c, events: source, ctx: context.Background()}
	run := func() {
		source.left = 4
		if fault := s.pump(); fault != source.over {
			t.Fatal(fault)
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations for %d events, want 0", n, 4*transports.MaxEvents)
	}
}

// BenchmarkEventPath is everything the server does for an event of 120 bytes but the system call on a socket (the write goes to /dev/null).
func BenchmarkEventPath(b *testing.B) {
	c, source := path(b), newBatches()
	s := &stream{conn: c, events: source, ctx: context.Background()}
	b.ReportAllocs()
	for b.Loop() {
		source.left = 1
		if fault := s.pump(); fault != source.over {
			b.Fatal(fault)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*transports.MaxEvents), "ns/event")
}

// BenchmarkServerPath is everything the server does for a request but the two system calls on a socket (the write goes to /dev/null).
func BenchmarkServerPath(b *testing.B) {
	for _, size := range []int{64, 64 << 10} {
		for _, batch := range []int{1, 16} {
			b.Run(fmt.Sprintf("%d/batch=%d", size, batch), func(b *testing.B) {
				c := path(b)
				frames := requests(b, 0, batch, size)
				b.ReportAllocs()
				for b.Loop() {
					renumber(frames, batch, c.last+1)
					feed(b, c, frames)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/request")
			})
		}
	}
}
