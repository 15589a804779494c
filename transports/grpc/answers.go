package grpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/envelope"
	"tailgate/transports/internal/hotcodec"
)

// answer is what a request of a session gets: a response or a fault.
type answer struct {
	correlation uint64
	operation   transports.Operation
	bytes       int // of the request

	// One of the three. An acknowledgement of an order is encoded at once, so that the memory of its request is free again; its stamp lies
	// at stamp. Others are encoded when they leave.
	encoded  *[]byte
	stamp    int
	response proto.Message
	fault    *transports.Fault
}

// answers are those of one session, from the moment that a request was read. They implement transports.Releaser. What they hold is
// bounded by admit: at most most requests, of which all but the last have at most mostBytes together. An answer is at most
// ResponseOverhead larger than its request.
type answers struct {
	most      int
	mostBytes int

	mu        sync.Mutex
	read      int // requests read and not answered
	readBytes int
	handled   uint64   // answers ever put into waiting: the mark of the next Commit
	waiting   []answer // handled and not sent yet, in order; the first is number handled-len(waiting)+1
	released  uint64   // the mark up to which they may leave
	refused   []answer // may leave at any time
	owed      int      // in waiting and refused, or being sent

	ready   chan struct{} // there is something to send
	space   chan struct{} // there is room for another request
	settled chan struct{} // nothing is owed
}

func newAnswers(most, mostBytes int) *answers {
	return &answers{
		most: most, mostBytes: mostBytes,
		ready: make(chan struct{}, 1), space: make(chan struct{}, 1), settled: make(chan struct{}, 1),
	}
}

// signal wakes whoever waits on c, or will.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// admit waits until another request may be read. It is false when the context ends first.
func (a *answers) admit(ctx context.Context) bool {
	for {
		a.mu.Lock()
		free := a.read < a.most && a.readBytes < a.mostBytes
		if free {
			a.read++
		}
		a.mu.Unlock()
		if free {
			return true
		}
		select {
		case <-a.space:
		case <-ctx.Done():
			return false
		}
	}
}

// answered takes back what admit and arrived counted of a request that is answered in another way.
func (a *answers) answered(bytes int) {
	a.mu.Lock()
	a.read--
	a.readBytes -= bytes
	a.mu.Unlock()
	signal(a.space)
}

// arrived counts the bytes of a request that was admitted.
func (a *answers) arrived(bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readBytes += bytes
}

// commit takes the answer of a request that was handled. It waits for its release.
func (a *answers) commit(one answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handled++
	a.owed++
	a.waiting = append(a.waiting, one)
}

// refuse takes the answer of a request that changed nothing, or may have, for which nothing is to be committed.
func (a *answers) refuse(one answer) {
	a.mu.Lock()
	a.owed++
	a.refused = append(a.refused, one)
	a.mu.Unlock()
	signal(a.ready)
}

// mark is what the next Commit is about.
func (a *answers) mark() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handled
}

// Release implements transports.Releaser.
func (a *answers) Release(mark uint64, err error) {
	a.mu.Lock()
	if err != nil {
		first := a.handled - uint64(len(a.waiting)) + 1
		for i := range a.waiting {
			if n := first + uint64(i); n > a.released && n <= mark {
				a.waiting[i].fail(transports.InDoubt(pb.Reason_REASON_JOURNAL_UNAVAILABLE, err,
					"the journal failed before the answer was committed; the same id again tells what became of it"))
			}
		}
	}
	a.released = mark
	a.mu.Unlock()
	signal(a.ready)
}

// fail makes a fault of a response.
func (one *answer) fail(fault *transports.Fault) {
	one.release()
	one.response, one.fault = nil, fault
}

// release gives the memory back of an answer that is not sent.
func (one *answer) release() {
	if one.encoded != nil {
		mem.NewBuffer(one.encoded, mem.DefaultBufferPool()).Free()
		one.encoded = nil
	}
}

// answersPerTurn is how many answers are sent before events have their turn.
const answersPerTurn = 64

// take appends to batch what may leave, in all at most answersPerTurn.
func (a *answers) take(batch []answer) []answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.refused), answersPerTurn)
	batch = append(batch, a.refused[:n]...)
	a.refused = drop(a.refused, n)
	sent := a.handled - uint64(len(a.waiting))
	n = min(int(a.released-min(sent, a.released)), answersPerTurn-len(batch))
	batch = append(batch, a.waiting[:n]...)
	a.waiting = drop(a.waiting, n)
	return batch
}

// drop removes the first n, and what they point to.
func drop(list []answer, n int) []answer {
	if n == 0 {
		return list
	}
	rest := copy(list, list[n:])
	clear(list[rest:])
	return list[:rest]
}

// sent says that a batch has left.
func (a *answers) sent(batch []answer) {
	a.mu.Lock()
	for i := range batch {
		a.readBytes -= batch[i].bytes
	}
	a.read -= len(batch)
	a.owed -= len(batch)
	settled := a.owed == 0
	a.mu.Unlock()
	signal(a.space)
	if settled {
		signal(a.settled)
	}
}

// settle waits until everything owed was sent. It is false when that will not happen: over closes first, or the context ends.
func (a *answers) settle(ctx context.Context, over <-chan struct{}) bool {
	for {
		a.mu.Lock()
		owed := a.owed
		a.mu.Unlock()
		if owed == 0 {
			return true
		}
		select {
		case <-a.settled:
		case <-over:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// encode prepares the response of an exchange to be sent later. What it returns shares no memory with the request of an order; other
// requests were decoded into memory of their own.
func encode(correlation uint64, x *transports.Exchange, bytes int) (answer, error) {
	one := answer{correlation: correlation, operation: x.Operation, bytes: bytes}
	ack, ok := x.Response.(*pb.SubmitOrderResponse)
	if !ok {
		one.response = x.Response
		return one, nil
	}
	size := hotcodec.SizeSubmitOrderResponse(ack)
	one.encoded = room(envelope.HeadSize(correlation, size) + size)
	head := envelope.AppendHead((*one.encoded)[:0], correlation, envelope.Answer(x.Operation), size)
	whole, stamp, err := hotcodec.AppendSubmitOrderResponse(head, ack)
	if err != nil {
		one.release()
		return one, fmt.Errorf("encoding the answer: %w", err)
	}
	*one.encoded, one.stamp = whole, len(head)+stamp
	return one, nil
}

// message makes the bytes that leave, stamped.
func (one *answer) message() (mem.Buffer, error) {
	pool := mem.DefaultBufferPool()
	if one.encoded != nil {
		binary.LittleEndian.PutUint64((*one.encoded)[one.stamp:], uint64(transports.Now()))
		b := mem.NewBuffer(one.encoded, pool)
		one.encoded = nil
		return b, nil
	}
	member, inner := envelope.Answer(one.operation), one.response
	if one.fault != nil {
		member, inner = envelope.Error, detailText(one.fault)
	} else {
		transports.StampSent(inner, transports.Now())
	}
	size := proto.Size(inner)
	b := room(envelope.HeadSize(one.correlation, size) + size)
	whole, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(envelope.AppendHead((*b)[:0], one.correlation, member, size), inner)
	if err != nil {
		return nil, err
	}
	*b = whole
	return mem.NewBuffer(b, pool), nil
}

// detailText is the fault's detail with texts that can be encoded.
func detailText(fault *transports.Fault) *pb.ErrorDetail {
	detail := fault.Detail()
	if _, err := proto.Marshal(detail); err != nil { // a text that is not UTF-8, e.g. of a peer's bytes
		detail.Field, detail.Message = "", fmt.Sprintf("%+q", detail.GetField()+" "+detail.GetMessage())
	}
	return detail
}
