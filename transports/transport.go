package transports

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
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
	// The context ends with the request's deadline where the transport has one, and is good until Handle returns.
	//
	// A business refusal is an answer. What it returns as an error is always a *Fault, and then x.Response means nothing.
	// An answer that was left must be followed by Commit before it may leave; after a *Fault nothing needs to be committed.
	Handle(ctx context.Context, x *Exchange) error

	// Commit arranges for exactly one call of r.Release(mark, err), when everything that any session handled before this
	// call is committed. Releases for one r come in the order of its Commits.
	Commit(r Releaser, mark uint64)

	// Subscribe opens the stream of an account's numbered events from the place that the request names; an empty account means the
	// key's own. The error is a *Fault (PERMISSION_DENIED, MALFORMED for a place that the stream does not have, OVERLOADED, THROTTLED).
	// After a Logon, a transport subscribes with no account and the epoch and next_sequence of the LogonAck: for this the Logon has
	// reserved what it takes, so that only a session that has ended meanwhile is refused. That fault says UNKNOWN to the peer, and ends the
	// session, since the Logon took effect.
	Subscribe(ctx context.Context, request *pb.StreamExecutionsRequest) (Events, error)

	// Close ends the session: a named one (Logon) has lost its connection, unless Logout came before. Exchanges under way are
	// finished. It may wait for an exchange's work in memory, but not for a disk or a peer.
	Close()
}

// Events is a reader of one account's events. One goroutine at a time calls Next. Each reader reads for itself, so that a slow one
// delays nobody; a transport cuts a peer that takes nothing for Limits.WriteTimeout.
type Events interface {
	// Place is the number of the first event that Next gives.
	Place() (epoch uint32, sequence uint64)
	// Next waits for events and returns at least one and at most MaxEvents of them, valid until the next call. They are committed
	// and may leave. The error is a *Fault, or the context's error: SESSION_REPLACED when another connection logged on under
	// the session's id, THROTTLED when the session was ended, DRAINING when the gateway stops. After the context's error, and only
	// then, the reader is as it was before the call: nothing is lost, and Next may be called again.
	Next(ctx context.Context) ([]Event, error)
	// Close ends the reader, also beside a call of Next; it waits for no disk and no peer.
	Close()
}

// Event is one numbered event. Each reader encodes it for itself, to the same bytes.
type Event struct {
	Epoch    uint32
	Sequence uint64
	Report   []byte // an orderentry.v1.ExecutionReport
}

// NoEvents is embedded by sessions of gateways that have no events: it refuses every Subscribe as UNIMPLEMENTED.
type NoEvents struct{}

// Subscribe is half of Session.
func (NoEvents) Subscribe(context.Context, *pb.StreamExecutionsRequest) (Events, error) {
	return nil, Refuse(pb.Reason_REASON_UNIMPLEMENTED, "StreamExecutions is not offered by this gateway")
}

// MaxEvents bounds what one call of Next returns, and MaxEventBytes the encoded report of one event.
const (
	MaxEvents     = 256
	MaxEventBytes = 512
)

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
	Protocols []string // protocols that clients can choose from, e.g. "grpc"; servers speak all of them; the first is the default; nil = no choice
	Flows     []string // flow-control modes, the first is the default; nil where the transport offers no choice
	Engines   []string // I/O engines, the first is the default; nil where the transport offers no choice

	// PerClient says whether each load-test client has a connection of its own unless told otherwise (true), or all share
	// one (false), as the protocol is used in the field.
	PerClient bool

	// Listen starts a server. The context bounds the start only; the server runs until Shutdown.
	Listen func(ctx context.Context, gateway Gateway, config ListenConfig) (Server, error)
	// Dial opens one connection. The context bounds the dialing and the handshake only.
	Dial func(ctx context.Context, config DialConfig) (Client, error)

	// Trade opens a session on a connection of its own; nil where the transport has no sessions. The context bounds the dialing and the
	// logon only. receive gets every event from the LogonAck's place on, in order, from one goroutine of the client, and owns it;
	// while it blocks, the connection's answers may wait.
	Trade func(ctx context.Context, config DialConfig, logon *pb.Logon, receive func(*pb.ExecutionReport)) (Trader, error)
	// Executions reads an account's events on a connection of its own until the context ends or the stream does, and returns why; nil where
	// the transport has no streams. receive is as in Trade.
	Executions func(ctx context.Context, config DialConfig, request *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) error
}

// Trader is a client with a session. Do takes SubmitOrder, ReplaceOrder, CancelOrder and MassCancel; what else a transport takes there
// is its own matter. Close without Logout loses the connection, as the disconnect mode of the logon is about.
type Trader interface {
	Client
	// Ack is the gateway's answer to the logon.
	Ack() *pb.LogonAck
	// Logout ends the session in an orderly way, and the connection.
	Logout(ctx context.Context, text string) error
	// Done is closed when the session has ended, for whatever reason, and no event will come any more.
	Done() <-chan struct{}
	// Err is why the session ended, nil before Done and after Logout or Close. Where the gateway ended it, it is a *Fault, and a Do that comes
	// later gets one of the same reason, NOT_PROCESSED.
	Err() error
}

// EngineSpin is what an engine is called that polls and never sleeps. It takes a core for itself, and whoever runs one lets the runtime have a second
// thread (GOMAXPROCS of 2 at least): with one alone, all else would wait for the scheduler's time slice.
const EngineSpin = "spin"

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

// AsyncClient is a client that needs no goroutine for each request under way. The transports that have one return it from Dial.
type AsyncClient interface {
	Client
	// Go sends call, or queues it in order until the receiver permits it, and returns at once. done is called exactly once, with what Do would have
	// returned, from whichever goroutine reads the connection, or from Go itself where the request is refused at once; it must not block and may
	// call Go. The caller gets call and its messages back with it. Canceling the context ends the wait as in Do.
	Go(ctx context.Context, call *Call, done func(error))
	// TryDo is Do for who will not wait for permission: without it the fault is NO_CREDIT, NOT_PROCESSED, at once.
	TryDo(ctx context.Context, call *Call) error
}

// Metered is a server, or a client, that counts what its flow control does.
type Metered interface {
	// Metrics returns the present values. Safe for concurrent use; it may be called often.
	Metrics() []Metric
}

// Metric is one figure of a transport's own. Names are snake case with the unit at the end, as Prometheus has them, without the product's prefix.
type Metric struct {
	Name    string // e.g. "credit_granted_units"
	Help    string // one sentence
	Counter bool   // grows only; otherwise it is a state
	Value   float64
}

// AccountSession is a session that can tell whose it is. A transport that gives turns gives them by account; a session without it is an account of its own.
type AccountSession interface {
	Session
	Account() string
}

// ListenConfig is what every server takes. A zero Limits field means the default beside it.
type ListenConfig struct {
	Address           string      // host:port, or host:0 for a free port
	TLS               *tls.Config // nil = plain text; a transport sets NextProtos itself on a copy
	CongestionControl string      // TCP_CONGESTION of accepted sockets, e.g. "cubic"; empty = the system's
	Engine            string      // one of Transport.Engines; empty = the first
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
	Protocol          string      // one of Transport.Protocols; empty = the first
	Flow              string      // one of Transport.Flows; empty = the first
	Engine            string      // one of Transport.Engines; empty = the first

	// Window bounds the requests in flight of all clients of the process that have the same Window, in the flow mode "semaphore"; 0 with any other.
	Window int
	// MaxWait is how long a request may be expected to wait for the receiver's permission before the client refuses it at once (OVERLOADED,
	// NOT_PROCESSED, with a time to wait); 0 = it waits for as long as its context does.
	MaxWait time.Duration

	Limits Limits
}

// Limits bound what a peer can cost before any byte of it is trusted.
type Limits struct {
	MaxConnections   int           // open connections of a listener, over HTTP/1.1 at most half of them streams of events; 0 = DefaultMaxConnections
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
