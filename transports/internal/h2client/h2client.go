// Package h2client is net/http as the clients of RPC transports use it: one connection of HTTP/2, with or without TLS, on which a request is sent
// once. What became of a request without an answer is told as far as net/http shows it. The package must never know what a request is about.
package h2client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"

	"tailgate/transports"
	"tailgate/transports/internal/bearer"
	"tailgate/transports/internal/httpserver"
	"tailgate/transports/internal/outcome"
	"tailgate/transports/internal/sockopt"
)

// MaxResponseBytes bounds an answer. The largest of the contract, a page of 1,000 orders or a book of 5,000 levels a side, stays below
// 1 MiB even in JSON; an acknowledgement is as large as its request.
const MaxResponseBytes = 16 << 20

// Client is one connection of HTTP/2. Where the server takes fewer requests at a time on a connection than this client's MaxStreams, net/http opens
// another: its own way of waiting for a place (StrictMaxConcurrentRequests) counts those who wait among those who are in, so that of many
// none gets in. Safe for concurrent use.
type Client struct {
	URL string // scheme, host and port, without a slash at the end

	transport     *http.Transport
	authorization []string      // nil without a key; never changed
	places        chan struct{} // holds one element for each call under way, at most MaxStreams

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{} // open ones
}

// New makes a client that connects with its first request. window bounds in bytes what a stream may be ahead of its reader; 0 = net/http's own.
func New(config transports.DialConfig, window int) *Client {
	limits := config.Limits.WithDefaults()
	c := &Client{URL: "http://" + config.Address, places: make(chan struct{}, limits.MaxStreams), conns: make(map[net.Conn]struct{})}
	if config.Key != "" {
		c.authorization = []string{bearer.Header(config.Key)}
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
	if config.TLS == nil {
		c.transport.Protocols.SetUnencryptedHTTP2(true)
		return c
	}
	c.URL = "https://" + config.Address
	c.transport.Protocols.SetHTTP2(true)
	c.transport.TLSClientConfig = config.TLS.Clone()
	c.transport.TLSClientConfig.NextProtos = []string{"h2"}
	return c
}

// dialer keeps account of the connections, so that Close ends them all.
func (c *Client) dialer(d *net.Dialer) func(context.Context, string, string) (net.Conn, error) {
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
	client *Client
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.client.mu.Lock()
	delete(c.client.conns, c)
	c.client.mu.Unlock()
	return c.Conn.Close()
}

// Close ends the connection; calls under way end in doubt, later ones are not sent. It never fails.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	open := make([]net.Conn, 0, len(c.conns))
	for one := range c.conns {
		open = append(open, one)
	}
	c.mu.Unlock()
	for _, one := range open { // not under the lock, which Close of a connection takes
		_ = one.Close() // ends the calls under way, in doubt
	}
	c.transport.CloseIdleConnections()
	return nil
}

// Call is one call under way, from [Client.Begin] to [Call.End]. Its context is for the request.
type Call struct {
	Context context.Context

	client *Client
	trace  httptrace.ClientTrace
	sent   bool
}

var calls = sync.Pool{New: func() any {
	c := new(Call)
	// Called by RoundTrip on the caller's goroutine, before anything is written; nothing else of the trace is used, so that no other goroutine
	// looks at it and it can serve the next call.
	c.trace.GotConn = func(httptrace.GotConnInfo) { c.sent = true }
	return c
}}

// Begin waits for a place among the calls under way. The error is a *Fault, NOT_PROCESSED.
func (c *Client) Begin(ctx context.Context) (*Call, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, outcome.Closed()
	}
	if err := ctx.Err(); err != nil {
		return nil, outcome.NotSent(ctx, err)
	}
	select {
	case c.places <- struct{}{}:
	case <-ctx.Done():
		return nil, outcome.NotSent(ctx, ctx.Err())
	}
	call := calls.Get().(*Call)
	call.client, call.sent, call.Context = c, false, httptrace.WithClientTrace(ctx, &call.trace)
	return call, nil
}

// End gives the place back. The call must not be used any more.
func (c *Call) End() {
	<-c.client.places
	c.client, c.Context = nil, nil
	calls.Put(c)
}

// Lost is the fault of a call that ended with err and without the answer of a gateway: NOT_PROCESSED only where it had no connection, or where the
// server said that it took nothing of it. ctx is the caller's.
func (c *Call) Lost(ctx context.Context, err error) *transports.Fault {
	if !c.sent || refused(err) {
		return outcome.NotSent(ctx, err)
	}
	return outcome.Unanswered(ctx, err)
}

// refused reports whether the stream is beyond the last one of a GOAWAY, or was reset with REFUSED_STREAM (RFC 9113, section 8.7). net/http has no type
// for either; a text that it words anew makes the request one in doubt.
func refused(err error) bool {
	text := err.Error()
	return strings.Contains(text, "cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY]") ||
		strings.Contains(text, "cannot retry err [stream error: ") && strings.Contains(text, "; REFUSED_STREAM; received from peer]")
}

// Do sends a request with the client's key, as HTTP libraries ask for it. Without GetBody, and with a body that net/http does not know to be
// empty, it sends again only what never had a stream.
func (c *Client) Do(request *http.Request) (*http.Response, error) {
	request.Header["User-Agent"] = userAgent
	if c.authorization != nil {
		request.Header["Authorization"] = c.authorization
	}
	request = request.WithContext(request.Context()) // a shallow copy: whoever made the request looks at it meanwhile
	request.GetBody = nil
	if request.Body == nil || request.Body == http.NoBody {
		request.Body = emptyBody{}
	}
	return c.transport.RoundTrip(request)
}

// userAgent is never changed.
var userAgent = []string{"tailgate"}

// emptyBody is a body with nothing in it.
type emptyBody struct{}

// Read implements io.Reader.
func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements io.Closer.
func (emptyBody) Close() error { return nil }
