package twirp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/twitchtv/twirp"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/h2client"
	"tailgate/transports/internal/outcome"
)

// client implements transports.Client with the generated client on one connection of HTTP/2.
type client struct {
	*h2client.Client
	maxRequest int
	methods    map[transports.Operation]func(context.Context, proto.Message) (proto.Message, error)
}

func dial(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
	c, err := newClient(config)
	if err != nil {
		return nil, fmt.Errorf("twirp: dial %s: %w", config.Address, err)
	}
	// The first request makes the connection and shows the key, so that a dead address and a bad key both fail here.
	ctx, cancel := context.WithTimeout(ctx, config.Limits.WithDefaults().HandshakeTimeout)
	defer cancel()
	probe := transports.Call{Operation: transports.ListInstruments, Request: &pb.ListInstrumentsRequest{}, Response: &pb.ListInstrumentsResponse{}}
	if err := c.Do(ctx, &probe); err != nil {
		return nil, fmt.Errorf("twirp: dial %s: %w", config.Address, errors.Join(err, c.Close()))
	}
	return c, nil
}

func newClient(config transports.DialConfig) (*client, error) {
	switch {
	case config.Flow != "":
		return nil, fmt.Errorf("no flow %q: the transport offers no choice", config.Flow)
	case config.Engine != "":
		return nil, fmt.Errorf("no engine %q: the transport offers no choice", config.Engine)
	case config.Protocol != "":
		return nil, fmt.Errorf("no protocol %q: the transport offers no choice", config.Protocol)
	}
	c := &client{Client: h2client.New(config, 0), maxRequest: config.Limits.WithDefaults().MaxRequestBytes}
	var stub pb.OrderEntryService
	switch config.Encoding {
	case "", protobufName:
		stub = pb.NewOrderEntryServiceProtobufClient(c.URL, bounded{c.Client})
	case jsonName:
		stub = pb.NewOrderEntryServiceJSONClient(c.URL, bounded{c.Client})
	default:
		return nil, fmt.Errorf("no encoding %q: allowed are %s, %s", config.Encoding, protobufName, jsonName)
	}
	c.methods = map[transports.Operation]func(context.Context, proto.Message) (proto.Message, error){
		transports.SubmitOrder: method(stub.SubmitOrder), transports.ReplaceOrder: method(stub.ReplaceOrder),
		transports.CancelOrder: method(stub.CancelOrder), transports.MassCancel: method(stub.MassCancel),
		transports.CancelAllAfter: method(stub.CancelAllAfter), transports.GetOrder: method(stub.GetOrder),
		transports.ListOrders: method(stub.ListOrders), transports.GetBook: method(stub.GetBook), transports.ListInstruments: method(stub.ListInstruments),
	}
	return c, nil
}

// method takes the types from a method of the generated client.
func method[Q, R proto.Message](call func(context.Context, Q) (R, error)) func(context.Context, proto.Message) (proto.Message, error) {
	return func(ctx context.Context, request proto.Message) (proto.Message, error) {
		typed, ok := request.(Q)
		if !ok {
			return nil, transports.Malformed("", "a %T is no request of this operation", request)
		}
		return call(ctx, typed)
	}
}

// bounded is the client of Twirp, which reads answers without a bound of its own.
type bounded struct{ *h2client.Client }

// Do implements pb.HTTPClient.
func (b bounded) Do(request *http.Request) (*http.Response, error) {
	response, err := b.Client.Do(request)
	if err != nil {
		return nil, err
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, h2client.MaxResponseBytes), response.Body}
	return response, nil
}

// Do implements transports.Client. Concurrent calls are streams of one connection; those beyond MaxStreams wait for a place, within their
// context. CreditWait and FirstWrite stay zero: net/http shows neither the waiting for HTTP/2's windows nor which write carries which stream. Twirp
// carries no deadline: its end resets the stream, and the gateway sees that.
func (c *client) Do(ctx context.Context, call *transports.Call) error {
	method, ok := c.methods[call.Operation]
	if !ok {
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
	response, err := method(way.Context, call.Request)
	if err != nil {
		if _, cannot := proto.Marshal(call.Request); cannot != nil {
			return transports.Malformed("", "the request cannot be encoded: %v", cannot)
		}
		return faultOf(ctx, err, way)
	}
	proto.Reset(call.Response)
	proto.Merge(call.Response, response) // the generated client makes a message of its own
	return nil
}

// faultOf says what became of a request that ended with err. A gateway's meta says it; without one, whatever ends a call leaves its request in doubt,
// but for what h2client knows better.
func faultOf(ctx context.Context, err error, way *h2client.Call) error {
	if fault, ok := errors.AsType[*transports.Fault](err); ok {
		return fault
	}
	e, ok := errors.AsType[twirp.Error](err)
	if ok {
		if fault := detailOf(e); fault != nil {
			return fault
		}
	}
	lost := way.Lost(ctx, err)
	switch {
	case lost.Outcome == pb.Outcome_OUTCOME_NOT_PROCESSED || ctx.Err() != nil:
		return lost
	case errors.Is(err, proto.Error):
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the answer is not a message of the contract")
	case ok && e.Code() == twirp.BadRoute && e.Meta("http_error_from_intermediary") == "": // a service without this method; nothing was read
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%v", err)
	case ok && (e.Code() != twirp.Internal || e.Meta("http_error_from_intermediary") != ""):
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the call ended with %s and no reason; the same id again tells", e.Code())
	default:
		return lost
	}
}
