package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/bearer"
	"tailgate/transports/internal/contractjson"
	"tailgate/transports/internal/httpserver"
	"tailgate/transports/internal/outcome"
	"tailgate/transports/internal/sockopt"
)

// maxResponseBytes bounds an answer. The largest of the contract, a page of 1,000 orders or a book of 5,000 levels a side, stays below
// 1 MiB even in JSON; an acknowledgement is as large as its request.
const maxResponseBytes = 16 << 20

// client implements transports.Client on one connection of HTTP/2, whatever the protocol above it. Where the server takes fewer requests at a time
// on a connection than this client's MaxStreams, net/http opens another: its own way of waiting for a place (StrictMaxConcurrentRequests) counts those
// who wait among those who are in, so that of many none gets in.
//
// A request is sent once: net/http is left nothing that it could send again (see once.Do).
type client struct {
	transport     *http.Transport
	authorization string // empty without a key
	maxRequest    int
	read          func(b []byte, m proto.Message) error
	methods       map[transports.Operation]*connect.Client[outgoing, reply]
	places        chan struct{} // holds one element for each call under way, at most MaxStreams

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{} // open ones
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

// newClient makes a client that connects with its first request. window bounds what a stream may be ahead of its reader; 0 = net/http's own.
func newClient(config transports.DialConfig, window int) (*client, error) {
	limits := config.Limits.WithDefaults()
	c := &client{
		maxRequest: limits.MaxRequestBytes, places: make(chan struct{}, limits.MaxStreams),
		conns: make(map[net.Conn]struct{}), methods: make(map[transports.Operation]*connect.Client[outgoing, reply]),
	}
	encoded := protobufCodec(0)
	switch config.Encoding {
	case "", protobufName:
		c.read = proto.Unmarshal
	case jsonName:
		encoded = jsonCodec("json", 0)
		c.read = readJSON
	default:
		return nil, fmt.Errorf("no encoding %q: allowed are %s, %s", config.Encoding, protobufName, jsonName)
	}
	options := []connect.ClientOption{connect.WithCodec(encoded), connect.WithReadMaxBytes(maxResponseBytes), connect.WithAcceptCompression("gzip", nil, nil)}
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
	if config.Key != "" {
		c.authorization = bearer.Header(config.Key)
	}
	c.transport = &http.Transport{
		// Proxy stays nil: no proxy that the environment could slip in.
		DialContext:            c.dialer(sockopt.Dialer(config.CongestionControl)),
		TLSHandshakeTimeout:    limits.HandshakeTimeout,
		DisableCompression:     true,
		IdleConnTimeout:        limits.IdleTimeout * 9 / 10, // before a server with the same limits closes it under a request
		MaxResponseHeaderBytes: httpserver.MaxHeaderBytes,
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: window},
	}
	scheme := "http"
	if config.TLS == nil {
		c.transport.Protocols.SetUnencryptedHTTP2(true)
	} else {
		scheme = "https"
		c.transport.Protocols.SetHTTP2(true)
		c.transport.TLSClientConfig = config.TLS.Clone()
		c.transport.TLSClientConfig.NextProtos = []string{"h2"}
	}
	for _, op := range append(transports.Operations(), transports.StreamExecutions) {
		c.methods[op] = connect.NewClient[outgoing, reply](&once{c.transport}, scheme+"://"+config.Address+path(op), options...)
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

// dialer keeps account of the connections, so that Close ends them all.
func (c *client) dialer(d *net.Dialer) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		inner, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		made := &conn{Conn: inner, client: c}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			return nil, errors.Join(net.ErrClosed, inner.Close())
		}
		c.conns[made] = struct{}{}
		return made, nil
	}
}

// conn is a client's socket, which its client forgets when it is closed.
type conn struct {
	net.Conn
	client *client
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.client.mu.Lock()
	delete(c.client.conns, c)
	c.client.mu.Unlock()
	return c.Conn.Close()
}

// Close implements transports.Client.
func (c *client) Close() error {
	c.mu.Lock()
	c.closed = true
	open := make([]net.Conn, 0, len(c.conns))
	for one := range c.conns {
		open = append(open, one)
	}
	c.mu.Unlock()
	for _, one := range open { // not under the lock, which Close of a connection takes
		one.Close() //nolint:errcheck // ends the calls under way, in doubt
	}
	c.transport.CloseIdleConnections()
	return nil
}

// once sends requests as net/http does, but none twice.
type once struct{ transport *http.Transport }

// Do implements connect.HTTPClient. Without GetBody, and with a body that net/http does not know to be empty, it sends again only what never had a
// stream; what the server refused is told by the error (see refused).
func (o *once) Do(request *http.Request) (*http.Response, error) {
	request.GetBody = nil
	if request.Body == nil || request.Body == http.NoBody {
		request.Body = emptyBody{}
	}
	return o.transport.RoundTrip(request)
}

// emptyBody is a body with nothing in it.
type emptyBody struct{}

// Read implements io.Reader.
func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements io.Closer.
func (emptyBody) Close() error { return nil }

// Do implements transports.Client. Concurrent calls are streams of one connection; those beyond MaxStreams wait for a place, within their
// context. CreditWait and FirstWrite stay zero: net/http shows neither the waiting for HTTP/2's windows nor which write
// carries which stream.
func (c *client) Do(ctx context.Context, call *transports.Call) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return outcome.Closed()
	}
	method, ok := c.methods[call.Operation]
	if !ok || call.Operation.OfSession() {
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "operation %d (%v) is no call of this transport", uint16(call.Operation), call.Operation)
	}
	if err := ctx.Err(); err != nil {
		return outcome.NotSent(ctx, err)
	}
	if size := proto.Size(call.Request); size > c.maxRequest {
		return outcome.TooLarge(size, c.maxRequest)
	}
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-ctx.Done():
		return outcome.NotSent(ctx, ctx.Err())
	}
	attempt := attempts.Get().(*attempt)
	defer attempts.Put(attempt)
	attempt.streamed = false
	response, err := method.CallUnary(httptrace.WithClientTrace(ctx, &attempt.trace), c.request(call.Request))
	if err != nil {
		// The library encodes within the call, and words a failure as a peer's.
		if _, cannot := proto.Marshal(call.Request); cannot != nil {
			return transports.Malformed("", "the request cannot be encoded: %v", cannot)
		}
		return faultOf(ctx, err, attempt.streamed)
	}
	if err := c.read(response.Msg.data, call.Response); err != nil {
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the answer is not a %s", call.Response.ProtoReflect().Descriptor().FullName())
	}
	return nil
}

// request adds the key to what a call sends.
func (c *client) request(message proto.Message) *connect.Request[outgoing] {
	request := connect.NewRequest(&outgoing{message: message})
	request.Header()["User-Agent"] = userAgent
	if c.authorization != "" {
		request.Header()["Authorization"] = []string{c.authorization}
	}
	return request
}

// userAgent is never changed.
var userAgent = []string{"tailgate"}

// attempt finds out whether a request had a connection: from then on bytes may have left.
type attempt struct {
	trace    httptrace.ClientTrace
	streamed bool
}

var attempts = sync.Pool{New: func() any {
	a := new(attempt)
	// Called by RoundTrip on the caller's goroutine, before anything is written; nothing else of the trace is used, so that no other goroutine
	// looks at it and it can serve the next call.
	a.trace.GotConn = func(httptrace.GotConnInfo) { a.streamed = true }
	return a
}}

// faultOf says what became of a request that ended with err. Only a gateway's ErrorDetail, a refused stream and the lack of a connection prove that
// nothing was entered; whatever else ends a call leaves its request in doubt.
func faultOf(ctx context.Context, err error, streamed bool) *transports.Fault {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		e = connect.NewError(connect.CodeUnknown, err)
	}
	if detail := detailOf(e); detail != nil {
		return transports.FaultFromDetail(detail)
	}
	switch {
	case !streamed:
		return outcome.NotSent(ctx, err)
	case refused(err):
		return outcome.NotSent(ctx, err)
	case ctx.Err() != nil:
		return outcome.Unanswered(ctx, err)
	}
	switch e.Code() {
	case connect.CodeUnimplemented: // a server without this method; no handler ran
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%v", err)
	case connect.CodeDeadlineExceeded: // the server's copy of the deadline may end a moment before ours
		return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, fmt.Errorf("%w (%w)", context.DeadlineExceeded, err), "the deadline passed before the answer came; the same id again tells")
	}
	if connect.IsWireError(err) {
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the call ended with %s and no ErrorDetail; the same id again tells", e.Code())
	}
	return outcome.Unanswered(ctx, err)
}

// refused reports whether the server said that it took nothing of the request: its stream is beyond the last one of a GOAWAY, or was reset with
// REFUSED_STREAM (RFC 9113, section 8.7). net/http has no type for either; a text that it words anew makes the request one in doubt.
func refused(err error) bool {
	text := err.Error()
	return strings.Contains(text, "cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY]") ||
		strings.Contains(text, "cannot retry err [stream error: ") && strings.Contains(text, "; REFUSED_STREAM; received from peer]")
}
