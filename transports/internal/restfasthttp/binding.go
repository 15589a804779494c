// Package restfasthttp binds restapi to fasthttp: what a request says as fasthttp has it, the reply in fasthttp's response, and the life of a
// server whose connections fasthttp reads. The transports whose framework stands on fasthttp share it.
//
// fasthttp uses its buffers again as soon as a handler has returned. What the gateway may keep is copied here; everything else is read before.
// The package must never know an operation.
package restfasthttp

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
	"unsafe"

	"github.com/valyala/fasthttp"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/restapi"
)

// Binding is an API as a fasthttp.RequestHandler.
type Binding struct{ api *restapi.API }

// Serve answers a request for which the framework found the route; with nil the path decides. The connection is one of this
// package's server.
func (b *Binding) Serve(route *restapi.Route, c *fasthttp.RequestCtx) {
	header := &c.Request.Header
	request := restapi.Request{
		Method: text(header.Method()), Path: text(c.URI().PathOriginal()), Query: string(c.URI().QueryString()),
		ContentType: text(header.ContentType()), ContentEncoding: text(header.ContentEncoding()),
		ContentLength: int64(max(-1, header.ContentLength())), Body: c.RequestBodyStream(),
	}
	if header.ContentLength() < -1 { // none was said, and so there is none
		request.ContentLength = 0
	}
	if request.Body == nil { // also where it is refused before it is read, see expect
		request.Body = http.NoBody
	}
	own := c.Conn().(*conn)
	at := &own.headerOf
	request.Authorization = values(header, "Authorization", &at.authorization)
	for i := range request.Authorization { // the gateway may keep it
		request.Authorization[i] = strings.Clone(request.Authorization[i])
	}
	request.LastEventID = values(header, "Last-Event-ID", &at.lastEventID)
	request.Accept = values(header, "Accept", &at.accept)
	request.Peer.Remote, request.Peer.TLS, request.Surplus = own.below.Remote(), own.tls, own.below.Surplus()
	if !request.Surplus {
		own.below.Use() // before the API looks whether it was stopped
	}
	var reply restapi.Reply
	b.api.Serve(own.request, route, &request, &reply)
	if reply.Stream != nil && !header.IsHTTP11() {
		reply.Stream.Close()
		restapi.Refuse(&reply, http.StatusHTTPVersionNotSupported, transports.Malformed("", "a stream of events is sent in chunks, which HTTP/1.0 does not have"))
	}
	own.linger = reply.Status != http.StatusOK && request.ContentLength != 0
	if reply.Stream != nil {
		own.write(&reply, &c.Response)
		c.Response.SetBodyStream(&stream{Stream: reply.Stream, conn: own}, -1)
		return
	}
	own.finish()
	own.write(&reply, &c.Response)
}

// tooLarge reports whether a request announces a body that is refused for its length or its type.
func (b *Binding) tooLarge(header *fasthttp.RequestHeader) bool {
	return int64(header.ContentLength()) > b.api.MostBody(text(header.ContentType()))
}

// expect implements fasthttp.Server.ExpectHandler: a request that waits for leave to send its body gets it, or its answer without.
func (b *Binding) expect(c *fasthttp.RequestCtx) int {
	if !b.tooLarge(&c.Request.Header) {
		return fasthttp.StatusContinue
	}
	b.Serve(nil, c)
	return c.Response.StatusCode()
}

// write puts the reply into the response and releases it.
func (c *conn) write(reply *restapi.Reply, to *fasthttp.Response) {
	c.date.put(time.Now(), &to.Header)
	to.SetStatusCode(reply.Status)
	to.Header.SetContentType(reply.ContentType[0])
	if reply.NoStore {
		to.Header.Set("Cache-Control", "no-store")
	}
	if reply.Close {
		to.SetConnectionClose()
	}
	setText(&to.Header, "Allow", reply.Allow)
	setText(&to.Header, "WWW-Authenticate", reply.Authenticate)
	setText(&to.Header, "Retry-After", reply.RetryAfter)
	if reply.Pooled() { // the response has our buffer now, and we have the one that it had
		reply.Body = to.SwapBody(reply.Body)
		reply.Release()
	} else {
		to.SetBodyRaw(reply.Body)
	}
}

func setText(header *fasthttp.ResponseHeader, name, text string) {
	if text != "" {
		header.Set(name, text)
	}
}

// text is b for as long as the handler runs. It must not be kept.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// values are those of the headers of a name, in the place where it is one. They must not be kept.
func values(header *fasthttp.RequestHeader, name string, one *[1]string) []string {
	all := header.PeekAll(name)
	if len(all) == 0 {
		return nil
	}
	list := one[:]
	if len(all) > 1 {
		list = make([]string, len(all))
	}
	for i, value := range all {
		list[i] = text(value)
	}
	return list
}

// unreadable answers what fasthttp could not read as a request; the connection is closed behind it. It has no connection of its own in fasthttp's
// hands, so that the answer is the same for everybody.
func (b *Binding) unreadable(c *fasthttp.RequestCtx, err error) {
	var reply restapi.Reply
	var small *fasthttp.ErrSmallBuffer
	var network net.Error
	switch {
	case errors.As(err, &small):
		restapi.Refuse(&reply, http.StatusRequestHeaderFieldsTooLarge, transports.Malformed("", "request line and headers have more than %d bytes", maxHeaderBytes))
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		restapi.Refuse(&reply, http.StatusRequestTimeout, transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "the request did not come in time"))
	default:
		restapi.Refuse(&reply, http.StatusBadRequest, transports.Malformed("", "no request of HTTP/1.1: %s", strings.ToValidUTF8(err.Error(), "?")))
	}
	own := c.Conn().(*conn)
	own.linger = true
	reply.Close = true
	own.write(&reply, &c.Response)
}

// stream is a response's body that writes itself: each write is a chunk on the wire when it returns.
type stream struct {
	*restapi.Stream
	conn *conn
	ran  bool
}

var errBroken = errors.New("a stream broke off")

// SupportsBodyWriteTo implements fasthttp.BodyWriterTo.
func (*stream) SupportsBodyWriteTo() bool { return true }

// Read implements io.Reader, and is never called: fasthttp takes WriteTo.
func (*stream) Read([]byte) (int, error) { return 0, errBroken }

// Close implements io.Closer. A stream that was never written, since its headers could not be, ends here.
func (s *stream) Close() error {
	if !s.ran {
		s.Stream.Close()
	}
	s.conn.finish()
	return nil
}

// WriteTo implements io.WriterTo: the whole stream, on the goroutine of the connection.
func (s *stream) WriteTo(w io.Writer) (int64, error) {
	s.ran = true
	out := &sink{Writer: w}
	if !s.Run(out) {
		return out.written, errBroken
	}
	return out.written, out.err
}

// sink is the chunked body of a response: what is written is flushed with it.
type sink struct {
	io.Writer
	written int64
	err     error
}

// Write implements io.Writer.
func (s *sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	s.written += int64(n)
	if err != nil {
		s.err = err
	}
	return n, err
}

// Flush implements restapi.Sink.
func (*sink) Flush() error { return nil }
