package twirp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/bearer"
	"tailgate/transports/internal/contractjson"
	"tailgate/transports/internal/httpserver"
	"tailgate/transports/internal/outcome"
)

// call is one request on its way through the generated server, found by its context.
type call struct {
	handler *handler
	session transports.Session
	x       transports.Exchange
	out     httpserver.Writer
}

// callKey finds the *call in a request's context.
type callKey struct{}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{handler: h, out: httpserver.NewWriter(w, r, h.limits.WriteTimeout, h.draining.Load)}
	defer c.end()
	var err error
	defer func() {
		if err != nil {
			write(&c.out, err)
		}
	}()
	defer h.recovered("reading", &err)
	err = c.serve(r)
}

// end is deferred, so that a panic that goes on to net/http leaves no session behind.
func (c *call) end() {
	c.out.Finish()
	if c.session != nil {
		c.session.Close()
	}
}

// recovered makes the error of a request that panicked. It is deferred.
func (h *handler) recovered(what string, err *error) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler { //nolint:errorlint // a value of recover, as net/http compares it
		panic(cause)
	}
	h.logger.Error("a request panicked", "operation", what, "panic", cause, "stack", string(debug.Stack()))
	*err = transports.AsFault(fmt.Errorf("panic: %v", cause))
}

// serve has the request answered, or returns why it is not.
func (c *call) serve(r *http.Request) error {
	h := c.handler
	peer, err := c.admit(r)
	if err != nil {
		return err
	}
	op, known := h.methods[r.URL.Path]
	mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	text := strings.EqualFold(strings.TrimSpace(mediaType), "application/json")
	switch {
	case streams(r.URL.Path):
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "Twirp has no streams; sessions and streams of events are on the transports grpc and tcp")
	case !known, r.Method != http.MethodPost, !text && !strings.EqualFold(strings.TrimSpace(mediaType), "application/protobuf"):
		h.generated.ServeHTTP(&c.out, r) // which says what is wrong (bad_route), and reads nothing
		return nil
	}
	if peer.Key, err = bearer.Key(r.Header["Authorization"]); err != nil {
		return err
	}
	// Before the body is read: nobody buffers a body for a stranger.
	session, err := h.gateway.Open(r.Context(), peer)
	if err != nil {
		return err
	}
	c.session = session
	c.x = transports.Exchange{Operation: op, Request: op.NewRequest(), Response: op.NewResponse()}
	if err := c.read(r, text); err != nil {
		return err
	}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	r.Body = http.NoBody
	if text {
		r.Body = io.NopCloser(strings.NewReader("{}"))
	}
	h.generated.ServeHTTP(&c.out, r)
	return nil
}

// admit says who asks, or why nobody may.
func (c *call) admit(r *http.Request) (transports.Peer, error) {
	peer := transports.Peer{Transport: Name, TLS: r.TLS}
	if conn := httpserver.Conn(r.Context()); conn != nil {
		peer.Remote = conn.Remote()
		if conn.Surplus() {
			c.out.Last = true
			return peer, transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d connections are open already, as many as this listener takes", c.handler.limits.MaxConnections)
		}
		conn.Use() // before the look at draining, see httpserver.Server.Shutdown
	}
	if c.handler.draining.Load() {
		return peer, transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later")
	}
	return peer, nil
}

// streams reports whether the path is a method of the contract that Twirp cannot have.
func streams(path string) bool {
	method, ok := strings.CutPrefix(path, pb.OrderEntryServicePathPrefix)
	return ok && (method == "Trade" || method == transports.StreamExecutions.String())
}

// bodies are buffers for requests as they came.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// read fills the exchange's request, and bounds what is read for it.
func (c *call) read(r *http.Request, text bool) error {
	most := c.handler.limits.MaxRequestBytes
	limit := int64(most)
	if text {
		limit = int64(contractjson.MaxBytes(most))
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return transports.Malformed("", "the Content-Encoding %q is not taken; send the body as it is", coding)
	}
	tooLarge := func(fault *transports.Fault) error {
		c.out.Last = c.out.Last || !c.out.Multiplexed() // the rest of it would stand in the way of the next request
		return fault
	}
	if r.ContentLength > limit {
		return tooLarge(outcome.TooLarge(int(r.ContentLength), int(limit)))
	}
	buffer := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(buffer)
	buffer.Reset()
	switch n, err := buffer.ReadFrom(io.LimitReader(r.Body, limit+1)); {
	case n > limit:
		return tooLarge(transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the request has more than %d bytes, at most %d are taken", limit, limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "the body did not come in time: %d bytes of it did", n)
	case err != nil:
		return transports.Malformed("", "the body ended after %d bytes: %v", n, err)
	}
	c.x.ReceivedNs = transports.Now()
	m := c.x.Request
	if !text {
		if err := proto.Unmarshal(buffer.Bytes(), m); err != nil {
			return outcome.NotDecoded(m, err)
		}
		return nil
	}
	if err := contractjson.ReadRequest(buffer.Bytes(), m); err != nil {
		return err
	}
	if size := proto.Size(m); size > most { // the limit is on the message, whatever its form
		return outcome.TooLarge(size, most)
	}
	return nil
}

// answer has the request of the context executed that was decoded before.
func answer[R proto.Message](ctx context.Context) (response R, err error) {
	c := ctx.Value(callKey{}).(*call)
	defer func() { // Twirp would take any error for an internal one
		if err != nil {
			if fault := transports.AsFault(err); fault.Final && !c.out.Multiplexed() {
				c.out.Last = true
			}
			err = errorOf(err)
		}
	}()
	defer c.handler.recovered(c.x.Operation.String(), &err)
	if err := transports.Do(ctx, c.session, &c.x); err != nil {
		return response, err
	}
	return c.x.Response.(R), nil
}

// service implements pb.OrderEntryService. What the generated server has decoded is empty: see handler.
type service struct{}

func (service) SubmitOrder(ctx context.Context, _ *pb.SubmitOrderRequest) (*pb.SubmitOrderResponse, error) {
	return answer[*pb.SubmitOrderResponse](ctx)
}

func (service) ReplaceOrder(ctx context.Context, _ *pb.ReplaceOrderRequest) (*pb.ReplaceOrderResponse, error) {
	return answer[*pb.ReplaceOrderResponse](ctx)
}

func (service) CancelOrder(ctx context.Context, _ *pb.CancelOrderRequest) (*pb.CancelOrderResponse, error) {
	return answer[*pb.CancelOrderResponse](ctx)
}

func (service) MassCancel(ctx context.Context, _ *pb.MassCancelRequest) (*pb.MassCancelResponse, error) {
	return answer[*pb.MassCancelResponse](ctx)
}

func (service) CancelAllAfter(ctx context.Context, _ *pb.CancelAllAfterRequest) (*pb.CancelAllAfterResponse, error) {
	return answer[*pb.CancelAllAfterResponse](ctx)
}

func (service) GetOrder(ctx context.Context, _ *pb.GetOrderRequest) (*pb.GetOrderResponse, error) {
	return answer[*pb.GetOrderResponse](ctx)
}

func (service) ListOrders(ctx context.Context, _ *pb.ListOrdersRequest) (*pb.ListOrdersResponse, error) {
	return answer[*pb.ListOrdersResponse](ctx)
}

func (service) GetBook(ctx context.Context, _ *pb.GetBookRequest) (*pb.GetBookResponse, error) {
	return answer[*pb.GetBookResponse](ctx)
}

func (service) ListInstruments(ctx context.Context, _ *pb.ListInstrumentsRequest) (*pb.ListInstrumentsResponse, error) {
	return answer[*pb.ListInstrumentsResponse](ctx)
}
