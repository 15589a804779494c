// Package restapi is order entry as REST, whatever serves HTTP: the table of methods and paths, the parameters in a URL, messages as JSON or
// protobuf, problem documents, Server-Sent Events, and the OpenAPI document that says all this.
//
// A transport binds it to a server framework: it fills a [Request], calls [API.Serve], and writes the [Reply]. What must be the same for
// every framework is decided here, so that a binding has nothing to decide. The package knows HTTP's meaning and the shape of messages. It must never
// know a socket, a framework, or what an order means.
package restapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/bearer"
	"tailgate/transports/internal/outcome"
)

// API answers requests over one gateway. Safe for concurrent use.
type API struct {
	transport string // its name
	gateway   transports.Gateway
	limits    transports.Limits
	logger    *slog.Logger
	draining  atomic.Bool
	drain     chan struct{}                       // closed with draining: the streams of events end
	streams   atomic.Int64                        // of events, open now; see mostStreams
	pools     map[transports.Operation]*sync.Pool // of *work; the map never changes
}

// Request is one request as it came. Its texts are read until Serve returns, but for Query and Authorization, which the gateway may
// keep: a framework that uses its buffers again hands over copies of these two.
type Request struct {
	Method          string
	Path            string // escaped still
	Query           string // what is behind the first '?', escaped still
	ContentType     string
	ContentEncoding string
	Authorization   []string // one element for each header of the name
	Accept          []string
	LastEventID     []string
	ContentLength   int64           // -1 = not said, the body comes in chunks
	Body            io.Reader       // fails with os.ErrDeadlineExceeded where the time is over; nil only with a ContentLength of 0
	Peer            transports.Peer // Transport and Key are filled in by Serve
	Surplus         bool            // of a connection that was let in only to be refused, see guard.Conn
}

// Reply is the answer. The caller writes it, and then calls Release.
type Reply struct {
	Status       int
	ContentType  []string // one header value, never changed
	NoStore      bool     // Cache-Control: no-store
	Close        bool     // Connection: close, and so it is to be closed
	Allow        string   // the headers of these names, where not empty
	Authenticate string   // WWW-Authenticate
	RetryAfter   string
	Body         []byte  // nil where only the headers of a stream were asked for
	Stream       *Stream // in place of a body: to be run

	job  *work
	pool *sync.Pool
}

// Pooled reports whether Body is a buffer that serves the next reply after Release, so that it may be exchanged for another. Otherwise it
// belongs to nobody and is never changed.
func (r *Reply) Pooled() bool { return r.job != nil }

// Release gives back what the reply stands in. Body may have been exchanged for another buffer, which then serves the next reply.
func (r *Reply) Release() {
	if r.job == nil {
		return
	}
	r.job.answer = r.Body
	r.job.recycle(r.pool)
	r.job = nil
}

// work is what one request needs and the next can use again. Its exchange may alias body, so that the answer is encoded before
// the work goes back to its pool; after a panic it does not go back.
type work struct {
	body, answer []byte
	x            transports.Exchange
}

// recycle gives the work back. The buffers stay with it: they are bounded by what one request and one answer may have.
func (j *work) recycle(pool *sync.Pool) {
	proto.Reset(j.x.Request)
	proto.Reset(j.x.Response)
	pool.Put(j)
}

// New returns the API of a gateway. The limits have their defaults filled in; logger may be nil, which discards.
func New(transport string, gateway transports.Gateway, limits transports.Limits, logger *slog.Logger) *API {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	a := &API{
		transport: transport, gateway: gateway, limits: limits, logger: logger.With("transport", transport), drain: make(chan struct{}),
		pools: make(map[transports.Operation]*sync.Pool),
	}
	for _, op := range transports.Operations() {
		a.pools[op] = &sync.Pool{New: func() any {
			return &work{answer: []byte{}, x: transports.Exchange{Operation: op, Request: op.NewRequest(), Response: op.NewResponse()}}
		}}
	}
	return a
}

// Logger names the transport in every line. For its server.
func (a *API) Logger() *slog.Logger { return a.logger }

// MostBody is how many bytes a body of this Content-Type may have; 0 where the type is not taken. For a server that has to know before it reads.
func (a *API) MostBody(contentType string) int64 {
	e := encodingOf(contentType)
	if e == nil {
		return 0
	}
	return int64(e.maxBytes(a.limits.MaxRequestBytes))
}

// Stop refuses new requests and ends the streams; every reply says Close from then on. It is called once.
func (a *API) Stop() {
	a.draining.Store(true)
	close(a.drain)
}

// Serve answers one request. route is what the framework's router found, nil where it has none: then the path decides, or the refusal
// says what is wrong. The context ends when the peer hangs up. It never panics.
func (a *API) Serve(ctx context.Context, route *Route, r *Request, reply *Reply) {
	*reply = Reply{}
	defer func() {
		if cause := recover(); cause != nil {
			a.logger.Error("a request panicked", "method", r.Method, "panic", cause, "stack", string(debug.Stack()))
			*reply = Reply{}
			reply.refuse(fmt.Errorf("panic: %v", cause))
		}
		if a.draining.Load() {
			reply.Close = true // the peer must not use the connection again, see the shutdowns of the servers
		}
	}()
	if err := a.serve(ctx, route, r, reply); err != nil {
		reply.refuse(err)
	}
}

func (a *API) serve(ctx context.Context, route *Route, r *Request, reply *Reply) (err error) {
	if r.Surplus {
		reply.Close = true
		return transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d connections are open already, as many as this listener takes", a.limits.MaxConnections)
	}
	if a.draining.Load() {
		return transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later")
	}
	if route == nil && r.Path == OpenAPIPath {
		return serveOpenAPI(r, reply)
	}
	if route == nil {
		if route, err = routes.find(r.Method, r.Path); err != nil {
			return err
		}
	}
	value, err := route.value(r.Path)
	if err != nil {
		return err
	}
	r.Peer.Transport = a.transport
	if r.Peer.Key, err = bearer.Key(r.Authorization); err != nil {
		return err
	}
	// Before the body is read: nobody buffers a body for a stranger.
	session, err := a.gateway.Open(ctx, r.Peer)
	if err != nil {
		return err
	}
	defer func() {
		if reply.Stream == nil { // which has the session otherwise
			session.Close()
		}
	}()
	if route.Stream {
		return a.stream(ctx, route, r, session, reply)
	}
	pool := a.pools[route.Operation]
	job := pool.Get().(*work)
	if err := a.exchange(ctx, route, value, r, session, job, reply); err != nil {
		job.recycle(pool)
		return err
	}
	reply.job, reply.pool = job, pool
	return nil
}

// exchange reads the request, has it executed, and makes the answer.
func (a *API) exchange(ctx context.Context, route *Route, value string, r *Request, session transports.Session, job *work, reply *Reply) error {
	x := &job.x
	answerIn := jsonText
	if route.Body {
		e, err := a.readRequest(r, job)
		if err != nil {
			return err
		}
		answerIn = e
	} else if err := refuseBody(r, route); err != nil {
		return err
	}
	if !route.Body {
		x.ReceivedNs = transports.Now()
	}
	if err := route.readQuery(r.Query, x.Request); err != nil {
		return err
	}
	if err := route.readPath(value, x.Request); err != nil {
		return err
	}
	if answerIn = negotiate(r.Accept, answerIn); answerIn == nil {
		return refuse(http.StatusNotAcceptable, "answers are %s or %s, and Accept takes neither", jsonType, protobufType)
	}
	if err := transports.Do(ctx, session, x); err != nil {
		return err
	}
	answer, err := answerIn.AppendTo(job.answer[:0], x.Response)
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err) // it was executed: INTERNAL, UNKNOWN
	}
	if answer == nil { // of an empty message: a body without a byte is a body
		answer = []byte{}
	}
	job.answer = answer
	reply.Status, reply.ContentType, reply.Body = http.StatusOK, answerIn.header, answer
	reply.NoStore = r.Method == http.MethodGet // keeps answers about orders out of every cache
	return nil
}

// readRequest reads and decodes a body, and returns its encoding.
func (a *API) readRequest(r *Request, job *work) (*Encoding, error) {
	e := encodingOf(r.ContentType)
	if e == nil {
		return nil, refuse(http.StatusUnsupportedMediaType, "the Content-Type %q is not one of %s, %s", r.ContentType, jsonType, protobufType)
	}
	if coding := r.ContentEncoding; coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, refuse(http.StatusUnsupportedMediaType, "the Content-Encoding %q is not taken; send the body as it is", coding)
	}
	var err error
	if job.body, err = readBody(job.body[:0], r, e.maxBytes(a.limits.MaxRequestBytes)); err != nil {
		return nil, err
	}
	job.x.ReceivedNs = transports.Now()
	if err := e.readRequest(job.body, job.x.Request); err != nil {
		return nil, err
	}
	if e != protobuf { // the limit is on the message, whatever its form; in protobuf it was on the bytes
		if size := proto.Size(job.x.Request); size > a.limits.MaxRequestBytes {
			return nil, outcome.TooLarge(size, a.limits.MaxRequestBytes)
		}
	}
	return e, nil
}

// firstRead is how much of a body is made room for before any of it came.
const firstRead = 64 << 10

// readBody appends the whole body to b, at most limit bytes.
func readBody(b []byte, r *Request, limit int) ([]byte, error) {
	length := r.ContentLength
	if length > int64(limit) {
		return b, outcome.TooLarge(int(length), limit)
	}
	if length >= 0 {
		b = slices.Grow(b, int(min(length, firstRead)))
	}
	for length < 0 || int64(len(b)) < length {
		if len(b) == cap(b) {
			b = slices.Grow(b, max(512, len(b)))
		}
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if len(b) > limit {
			return b, transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the request has more than %d bytes, at most %d are taken", limit, limit)
		}
		switch {
		case err == nil:
		case err == io.EOF && (length < 0 || int64(len(b)) == length):
			return b, nil
		default:
			return b, bodyError(err, len(b))
		}
	}
	return b, nil
}

func bodyError(err error, got int) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &refusal{
			status: http.StatusRequestTimeout,
			fault:  transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "the body did not come in time: %d bytes of it did", got),
		}
	}
	return refuse(http.StatusBadRequest, "the body ended after %d bytes: %v", got, err)
}

// refuseBody refuses a body where none is taken. Ignoring it would turn {"symbol":"X"} of a careless mass cancel into a cancel of everything.
func refuseBody(r *Request, route *Route) error {
	if r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength < 0 {
		var one [1]byte
		if n, err := io.ReadFull(r.Body, one[:]); n == 0 {
			if err == io.EOF {
				return nil
			}
			return bodyError(err, 0)
		}
	}
	return refuse(http.StatusBadRequest, "%s %s takes no body; its parameters go into the query: %s", route.Method, route.Path, route.parameterNames())
}

// readPath sets the field that the path names. A body may repeat it, and must not say otherwise.
func (r *Route) readPath(value string, request proto.Message) error {
	if r.variable == nil {
		return nil
	}
	m := request.ProtoReflect()
	if given := m.Get(r.variable).String(); r.Body && m.Has(r.variable) && given != value {
		return transports.Malformed(string(r.variable.Name()), "the body says %q, the path %q", given, value)
	}
	return setField(m, r.variable, value)
}
