package connect

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/cursor"
)

// readAhead is how much of a stream of events may be under way to a reader that does not take it.
const readAhead = 256 << 10

// executions implements transports.Transport.Executions: one connection, one stream, and no connecting again.
func executions(ctx context.Context, config transports.DialConfig, request *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) error {
	c, err := newClient(config, readAhead)
	if err != nil {
		return fmt.Errorf("connect: executions of %s: %w", config.Address, err)
	}
	defer c.Close() //nolint:errcheck // it was read to its end
	err = c.follow(ctx, config.Limits.WithDefaults().HandshakeTimeout, request, receive)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("connect: executions of %s: %w", config.Address, err)
}

// follow returns why the stream ended, which is always an error. The beginning of the answer has to come within the time for handshakes.
func (c *client) follow(ctx context.Context, handshake time.Duration, message *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	way, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	defer way.End()
	late := time.AfterFunc(handshake, cancel)
	stream, err := c.methods[transports.StreamExecutions].CallServerStream(way.Context, connect.NewRequest(&outgoing{message: message}))
	late.Stop()
	if err != nil {
		return faultOf(ctx, err, way)
	}
	defer stream.Close() //nolint:errcheck // it is over
	var at cursor.Cursor
	for stream.Receive() {
		response := new(pb.StreamExecutionsResponse)
		if err := c.read(stream.Msg().data, response); err != nil {
			return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "what came is not a StreamExecutionsResponse")
		}
		if err := at.Take(response.GetExecution()); err != nil {
			return err
		}
		receive(response.GetExecution())
	}
	if err := stream.Err(); err != nil {
		return faultOf(ctx, err, way)
	}
	return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, nil, "the gateway ended the stream without a word")
}
