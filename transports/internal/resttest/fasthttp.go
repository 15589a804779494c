package resttest

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"tailgate/transports"
	"tailgate/transports/internal/fake"
)

// Fasthttp holds a transport on fasthttp to the table of transports/fasthttp/README.md: what of HTTP is answered otherwise than by rest.
func Fasthttp(t *testing.T, transport transports.Transport) {
	gateway := &fake.Gateway{Key: "good", Feed: &fake.Feed{}, OnHandle: func(context.Context, *transports.Exchange) error { return nil }}
	server := listen(t, transport, gateway, transports.Limits{HandshakeTimeout: 200 * time.Millisecond, RequestTimeout: 400 * time.Millisecond})
	const host, key = "Host: x\r\n", "Authorization: Bearer good\r\n"
	const problem, order = "application/problem+json", "Content-Type: application/json\r\nContent-Length: "
	for _, c := range []struct {
		name, text string
		status     int
		kind       string
		closes     bool
	}{
		{"no request line", "hello\r\n\r\n", 400, problem, true},
		{"no host", "GET /v1/instruments HTTP/1.1\r\n\r\n", 400, problem, true},
		{"a transfer coding", "POST /v1/orders HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 400, problem, true},
		{"too many headers", "GET /v1/instruments HTTP/1.1\r\n" + host + "A: " + strings.Repeat("x", 16<<10) + "\r\n\r\n", 431, problem, true},
		{"headers that do not end", "GET /v1/instruments HTTP/1.1\r\n" + host, 408, problem, true},
		{"a body that does not come, of a stranger", "POST /v1/orders HTTP/1.1\r\n" + host + order + "100\r\n\r\n{", 408, problem, true},
		{"an expectation", "POST /v1/orders HTTP/1.1\r\n" + host + key + "Expect: miracles\r\n" + order + "2\r\n\r\n{}", 200, "application/json", false},
		{"a stream over HTTP/1.0", "GET /v1/executions HTTP/1.0\r\n" + host + key + "\r\n", 505, problem, true},
		{"a version to come", "GET /v1/instruments HTTP/3.0\r\n" + host + key + "\r\n", 200, "application/json", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // some of them wait
			conn := connect(t, server)
			got, body := say(t, conn, bufio.NewReader(conn), c.text)
			if got.StatusCode != c.status || got.Header.Get("Content-Type") != c.kind || got.Close != c.closes {
				t.Errorf("status %d, Content-Type %q, close %t; want %d, %q, %t; %s",
					got.StatusCode, got.Header.Get("Content-Type"), got.Close, c.status, c.kind, c.closes, body)
			}
			if _, err := http.ParseTime(got.Header.Get("Date")); err != nil {
				t.Errorf("the Date: %v", err)
			}
		})
	}
}
