package transportstest

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// wire stands between clients and the server and can be cut, which no deployment is spared.
type wire struct {
	listener net.Listener
	server   string

	mu      sync.Mutex
	conns   []net.Conn
	answers int // bytes that may still go to clients
	closed  bool
	pumps   sync.WaitGroup
}

// wire puts a wire before the rig's server; clients that are dialed later go through it.
func (r *rig) wire() *wire {
	r.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	w := &wire{listener: listener, server: r.server.Addr().String(), answers: math.MaxInt}
	r.dialed.Address = listener.Addr().String()
	w.pumps.Go(w.accept)
	r.t.Cleanup(func() {
		_ = listener.Close()
		w.mu.Lock()
		w.closed = true
		w.mu.Unlock()
		w.cut()
		w.pumps.Wait()
	})
	return w
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, client, server)
		closed := w.closed
		w.mu.Unlock()
		if closed {
			w.cut()
			return
		}
		w.pumps.Go(func() { w.pump(server, client, false) })
		w.pumps.Go(func() { w.pump(client, server, true) })
	}
}

// pump copies one direction until an end closes or the allowance is used up.
func (w *wire) pump(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if answers {
			w.mu.Lock()
			over := n > w.answers
			n = min(n, w.answers)
			w.answers -= n
			w.mu.Unlock()
			if over {
				_, _ = to.Write(buffer[:n])
				return
			}
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut ends all connections; new ones go through.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

// allow lets so many bytes go to clients from now on, and then cuts.
func (w *wire) allow(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = n
}

// lostConnection: when the connection ends before the answer, the outcome is unknown, and nobody sends the request again in
// secret: without a request id a repetition would be executed again.
func lostConnection(t *testing.T, s *suite) {
	s.networked(t)
	var mu sync.Mutex
	arrivals := map[transports.Operation]int{}
	r := s.start(t, twoAccounts(), func(r *rig) {
		r.probe.intercept = func(_ context.Context, x *transports.Exchange, next func() error) error {
			mu.Lock()
			arrivals[x.Operation]++
			mu.Unlock()
			return next()
		}
	})
	wire := r.wire()
	r.direct(alphaKey).submit(r.limit("rests", buy, 9, 0))
	for _, request := range []proto.Message{
		r.limit("lost", buy, 1, 0), r.replace("", "rests", 8, 0), cancelOrder("", "rests"),
		&pb.GetOrderRequest{ClientOrderId: "rests"}, &pb.GetBookRequest{Symbol: r.symbol}, &pb.ListOrdersRequest{},
	} {
		op := operationOf(request)
		c := r.dial(alphaKey)
		c.submit(r.limit("used-"+op.String(), buy, 1, 0)) // a connection that has been used is what clients repeat on
		mu.Lock()
		before := arrivals[op]
		mu.Unlock()
		gate := r.probe.hold(alphaKey)
		call := c.begin(t.Context(), request)
		gate.await(t)
		wire.cut()
		_, fault := call.wait(t)
		wantFault(t, fault, pb.Reason_REASON_CONNECTION_LOST, unknown)
		mu.Lock()
		if n := arrivals[op] - before; n != 1 {
			t.Errorf("%v reached the gateway %d times, want once", op, n)
		}
		mu.Unlock()
		gate.open()

		// The client connects again by itself, or says that it does not.
		if _, fault := c.try(t.Context(), r.limit("next-"+op.String(), buy, 1, 0)); fault != nil {
			wantOutcome(t, fault, notProcessed)
		}
	}
	if !r.dial(alphaKey).submit(r.limit("lost", buy, 1, 0)).GetDuplicate() {
		t.Error("the order of the lost connection was entered, but the same id again is no duplicate")
	}
}

// cutAnswer: an answer that arrives in part is no answer. What the server says of its own accord may use up the bytes that are let
// through, so that the wire is cut before the request has left; then it was not processed indeed.
func cutAnswer(t *testing.T, s *suite) {
	s.networked(t)
	r := s.start(t, twoAccounts())
	wire := r.wire()
	answered, unsent := 0, []string(nil)
	for _, n := range []int{0, 1, 3, 8, 16, 23, 24, 25, 40, 80, 160, 320, 1000, 3000} {
		wire.allow(math.MaxInt)
		c := r.dial(alphaKey)
		c.submit(r.limit(id("whole-%d", n), buy, 1, 0))
		wire.allow(n)
		order := with(r.limit(id("cut-%d", n), buy, 1, 0), func(o *pb.SubmitOrderRequest) { o.ClientTag = tag(n, 1000) })
		_, fault := c.begin(t.Context(), order).wait(t)
		switch {
		case fault == nil: // and then it was checked to the byte
			answered++
		case fault.Outcome == notProcessed:
			unsent = append(unsent, order.GetClientOrderId())
		default:
			wantFault(t, fault, pb.Reason_REASON_CONNECTION_LOST, unknown)
		}
		wire.cut()
	}
	handled := r.probe.handledOrders()
	for _, name := range unsent {
		if handled[name] > 0 {
			t.Errorf("order %s was entered, but its call says not processed", name)
		}
	}
	if answered == 14 {
		t.Error("no answer was cut")
	}
}

// dialFailures: who cannot be reached, or is somebody else, is told from the error, within the handshake's time.
func dialFailures(t *testing.T, s *suite) {
	s.networked(t)
	r := s.start(t, twoAccounts())
	server := func(serve func(net.Conn)) string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var conns sync.WaitGroup
		conns.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				conns.Go(func() {
					defer conn.Close()
					serve(conn)
				})
			}
		})
		t.Cleanup(func() {
			_ = listener.Close()
			conns.Wait()
		})
		return listener.Addr().String()
	}
	says := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.WriteString(c, text)
			_, _ = io.Copy(io.Discard, c)
		}
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	for name, address := range map[string]string{
		"nobody listens":       nobody.Addr().String(),
		"it says nothing":      server(says("")),
		"it closes at once":    server(func(net.Conn) {}),
		"it is an HTTP server": server(says("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")),
		"it is an SSH server":  server(says("SSH-2.0-OpenSSH_10.0\r\n")),
		"it is noise":          server(says(noise(10000))),
	} {
		c, err := r.tryDial(alphaKey, func(d *transports.DialConfig) {
			d.Address, d.Limits.HandshakeTimeout = address, 500*time.Millisecond
		})
		if err == nil {
			_ = c.Close()
			t.Errorf("%s: connected", name)
		} else if !strings.Contains(err.Error(), address) {
			t.Errorf("%s: the error does not name the address %s: %v", name, address, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	config := r.dialed
	config.Key = alphaKey
	if c, err := s.transport.Dial(over, config); err == nil {
		_ = c.Close()
		t.Error("dialed although the context had ended")
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("dialing with a context that has ended: %v, want an error that wraps the context's", err)
	}
}
