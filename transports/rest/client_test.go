package rest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/rest"
)

// script is a server that answers connections as a test says: one function for each, in the order of their coming. It counts the
// requests it read whole.
type script struct {
	net.Listener
	mu       sync.Mutex
	requests []string // "METHOD path"
}

// exchange reads one request and writes the text, raw. It reports false when no request comes.
func (s *script) exchange(conn net.Conn, reader *bufio.Reader, text string) bool {
	request, err := http.ReadRequest(reader)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, request.Body); err != nil {
		return false
	}
	s.mu.Lock()
	s.requests = append(s.requests, request.Method+" "+request.URL.Path)
	s.mu.Unlock()
	_, err = io.WriteString(conn, text)
	return err == nil
}

func (s *script) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.requests...)
}

func serveScript(t *testing.T, serve func(s *script, n int, conn net.Conn)) *script {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{Listener: listener}
	var group sync.WaitGroup
	group.Go(func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				serve(s, n, conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		group.Wait()
	})
	return s
}

// noInstruments answers the probe of a Dial.
const noInstruments = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"

func TestDialFailsClearly(t *testing.T) {
	t.Parallel() // it waits most of its time
	_, clientTLS := fake.Certificate(t)
	serverTLS, _ := fake.Certificate(t)
	gateway := &fake.Gateway{Key: "good"}
	plain := listen(t, gateway, transports.ListenConfig{}).Addr().String()
	secured := listen(t, gateway, transports.ListenConfig{TLS: serverTLS}).Addr().String()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	stranger := serveScript(t, func(_ *script, _ int, conn net.Conn) {
		_, _ = io.WriteString(conn, "220 mail.example ESMTP\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})
	late := serveScript(t, func(s *script, _ int, conn net.Conn) {
		s.exchange(conn, bufio.NewReader(conn), "NOTE first frame is not a hello\r\n")
	})
	binary := serveScript(t, func(s *script, _ int, conn net.Conn) { // the frames of an HTTP/2 server, no line in them
		s.exchange(conn, bufio.NewReader(conn), "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00")
	})
	almost := serveScript(t, func(s *script, _ int, conn net.Conn) {
		s.exchange(conn, bufio.NewReader(conn), "HTTP first, and then something else\r\n")
	})
	web := serveScript(t, func(s *script, _ int, conn net.Conn) {
		s.exchange(conn, bufio.NewReader(conn), "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\n<html")
	})
	silent := serveScript(t, func(_ *script, _ int, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	short := transports.Limits{HandshakeTimeout: 300 * time.Millisecond}
	closed.Close() // last, so that no other listener of this test gets its port
	for name, c := range map[string]struct {
		config transports.DialConfig
		want   []string
	}{
		"nobody listens":     {transports.DialConfig{Address: nobody}, []string{nobody, "connection refused"}},
		"no port":            {transports.DialConfig{Address: "127.0.0.1"}, []string{"127.0.0.1"}},
		"wrong key":          {transports.DialConfig{Address: plain, Key: "bad"}, []string{"UNAUTHENTICATED", "no such key"}},
		"no key":             {transports.DialConfig{Address: plain}, []string{"UNAUTHENTICATED"}},
		"key with a newline": {transports.DialConfig{Address: plain, Key: "a\nb"}, []string{"invalid header"}},
		"plain to TLS":       {transports.DialConfig{Address: secured, Key: "good"}, []string{"HTTPS"}},
		"TLS to plain":       {transports.DialConfig{Address: plain, Key: "good", TLS: clientTLS}, []string{"does not look like a TLS handshake"}},
		"strange authority":  {transports.DialConfig{Address: secured, Key: "good", TLS: clientTLS}, []string{"certificate"}},
		"spoken to by it":    {transports.DialConfig{Address: stranger.Addr().String()}, []string{"does not speak HTTP/1.1", "mail.example"}},
		"another protocol":   {transports.DialConfig{Address: late.Addr().String()}, []string{"does not speak HTTP/1.1", "NOTE first frame"}},
		"binary protocol":    {transports.DialConfig{Address: binary.Addr().String()}, []string{"does not speak HTTP/1.1", `\x00\x00\x06\x04`}},
		"HTTP by chance":     {transports.DialConfig{Address: almost.Addr().String()}, []string{"does not speak HTTP/1.1", "HTTP first"}},
		"another web server": {transports.DialConfig{Address: web.Addr().String()}, []string{"404", "text/html", "<html"}},
		"silence":            {transports.DialConfig{Address: silent.Addr().String(), Limits: short}, []string{"DEADLINE_EXCEEDED"}},
		"encoding":           {transports.DialConfig{Address: plain, Encoding: "xml"}, []string{`"xml"`, "protobuf, json"}},
		"flow":               {transports.DialConfig{Address: plain, Flow: "credit"}, []string{`"credit"`}},
		"engine":             {transports.DialConfig{Address: plain, Engine: "spin"}, []string{`"spin"`}},
		"congestion control": {transports.DialConfig{Address: plain, CongestionControl: "no-such"}, []string{"no-such"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rest.Transport().Dial(t.Context(), c.config)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.want, "rest: dial", c.config.Address) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

func TestListenFailsClearly(t *testing.T) {
	busy := listen(t, &fake.Gateway{}, transports.ListenConfig{}).Addr().String()
	for name, c := range map[string]struct {
		config transports.ListenConfig
		want   []string
	}{
		"busy port":          {transports.ListenConfig{Address: busy}, []string{busy, "address already in use"}},
		"congestion control": {transports.ListenConfig{Address: "127.0.0.1:0", CongestionControl: "no-such"}, []string{"no-such"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rest.Transport().Listen(t.Context(), &fake.Gateway{}, c.config)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.want, "rest: listen") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

// TestNothingIsSentTwice breaks the connection after every kind of request, on a connection that was used before, where net/http would
// like to repeat those it holds to be safe.
func TestNothingIsSentTwice(t *testing.T) {
	for _, op := range transports.Operations() {
		for name, text := range map[string]string{"no answer": "", "half an answer": "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 10\r\n\r\nhalf"} {
			t.Run(op.String()+"/"+name, func(t *testing.T) {
				server := serveScript(t, func(s *script, _ int, conn net.Conn) {
					reader := bufio.NewReader(conn)
					if s.exchange(conn, reader, noInstruments) {
						s.exchange(conn, reader, text) // and closes
					}
				})
				client, err := rest.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String()})
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				fault, ok := errors.AsType[*transports.Fault](client.Do(t.Context(), fake.Call(op, fake.Sample(op))))
				if !ok || fault.Reason != pb.Reason_REASON_CONNECTION_LOST || fault.Outcome != pb.Outcome_OUTCOME_UNKNOWN {
					t.Errorf("fault is %+v", fault)
				}
				if seen := server.seen(); len(seen) != 2 {
					t.Errorf("the server read %v, want the probe and one request", seen)
				}
			})
		}
	}
}

func TestSequentialCallsShareOneConnection(t *testing.T) {
	accepted := make(chan struct{}, 10)
	server := serveScript(t, func(s *script, _ int, conn net.Conn) {
		accepted <- struct{}{}
		for reader := bufio.NewReader(conn); s.exchange(conn, reader, noInstruments); {
		}
	})
	client, err := rest.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order(fmt.Sprint(i), nil))); err != nil {
			t.Fatal(err)
		}
	}
	client.Close()
	if n := len(accepted); n != 1 {
		t.Errorf("%d connections for calls one after the other", n)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	server := serveScript(t, func(s *script, _ int, conn net.Conn) {
		reader := bufio.NewReader(conn)
		if s.exchange(conn, reader, noInstruments) {
			s.exchange(conn, reader, "HTTP/1.1 307 Temporary Redirect\r\nLocation: /v1/elsewhere\r\nContent-Length: 0\r\n\r\n")
		}
	})
	client, err := rest.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fault, ok := errors.AsType[*transports.Fault](client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))))
	if !ok || fault.Outcome != pb.Outcome_OUTCOME_UNKNOWN || !strings.Contains(fault.Message, "307") {
		t.Errorf("fault is %+v", fault)
	}
	if seen := server.seen(); len(seen) != 2 {
		t.Errorf("the server read %v", seen)
	}
}

// TestPeerThatStopsSpeakingHTTPIsNamed: behind the address there is another server than a moment ago, as after a failover gone wrong.
func TestPeerThatStopsSpeakingHTTPIsNamed(t *testing.T) {
	server := serveScript(t, func(s *script, _ int, conn net.Conn) {
		reader := bufio.NewReader(conn)
		if s.exchange(conn, reader, noInstruments) {
			s.exchange(conn, reader, "NOTE first frame is not a hello\r\n")
		}
	})
	client, err := rest.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	err = client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil)))
	fault, ok := errors.AsType[*transports.Fault](err)
	if !ok || fault.Outcome != pb.Outcome_OUTCOME_UNKNOWN {
		t.Errorf("fault is %+v", fault)
	}
	for _, want := range []string{server.Addr().String(), "does not speak HTTP/1.1", "NOTE first"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestWhatWasNotSentIsNotProcessed(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	client := dial(t, server, transports.DialConfig{Limits: transports.Limits{MaxStreams: 1}})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	check := func(name string, err error, reason pb.Reason) {
		t.Helper()
		fault, ok := errors.AsType[*transports.Fault](err)
		if !ok || fault.Reason != reason || fault.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED {
			t.Errorf("%s: %+v", name, fault)
		}
	}
	check("a context that is over", client.Do(over, fake.Call(transports.SubmitOrder, fake.Order("o", nil))), pb.Reason_REASON_DEADLINE_EXCEEDED)
	check("an operation that is none", client.Do(t.Context(), &transports.Call{Operation: 999, Request: fake.Order("o", nil)}), pb.Reason_REASON_UNIMPLEMENTED)
	check("text that is not UTF-8", client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("\xff", nil))), pb.Reason_REASON_MALFORMED)

	// The only connection is taken: the second call waits for it, and its context ends while it does.
	entered, leave := make(chan struct{}), make(chan struct{})
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		close(entered)
		<-leave
		gateway.Answer(x)
		return nil
	}
	first := make(chan error, 1)
	go func() { first <- client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("first", nil))) }()
	<-entered
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	check("no free connection", client.Do(soon, fake.Call(transports.SubmitOrder, fake.Order("second", nil))), pb.Reason_REASON_DEADLINE_EXCEEDED)
	close(leave)
	if err := <-first; err != nil {
		t.Errorf("the first: %v", err)
	}
	if seen := gateway.Requests(); len(seen) != 1 {
		t.Errorf("the gateway saw %v", seen)
	}
	client.Close()
	check("a closed client", client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))), pb.Reason_REASON_CONNECTION_LOST)
}

func TestCloseEndsCallsUnderWayInDoubt(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	client := dial(t, server, transports.DialConfig{})
	entered := make(chan struct{})
	gateway.OnHandle = func(ctx context.Context, _ *transports.Exchange) error {
		close(entered)
		<-ctx.Done()
		return ctx.Err()
	}
	done := make(chan error, 1)
	go func() { done <- client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))) }()
	<-entered
	client.Close()
	fault, ok := errors.AsType[*transports.Fault](<-done)
	if !ok || fault.Reason != pb.Reason_REASON_CONNECTION_LOST || fault.Outcome != pb.Outcome_OUTCOME_UNKNOWN {
		t.Errorf("fault is %+v", fault)
	}
}
