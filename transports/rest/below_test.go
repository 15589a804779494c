package rest_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"tailgate/transports"
	"tailgate/transports/internal/fake"
)

// TestWhatNetHTTPRefusesItself holds the README's table of errors that come from below this package: no problem document, but a status, an
// end of the connection, and nothing processed.
func TestWhatNetHTTPRefusesItself(t *testing.T) {
	t.Parallel() // it waits most of its time
	opened := false
	gateway := &fake.Gateway{OnOpen: func(context.Context, transports.Peer) error { opened = true; return nil }}
	server := listen(t, gateway, transports.ListenConfig{})
	for name, c := range map[string]struct {
		text   string
		status int
		body   string
	}{
		"bad escape in the path":  {"GET /v1/orders/%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, "400 Bad Request"},
		"no request line":         {"hello\r\n\r\n", 400, "400 Bad Request"},
		"no header line":          {"GET /v1/orders HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", 400, "400 Bad Request"},
		"two lengths":             {"POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, "400 Bad Request"},
		"length that is none":     {"POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, "400 Bad Request"},
		"no host":                 {"GET /v1/orders HTTP/1.1\r\n\r\n", 400, "400 Bad Request: missing required Host header"},
		"malformed host":          {"GET /v1/orders HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "400 Bad Request: malformed Host header"},
		"control byte in a value": {"GET /v1/orders HTTP/1.1\r\nHost: x\r\nA: \x01\r\n\r\n", 400, "400 Bad Request"},
		"space in a header name":  {"GET /v1/orders HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n", 400, "400 Bad Request: invalid header name"},
		"too many headers":        {"GET /v1/orders HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("x", 32<<10) + "\r\n\r\n", 431, "431 Request Header Fields Too Large"},
		"transfer coding":         {"POST /v1/orders HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "Unsupported transfer encoding"},
		"version":                 {"GET /v1/orders HTTP/3.0\r\nHost: x\r\n\r\n", 505, "505 HTTP Version Not Supported: unsupported protocol version"},
		"expectation":             {"POST /v1/orders HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\nContent-Length: 2\r\n\r\n{}", 417, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, server)
			if _, err := io.WriteString(conn, c.text); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, _ := io.ReadAll(response.Body) // a close on unread bytes, as with 431, ends it with a reset
			if response.StatusCode != c.status || !response.Close || string(body) != c.body {
				t.Errorf("status %d, close %t, body %q; want %d, close, %q", response.StatusCode, response.Close, body, c.status, c.body)
			}
			want := "text/plain; charset=utf-8"
			if c.body == "" {
				want = ""
			}
			if got := response.Header.Get("Content-Type"); got != want {
				t.Errorf("Content-Type %q, want %q", got, want)
			}
		})
	}
	if opened || len(gateway.Requests()) != 0 {
		t.Error("one of them reached the gateway")
	}
}
