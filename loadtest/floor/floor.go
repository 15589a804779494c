// Package floor is a bare echo over TCP: the least that a request can cost through this machine's kernel, this runtime's network poller and
// this load tester.
//
// A frame is a length of four bytes and that many bytes, and it comes back as it went. Nothing is encoded, decoded, checked or kept, so a
// transport's latency as a multiple of the floor's says what the transport and the order path add. It must never grow a feature.
package floor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Name is the floor's name among transports.
const Name = "floor"

// maxFrame bounds a frame: the greatest order and its length.
const maxFrame = 4 + 1<<20

// Transport returns the floor in the clothes of a transport, so that the same harness drives it. It can only be dialed; Serve is its
// server. Its answers carry the id and the tag of the request and nothing else.
func Transport() transports.Transport {
	return transports.Transport{
		Name: Name, PerClient: true, Dial: dial,
		Listen: func(context.Context, transports.Gateway, transports.ListenConfig) (transports.Server, error) {
			return nil, errors.New("floor: a bare echo serves no gateway")
		},
	}
}

// Spinning returns the floor whose reads never sleep, for one client on a core of its own; SpinServe is its server.
func Spinning() transports.Transport {
	t := Transport()
	t.Dial = func(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
		c, err := dial(ctx, config)
		if c, ok := c.(*client); ok {
			c.conn = spin(c.conn)
		}
		return c, err
	}
	return t
}

// Server is a running echo.
type Server struct {
	listener net.Listener
	work     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// Listen opens a listener for an echo on a free loopback port. Its sockets use the named congestion control, so that the floor stands on the
// same terms as what is compared with it; empty = the system's.
func Listen(ctx context.Context, congestion string) (net.Listener, error) {
	config := net.ListenConfig{Control: control(congestion)}
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	return listener, nil
}

// Serve starts an echo on the listener, which it owns from then on.
func Serve(listener net.Listener) *Server {
	return serve(listener, func(conn net.Conn) net.Conn { return conn })
}

// SpinServe starts an echo whose reads never sleep: every connection takes a core.
func SpinServe(listener net.Listener) *Server { return serve(listener, spin) }

func serve(listener net.Listener, wrap func(net.Conn) net.Conn) *Server {
	s := &Server{listener: listener, conns: make(map[net.Conn]struct{})}
	s.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			conn = wrap(conn)
			if !s.keep(conn) {
				return
			}
			s.work.Go(func() { s.echo(conn) })
		}
	})
	return s
}

func (s *Server) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

// echo sends whole frames back, with one read and one write for a frame that arrives whole.
func (s *Server) echo(conn net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		_ = conn.Close()
	}()
	buffer := make([]byte, 4096)
	filled := 0
	for {
		n, err := conn.Read(buffer[filled:])
		if err != nil {
			return
		}
		filled += n
		if filled < 4 {
			continue
		}
		size := 4 + int(binary.LittleEndian.Uint32(buffer))
		if size > maxFrame {
			return
		}
		if size > len(buffer) {
			buffer = append(make([]byte, 0, size), buffer[:filled]...)[:size]
		}
		if filled < size {
			continue
		}
		if _, err := conn.Write(buffer[:size]); err != nil {
			return
		}
		filled = copy(buffer, buffer[size:filled])
	}
}

// Close ends the listener and all connections, and waits for them.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	err := s.listener.Close()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
	return err
}

// client is one connection; one request at a time.
type client struct {
	conn net.Conn
	mu   sync.Mutex
	out  []byte
	in   []byte
	n    uint64

	deadline time.Time // of the socket
}

func dial(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
	dialer := net.Dialer{Control: control(config.CongestionControl)}
	conn, err := dialer.DialContext(ctx, "tcp", config.Address)
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	return &client{conn: conn}, nil
}

// Close implements transports.Client.
func (c *client) Close() error { return c.conn.Close() }

// Do implements transports.Client: as many bytes as the request would have go out and must come back as they went.
func (c *client) Do(ctx context.Context, call *transports.Call) error {
	request, ok := call.Request.(*pb.SubmitOrderRequest)
	response, ok2 := call.Response.(*pb.SubmitOrderResponse)
	if !ok || !ok2 {
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "a bare echo takes new orders only, not %s", call.Operation)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	size := 4 + max(proto.Size(request), 8)
	if len(c.out) != size {
		c.out, c.in = make([]byte, size), make([]byte, size)
		binary.LittleEndian.PutUint32(c.out, uint32(size-4))
	}
	c.n++
	binary.LittleEndian.PutUint64(c.out[4:12], c.n) // so that an old frame is not taken for this one's echo
	if err := c.roundTrip(ctx); err != nil {
		reason := pb.Reason_REASON_CONNECTION_LOST
		if errors.Is(err, os.ErrDeadlineExceeded) {
			reason = pb.Reason_REASON_DEADLINE_EXCEEDED
		}
		_ = c.conn.Close() // half a frame may be under way
		return transports.InDoubt(reason, err, "the echo did not come back")
	}
	if !bytes.Equal(c.in, c.out) {
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, nil, "the echo is not what was sent")
	}
	proto.Reset(response)
	response.ClientOrderId, response.ClientTag = request.ClientOrderId, request.ClientTag
	return nil
}

// roundTrip bounds itself by the context's deadline alone, which it hands to the socket when it changes: a floor has no business with
// watching for a cancellation.
func (c *client) roundTrip(ctx context.Context) error {
	if deadline, _ := ctx.Deadline(); !deadline.Equal(c.deadline) {
		if err := c.conn.SetDeadline(deadline); err != nil {
			return err
		}
		c.deadline = deadline
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	_, err := io.ReadFull(c.conn, c.in)
	return err
}
