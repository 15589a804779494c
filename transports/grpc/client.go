package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/bearer"
	"tailgate/transports/internal/outcome"
	"tailgate/transports/internal/sockopt"
)

// maxResponseBytes bounds an answer. The largest of the contract, a page of 1,000 orders or a book of 5,000 levels a side, stays
// below 1 MiB; an acknowledgement is as large as its request.
const maxResponseBytes = 16 << 20

// client implements transports.Client on one HTTP/2 connection.
//
// A request is sent once. Retries by service config are off; what remains of grpc's own are its transparent retries: a stream that
// the server refused before any of it was processed (REFUSED_STREAM, or beyond the last stream of a GOAWAY; RFC 9113, section
// 8.7) goes once more, on a new connection. That cannot enter an order twice.
type client struct {
	conn          *grpc.ClientConn
	authorization metadata.MD // nil without a key; never changed
	maxRequest    int
	closed        atomic.Bool
}

func dial(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
	c, err := newClient(config)
	if err != nil {
		return nil, fmt.Errorf("grpc: dial %s: %w", config.Address, err)
	}
	// The first request makes the connection and shows the key, so that a dead address and a bad key both fail here.
	ctx, cancel := context.WithTimeout(ctx, config.Limits.WithDefaults().HandshakeTimeout)
	defer cancel()
	probe := transports.Call{Operation: transports.ListInstruments, Request: &pb.ListInstrumentsRequest{}, Response: &pb.ListInstrumentsResponse{}}
	if err := c.Do(ctx, &probe); err != nil {
		return nil, fmt.Errorf("grpc: dial %s: %w", config.Address, errors.Join(err, c.Close()))
	}
	return c, nil
}

// newClient makes a client that connects with its first request.
func newClient(config transports.DialConfig) (*client, error) {
	if err := checkChoices(config); err != nil {
		return nil, err
	}
	limits := config.Limits.WithDefaults()
	dialer := sockopt.Dialer(config.CongestionControl)
	// Passthrough and a dialer of our own: no look-ups and no proxy that the environment could slip in.
	conn, err := grpc.NewClient("passthrough:///"+config.Address,
		grpc.WithTransportCredentials(transportCredentials(config.TLS)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		grpc.WithIdleTimeout(0), // an idle client keeps its connection, as the other transports' do
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: limits.HandshakeTimeout}),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(math.MaxInt32), grpc.MaxCallRecvMsgSize(maxResponseBytes), grpc.StaticMethod()),
		grpc.WithUserAgent("tailgate"),
	)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, maxRequest: limits.MaxRequestBytes}
	if config.Key != "" {
		c.authorization = metadata.Pairs("authorization", bearer.Header(config.Key))
	}
	return c, nil
}

// outgoing adds the key to what a call sends.
func (c *client) outgoing(ctx context.Context) context.Context {
	if c.authorization == nil {
		return ctx
	}
	return metadata.NewOutgoingContext(ctx, c.authorization)
}

func checkChoices(config transports.DialConfig) error {
	switch {
	case config.Encoding != "" && config.Encoding != "protobuf":
		return fmt.Errorf("no encoding %q: allowed is protobuf", config.Encoding)
	case config.Flow != "":
		return fmt.Errorf("no flow %q: the transport offers no choice", config.Flow)
	case config.Engine != "":
		return fmt.Errorf("no engine %q: the transport offers no choice", config.Engine)
	}
	return nil
}

func transportCredentials(config *tls.Config) credentials.TransportCredentials {
	if config == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(config.Clone()) // NewTLS adds "h2" to NextProtos
}

// methods are the paths of the operations.
var methods = func() map[transports.Operation]string {
	paths := make(map[transports.Operation]string)
	for _, op := range transports.Operations() {
		paths[op] = "/" + pb.OrderEntryService_ServiceDesc.ServiceName + "/" + op.String()
	}
	return paths
}()

// Do implements transports.Client. Concurrent calls are streams of one connection; those beyond what the server lets in at a time
// wait for a place, within their context. CreditWait and FirstWrite stay zero: grpc does not show the waiting for HTTP/2's
// windows, and the writes of one connection belong to all its streams.
func (c *client) Do(ctx context.Context, call *transports.Call) error {
	if c.closed.Load() {
		return outcome.Closed()
	}
	method, ok := methods[call.Operation]
	if !ok {
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "operation %d is not part of the contract", uint16(call.Operation))
	}
	if err := ctx.Err(); err != nil {
		return outcome.NotSent(ctx, err)
	}
	if size := proto.Size(call.Request); size > c.maxRequest {
		return outcome.TooLarge(size, c.maxRequest)
	}
	var stream peer.Peer // filled once a stream was made on a connection, which is when bytes may have left
	err := c.conn.Invoke(c.outgoing(ctx), method, call.Request, call.Response, grpc.Peer(&stream))
	if err == nil {
		return nil
	}
	// grpc encodes after it has opened the stream, and words a failure as a server does that cannot encode its answer.
	if _, cannot := proto.Marshal(call.Request); cannot != nil {
		return transports.Malformed("", "the request cannot be encoded: %v", cannot)
	}
	fault := faultOf(ctx, err, stream.Addr != nil)
	if fault.Reason == pb.Reason_REASON_CONNECTION_LOST && fault.Outcome == pb.Outcome_OUTCOME_UNKNOWN && c.expired(ctx, err) {
		return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, fmt.Errorf("%w (%w)", context.DeadlineExceeded, fault.Err),
			"the deadline passed before the answer came; the same id again tells")
	}
	return fault
}

// expired reports whether err is the deadline's end as the server's copy of it tells: its timer may fire a moment before ours,
// and then the stream ends with DEADLINE_EXCEEDED, or with a reset that grpc shows as CANCELED.
func (c *client) expired(ctx context.Context, err error) bool {
	switch code := status.Code(err); code {
	case codes.DeadlineExceeded:
		return true
	case codes.Canceled:
		_, limited := ctx.Deadline()
		return limited && !c.closed.Load()
	default:
		return false
	}
}

// Close implements transports.Client.
func (c *client) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.conn.Close()
}

// faultOf says what became of a request that ended with err. Only a gateway's ErrorDetail, the refusal of its size by grpc, and the lack of a
// stream prove that nothing was entered; whatever else ends a stream leaves its request in doubt.
func faultOf(ctx context.Context, err error, streamed bool) *transports.Fault {
	s := status.Convert(err)
	if detail := detailOf(s); detail != nil {
		return transports.FaultFromDetail(detail)
	}
	cause := errors.New(s.Message())
	if !streamed {
		return outcome.NotSent(ctx, cause)
	}
	switch s.Code() {
	case codes.ResourceExhausted:
		// Server and client word it alike; it is about the request where no answer could have been so small.
		if size, limit, ok := oversize(s.Message()); ok && size <= maxResponseBytes {
			return outcome.TooLarge(size, limit)
		}
	case codes.Unimplemented: // a service without this method; grpc answers it, no handler ran
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%v", cause)
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return outcome.Unanswered(ctx, cause)
	}
	if ctx.Err() != nil {
		return outcome.Unanswered(ctx, cause)
	}
	return transports.InDoubt(pb.Reason_REASON_INTERNAL, cause, "the stream ended with %s and no ErrorDetail; the same id again tells", s.Code())
}

// oversize reads the two figures of grpc's refusal of a message by its size.
func oversize(message string) (size, limit int, ok bool) {
	n, err := fmt.Sscanf(message, "grpc: received message larger than max (%d vs. %d)", &size, &limit)
	return size, limit, err == nil && n == 2
}
