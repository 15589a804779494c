package restapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Server-Sent Events, as WHATWG HTML has them (section 9.2, "Server-sent events"): lines of "field: value", an empty line behind each event.

const (
	// EventsType is the Content-Type of a stream of events.
	EventsType = "text/event-stream"
	// lastEventID is the header by which a reader goes on behind the event that it names, in the form of the ids that it was given.
	lastEventID = "Last-Event-ID"
	// keepAlive is after how much silence a comment is sent, so that proxies keep the connection: the interval that the standard suggests.
	keepAlive = 15 * time.Second
	// retryMs is what readers are told to wait before they connect again.
	retryMs = 1000
	// flushBytes bounds what is put together for one write. A batch has at most transports.MaxEvents events, which are written
	// together where they are small.
	flushBytes = 64 << 10
)

// eventsHeader is the value of a Content-Type. Never changed.
var eventsHeader = []string{EventsType}

// stream opens the stream of GET /v1/executions. It returns an error for what is refused before the stream begins; how it ends later is an
// event of the stream. Its connection is closed with it: a stream ends for reasons that are no good for another request.
func (a *API) stream(ctx context.Context, route *Route, r *Request, session transports.Session, reply *Reply) error {
	request := new(pb.StreamExecutionsRequest)
	if err := refuseBody(r, route); err != nil {
		return err
	}
	if err := route.readQuery(r.Query, request); err != nil {
		return err
	}
	if err := readLastEventID(r.LastEventID, request); err != nil {
		return err
	}
	if len(r.Accept) > 0 && acceptQuality(strings.Split(strings.Join(r.Accept, ","), ","), EventsType) == 0 {
		return refuse(http.StatusNotAcceptable, "the answer is %s, and Accept does not take it", EventsType)
	}
	if most := mostStreams(a.limits); a.streams.Add(1) > most {
		a.streams.Add(-1)
		return transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d streams of events are open already, as many as this listener takes beside requests", most)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if reply.Stream == nil {
			cancel()
			a.streams.Add(-1)
		}
	}()
	events, err := session.Subscribe(ctx, request)
	if err != nil {
		return err
	}
	reply.Status, reply.ContentType, reply.NoStore, reply.Close = http.StatusOK, eventsHeader, true, true
	if r.Method == http.MethodHead {
		events.Close()
		return nil
	}
	reply.Stream = &Stream{api: a, remote: r.Peer.Remote, session: session, events: events, ctx: ctx, cancel: cancel}
	return nil
}

// mostStreams bounds the streams of a listener. Each takes a connection for as long as it likes, so half of them are kept for requests, or all who
// read events together could shut the orders out. A listener of one connection gives it to either.
func mostStreams(limits transports.Limits) int64 { return int64(max(1, limits.MaxConnections/2)) }

// readLastEventID moves the request behind the event that the header names. It wins over the query, since a reader that connects again sends the
// URL that it had first.
func readLastEventID(headers []string, request *pb.StreamExecutionsRequest) error {
	if len(headers) == 0 {
		return nil
	}
	if len(headers) > 1 {
		return transports.Malformed(lastEventID, "the header is given %d times", len(headers))
	}
	epochText, sequenceText, ok := strings.Cut(headers[0], "-")
	epoch, epochErr := strconv.ParseUint(epochText, 10, 32)
	sequence, sequenceErr := strconv.ParseUint(sequenceText, 10, 64)
	if !ok || epochErr != nil || sequenceErr != nil || epoch == 0 || sequence == 0 || sequence == 1<<64-1 {
		return transports.Malformed(lastEventID, "%.64q is no id of an event: EPOCH-SEQUENCE, as 3-17", headers[0])
	}
	request.Epoch, request.FromSequence = uint32(epoch), sequence+1
	return nil
}

// Sink is where a stream is written. Flush hands what was written to the kernel; a peer that takes nothing fails either of them with
// os.ErrDeadlineExceeded, see guard.Conn.
type Sink interface {
	io.Writer
	Flush() error
}

// Stream is one stream on its way.
type Stream struct {
	api     *API
	remote  net.Addr // of the peer
	session transports.Session
	events  transports.Events
	ctx     context.Context //nolint:containedctx // of the request that the stream answers
	cancel  context.CancelFunc
	out     Sink
	buffer  []byte
	report  pb.ExecutionReport
}

// Close ends a stream that is not run.
func (s *Stream) Close() {
	s.cancel()
	s.events.Close()
	s.session.Close()
	s.api.streams.Add(-1)
}

// Run sends events until they or the connection end, and closes the session. It is called once, unless Close is, while the request's
// context lives. It is false where the stream broke off within an event, so that it must not be ended as if it were whole.
func (s *Stream) Run(out Sink) (whole bool) {
	s.out = out
	batches, taken, ended := make(chan []transports.Event), make(chan struct{}, 1), make(chan error, 1)
	defer s.api.streams.Add(-1)
	defer s.session.Close()
	// A goroutine of its own waits for events, so that this one can see silence and the end of the server.
	go func() {
		defer close(ended)
		defer s.events.Close()
		for {
			batch, err := s.events.Next(s.ctx)
			if err != nil {
				ended <- err
				return
			}
			select {
			case batches <- batch:
			case <-s.ctx.Done():
				return
			}
			select {
			case <-taken: // the batch is ours only until the next call
			case <-s.ctx.Done():
				return
			}
		}
	}()
	defer func() {
		s.cancel()
		for range ended { // until the goroutine has left
		}
	}()
	// Whatever fails from here on must not become an answer in the middle of a stream.
	defer func() {
		if cause := recover(); cause != nil {
			s.api.logger.Error("a stream of events panicked", "panic", cause, "stack", string(debug.Stack()))
			whole = false
		}
	}()
	s.send(batches, taken, ended)
	return true
}

func (s *Stream) send(batches <-chan []transports.Event, taken chan<- struct{}, ended <-chan error) {
	s.buffer = fmt.Appendf(s.buffer, "retry: %d\n\n", retryMs)
	if !s.flush() {
		return
	}
	silence := time.NewTimer(keepAlive)
	defer silence.Stop()
	for {
		select {
		case <-s.api.drain:
			s.finish(transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later"))
			return
		case batch := <-batches:
			if !s.sendBatch(batch) {
				return
			}
			taken <- struct{}{}
			silence.Reset(keepAlive)
		case err := <-ended:
			if s.ctx.Err() == nil {
				s.finish(transports.AsFault(err))
			}
			return
		case <-silence.C:
			s.buffer = append(s.buffer, ":\n\n"...)
			if !s.flush() {
				return
			}
			silence.Reset(keepAlive)
		case <-s.ctx.Done():
			return
		}
	}
}

// sendBatch writes a batch and flushes it. It is false when the connection is over.
func (s *Stream) sendBatch(batch []transports.Event) bool {
	for i := range batch {
		if err := proto.Unmarshal(batch[i].Report, &s.report); err != nil {
			s.finish(transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "event %d is no ExecutionReport", batch[i].Sequence))
			return false
		}
		s.buffer = appendEvent(s.buffer, batch[i].Epoch, batch[i].Sequence, &s.report)
		if len(s.buffer) >= flushBytes && !s.flush() {
			return false
		}
	}
	return len(s.buffer) == 0 || s.flush()
}

// appendEvent appends an event of the stream: the same bytes for every reader.
func appendEvent(b []byte, epoch uint32, sequence uint64, report *pb.ExecutionReport) []byte {
	b = append(b, "id: "...)
	b = strconv.AppendUint(b, uint64(epoch), 10)
	b = append(b, '-')
	b = strconv.AppendUint(b, sequence, 10)
	b = append(b, "\nevent: execution\ndata: "...)
	b = appendReport(b, report)
	return append(b, "\n\n"...)
}

// finish says why the stream ends.
func (s *Stream) finish(fault *transports.Fault) {
	s.buffer = append(s.buffer, "event: error\ndata: "...)
	s.buffer = append(s.buffer, problemOf(fault, StatusOf(fault.Reason)).encode()...)
	s.buffer = append(s.buffer, "\n\n"...)
	s.flush()
}

// flush writes what was put together. A peer that takes none of it for WriteTimeout fails it, see guard.Conn.
func (s *Stream) flush() bool {
	_, err := s.out.Write(s.buffer)
	s.buffer = s.buffer[:0]
	if err == nil {
		err = s.out.Flush()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.api.logger.Warn("a peer that does not read was cut off", "reason", pb.Reason_REASON_SLOW_READER.String(), "remote", s.remote, "of", "StreamExecutions")
	}
	return err == nil
}
