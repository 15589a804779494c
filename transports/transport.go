// Package transports is the whole contract between a gateway and the ways orders reach it.
//
// A transport moves messages of proto/orderentry/v1 between a peer and a [Gateway]. It knows sockets, frames, encodings,
// deadlines and back-pressure. It must never know what an order means, a book, a config file, or when the process ends.
// Each transport is a folder beside this file with its server and its client; transports/all lists them, and
// transports/transportstest holds all of them to one behaviour.
//
// # The way of a request
//
// Two moments are kept apart, because durability and replication come between them:
//
//	Handle           takes one request and leaves its answer (it never waits for a disk or a peer)
//	Commit(r, mark)  ends a batch of handled requests; r.Release(mark, nil) is called once, when everything handled
//	                 before is as durable as the journal's mode promises
//
// Answers, and anything that reveals their effect, leave the process only after Release. Release runs inside Commit where
// nothing has to be waited for, otherwise later on another goroutine; it must never block, since it may carry the answers
// of many peers. So a transport appends the encoded answer to a bounded out-buffer after Handle, and Release lets the
// bytes up to the mark go. A transport with a goroutine for each request uses [Do], which waits.
package transports

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"google.golang.org/protobuf/proto"
)

// Gateway is the order path as a transport sees it. Safe for concurrent use.
type Gateway interface {
	// Open admits a peer and returns its session, or a *Fault (UNAUTHENTICATED, PERMISSION_DENIED, DRAINING). It is cheap
	// enough to be called for every request of a transport without connections of its own.
	Open(ctx context.Context, peer Peer) (Session, error)
}

// Peer is who speaks, as far as the transport knows.
type Peer struct {
	Transport string               // name of the transport, e.g. "tcp"
	Remote    net.Addr             // where it speaks from; nil for the in-memory transport, which counts as loopback
	Key       string               // API key in clear, empty where none was sent; compared and dropped, never logged
	TLS       *tls.ConnectionState // nil without TLS
}

// Session is one admitted peer. Safe for concurrent use. Requests of one session take effect in the order of their Handle calls.
type Session interface {
	// Handle executes one exchange: it reads x.Request and fills x.Response, both owned by the caller, neither retained.
	// Response fields may alias the request's memory (the echoed tag, ids), so the answer must be encoded before the
	// request's buffer is reused. It fills everything but sent_ns, see [StampSent].
	//
	// A business refusal is an answer. What it returns as an error is always a *Fault, and then x.Response means nothing.
	// An answer that was left must be followed by Commit before it may leave; after a *Fault nothing needs to be committed.
	Handle(ctx context.Context, x *Exchange) error

	// Commit arranges for exactly one call of r.Release(mark, err), when everything that any session handled before this
	// call is committed. Releases for one r come in the order of its Commits.
	Commit(r Releaser, mark uint64)

	// Close ends the session. Exchanges under way are finished; it waits for nothing.
	Close()
}

// Exchange is one request with the place for its answer. Request and Response have the types that [Operation] names.
type Exchange struct {
	Operation  Operation
	ReceivedNs int64 // when the transport had the whole request, by [Now]
	Request    proto.Message
	Response   proto.Message
}

// Releaser lets answers go. Release must not block and must not call back into the session.
type Releaser interface {
	// Release says that the answers up to mark (the caller's own count) may leave. With an error the journal could not keep
	// its promise: those answers must never leave, and their outcome is UNKNOWN.
	Release(mark uint64, err error)
}

// Transport is one way for orders to arrive.
type Transport struct {
	Name      string   // as in --transport, e.g. "tcp"
	Port      int      // where the gateway listens unless told otherwise
	Encodings []string // "protobuf", "json"; the first is the default
	Flows     []string // flow-control modes, the first is the default; nil where the transport offers no choice
	Engines   []string // I/O engines, the first is the default; nil where the transport offers no choice

	// PerClient says whether each load-test client has a connection of its own unless told otherwise (true), or all share
	// one (false), as the protocol is used in the field.
	PerClient bool

	// Listen starts a server. The context bounds the start only; the server runs until Shutdown.
	Listen func(ctx context.Context, gateway Gateway, config ListenConfig) (Server, error)
	// Dial opens one connection. The context bounds the dialing and the handshake only.
	Dial func(ctx context.Context, config DialConfig) (Client, error)
}

// Server is a running listener.
type Server interface {
	// Addr is where it listens.
	Addr() net.Addr
	// Shutdown takes nothing new, answers what was accepted, and closes. When the context ends first, it closes what is
	// left at once and returns the context's error. Safe to call more than once.
	Shutdown(ctx context.Context) error
}

// Client is one connection of a peer. Safe for concurrent use; concurrent calls share the connection as the protocol allows.
type Client interface {
	// Do sends call.Request and fills call.Response. The error is a *Fault where the answer, or the lack of one, says what
	// became of the request; the outcome is UNKNOWN for everything that was sent and not answered.
	Do(ctx context.Context, call *Call) error
	// Close ends the connection; calls under way end with outcome UNKNOWN.
	Close() error
}

// Call is one request of a client. The caller owns it and its messages again when Do has returned.
type Call struct {
	Operation Operation
	Request   proto.Message
	Response  proto.Message // reset by Do

	// CreditWait is the time Do waited for the receiver's permission to send; 0 where the transport knows no such thing.
	CreditWait time.Duration
	// FirstWrite is when the first byte was handed to the kernel; zero where the transport does not show it.
	FirstWrite time.Time
}

// ListenConfig is what every server takes. A zero Limits field means the default beside it.
type ListenConfig struct {
	Address           string      // host:port, or host:0 for a free port
	TLS               *tls.Config // nil = plain text; a transport sets NextProtos itself on a copy
	CongestionControl string      // TCP_CONGESTION of accepted sockets, e.g. "cubic"; empty = the system's
	Limits            Limits
	Logger            *slog.Logger // nil = discard
}

// DialConfig is what every client takes.
type DialConfig struct {
	Address           string
	TLS               *tls.Config // nil = plain text
	Key               string      // API key; empty = none
	CongestionControl string      // TCP_CONGESTION of the socket; empty = the system's
	Encoding          string      // one of Transport.Encodings; empty = the first
	Flow              string      // one of Transport.Flows; empty = the first
	Engine            string      // one of Transport.Engines; empty = the first
	Limits            Limits
}

// Limits bound what a peer can cost before any byte of it is trusted.
type Limits struct {
	MaxConnections   int           // open connections of a listener; 0 = DefaultMaxConnections
	MaxRequestBytes  int           // encoded request in protobuf; 0 = DefaultMaxRequestBytes
	HandshakeTimeout time.Duration // from accept to the end of handshakes, and for the headers of a request; 0 = DefaultHandshakeTimeout
	RequestTimeout   time.Duration // from the first byte of a request to its last; 0 = DefaultRequestTimeout
	IdleTimeout      time.Duration // without any request; 0 = DefaultIdleTimeout
	WriteTimeout     time.Duration // for a peer that takes no byte of its answers; 0 = DefaultWriteTimeout
	MaxStreams       int           // requests in flight on one connection; 0 = DefaultMaxStreams
}

// Defaults of Limits.
const (
	DefaultMaxConnections   = 4096
	DefaultMaxRequestBytes  = 1 << 20 // a client tag is up to 1 MiB less the rest of its message
	DefaultHandshakeTimeout = 5 * time.Second
	DefaultRequestTimeout   = 10 * time.Second
	DefaultIdleTimeout      = 10 * time.Minute
	DefaultWriteTimeout     = time.Second
	DefaultMaxStreams       = 1024
)

// ResponseOverhead is by how much an answer may pass the size of its request: an acknowledgement echoes the tag and adds its own
// fields, at most this many bytes (ids, quantities, stamps and a text).
const ResponseOverhead = 1024

// WithDefaults returns the limits with every zero field replaced by its default.
func (l Limits) WithDefaults() Limits {
	setDefault(&l.MaxConnections, DefaultMaxConnections)
	setDefault(&l.MaxRequestBytes, DefaultMaxRequestBytes)
	setDefault(&l.HandshakeTimeout, DefaultHandshakeTimeout)
	setDefault(&l.RequestTimeout, DefaultRequestTimeout)
	setDefault(&l.IdleTimeout, DefaultIdleTimeout)
	setDefault(&l.WriteTimeout, DefaultWriteTimeout)
	setDefault(&l.MaxStreams, DefaultMaxStreams)
	return l
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
