package grpc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/envelope"
	"tailgate/transports/internal/guard"
)

// sender sends the messages of one stream, in turn, and sees a peer that does not take them: SendMsg blocks on HTTP/2's flow control
// for as long as the stream lasts, and only the end of the stream's handler ends it. So the handler never sends where that can block:
// others do, and it returns when cut closes.
type sender struct {
	stream  grpc.ServerStream
	timeout time.Duration
	turn    chan struct{} // holds one element while somebody sends
	last    bool          // nothing may follow any more; guarded by the turn

	// One timer for all messages, which is set again at most once in a timeout and not for each.
	since atomic.Int64 // when the message under way began to be sent, by transports.Now; 0 = none is
	ahead atomic.Int64 // bytes of the message before it, which it may have to wait for
	armed atomic.Bool
	timer *time.Timer
	once  sync.Once
	cut   chan struct{} // closed when the peer takes less than writeQuota in timeout
}

func newSender(stream grpc.ServerStream, timeout time.Duration) *sender {
	s := &sender{stream: stream, timeout: timeout, turn: make(chan struct{}, 1), cut: make(chan struct{})}
	s.timer = time.AfterFunc(time.Hour, s.look)
	s.timer.Stop()
	return s
}

// begin waits for the turn to send. It is false when there is nothing to send any more: the context or the stream is over.
func (s *sender) begin(ctx context.Context) bool {
	select {
	case s.turn <- struct{}{}:
		if s.last {
			<-s.turn
			return false
		}
		return true
	case <-s.cut:
		return false
	case <-ctx.Done():
		return false
	}
}

// end gives the turn back.
func (s *sender) end() { <-s.turn }

// writeQuota is how much of a stream grpc takes before it blocks (its default). The message that passes it is taken whole, and the next one waits
// until the peer has taken all but the quota; so that wait is given timeout for each quota of it.
const writeQuota = 64 << 10

// send hands a message to HTTP/2, and waits for room there. The caller has the turn. A failure ends the stream.
func (s *sender) send(b mem.Buffer) error {
	s.since.Store(transports.Now())
	if !s.armed.Load() && !s.armed.Swap(true) {
		s.timer.Reset(s.timeout)
	}
	size := int64(b.Len()) // before it is grpc's
	err := s.stream.SendMsg(&outgoing{data: b})
	s.since.Store(0)
	s.ahead.Store(size)
	return err
}

// look is what the timer does.
func (s *sender) look() {
	since := s.since.Load()
	if since == 0 {
		s.armed.Store(false)
		// A send that began meanwhile may have found the timer armed.
		if s.since.Load() == 0 || s.armed.Swap(true) {
			return
		}
		s.timer.Reset(s.timeout)
		return
	}
	allowed := s.timeout * time.Duration(1+s.ahead.Load()/writeQuota)
	if left := allowed - time.Duration(transports.Now()-since); left > 0 {
		s.timer.Reset(left)
		return
	}
	s.once.Do(func() { close(s.cut) })
}

// slow is the end of a stream whose peer does not read. What it was sent before may be on its way still, so that a peer which reads on
// finds this behind it, and takes at most a message more than HTTP/2's write quota of 64 KiB, within MaxStreams. Only a shutdown does not
// wait for that: see server.Shutdown.
func (s *server) slow(from transports.Peer, conn *guard.Conn, account string) *transports.Fault {
	s.logger.Warn("a peer that does not read was cut off", "reason", pb.Reason_REASON_SLOW_READER.String(), "remote", from.Remote, "of", account)
	if conn != nil {
		conn.Condemn()
	}
	return transports.InDoubt(pb.Reason_REASON_SLOW_READER, nil, "nothing of this stream was taken for %v; go on from the last event that you have", s.limits.WriteTimeout)
}

// eventsPerTurn is how many events are sent before answers have their turn.
const eventsPerTurn = 32

// pump sends events, each as the member of its envelope, until they end, and says why they did: nil where it is not the events that
// ended.
func (s *sender) pump(ctx context.Context, events transports.Events, member envelope.Member) error {
	defer events.Close()
	for {
		batch, err := events.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		for len(batch) > 0 {
			if !s.begin(ctx) {
				return nil
			}
			n := min(len(batch), eventsPerTurn)
			for i := range batch[:n] {
				if s.send(wrapped(member, batch[i].Report)) != nil {
					s.end()
					return nil // the stream is over, and its handler hears of it
				}
			}
			s.end()
			batch = batch[n:]
		}
	}
}

// room returns memory for a message of so many bytes, of a pool where that is worth it.
func room(size int) *[]byte {
	if mem.IsBelowBufferPoolingThreshold(size) {
		b := make([]byte, size)
		return &b
	}
	return mem.DefaultBufferPool().Get(size)
}

// wrapped puts an event into its envelope, without looking at it.
func wrapped(member envelope.Member, report []byte) mem.Buffer {
	b := room(envelope.HeadSize(0, len(report)) + len(report))
	*b = append(envelope.AppendHead((*b)[:0], 0, member, len(report)), report...)
	return mem.NewBuffer(b, mem.DefaultBufferPool())
}
