package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strings"

	"connectrpc.com/connect"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/bearer"
	"tailgate/transports/internal/contractjson"
	"tailgate/transports/internal/httpserver"
)

// call is one request on its way, found by its context.
type call struct {
	handler *handler
	request *http.Request
	body    body
	out     httpserver.Writer
	peer    transports.Peer
	session transports.Session // nil until the gate has let the request in
}

// callKey finds the *call in a request's context.
type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{handler: h, peer: transports.Peer{Transport: Name, TLS: r.TLS}}
	c.out = httpserver.NewWriter(w, r, h.limits.WriteTimeout, h.draining.Load)
	c.request = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	method, ok := h.methods[r.URL.Path]
	if !ok {
		conn := httpserver.Conn(r.Context())
		if conn != nil {
			conn.Use()
		}
		h.errors.Write(&c.out, r, errorOf(unknown(r.URL.Path))) //nolint:errcheck // a peer that left needs no answer
		return
	}
	c.body = body{ReadCloser: r.Body, call: c, limit: limitOf(r.Header.Get("Content-Type"), h.limits.MaxRequestBytes), announced: r.ContentLength}
	c.request.Body = &c.body
	defer c.end()
	method.ServeHTTP(&c.out, c.request)
}

// end is deferred, so that a panic that goes on to net/http leaves no session behind.
func (c *call) end() {
	c.out.Finish()
	if c.session != nil {
		c.session.Close()
	}
}

// unknown is the answer for a path that is no method of this transport.
func unknown(path string) *transports.Fault {
	if strings.HasSuffix(path, "/Trade") {
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "sessions are not offered here; they are on the transports grpc and tcp")
	}
	return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "no such method: %.128q; methods are POST /%s/SubmitOrder and so on", path, pb.OrderEntryService_ServiceDesc.ServiceName)
}

// gate admits a request by its headers: nobody buffers a body for a stranger. The context has the deadline that the caller gave.
func (h *handler) gate(ctx context.Context, _ connect.Spec, _ connect.Peer, header http.Header) (_ context.Context, err error) {
	defer h.recovered("admitting a peer", &err)
	c := callOf(ctx)
	if conn := httpserver.Conn(ctx); conn != nil {
		c.peer.Remote = conn.Remote()
		if conn.Surplus() {
			c.out.Last = true
			return nil, errorOf(transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d connections are open already, as many as this listener takes", h.limits.MaxConnections))
		}
		conn.Use() // before the look at draining, see httpserver.Server.Shutdown
	}
	if h.draining.Load() {
		return nil, errorOf(draining())
	}
	if c.peer.Key, err = bearer.Key(header["Authorization"]); err != nil {
		return nil, errorOf(err)
	}
	if c.session, err = h.gateway.Open(ctx, c.peer); err != nil {
		c.session = nil
		return nil, errorOf(err)
	}
	return nil, nil //nolint:nilnil // the context goes on as it is
}

func draining() *transports.Fault {
	return transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later")
}

// recovered makes the error of a call that panicked. It is deferred.
func (h *handler) recovered(what string, err *error) {
	if cause := recover(); cause != nil {
		h.logger.Error("a request panicked", "operation", what, "panic", cause, "stack", string(debug.Stack()))
		*err = errorOf(fmt.Errorf("panic: %v", cause))
	}
}

// unary returns the handler of one operation. net/http calls it on a goroutine of the request's own, with a context that carries the caller's
// deadline and ends with its stream, or its connection over HTTP/1.1.
func (h *handler) unary(op transports.Operation, options connect.HandlerOption) http.Handler {
	made := connect.WithRequestInitializer(func(_ connect.Spec, message any) error {
		message.(*incoming).message = op.NewRequest()
		return nil
	})
	return connect.NewUnaryHandler(path(op), func(ctx context.Context, request *connect.Request[incoming]) (_ *connect.Response[outgoing], err error) {
		defer h.recovered(op.String(), &err)
		in, c := request.Msg, callOf(ctx)
		if in.err != nil {
			c.broken(in.err)
			return nil, errorOf(in.err)
		}
		x := transports.Exchange{Operation: op, ReceivedNs: in.receivedNs, Request: in.message, Response: op.NewResponse()}
		if x.ReceivedNs == 0 {
			x.ReceivedNs = transports.Now()
		}
		if err := transports.Do(ctx, c.session, &x); err != nil {
			c.broken(err)
			return nil, errorOf(err)
		}
		return connect.NewResponse(&outgoing{message: x.Response}), nil
	}, options, made)
}

// broken closes the connection behind the answer where it is of no use any more: over HTTP/1.1, after a fault that is final.
func (c *call) broken(err error) {
	if fault := transports.AsFault(err); fault.Final && !c.out.Multiplexed() {
		c.out.Last = true
	}
}

// limitOf is how many bytes a body of a content type has at most, its envelope included.
func limitOf(contentType string, maxRequest int) int64 {
	limit := maxRequest
	if strings.Contains(contentType, "json") {
		limit = contractjson.MaxBytes(maxRequest)
	}
	return int64(limit) + envelopeBytes
}

// envelopeBytes stand before a message in gRPC, gRPC-Web and Connect's streams: flags and a length.
const envelopeBytes = 5

// body bounds a request's body and says in the contract's words why it ends early. The library hands an error of its own type on as it is.
type body struct {
	io.ReadCloser
	call      *call
	limit     int64
	announced int64 // -1 where no length was
	got       int64
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.announced > b.limit {
		return 0, b.tooLarge()
	}
	if room := b.limit - b.got + 1; int64(len(p)) > room {
		p = p[:room]
	}
	n, err := b.ReadCloser.Read(p)
	if b.got += int64(n); b.got > b.limit {
		return 0, b.tooLarge()
	}
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, errorOf(transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "the request did not come in time: %d bytes of it did", b.got))
	default:
		return n, errorOf(transports.Malformed("", "the request ended after %d bytes: %v", b.got, err))
	}
}

func (b *body) tooLarge() error {
	// Over HTTP/1.1 the rest of it would stand in the way of the next request.
	b.call.out.Last = b.call.out.Last || !b.call.out.Multiplexed()
	if b.announced > 0 {
		return errorOf(transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the request has %d bytes, at most %d are taken", b.announced, b.limit-envelopeBytes))
	}
	return errorOf(transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the request has more than %d bytes", b.limit-envelopeBytes))
}
