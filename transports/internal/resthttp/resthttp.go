// Package resthttp binds restapi to net/http: what a request says as net/http has it, and the reply written to a http.ResponseWriter. The
// transports whose framework stands on net/http share it, with the life of their server (httpserver).
//
// It must never know an operation.
package resthttp

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"tailgate/transports"
	"tailgate/transports/internal/httpserver"
	"tailgate/transports/internal/restapi"
	"tailgate/transports/internal/sockopt"
)

// Binding is an API as a http.Handler. net/http calls it on the goroutine of the connection; the context of a request ends when the peer closes
// the connection.
type Binding struct{ api *restapi.API }

// New returns the API as a handler.
func New(api *restapi.API) *Binding { return &Binding{api} }

// ServeHTTP implements http.Handler: the path decides which operation it is.
func (b *Binding) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.Serve(nil, w, r) }

// Serve answers a request for which the framework found the route; nil is as in [restapi.API.Serve].
func (b *Binding) Serve(route *restapi.Route, w http.ResponseWriter, r *http.Request) {
	request := restapi.Request{
		Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		ContentType: first(r.Header["Content-Type"]), ContentEncoding: first(r.Header["Content-Encoding"]),
		Authorization: r.Header["Authorization"], Accept: r.Header["Accept"], LastEventID: r.Header["Last-Event-Id"],
		ContentLength: r.ContentLength, Body: r.Body,
	}
	request.Peer.TLS = r.TLS
	if conn := httpserver.Conn(r.Context()); conn != nil {
		request.Peer.Remote, request.Surplus = conn.Remote(), conn.Surplus()
		if !request.Surplus {
			conn.Use() // before the API looks whether it was stopped
		}
	}
	var reply restapi.Reply
	b.api.Serve(r.Context(), route, &request, &reply)
	defer reply.Release()
	header := w.Header()
	header["Content-Type"] = reply.ContentType
	if reply.NoStore {
		header["Cache-Control"] = noStore
	}
	if reply.Close {
		header["Connection"] = closing
	}
	setText(header, "Allow", reply.Allow)
	setText(header, "Www-Authenticate", reply.Authenticate)
	setText(header, "Retry-After", reply.RetryAfter)
	if reply.Stream != nil {
		stream(reply.Stream, w)
		return
	}
	if reply.Body != nil {
		header["Content-Length"] = []string{strconv.Itoa(len(reply.Body))}
	}
	if reply.Status != http.StatusOK {
		w.WriteHeader(reply.Status)
	}
	if reply.Body != nil {
		w.Write(reply.Body) //nolint:errcheck // a peer that left asks again with the same id
	}
}

// first is http.Header.Get of a name that is canonical as it stands, which Get would make sure of for each request.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// Values of headers that are the same for all. Never changed.
var (
	noStore = []string{"no-store"}
	closing = []string{"close"}
)

func setText(header http.Header, name, text string) {
	if text != "" {
		header[name] = []string{text}
	}
}

// sink is a ResponseWriter that can be flushed.
type sink struct {
	http.ResponseWriter
	controller *http.ResponseController
}

// Flush implements restapi.Sink.
func (s sink) Flush() error { return s.controller.Flush() }

func stream(s *restapi.Stream, w http.ResponseWriter) {
	// The controller of net/http's own writer: the Flush of a framework's around it may keep its error to itself, as Echo's does.
	inner := w
	for {
		around, ok := inner.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		inner = around.Unwrap()
	}
	out := http.NewResponseController(inner)
	out.SetReadDeadline(time.Time{}) //nolint:errcheck // a stream outlives the deadline of its request; what fails here ends it at once, as broken
	if !s.Run(sink{w, out}) {
		panic(http.ErrAbortHandler)
	}
}

// Listen returns the Listen of the transport of this name. handler makes of the binding what the framework serves.
//
// Memory is bounded by MaxConnections x (largest body + largest answer): buffers grow with the bytes that came, never with the
// length that a header claims. A stream of events has its connection to itself.
func Listen(transport string, handler func(*Binding) http.Handler) func(context.Context, transports.Gateway, transports.ListenConfig) (transports.Server, error) {
	return func(ctx context.Context, gateway transports.Gateway, config transports.ListenConfig) (transports.Server, error) {
		inner, err := sockopt.Listen(ctx, config.Address, config.CongestionControl)
		if err != nil {
			return nil, fmt.Errorf("%s: listen at %s: %w", transport, config.Address, err)
		}
		return Serve(transport, inner, gateway, config, handler), nil
	}
}

// Serve starts a server that accepts from inner, which belongs to it from then on.
func Serve(transport string, inner net.Listener, gateway transports.Gateway, config transports.ListenConfig, handler func(*Binding) http.Handler) *httpserver.Server {
	limits := config.Limits.WithDefaults()
	api := restapi.New(transport, gateway, limits, config.Logger)
	return httpserver.Serve(inner, handler(New(api)), httpserver.Config{Limits: limits, TLS: config.TLS, Logger: api.Logger(), Stop: api.Stop})
}
