package admin_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"tailgate/gateway/admin"
)

// forever is how long a stranger may stay where a test is not about that; answerTime is how long a test waits for what comes, below every timeout
// of the listener.
const (
	forever    = time.Hour
	answerTime = 9 * time.Second
)

// peer is a connection of which the test sees every byte.
type peer struct {
	net.Conn

	in *bufio.Reader
}

// dial opens a connection and sends what it has to say, if anything.
func dial(t *testing.T, s *admin.Server, says string) *peer {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(context.Background(), "tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p := &peer{Conn: c, in: bufio.NewReader(c)}
	p.say(t, says)
	return p
}

func (p *peer) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		t.Fatal(err)
	}
}

// closed reads until the gateway closes the connection; false = it does not.
func (p *peer) closed(t *testing.T) bool {
	t.Helper()
	_ = p.SetReadDeadline(time.Now().Add(answerTime))
	_, err := io.Copy(io.Discard, p.in)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// status makes a request on the connection and returns the answer's status code.
func (p *peer) status(t *testing.T, key string) int {
	t.Helper()
	p.say(t, request(key, 2)+"{}")
	_ = p.SetReadDeadline(time.Now().Add(answerTime))
	response, err := http.ReadResponse(p.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

// request is the head of a request for the status.
func request(key string, length int) string {
	return fmt.Sprintf("POST /orderentry.v1.AdminService/GetStatus HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
		"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", key, length)
}

// preface opens an HTTP/2 connection: RFC 9113, section 3.4, with empty SETTINGS.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// TestIdleConnectionsKeepNobodyOut: 200 connections that show no key, over HTTP/2 and silent ones, and an operator is answered.
func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	s := startWith(t, func(b admin.Backend) (*admin.Server, error) { return admin.ListenWith(nil, b, 64, forever) })
	var idle []*peer
	for i := range 200 {
		idle = append(idle, dial(t, s, []string{preface, ""}[i%2]))
	}
	if code := dial(t, s, "").status(t, "secret"); code != http.StatusOK {
		t.Errorf("status %d", code)
	}
	for i, p := range idle[:200-63] {
		if !p.closed(t) {
			t.Fatalf("connection %d of 200 is open: want 64 left with the operator's, the newest", i)
		}
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	over2 := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer over2.CloseIdleConnections()
	for range 2 {
		if code := statusOver(t, over2, "http://"+s.Addr().String()); code != http.StatusOK {
			t.Errorf("over HTTP/2: status %d", code)
		}
	}
}

// statusOver asks for the status with the key.
func statusOver(t *testing.T, client *http.Client, address string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/orderentry.v1.AdminService/GetStatus", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer secret")
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

// TestStrangersAreClosedInTime: whatever a connection does without a key, it is closed; one that has shown a key stays.
func TestStrangersAreClosedInTime(t *testing.T) {
	s := startWith(t, func(b admin.Backend) (*admin.Server, error) { return admin.ListenWith(nil, b, 64, time.Second) })
	operator := dial(t, s, "")
	if code := operator.status(t, "secret"); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	wrong := dial(t, s, "")
	if code := wrong.status(t, "guessed"); code != http.StatusUnauthorized {
		t.Fatalf("with another key: status %d", code)
	}
	for what, p := range map[string]*peer{
		"silent":                 dial(t, s, ""),
		"idle over HTTP/2":       dial(t, s, preface),
		"half a head":            dial(t, s, "POST / HTTP/1.1\r\nHost:"),
		"half a body":            dial(t, s, request("secret", 100)+"{"),
		"one with another's key": wrong,
	} {
		if !p.closed(t) {
			t.Errorf("%s: it is open", what)
		}
	}
	if code := operator.status(t, "secret"); code != http.StatusOK {
		t.Errorf("the operator's connection: status %d", code)
	}
}

// TestAuthorizedConnectionsAreNotTurnedOut: at the limit with nobody but operators there, it is the new one that is closed.
func TestAuthorizedConnectionsAreNotTurnedOut(t *testing.T) {
	s := startWith(t, func(b admin.Backend) (*admin.Server, error) { return admin.ListenWith(nil, b, 2, forever) })
	first, second := dial(t, s, ""), dial(t, s, "")
	for range 2 {
		for _, p := range []*peer{first, second} {
			if code := p.status(t, "secret"); code != http.StatusOK {
				t.Errorf("status %d", code)
			}
		}
		if !dial(t, s, "").closed(t) {
			t.Error("a third connection of two is open")
		}
	}
	_ = second.Close()
	_ = first.Close()
}

// TestKeyBehindTLS: the connection that TLS is spoken on is known by the request inside.
func TestKeyBehindTLS(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	config := &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12}
	s := startWith(t, func(b admin.Backend) (*admin.Server, error) { return admin.ListenWith(config, b, 2, forever) })
	client := certified.Client()
	defer client.CloseIdleConnections()
	address := "https://" + s.Addr().String()
	if code := statusOver(t, client, address); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	first, second := dial(t, s, ""), dial(t, s, "") // the second one takes the first one's place, not the operator's
	if !first.closed(t) {
		t.Error("the stranger is open")
	}
	if code := statusOver(t, client, address); code != http.StatusOK {
		t.Errorf("status %d", code)
	}
	_ = second.Close()
}

// TestStopWaitsForNoStranger: a connection that has said nothing is closed, not waited for.
func TestStopWaitsForNoStranger(t *testing.T) {
	s := startWith(t, func(b admin.Backend) (*admin.Server, error) { return admin.ListenWith(nil, b, 64, forever) })
	silent := dial(t, s, "")
	if code := dial(t, s, "").status(t, "secret"); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second) // net/http alone would wait for five
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if !silent.closed(t) {
		t.Error("the stranger is open")
	}
}
