package grpc

import (
	"context"
	"fmt"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/envelope"
	"tailgate/transports/internal/guard"
)

// peering is a peer of a stream with its session.
type peering struct {
	peer    transports.Peer
	conn    *guard.Conn // nil in tests without sockets
	session transports.Session
}

// streaming returns the handler of a streaming method: it admits the peer, opens its session, and ends the stream with what serve
// returns, nil for OK.
func (s *server) streaming(method string, serve func(peering, grpc.ServerStream) error) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) (err error) {
		defer func() {
			if cause := recover(); cause != nil {
				s.logger.Error("a stream panicked", "method", method, "panic", cause, "stack", string(debug.Stack()))
				err = statusOf(transports.AsFault(fmt.Errorf("panic: %v", cause))).Err()
			}
		}()
		ctx := stream.Context()
		from := peering{}
		if from.peer, err = s.admit(ctx); err == nil {
			from.session, err = s.gateway.Open(ctx, from.peer)
		}
		if err != nil {
			return statusOf(transports.AsFault(err)).Err()
		}
		defer from.session.Close()
		if p, ok := peer.FromContext(ctx); ok {
			from.conn = guard.Of(p.Addr)
		}
		if err = serve(from, stream); err != nil {
			return statusOf(transports.AsFault(err)).Err()
		}
		return nil
	}
}

// draining is the end of a stream when the server stops.
func draining() *transports.Fault {
	return transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later")
}

// executions serves StreamExecutions. Response headers leave when the stream stands, before any event.
func (s *server) executions(from peering, stream grpc.ServerStream) error {
	request := new(pb.StreamExecutionsRequest)
	in := incoming{request: request}
	watch := s.watch(stream.Context())
	err := stream.RecvMsg(&in)
	watch.end()
	if err != nil {
		return err // broken off, and over
	}
	if in.err != nil {
		return in.err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	events, err := from.session.Subscribe(ctx, request)
	if err != nil {
		return err
	}
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		events.Close()
		return err // the peer has left
	}
	out := newSender(stream, s.limits.WriteTimeout)
	defer out.timer.Stop()
	ended := make(chan error, 1)
	go func() { ended <- out.pump(ctx, events, executionMember) }()
	select {
	case err := <-ended:
		if err == nil {
			err = s.broken(ctx, out, from, "StreamExecutions")
		}
		return err
	case <-s.drain:
		return draining()
	case <-out.cut:
		return s.slow(from.peer, from.conn, "StreamExecutions")
	}
}

// executionMember is the field of a StreamExecutionsResponse that has the event.
const executionMember envelope.Member = 1

// broken is why sending ended: the peer did not read, or it has left.
func (s *server) broken(ctx context.Context, out *sender, from peering, method string) error {
	select {
	case <-out.cut:
		return s.slow(from.peer, from.conn, method)
	default:
		return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, ctx.Err(), "the stream was broken off")
	}
}
