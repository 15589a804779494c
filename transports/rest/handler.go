package rest

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/bearer"
	"tailgate/transports/internal/httpserver"
	"tailgate/transports/internal/outcome"
)

// handler implements http.Handler: one request to the gateway and its answer back. net/http calls it on the goroutine of the
// connection; the context ends when the peer closes the connection.
type handler struct {
	gateway  transports.Gateway
	limits   transports.Limits
	logger   *slog.Logger
	draining atomic.Bool
	drain    chan struct{}                       // closed with draining: the streams of events end
	streams  atomic.Int64                        // of events, open now; see mostStreams
	pools    map[transports.Operation]*sync.Pool // of *work; the map never changes
}

// work is what one request needs and the next can use again. Its exchange may alias body, so that the answer is encoded before
// the work goes back to its pool; after a panic it does not go back.
type work struct {
	body, answer []byte
	x            transports.Exchange
}

func newHandler(gateway transports.Gateway, limits transports.Limits, logger *slog.Logger) *handler {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{
		gateway: gateway, limits: limits, logger: logger.With("transport", Name), drain: make(chan struct{}),
		pools: make(map[transports.Operation]*sync.Pool),
	}
	for _, op := range transports.Operations() {
		h.pools[op] = &sync.Pool{New: func() any {
			return &work{x: transports.Exchange{Operation: op, Request: op.NewRequest(), Response: op.NewResponse()}}
		}}
	}
	return h
}

// stop refuses new requests and ends the streams. It is called once.
func (h *handler) stop() {
	h.draining.Store(true)
	close(h.drain)
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if cause := recover(); cause != nil {
			if cause == http.ErrAbortHandler { //nolint:errorlint // a value of recover, as net/http compares it
				panic(cause)
			}
			h.logger.Error("a request panicked", "method", r.Method, "panic", cause, "stack", string(debug.Stack()))
			// The answer is written in one piece, last of all; a panic comes before.
			writeProblem(w, fmt.Errorf("panic: %v", cause))
		}
	}()
	if err := h.serve(w, r); err != nil {
		if h.draining.Load() {
			w.Header()["Connection"] = closing
		}
		writeProblem(w, err)
	}
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	peer, err := h.admit(w, r)
	if err != nil {
		return err
	}
	if r.URL.Path == openAPIPath {
		return serveOpenAPI(w, r)
	}
	route, value, allowed := routes.match(r.Method, r.URL)
	switch {
	case route != nil:
	case allowed != nil:
		refusal := refuse(http.StatusMethodNotAllowed, "%s is not a method of %s", r.Method, r.URL.Path)
		refusal.allow = allowed
		return refusal
	default:
		return refuse(http.StatusNotFound, "no such path: %s; %s lists them all", r.URL.Path, openAPIPath)
	}
	if peer.Key, err = bearer.Key(r.Header["Authorization"]); err != nil {
		return err
	}
	// Before the body is read: nobody buffers a body for a stranger.
	session, err := h.gateway.Open(r.Context(), peer)
	if err != nil {
		return err
	}
	defer session.Close()
	if route.stream {
		return h.streamEvents(w, r, route, peer, session)
	}
	pool := h.pools[route.operation]
	job := pool.Get().(*work)
	if err := h.exchange(w, r, route, value, session, job); err != nil {
		job.recycle(pool)
		return err
	}
	job.recycle(pool)
	return nil
}

// recycle gives the work back. The buffers stay with it: they are bounded by what one request and one answer may have.
func (j *work) recycle(pool *sync.Pool) {
	proto.Reset(j.x.Request)
	proto.Reset(j.x.Response)
	pool.Put(j)
}

// admit says who asks, or why nobody may.
func (h *handler) admit(w http.ResponseWriter, r *http.Request) (transports.Peer, error) {
	peer := transports.Peer{Transport: Name, TLS: r.TLS}
	if conn := httpserver.Conn(r.Context()); conn != nil {
		peer.Remote = conn.Remote()
		if conn.Surplus() {
			w.Header().Set("Connection", "close")
			return peer, transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d connections are open already, as many as this listener takes", h.limits.MaxConnections)
		}
		conn.Use() // before the look at draining, see httpserver.Server.Shutdown
	}
	if h.draining.Load() {
		return peer, transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later")
	}
	return peer, nil
}

// exchange reads the request, has it executed, and writes the answer.
func (h *handler) exchange(w http.ResponseWriter, r *http.Request, route *route, value string, session transports.Session, job *work) error {
	x := &job.x
	answerIn := jsonText
	if route.body {
		e, err := h.readRequest(r, job)
		if err != nil {
			return err
		}
		answerIn = e
	} else if err := refuseBody(r, route); err != nil {
		return err
	}
	if !route.body {
		x.ReceivedNs = transports.Now()
	}
	if err := route.readQuery(r.URL.RawQuery, x.Request); err != nil {
		return err
	}
	if err := route.readPath(value, x.Request); err != nil {
		return err
	}
	if answerIn = negotiate(r.Header["Accept"], answerIn); answerIn == nil {
		return refuse(http.StatusNotAcceptable, "answers are %s or %s, and Accept takes neither", jsonType, protobufType)
	}
	if err := transports.Do(r.Context(), session, x); err != nil {
		return err
	}
	var err error
	if job.answer, err = answerIn.appendTo(job.answer[:0], x.Response); err != nil {
		return fmt.Errorf("encoding the answer: %w", err) // it was executed: INTERNAL, UNKNOWN
	}
	header := w.Header()
	header["Content-Type"] = answerIn.header
	header["Content-Length"] = []string{strconv.Itoa(len(job.answer))}
	if r.Method == http.MethodGet {
		header["Cache-Control"] = noStore
	}
	if h.draining.Load() {
		header["Connection"] = closing // the peer must not use it again, see httpserver.Server.Shutdown
	}
	w.Write(job.answer) //nolint:errcheck // a peer that left asks again with the same id
	return nil
}

// noStore keeps answers about orders out of every cache; closing ends a connection with its answer. Never changed.
var (
	noStore = []string{"no-store"}
	closing = []string{"close"}
)

// readRequest reads and decodes a body, and returns its encoding.
func (h *handler) readRequest(r *http.Request, job *work) (*encoding, error) {
	contentType := r.Header.Get("Content-Type")
	e := encodingOf(contentType)
	if e == nil {
		return nil, refuse(http.StatusUnsupportedMediaType, "the Content-Type %q is not one of %s, %s", contentType, jsonType, protobufType)
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, refuse(http.StatusUnsupportedMediaType, "the Content-Encoding %q is not taken; send the body as it is", coding)
	}
	var err error
	if job.body, err = readBody(job.body[:0], r, e.maxBytes(h.limits.MaxRequestBytes)); err != nil {
		return nil, err
	}
	job.x.ReceivedNs = transports.Now()
	if err := e.readRequest(job.body, job.x.Request); err != nil {
		return nil, err
	}
	if e != protobuf { // the limit is on the message, whatever its form; in protobuf it was on the bytes
		if size := proto.Size(job.x.Request); size > h.limits.MaxRequestBytes {
			return nil, outcome.TooLarge(size, h.limits.MaxRequestBytes)
		}
	}
	return e, nil
}

// firstRead is how much of a body is made room for before any of it came.
const firstRead = 64 << 10

// readBody appends the whole body to b, at most limit bytes.
func readBody(b []byte, r *http.Request, limit int) ([]byte, error) {
	length := r.ContentLength // -1 = unknown, in chunks
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
func refuseBody(r *http.Request, route *route) error {
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
	return refuse(http.StatusBadRequest, "%s %s takes no body; its parameters go into the query: %s", route.method, route.path, route.parameterNames())
}

// readPath sets the field that the path names. A body may repeat it, and must not say otherwise.
func (r *route) readPath(value string, request proto.Message) error {
	if r.variable == nil {
		return nil
	}
	m := request.ProtoReflect()
	if given := m.Get(r.variable).String(); r.body && m.Has(r.variable) && given != value {
		return transports.Malformed(string(r.variable.Name()), "the body says %q, the path %q", given, value)
	}
	return setField(m, r.variable, value)
}
