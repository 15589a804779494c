// Package restclient is the client of every transport that offers the API of restapi over HTTP/1.1: which framework serves it cannot be seen
// on the wire.
//
// It must never know what an order means.
package restclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/bearer"
	"tailgate/transports/internal/outcome"
	"tailgate/transports/internal/restapi"
	"tailgate/transports/internal/sockopt"
)

// maxResponseBytes bounds an answer. The largest of the contract, a page of 1,000 orders or a book of 5,000 levels a side, stays below
// 1 MiB even in JSON; an acknowledgement is as large as its request.
const maxResponseBytes = 16 << 20

// maxHeaderBytes bounds the headers of an answer.
const maxHeaderBytes = 16 << 10

// client implements transports.Client with net/http. One connection serves calls that come one after the other; concurrent calls
// open more, one each, up to MaxStreams, beyond which they wait for a free one within their context. A call whose context ends
// takes its connection with it, since HTTP/1.1 has no other way to abandon a request.
//
// A request is written once. net/http repeats requests that failed on a connection that was used before, when it holds that to
// be safe; here nothing is left for it to repeat, see newRequest.
type client struct {
	encoding   *restapi.Encoding
	transport  *http.Transport
	scheme     string
	host       string
	maxRequest int
	withBody   http.Header // shared by all requests, never changed
	bodyless   http.Header
	attempts   sync.Pool // of *attempt
	answers    sync.Pool // of *bytes.Buffer

	mu     sync.Mutex
	closed bool
	conns  map[*conn]struct{} // at most MaxStreams
}

// Dial returns the Dial of the transport of this name.
func Dial(name string) func(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
	return func(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
		c, err := dial(ctx, config)
		if err != nil {
			return nil, fmt.Errorf("%s: dial %s: %w", name, config.Address, err)
		}
		return c, nil
	}
}

func dial(ctx context.Context, config transports.DialConfig) (*client, error) {
	c, err := newClient(config)
	if err != nil {
		return nil, err
	}
	// The first request makes the connection and shows the key, so that a dead address and a bad key both fail here.
	ctx, cancel := context.WithTimeout(ctx, config.Limits.WithDefaults().HandshakeTimeout)
	defer cancel()
	probe := transports.Call{Operation: transports.ListInstruments, Request: &pb.ListInstrumentsRequest{}, Response: &pb.ListInstrumentsResponse{}}
	if err := c.Do(ctx, &probe); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func newClient(config transports.DialConfig) (*client, error) {
	limits := config.Limits.WithDefaults()
	c := &client{
		scheme: "http", host: config.Address, maxRequest: limits.MaxRequestBytes, conns: make(map[*conn]struct{}),
		attempts: sync.Pool{New: func() any { return newAttempt() }},
		answers:  sync.Pool{New: func() any { return new(bytes.Buffer) }},
	}
	encodings := restapi.Encodings()
	i := slices.IndexFunc(encodings, func(e *restapi.Encoding) bool { return config.Encoding == "" || e.Name == config.Encoding })
	if i < 0 {
		return nil, fmt.Errorf("no encoding %q: allowed are %s", config.Encoding, strings.Join(restapi.EncodingNames(), ", "))
	}
	c.encoding = encodings[i]
	if config.Flow != "" {
		return nil, fmt.Errorf("no flow %q: the transport offers no choice", config.Flow)
	}
	if config.Engine != "" {
		return nil, fmt.Errorf("no engine %q: the transport offers no choice", config.Engine)
	}
	c.bodyless = http.Header{"Accept": {c.encoding.ContentType}, "User-Agent": {"tailgate"}}
	if config.Key != "" {
		c.bodyless.Set("Authorization", bearer.Header(config.Key))
	}
	c.withBody = c.bodyless.Clone()
	c.withBody["Content-Type"] = c.bodyless["Accept"]
	c.transport = &http.Transport{
		// Proxy stays nil: no proxy that the environment could slip in.
		DialContext:            c.dialer(sockopt.Dialer(config.CongestionControl)),
		TLSHandshakeTimeout:    limits.HandshakeTimeout,
		DisableCompression:     true,
		MaxConnsPerHost:        limits.MaxStreams,
		MaxIdleConnsPerHost:    limits.MaxStreams,
		IdleConnTimeout:        limits.IdleTimeout * 9 / 10, // before a server with the same limits closes it under a request
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              new(http.Protocols),
	}
	c.transport.Protocols.SetHTTP1(true)
	if config.TLS != nil {
		c.scheme = "https"
		c.transport.TLSClientConfig = config.TLS.Clone()
		c.transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	return c, nil
}

// dialer keeps account of the connections, so that Close ends them all.
func (c *client) dialer(d *net.Dialer) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		inner, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		made := &conn{Conn: inner, plain: c.scheme == "http", base: time.Now()}
		made.onClose = func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.conns, made)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			return nil, errors.Join(net.ErrClosed, inner.Close())
		}
		c.conns[made] = struct{}{}
		return made, nil
	}
}

// Close implements transports.Client.
func (c *client) Close() error {
	c.mu.Lock()
	c.closed = true
	open := make([]*conn, 0, len(c.conns))
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

// Do implements transports.Client. CreditWait stays zero: HTTP/1.1 has no permission to wait for.
func (c *client) Do(ctx context.Context, call *transports.Call) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return outcome.Closed()
	}
	r := restapi.RouteOf(call.Operation)
	if r == nil || r.Stream {
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "operation %d (%v) is no call of this transport", uint16(call.Operation), call.Operation)
	}
	if err := ctx.Err(); err != nil {
		return outcome.NotSent(ctx, err)
	}
	try := c.attempts.Get().(*attempt)
	defer c.attempts.Put(try)
	try.conn = nil
	request, err := c.newRequest(httptrace.WithClientTrace(ctx, &try.trace), r, call.Request)
	if err != nil {
		return err
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		if try.conn == nil {
			return outcome.NotSent(ctx, err)
		}
		if try.conn.bar() {
			try.conn.Close() //nolint:errcheck // it may not carry anything any more
			return outcome.NotSent(ctx, err)
		}
		return outcome.Unanswered(ctx, err)
	}
	if try.conn != nil {
		call.FirstWrite = try.conn.first()
	}
	return c.readResponse(ctx, response, call)
}

// attempt finds out which connection carries a request.
type attempt struct {
	trace httptrace.ClientTrace
	conn  *conn
}

func newAttempt() *attempt {
	a := new(attempt)
	// Called by RoundTrip on the caller's goroutine, before anything is written; nothing else of the trace is used, so that
	// no other goroutine looks at it and it can serve the next call.
	a.trace.GotConn = func(info httptrace.GotConnInfo) {
		inner := info.Conn
		if t, ok := inner.(*tls.Conn); ok {
			inner = t.NetConn()
		}
		a.conn, _ = inner.(*conn)
		if a.conn != nil {
			a.conn.arm()
		}
	}
	return a
}

// newRequest makes the HTTP request. It always has a body without GetBody, or a method that net/http does not hold to be safe: so that net/http
// never writes it twice. (A bodyless DELETE goes again only if no byte of it was written.)
func (c *client) newRequest(ctx context.Context, r *restapi.Route, message proto.Message) (*http.Request, error) {
	path, escaped, query := r.Location(message)
	request := &http.Request{
		Method: r.Method, URL: &url.URL{Scheme: c.scheme, Host: c.host, Path: path, RawPath: escaped, RawQuery: query},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: c.host, Header: c.bodyless,
	}
	switch {
	case r.Body:
		size := proto.Size(message)
		if size > c.maxRequest {
			return nil, outcome.TooLarge(size, c.maxRequest)
		}
		buffer := buffers.Get().(*[]byte)
		encoded, err := c.encoding.AppendTo((*buffer)[:0], message)
		if err != nil {
			return nil, transports.Malformed("", "the request cannot be encoded: %v", err)
		}
		*buffer = encoded
		request.Body, request.ContentLength, request.Header = &body{buffer: buffer}, int64(len(encoded)), c.withBody
	case r.Method == http.MethodGet:
		request.Body = emptyBody{} // not http.NoBody, with which a GET would be repeated
	}
	return request.WithContext(ctx), nil
}

// readResponse decodes the answer, or says what is known without it.
func (c *client) readResponse(ctx context.Context, response *http.Response, call *transports.Call) error {
	buffer := c.answers.Get().(*bytes.Buffer)
	buffer.Reset()
	defer c.answers.Put(buffer)
	// To the end of the body, which gives the connection back before the next call asks for one.
	_, err := buffer.ReadFrom(io.LimitReader(response.Body, maxResponseBytes+1))
	response.Body.Close()
	if err != nil {
		return outcome.Unanswered(ctx, err)
	}
	contentType := response.Header.Get("Content-Type")
	switch {
	case buffer.Len() > maxResponseBytes:
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, nil, "the answer has more than %d bytes", maxResponseBytes)
	case response.StatusCode == http.StatusOK && contentType == c.encoding.ContentType:
		if err := c.encoding.ReadResponse(buffer.Bytes(), call.Response); err != nil {
			return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the answer is not a %s", call.Response.ProtoReflect().Descriptor().FullName())
		}
		return nil
	case contentType == restapi.ProblemType:
		var p restapi.Problem
		if err := json.Unmarshal(buffer.Bytes(), &p); err == nil && p.Reason != "" {
			return p.Fault()
		}
	}
	start := buffer.Bytes()[:min(buffer.Len(), 128)]
	return transports.InDoubt(pb.Reason_REASON_INTERNAL, nil, "no answer of a gateway: status %d, Content-Type %q, body %q", response.StatusCode, contentType, start)
}
