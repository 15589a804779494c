// Package resttest is what every transport that serves the REST API must show, whichever framework it is: it complements the suite of
// transportstest with what only HTTP can see. Only tests import it.
package resttest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
)

// patience bounds every wait; only a failure takes so long.
const patience = 20 * time.Second

func listen(t testing.TB, transport transports.Transport, gateway transports.Gateway, limits transports.Limits) transports.Server {
	t.Helper()
	server, err := transport.Listen(t.Context(), gateway, transports.ListenConfig{Address: "127.0.0.1:0", Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, server)
	return server
}

// stopAfter stops the server with the test.
func stopAfter(t testing.TB, server transports.Server) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

func connect(t testing.TB, server transports.Server) net.Conn {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// say writes a request and reads the answer's status and body.
func say(t testing.TB, conn net.Conn, r *bufio.Reader, request string) (reply, string) {
	t.Helper()
	answer, body, err := ask(conn, r, request)
	if err != nil {
		t.Fatalf("%.80q: %v", request, err)
	}
	return answer, body
}

// ask is say for any goroutine.
func ask(conn net.Conn, r *bufio.Reader, request string) (reply, string, error) {
	if _, err := io.WriteString(conn, request); err != nil {
		return reply{}, "", err
	}
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return reply{}, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, response.Close}, string(body), err
}

// reply is the head of a response.
type reply struct {
	StatusCode int
	Header     http.Header
	Close      bool
}

// Run holds the transport to it.
func Run(t *testing.T, transport transports.Transport) {
	t.Run("every operation", func(t *testing.T) { everyOperation(t, transport) })
	t.Run("refusals", func(t *testing.T) { refusals(t, transport) })
	t.Run("what is kept", func(t *testing.T) { whatIsKept(t, transport) })
	t.Run("hang-up", func(t *testing.T) { hangUp(t, transport) })
	t.Run("announced", func(t *testing.T) { announced(t, transport) })
}

func everyOperation(t *testing.T, transport transports.Transport) {
	for _, encoding := range transport.Encodings {
		gateway := &fake.Gateway{}
		server := listen(t, transport, gateway, transports.Limits{})
		client, err := transport.Dial(t.Context(), transports.DialConfig{Address: server.Addr().String(), Encoding: encoding})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		for _, op := range transports.Operations() {
			fake.CheckThereAndBack(t, gateway, client, op)
		}
	}
}

// refusals: what the framework's router does not find is refused in the API's words, with its headers. Every answer says when it was made: RFC 9110,
// section 6.6.1.
func refusals(t *testing.T, transport transports.Transport) {
	conn := connect(t, listen(t, transport, &fake.Gateway{}, transports.Limits{}))
	r := bufio.NewReader(conn)
	for _, c := range []struct {
		request string
		status  int
		header  string
		value   string
	}{
		{"GET /nowhere", 404, "Content-Type", "application/problem+json"},
		{"GET /v1/orders/a/b", 404, "", ""},
		{"PATCH /v1/orders", 405, "Allow", "DELETE, GET, HEAD, POST"},
		{"POST /v1/orders/x", 405, "Allow", "DELETE, GET, HEAD, PUT"},
		{"OPTIONS /v1/instruments", 405, "Allow", "GET, HEAD"},
		{"OPTIONS *", 404, "Content-Type", "application/problem+json"},
		{"BREW /v1/orders", 405, "Allow", "DELETE, GET, HEAD, POST"}, // a method that is none of HTTP's
		{"POST /openapi.json", 405, "Allow", "GET, HEAD"},
		{"GET /openapi.json", 200, "Content-Type", "application/json"},
		{"HEAD /v1/instruments", 200, "Content-Type", "application/json"},
		{"GET /v1/instruments", 200, "Cache-Control", "no-store"},
		{"GET /v1/books/A%2FB", 200, "", ""}, // a name with a slash stays one name
		{"GET /v1/orders?symbol=", 400, "", ""},
		{"GET /V1/orders", 404, "", ""},
		{"GET /v1/orders/", 200, "", ""}, // an empty id is the gateway's to refuse
	} {
		before := time.Now().Truncate(time.Second)
		response, body := say(t, conn, r, c.request+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		if made, err := http.ParseTime(response.Header.Get("Date")); err != nil || made.Before(before) || made.After(time.Now()) {
			t.Errorf("%s: the Date %q, asked for at %v (%v)", c.request, response.Header.Get("Date"), before.UTC(), err)
		}
		if response.StatusCode != c.status || c.header != "" && response.Header.Get(c.header) != c.value {
			t.Errorf("%s: status %d, %s: %q; want %d, %q; %s", c.request, response.StatusCode, c.header, response.Header.Get(c.header), c.status, c.value, body)
		}
	}
}

// whatIsKept: texts that the gateway may keep are not those of a buffer that the next request overwrites. Without copies the texts change, and the race
// detector sees who changes them.
func whatIsKept(t *testing.T, transport transports.Transport) {
	type kept struct{ key, account string }
	arrived := make(chan string, 1)
	seen, stop := make(chan kept), make(chan struct{})
	feed := &fake.Feed{}
	gateway := &fake.Gateway{
		OnOpen: func(_ context.Context, peer transports.Peer) error { arrived <- peer.Key; return nil },
		OnSubscribe: func(_ context.Context, request *pb.StreamExecutionsRequest) (transports.Events, error) {
			select {
			case seen <- kept{<-arrived, request.GetAccount()}:
			case <-stop:
			}
			return nil, transports.Refuse(pb.Reason_REASON_PERMISSION_DENIED, "not here")
		},
		Feed: feed,
	}
	server := listen(t, transport, gateway, transports.Limits{})
	conn := connect(t, server)
	const requests = 50
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := bufio.NewReader(conn)
		for i := range requests {
			text := fmt.Sprintf("GET /v1/executions?account=a%02d HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k%02d\r\n\r\n", i, i)
			if response, body, err := ask(conn, r, text); err != nil || response.StatusCode != http.StatusForbidden {
				t.Errorf("%v, status %d, %s", err, response.StatusCode, body)
				return
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	var all []kept
	for len(all) < requests {
		select {
		case one := <-seen:
			all = append(all, one)
			for i, k := range all { // beside the next request
				if want := (kept{fmt.Sprintf("k%02d", i), fmt.Sprintf("a%02d", i)}); k != want {
					t.Fatalf("of request %d was kept %q, after %d requests it is %q", i, want, len(all), k)
				}
			}
		case <-ended:
			t.Fatalf("only %d requests came", len(all))
		case <-time.After(patience):
			t.Fatal("no request comes")
		}
	}
}

// Answers shows that the buffer of an answer serves no other request before it is written: answers that the sockets do not take stay what they were
// while others are made. serve starts the transport on a listener of the caller's.
func Answers(t *testing.T, serve func(net.Listener, transports.Gateway) transports.Server) {
	const peers, size = 16, 64 << 10
	var config net.ListenConfig
	inner, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	held := &heldListener{Listener: inner, waits: make(chan struct{}, peers), open: make(chan struct{})}
	server := serve(held, &fake.Gateway{})
	stopAfter(t, server)
	var conns [peers]net.Conn
	for i := range conns {
		conns[i] = connect(t, server)
		order, err := proto.Marshal(fake.Order("o", bytes.Repeat([]byte{byte(i)}, size)))
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n%s", len(order), order)
		if _, err := io.WriteString(conns[i], text); err != nil {
			t.Fatal(err)
		}
		select {
		case <-held.waits:
		case <-time.After(patience):
			t.Fatal("no answer comes")
		}
	}
	close(held.open)
	for i, conn := range conns {
		_, body := say(t, conn, bufio.NewReader(conn), "")
		var answer pb.SubmitOrderResponse
		if err := proto.Unmarshal([]byte(body), &answer); err != nil || !bytes.Equal(answer.GetClientTag(), bytes.Repeat([]byte{byte(i)}, size)) {
			t.Errorf("the answer to peer %d is another's: %v", i, err)
		}
	}
}

// heldListener's connections say so when they are to write for the first time, and wait.
type heldListener struct {
	net.Listener
	waits, open chan struct{}
}

// Accept implements net.Listener.
func (l *heldListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &heldConn{Conn: conn, listener: l}, nil
}

type heldConn struct {
	net.Conn
	listener *heldListener
	once     sync.Once
}

// Write implements net.Conn.
func (c *heldConn) Write(p []byte) (int, error) {
	c.once.Do(func() {
		c.listener.waits <- struct{}{}
		<-c.listener.open
	})
	return c.Conn.Write(p)
}

// hangUp: the gateway's context ends with the connection, while the gateway waits.
func hangUp(t *testing.T, transport transports.Transport) {
	entered, over := make(chan struct{}), make(chan struct{})
	gateway := &fake.Gateway{OnHandle: func(ctx context.Context, _ *transports.Exchange) error {
		close(entered)
		<-ctx.Done()
		close(over)
		return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, ctx.Err(), "the peer has left")
	}}
	conn := connect(t, listen(t, transport, gateway, transports.Limits{}))
	if _, err := io.WriteString(conn, "GET /v1/instruments HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		done chan struct{}
	}{{"the request enters", entered}, {"the context ends", over}} {
		select {
		case <-step.done:
		case <-time.After(patience):
			t.Fatalf("not in time: %s", step.name)
		}
		conn.Close()
	}
}

// announced: a body that is too large is refused when it is announced, and the peer is not asked to send it.
func announced(t *testing.T, transport transports.Transport) {
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		conn := connect(t, listen(t, transport, &fake.Gateway{}, transports.Limits{MaxRequestBytes: 4096}))
		text := "POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 4097\r\n" + expect + "\r\n"
		if response, body := say(t, conn, bufio.NewReader(conn), text); response.StatusCode != http.StatusRequestEntityTooLarge || !response.Close {
			t.Errorf("with %q: status %d, close %t, %s", expect, response.StatusCode, response.Close, body)
		}
	}
}

// Bench measures one keep-alive connection that sends a small order in JSON and reads its answer: over the transport, and over bare, which is the
// same framework answering the same body to whatever comes. The difference is what the transport adds; allocations count the client, which is
// the same for both. bare serves the listener until it is closed.
func Bench(b *testing.B, transport transports.Transport, bare func(inner net.Listener, contentType string, answer []byte)) {
	const request = "POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
	const order = `{"client_order_id":"o-1","symbol":"DEMO","side":"SIDE_BUY","type":"ORDER_TYPE_LIMIT","time_in_force":"TIME_IN_FORCE_GTC","quantity":"5","price":7}`
	text := fmt.Sprintf(request, len(order), order)
	server := listen(b, transport, fake.Null{}, transports.Limits{})
	conn := connect(b, server)
	_, answer := say(b, conn, bufio.NewReader(conn), text)
	run := func(b *testing.B, address string) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(b.Context(), "tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		b.ReportAllocs()
		for b.Loop() {
			say(b, conn, r, text)
		}
	}
	b.Run("transport", func(b *testing.B) { run(b, server.Addr().String()) })
	b.Run("bare", func(b *testing.B) {
		var config net.ListenConfig
		inner, err := config.Listen(b.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer inner.Close()
		go bare(inner, "application/json", []byte(answer))
		run(b, inner.Addr().String())
	})
}

// Accept serves each connection in a goroutine until the listener is closed. fasthttp's own Serve leaves a goroutine that sleeps for ten seconds when it ends.
func Accept(listener net.Listener, serve func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go serve(conn)
	}
}
