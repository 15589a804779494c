package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
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
	"tailgate/transports/internal/guard"
	"tailgate/transports/rest"
)

// connect opens a bare socket to the server.
func connect(t *testing.T, server transports.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// say writes text and returns the answer's status and body, 0 where the server closed without one.
func say(t *testing.T, conn net.Conn, text string) (int, string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body) // a server that closes on unread bytes may cut its own answer short (RST)
	return response.StatusCode, string(body)
}

// sized returns an order of exactly size bytes in protobuf.
func sized(t *testing.T, size int) *pb.SubmitOrderRequest {
	t.Helper()
	m := fake.Order("o", nil)
	for tag := size - proto.Size(m); tag > 0; tag-- {
		m.ClientTag = make([]byte, tag)
		if proto.Size(m) == size {
			return m
		}
	}
	t.Fatalf("no order has %d bytes", size)
	return nil
}

func TestLargestRequestIsTakenAndOneByteMoreIsNot(t *testing.T) {
	t.Parallel() // it waits most of its time
	const limit = 100_000
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{Limits: transports.Limits{MaxRequestBytes: limit}})
	for _, encoding := range rest.Transport().Encodings {
		// A client with wider limits, so that it is the server that refuses.
		client := dial(t, server, transports.DialConfig{Encoding: encoding})
		if err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, sized(t, limit))); err != nil {
			t.Errorf("%s: %d bytes: %v", encoding, limit, err)
		}
		before := len(gateway.Requests())
		for _, size := range []int{limit + 1, 2 * limit, 1 << 20} {
			fault, ok := errors.AsType[*transports.Fault](client.Do(t.Context(), fake.Call(transports.SubmitOrder, sized(t, size))))
			if !ok || fault.Reason != pb.Reason_REASON_TOO_LARGE || fault.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED {
				t.Errorf("%s: %d bytes: %+v", encoding, size, fault)
			}
		}
		if err := client.Do(t.Context(), fake.Call(transports.GetOrder, fake.Sample(transports.GetOrder))); err != nil {
			t.Errorf("%s: after a refusal: %v", encoding, err)
		}
		if got := len(gateway.Requests()); got != before+1 {
			t.Errorf("%s: %d requests reached the gateway, want 1", encoding, got-before)
		}
		// And one whose own limit says so before anything is sent.
		client = dial(t, server, transports.DialConfig{Encoding: encoding, Limits: transports.Limits{MaxRequestBytes: limit}})
		fault, ok := errors.AsType[*transports.Fault](client.Do(t.Context(), fake.Call(transports.SubmitOrder, sized(t, limit+1))))
		if !ok || fault.Reason != pb.Reason_REASON_TOO_LARGE || !strings.Contains(fault.Message, fmt.Sprint(limit+1)) {
			t.Errorf("%s: by the client itself: %+v", encoding, fault)
		}
	}
}

func TestOversizeBodiesAreNotRead(t *testing.T) {
	t.Parallel() // it waits most of its time
	const limit = 1000
	server := listen(t, &fake.Gateway{}, transports.ListenConfig{Limits: transports.Limits{MaxRequestBytes: limit}})
	most := 4*((limit+2)/3) + 4096
	for name, text := range map[string]string{
		"announced":             fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", most+1),
		"absurd":                "POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9223372036854775807\r\n\r\n",
		"with expectation":      fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", most+1),
		"in chunks":             fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", most+1, strings.Repeat(" ", most+1)),
		"protobuf, in chunks":   fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", limit+1, strings.Repeat(" ", limit+1)),
		"protobuf, announced":   fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n", limit+1),
		"small JSON, large tag": "POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + jsonBody(`{"client_tag":"`+base64.StdEncoding.EncodeToString(make([]byte, limit))+`"}`),
	} {
		t.Run(name, func(t *testing.T) {
			// The body is never sent where it was only announced: the answer must come without it.
			status, body := say(t, connect(t, server), text)
			if status != 413 || !strings.Contains(body, "REASON_TOO_LARGE") || !strings.Contains(body, "NOT_PROCESSED") {
				t.Errorf("status %d, %s", status, body)
			}
		})
	}
}

func jsonBody(body string) string {
	return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

func TestSlowAndBrokenPeersAreCut(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{Limits: transports.Limits{
		HandshakeTimeout: 300 * time.Millisecond, RequestTimeout: 600 * time.Millisecond, IdleTimeout: 300 * time.Millisecond,
	}})
	get := "GET /v1/orders HTTP/1.1\r\nHost: x\r\n"
	for name, c := range map[string]struct {
		text   string
		status int // 0 = closed without an answer
	}{
		"silent":              {"", 0},
		"half a header":       {get, 0},
		"half a body":         {"POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", 408},
		"half a chunk":        {"POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", 408},
		"broken chunk":        {"POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
		"bodyless, in chunks": {"DELETE /v1/orders HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400},
		"flood of headers":    {get + strings.Repeat("X-Fill: "+strings.Repeat("x", 1000)+"\r\n", 64) + "\r\n", 431},
		"not HTTP":            {"\x16\x03\x01\x00\x05hello\r\n\r\n", 400},
		"no host":             {"GET /v1/orders HTTP/1.1\r\n\r\n", 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, server)
			if status, body := say(t, conn, c.text); status != c.status {
				t.Errorf("status %d, want %d: %s", status, c.status, body)
			}
			// Closed by the server, whatever it was: reading ends before the patience of this test does.
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
				t.Error("the connection is still open")
			}
		})
	}
	t.Cleanup(func() {
		if seen := gateway.Requests(); len(seen) != 0 {
			t.Errorf("half requests reached the gateway: %v", seen)
		}
	})
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// TestLongCommitOutlivesTheReadTimeout: RequestTimeout is about the peer's bytes, not about the journal.
func TestLongCommitOutlivesTheReadTimeout(t *testing.T) {
	t.Parallel() // it waits most of its time
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{Limits: transports.Limits{RequestTimeout: 200 * time.Millisecond}})
	client := dial(t, server, transports.DialConfig{})
	gateway.OnCommit = func(release func(error)) {
		time.AfterFunc(600*time.Millisecond, func() { release(nil) }) // what is tested is a duration, three times the limit
	}
	if err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))); err != nil {
		t.Errorf("%v", err)
	}
}

// TestPeerThatReadsNothingIsCut fills a peer's socket with answers until the server gives up on it, while another is served.
func TestPeerThatReadsNothingIsCut(t *testing.T) {
	t.Parallel() // it waits most of its time
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{Limits: transports.Limits{WriteTimeout: 200 * time.Millisecond}})
	other := dial(t, server, transports.DialConfig{})
	conn := connect(t, server)
	body, err := proto.Marshal(fake.Order("o", bytes.Repeat([]byte{1}, 1<<20-100)))
	if err != nil {
		t.Fatal(err)
	}
	request := fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	cut := make(chan error, 1)
	go func() {
		for {
			if _, err := io.WriteString(conn, request); err != nil {
				cut <- err
				return
			}
		}
	}()
	for {
		select {
		case err := <-cut:
			if isTimeout(err) {
				t.Fatal("the peer was never cut")
			}
			return
		default:
			if err := other.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("p", nil))); err != nil {
				t.Fatalf("a healthy peer: %v", err)
			}
		}
	}
}

func TestOneConnectionTooManyIsToldSoAndAFreedPlaceServes(t *testing.T) {
	const limit = 3
	server := listen(t, &fake.Gateway{}, transports.ListenConfig{Limits: transports.Limits{MaxConnections: limit}})
	var clients []transports.Client
	for range limit {
		clients = append(clients, dial(t, server, transports.DialConfig{}))
	}
	dialOne := func() (transports.Client, error) {
		return rest.Transport().Dial(t.Context(), transports.DialConfig{Address: server.Addr().String()})
	}
	_, err := dialOne()
	fault, ok := errors.AsType[*transports.Fault](err)
	if !ok || fault.Reason != pb.Reason_REASON_OVERLOADED || fault.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED || !strings.Contains(err.Error(), "3 connections") {
		t.Fatalf("one more: %v", err)
	}
	if err := clients[0].Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for { // until the server has seen the close
		client, err := dialOne()
		if err == nil {
			client.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the freed place serves nobody: %v", err)
		}
	}
	if err := clients[1].Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))); err != nil {
		t.Errorf("one of the first: %v", err)
	}
}

func TestFloodOfConnectionsIsClosed(t *testing.T) {
	server := listen(t, &fake.Gateway{}, transports.ListenConfig{Limits: transports.Limits{MaxConnections: 1}})
	client := dial(t, server, transports.DialConfig{})
	for range guard.MaxSurplus {
		connect(t, server)
	}
	if status, what := say(t, connect(t, server), ""); status != 0 || !strings.Contains(what, "EOF") && !strings.Contains(what, "reset") {
		t.Errorf("status %d, %s", status, what)
	}
	if err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))); err != nil {
		t.Errorf("the one within the limit: %v", err)
	}
}

func TestManyCallersOnOneClient(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	client := dial(t, server, transports.DialConfig{Limits: transports.Limits{MaxStreams: 4}})
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			for j := range 20 {
				id := fmt.Sprintf("o-%d-%d", i, j)
				tag := bytes.Repeat([]byte(id), 1+i*j)
				c := fake.Call(transports.SubmitOrder, fake.Order(id, tag))
				if err := client.Do(t.Context(), c); err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				if r := c.Response.(*pb.SubmitOrderResponse); r.GetClientOrderId() != id || !bytes.Equal(r.GetClientTag(), tag) {
					t.Errorf("%s got the answer of %s", id, r.GetClientOrderId())
				}
			}
		})
	}
	group.Wait()
	if got := len(gateway.Requests()); got != 32*20 {
		t.Errorf("the gateway saw %d requests, want %d", got, 32*20)
	}
}
