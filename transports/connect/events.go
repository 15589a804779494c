package connect

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// stream returns the handler of StreamExecutions. Headers leave when the stream stands, before any event; how it ends is said as in any call.
func (h *handler) stream(options connect.HandlerOption) http.Handler {
	made := connect.WithRequestInitializer(func(_ connect.Spec, message any) error {
		message.(*incoming).message = new(pb.StreamExecutionsRequest)
		return nil
	})
	return connect.NewServerStreamHandler(path(transports.StreamExecutions), func(ctx context.Context, request *connect.Request[incoming], out *connect.ServerStream[event]) (err error) {
		defer h.recovered("StreamExecutions", &err)
		c := callOf(ctx)
		if err := h.follow(ctx, c, request.Msg, out); err != nil {
			return errorOf(err)
		}
		return nil
	}, options, made)
}

// mostStreams bounds the streams of events over HTTP/1.1, where each takes a connection for as long as it likes: half of the connections are
// kept for requests, or all who read events together could shut the orders out. Over HTTP/2 they share one.
func mostStreams(limits transports.Limits) int64 { return int64(max(1, limits.MaxConnections/2)) }

// follow sends events until they or the stream end, and says why, which is always an error.
func (h *handler) follow(ctx context.Context, c *call, in *incoming, out *connect.ServerStream[event]) error {
	if in.err != nil {
		return in.err
	}
	if !c.out.Multiplexed() {
		defer h.streams.Add(-1)
		if most := mostStreams(h.limits); h.streams.Add(1) > most {
			return transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d streams of events are open already, as many as this listener takes beside requests", most)
		}
		c.out.Last = true // a stream ends for reasons that are no good for another request
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := c.session.Subscribe(ctx, in.message.(*pb.StreamExecutionsRequest))
	if err != nil {
		return err
	}
	batches, taken, ended := make(chan []transports.Event), make(chan struct{}, 1), make(chan error, 1)
	go func() { // waits for events, so that the handler can see the end of the server
		defer close(ended)
		defer events.Close()
		for {
			batch, err := events.Next(ctx)
			if err != nil {
				ended <- err
				return
			}
			select {
			case batches <- batch:
			case <-ctx.Done():
				return
			}
			select {
			case <-taken: // the batch is ours only until the next call
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range ended { // until the goroutine has left
		}
	}()
	// A stream outlives the deadline of its request.
	if err := http.NewResponseController(c.out.ResponseWriter).SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if err := out.Send(nil); err != nil {
		return h.cut(c, err)
	}
	for {
		select {
		case <-h.drain:
			return draining()
		case batch := <-batches:
			if err := send(c, out, batch); err != nil {
				return h.cut(c, err)
			}
			taken <- struct{}{}
		case err := <-ended:
			if ctx.Err() != nil {
				return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, ctx.Err(), "the stream was broken off")
			}
			return err
		}
	}
}

// send writes a batch, in as few writes to the connection as net/http's buffer allows.
func send(c *call, out *connect.ServerStream[event], batch []transports.Event) error {
	c.out.Held = true
	for i := range batch {
		if err := out.Send(&event{report: batch[i].Report}); err != nil {
			return err
		}
	}
	c.out.Held = false
	c.out.Flush()
	return nil
}

// cut is the end of a stream that could not be written to: the peer does not read, or it has left. Nobody will read what is said of it.
func (h *handler) cut(c *call, err error) error {
	if c.out.Stalled() || errors.Is(err, os.ErrDeadlineExceeded) {
		h.logger.Warn("a peer that does not read was cut off", "reason", pb.Reason_REASON_SLOW_READER.String(), "remote", c.peer.Remote, "of", "StreamExecutions")
		return transports.InDoubt(pb.Reason_REASON_SLOW_READER, err, "nothing of this stream was taken for %v; go on from the last event that you have", h.limits.WriteTimeout)
	}
	return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, err, "the stream was broken off")
}
