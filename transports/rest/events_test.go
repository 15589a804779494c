package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/internal/sessiontest"
	"tailgate/transports/rest"
)

func TestStreams(t *testing.T) { sessiontest.RunStreams(t, rest.Transport) }

// openEvents asks for the stream and returns what comes, which the end of the test breaks off.
func openEvents(t *testing.T, server transports.Server, query string, headers ...string) (*http.Response, *bufio.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server.Addr().String()+"/v1/executions"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		response.Body.Close()
	})
	if response.StatusCode != 200 {
		body, _ := io.ReadAll(response.Body)
		t.Fatalf("status %d, %s", response.StatusCode, body)
	}
	return response, bufio.NewReader(response.Body)
}

// readEvent reads up to the empty line, without it.
func readEvent(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	var text strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, text.String())
		}
		if line == "\n" {
			return text.String()
		}
		text.WriteString(line)
	}
}

func TestEventsAsTheyAreOnTheWire(t *testing.T) {
	feed := &fake.Feed{}
	feed.Publish(2)
	server := listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{})
	response, r := openEvents(t, server, "")
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "Content-Length": ""} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := readEvent(t, r); got != "retry: 1000\n" {
		t.Errorf("first came %q", got)
	}
	const first = `id: 1-1
event: execution
data: {"sequence":"1","epoch":1,"type":"EXECUTION_TYPE_TRADE","execution_id":"257","match_id":"7","order":{"client_order_id":"o-1","order_id":"9","symbol":"DEMO","side":"SIDE_SELL","type":"ORDER_TYPE_LIMIT","time_in_force":"TIME_IN_FORCE_GTC","status":"ORDER_STATUS_PARTIALLY_FILLED","reason":"REASON_UNSPECIFIED","price":"-3","quantity":"1099511627776","filled_quantity":"1","leaves_quantity":"1099511627775","last_price":"-3","filled_notional":"-3","order_version":1,"received_ns":"1","post_only":false,"display_quantity":"0","minimum_quantity":"0","self_trade_prevention":"SELF_TRADE_PREVENTION_UNSPECIFIED"},"last_price":"-3","last_quantity":"1","liquidity":"LIQUIDITY_MAKER","reason":"REASON_UNSPECIFIED","event_ns":"1","account":"demo"}
`
	if got := readEvent(t, r); got != first {
		t.Errorf("the event is\n%s\nwant\n%s", got, first)
	}
	second := readEvent(t, r)
	feed.Publish(1)
	third := readEvent(t, r)
	if !strings.HasPrefix(third, "id: 1-3\n") {
		t.Errorf("then came %q", third)
	}
	// The same bytes for who comes later, from any place.
	for query, want := range map[string]string{"?from_sequence=3": third, "?from_sequence=2&epoch=1": second, "?account=demo": first} {
		_, again := openEvents(t, server, query)
		readEvent(t, again)
		if got := readEvent(t, again); got != want {
			t.Errorf("%s begins with %q, want %q", query, got, want)
		}
	}
	// Last-Event-ID wins, as a reader that connects again sends the URL of its beginning.
	_, resumed := openEvents(t, server, "?from_sequence=1", "Last-Event-ID: 1-2", "Accept: text/event-stream")
	readEvent(t, resumed)
	if got := readEvent(t, resumed); got != third {
		t.Errorf("behind 1-2 comes %q, want %q", got, third)
	}
	feed.Roll()
	_, crossed := openEvents(t, server, "", "Last-Event-ID: 1-3")
	readEvent(t, crossed)
	if got := readEvent(t, crossed); !strings.HasPrefix(got, "id: 2-1\n") {
		t.Errorf("behind the last of epoch 1 comes %q", got)
	}
}

func TestRefusalsOfStreams(t *testing.T) {
	feed := &fake.Feed{}
	feed.Publish(2)
	gateway := &fake.Gateway{Feed: feed, Key: "good"}
	server := listen(t, gateway, transports.ListenConfig{})
	for _, c := range []struct {
		query, header string
		status        int
		field         string
	}{
		{"?from_sequence=x", "", 400, "from_sequence"},
		{"?from_sequence=-1", "", 400, "from_sequence"},
		{"?from_sequence=18446744073709551616", "", 400, "from_sequence"},
		{"?from_sequence=", "", 400, "from_sequence"},
		{"?epoch=4294967296", "", 400, "epoch"},
		{"?from=1", "", 400, "from"},
		{"?from_sequence=4", "", 400, "from_sequence"},
		{"?epoch=9", "", 400, "epoch"},
		{"?account=other", "", 403, ""},
		{"", "Last-Event-ID: 1", 400, "Last-Event-ID"},
		{"", "Last-Event-ID: 1-", 400, "Last-Event-ID"},
		{"", "Last-Event-ID: 0-1", 400, "Last-Event-ID"},
		{"", "Last-Event-ID: 1-0", 400, "Last-Event-ID"},
		{"", "Last-Event-ID: 1-18446744073709551615", 400, "Last-Event-ID"},
		{"", "Last-Event-ID: 4294967296-1", 400, "Last-Event-ID"},
		{"", "Last-Event-ID: 1-2-3", 400, "Last-Event-ID"},
		{"", "Last-Event-ID: 1-9", 400, "from_sequence"},
		{"", "Accept: application/json", 406, ""},
		{"", "Accept: text/*;q=0, */*", 406, ""},
		{"", "Authorization: Bearer bad", 401, ""},
	} {
		headers := []string{"Authorization: Bearer good"}
		if c.header != "" {
			headers = append(headers, c.header)
		}
		checkProblem(t, c.query+" "+c.header, ask(t, server, "GET", "/v1/executions"+c.query, "", headers...), c.status, c.field)
	}
	checkProblem(t, "body", ask(t, server, "GET", "/v1/executions", "{}", "Authorization: Bearer good"), 400, "")
	checkProblem(t, "method", ask(t, server, "POST", "/v1/executions", "{}", "Authorization: Bearer good"), 405, "")
	for _, accept := range []string{"text/event-stream", "text/*", "*/*", "application/json, text/event-stream;q=0.1"} {
		a := ask(t, server, "HEAD", "/v1/executions", "", "Authorization: Bearer good", "Accept: "+accept)
		if a.StatusCode != 200 || a.Header.Get("Content-Type") != "text/event-stream" || len(a.raw) != 0 {
			t.Errorf("HEAD with Accept %s: status %d, %s, %q", accept, a.StatusCode, a.Header.Get("Content-Type"), a.raw)
		}
	}
	checkProblem(t, "HEAD", ask(t, server, "HEAD", "/v1/executions?epoch=9", "", "Authorization: Bearer good"), 400, "")
	if feed.Readers() != 0 {
		t.Errorf("%d readers are left of streams that were refused", feed.Readers())
	}
}

// TestStreamsLeaveConnectionsForOrders: they take at most half of them, whatever the limit of requests on one connection is.
func TestStreamsLeaveConnectionsForOrders(t *testing.T) {
	for connections, streams := range map[int]int{1: 1, 2: 1, 7: 3, 8: 4} {
		feed := &fake.Feed{}
		server := listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{Limits: transports.Limits{MaxConnections: connections, MaxStreams: 1}})
		for range streams {
			_, r := openEvents(t, server, "")
			readEvent(t, r)
		}
		a := ask(t, server, "GET", "/v1/executions", "")
		checkProblem(t, "one stream too many", a, 503, "")
		if a.body["reason"] != "REASON_OVERLOADED" || a.body["outcome"] != "OUTCOME_NOT_PROCESSED" {
			t.Errorf("of %d connections: %s", connections, a.raw)
		}
		if feed.Readers() != streams {
			t.Errorf("of %d connections %d streams are open, want %d", connections, feed.Readers(), streams)
		}
		if connections > streams+1 { // one for this request, one for the refused one where its end is not seen yet
			if a := ask(t, server, "GET", "/v1/instruments", ""); a.StatusCode != 200 {
				t.Errorf("of %d connections, %d are streams, and a request is answered %d, %s", connections, streams, a.StatusCode, a.raw)
			}
		}
	}
}

func checkProblem(t *testing.T, what string, a answer, status int, field string) {
	t.Helper()
	got, _ := a.body["field"].(string)
	if a.StatusCode != status || a.Header.Get("Content-Type") != "application/problem+json" || got != field {
		t.Errorf("%s: status %d, %s, %s; want %d, field %q", what, a.StatusCode, a.Header.Get("Content-Type"), a.raw, status, field)
	}
}

func TestStreamEndsWithAProblem(t *testing.T) {
	feed := &fake.Feed{}
	feed.Publish(1)
	server := listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{})
	_, r := openEvents(t, server, "")
	readEvent(t, r)
	readEvent(t, r)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(context.Background()) }()
	name, data, _ := strings.Cut(readEvent(t, r), "\n")
	var problem map[string]any
	if err := json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &problem); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if name != "event: error" || problem["reason"] != "REASON_DRAINING" || problem["status"] != 503.0 || problem["outcome"] != "OUTCOME_NOT_PROCESSED" {
		t.Errorf("the last event is %s with %v", name, problem)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 { // whole, and not cut off
		t.Errorf("behind it come %q, %v", rest, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// TestStreamOutlivesTheTimesOfARequest: none of those timeouts is about a stream.
func TestStreamOutlivesTheTimesOfARequest(t *testing.T) {
	t.Parallel() // it waits most of its time
	feed := &fake.Feed{}
	const short = 150 * time.Millisecond
	server := listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{Limits: transports.Limits{RequestTimeout: short, IdleTimeout: short, HandshakeTimeout: short}})
	_, r := openEvents(t, server, "")
	readEvent(t, r)
	<-time.After(4 * short) // what is tested is a duration
	feed.Publish(1)
	if got := readEvent(t, r); !strings.HasPrefix(got, "id: 1-1\n") {
		t.Errorf("then came %q", got)
	}
}

// TestSilenceIsFilled counts in the bubble's own time.
func TestSilenceIsFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &fake.Feed{}
		p, server := serve(&fake.Gateway{Feed: feed})
		conn := p.connect()
		if _, err := io.WriteString(conn, "GET /v1/executions HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		r := bufio.NewReader(response.Body)
		readEvent(t, r)
		start := time.Now()
		for i := range 3 {
			if got := readEvent(t, r); got != ":\n" || time.Since(start) != time.Duration(i+1)*15*time.Second {
				t.Errorf("after %v came %q", time.Since(start), got)
			}
		}
		<-time.After(10 * time.Second)
		feed.Publish(1)
		readEvent(t, r)
		if got := readEvent(t, r); got != ":\n" || time.Since(start) != 70*time.Second {
			t.Errorf("after %v came %q, want a comment 15s after the event", time.Since(start), got)
		}
		done := stop(t.Context(), server)
		if got := readEvent(t, r); !strings.HasPrefix(got, "event: error\n") {
			t.Errorf("at last came %q", got)
		}
		io.Copy(io.Discard, conn) //nolint:errcheck // to its end
		if s := <-done; s.err != nil {
			t.Errorf("Shutdown: %v", s.err)
		}
		conn.Close()
	})
}

func TestLeavingClosesTheSession(t *testing.T) {
	feed := &fake.Feed{}
	gateway := &fake.Gateway{Feed: feed}
	server := listen(t, gateway, transports.ListenConfig{})
	conn := connect(t, server)
	if _, err := io.WriteString(conn, "GET /v1/executions HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if gateway.Sessions() != 1 || feed.Readers() != 1 {
		t.Errorf("%d sessions, %d readers", gateway.Sessions(), feed.Readers())
	}
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil { // a reset, as by a kill
		t.Fatal(err)
	}
	conn.Close()
	for end := time.Now().Add(patience); gateway.Sessions() > 0 || feed.Readers() > 0; {
		if time.Now().After(end) {
			t.Fatalf("%d sessions, %d readers are left", gateway.Sessions(), feed.Readers())
		}
		<-time.After(time.Millisecond)
	}
}

func TestPeerThatReadsNoEventsIsCutAndNamed(t *testing.T) {
	t.Parallel() // it waits most of its time
	feed := &fake.Feed{}
	feed.Publish(20_000)
	var log fake.Log
	server := listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{Logger: log.Logger(), Limits: transports.Limits{WriteTimeout: 200 * time.Millisecond}})
	conn := connect(t, server)
	if _, err := io.WriteString(conn, "GET /v1/executions HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); !strings.Contains(log.String(), "SLOW_READER") || feed.Readers() > 0; {
		if time.Now().After(end) {
			t.Fatalf("%d readers are left, the log has %q", feed.Readers(), log.String())
		}
		<-time.After(time.Millisecond)
	}
	if !strings.Contains(log.String(), conn.LocalAddr().String()) {
		t.Errorf("the log does not name the peer: %s", log.String())
	}
	untilClosed(t, conn)
}

func untilClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
		t.Error("the connection is still open")
	}
}

func TestStreamsOverTLSWithAKey(t *testing.T) {
	serverTLS, clientTLS := fake.Certificate(t)
	feed := &fake.Feed{}
	feed.Publish(1)
	server := listen(t, &fake.Gateway{Feed: feed, Key: "good"}, transports.ListenConfig{TLS: serverTLS})
	ctx, cancel := context.WithCancel(t.Context())
	config := transports.DialConfig{Address: server.Addr().String(), TLS: clientTLS, Key: "good"}
	err := rest.Transport().Executions(ctx, config, &pb.StreamExecutionsRequest{}, func(*pb.ExecutionReport) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestFinalFaultClosesTheConnection(t *testing.T) {
	fault := transports.Refuse(pb.Reason_REASON_THROTTLED, "for too long")
	gateway := &fake.Gateway{OnHandle: func(context.Context, *transports.Exchange) error { return fault }}
	server := listen(t, gateway, transports.ListenConfig{})
	for _, final := range []bool{false, true} {
		fault.Final = final
		conn := connect(t, server)
		if _, err := io.WriteString(conn, "GET /v1/orders HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 429 || response.Close != final {
			t.Errorf("final is %t: status %d, Connection: close is %t", final, response.StatusCode, response.Close)
		}
	}
}
