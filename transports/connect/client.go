package connect

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/contractjson"
	"tailgate/transports/internal/h2client"
	"tailgate/transports/internal/outcome"
)

// client implements transports.Client on one connection of HTTP/2, whatever the protocol above it.
type client struct {
	*h2client.Client
	maxRequest int
	read       func(b []byte, m proto.Message) error
	methods    map[transports.Operation]*connect.Client[outgoing, reply]
}

func dial(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
	c, err := newClient(config, 0)
	if err != nil {
		return nil, fmt.Errorf("connect: dial %s: %w", config.Address, err)
	}
	// The first request makes the connection and shows the key, so that a dead address and a bad key both fail here.
	ctx, cancel := context.WithTimeout(ctx, config.Limits.WithDefaults().HandshakeTimeout)
	defer cancel()
	probe := transports.Call{Operation: transports.ListInstruments, Request: &pb.ListInstrumentsRequest{}, Response: &pb.ListInstrumentsResponse{}}
	if err := c.Do(ctx, &probe); err != nil {
		return nil, fmt.Errorf("connect: dial %s: %w", config.Address, errors.Join(err, c.Close()))
	}
	return c, nil
}

// newClient makes a client that connects with its first request; window is h2client.New's.
func newClient(config transports.DialConfig, window int) (*client, error) {
	encoded, read := protobufCodec(0), proto.Unmarshal
	switch config.Encoding {
	case "", protobufName:
	case jsonName:
		encoded, read = jsonCodec("json", 0), readJSON
	default:
		return nil, fmt.Errorf("no encoding %q: allowed are %s, %s", config.Encoding, protobufName, jsonName)
	}
	options := []connect.ClientOption{connect.WithCodec(encoded), connect.WithReadMaxBytes(h2client.MaxResponseBytes), connect.WithAcceptCompression("gzip", nil, nil)}
	switch config.Protocol {
	case "", protocolConnect:
	case protocolGRPC:
		options = append(options, connect.WithGRPC())
	case protocolGRPCWeb:
		options = append(options, connect.WithGRPCWeb())
	default:
		return nil, fmt.Errorf("no protocol %q: allowed are %s, %s, %s", config.Protocol, protocolConnect, protocolGRPC, protocolGRPCWeb)
	}
	switch {
	case config.Flow != "":
		return nil, fmt.Errorf("no flow %q: the transport offers no choice", config.Flow)
	case config.Engine != "":
		return nil, fmt.Errorf("no engine %q: the transport offers no choice", config.Engine)
	}
	c := &client{
		Client: h2client.New(config, window), maxRequest: config.Limits.WithDefaults().MaxRequestBytes, read: read,
		methods: make(map[transports.Operation]*connect.Client[outgoing, reply]),
	}
	for _, op := range append(transports.Operations(), transports.StreamExecutions) {
		c.methods[op] = connect.NewClient[outgoing, reply](c.Client, c.URL+path(op), options...)
	}
	return c, nil
}

// readJSON reads an answer; in the protocols with envelopes an empty one is an empty message.
func readJSON(b []byte, m proto.Message) error {
	if len(b) == 0 {
		proto.Reset(m)
		return nil
	}
	return contractjson.ReadResponse(b, m)
}

// Do implements transports.Client. Concurrent calls are streams of one connection; those beyond MaxStreams wait for a place, within their
// context. CreditWait and FirstWrite stay zero: net/http shows neither the waiting for HTTP/2's windows nor which write carries which stream.
func (c *client) Do(ctx context.Context, call *transports.Call) error {
	method, ok := c.methods[call.Operation]
	if !ok || call.Operation.OfSession() {
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "operation %d (%v) is no call of this transport", uint16(call.Operation), call.Operation)
	}
	if size := proto.Size(call.Request); size > c.maxRequest {
		return outcome.TooLarge(size, c.maxRequest)
	}
	way, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	defer way.End()
	response, err := method.CallUnary(way.Context, connect.NewRequest(&outgoing{message: call.Request}))
	if err != nil {
		// The library encodes within the call, and words a failure as a peer's.
		if _, cannot := proto.Marshal(call.Request); cannot != nil {
			return transports.Malformed("", "the request cannot be encoded: %v", cannot)
		}
		return faultOf(ctx, err, way)
	}
	if err := c.read(response.Msg.data, call.Response); err != nil {
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the answer is not a %s", call.Response.ProtoReflect().Descriptor().FullName())
	}
	return nil
}

// faultOf says what became of a request that ended with err. A gateway's ErrorDetail says it; without one, whatever ends a call leaves its request in
// doubt, but for what h2client knows better.
func faultOf(ctx context.Context, err error, way *h2client.Call) *transports.Fault {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return way.Lost(ctx, err)
	}
	if detail := detailOf(e); detail != nil {
		return transports.FaultFromDetail(detail)
	}
	lost := way.Lost(ctx, err)
	switch {
	case lost.Outcome == pb.Outcome_OUTCOME_NOT_PROCESSED || ctx.Err() != nil:
		return lost
	case e.Code() == connect.CodeUnimplemented: // a server without this method; no handler ran
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%v", err)
	case e.Code() == connect.CodeDeadlineExceeded: // the server's copy of the deadline may end a moment before ours
		return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, fmt.Errorf("%w (%w)", context.DeadlineExceeded, err), "the deadline passed before the answer came; the same id again tells")
	case connect.IsWireError(err):
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the call ended with %s and no ErrorDetail; the same id again tells", e.Code())
	default:
		return lost
	}
}
