package transportstest

import (
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"tailgate/transports"
)

// garbage: bytes that belong to no protocol, or to another one, harm nobody but who sent them.
func garbage(t *testing.T, s *suite) {
	s.networked(t)
	r := s.start(t, twoAccounts(), withLimits(transports.Limits{
		HandshakeTimeout: 500 * time.Millisecond, RequestTimeout: 500 * time.Millisecond, IdleTimeout: time.Second,
	}))
	c := r.dial(alphaKey)
	c.submit(r.limit("before", buy, 1, 0))
	sessions := r.probe.openSessions()
	stop := c.keepAsking()
	var attackers sync.WaitGroup
	for name, bytes := range map[string]string{
		"one byte":               "\x00",
		"zeros":                  strings.Repeat("\x00", 100<<10),
		"ones":                   strings.Repeat("\xff", 100<<10),
		"noise":                  noise(64 << 10),
		"an HTTP request":        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"half an HTTP request":   "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nContent-Le",
		"a body that never ends": "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + alphaKey + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
		"a body without end":     "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"endless headers":        "GET / HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("x", 1000)+"\r\n", 200),
		"HTTP/2 and then noise":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + noise(4096),
		"an HTTP/2 frame too long": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
			"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
		"the start of TLS":    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"a length of 2 GiB":   "\x00\x00\x00\x80\x01\x00\x00\x00" + strings.Repeat("\x00", 16) + "x",
		"a length below zero": "\xff\xff\xff\xff\x03\x00\x01\x00" + strings.Repeat("\x00", 16) + "x",
	} {
		for _, abrupt := range []bool{false, true} {
			attackers.Go(func() { r.attack(name, []byte(bytes), abrupt) })
		}
	}
	await(t, "every attacker's connection has ended", run(attackers.Wait))
	stop()
	r.dial(betaKey).submit(r.limit("after", buy, 1, 0))
	eventually(t, "no session is left of the attackers", func() bool { return r.probe.openSessions() <= sessions+1 })
}

// attack sends bytes and then resets the connection, or waits until the server ends it.
func (r *rig) attack(name string, bytes []byte, abrupt bool) {
	conn, err := net.Dial("tcp", r.server.Addr().String())
	if err != nil {
		r.t.Errorf("%s: %v", name, err)
		return
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(bound)); err != nil {
		r.t.Errorf("%s: %v", name, err)
	}
	_, _ = conn.Write(bytes) // the server may have had enough before the end
	if abrupt {
		_ = conn.(*net.TCPConn).SetLinger(0)
		return
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Errorf("%s: the server has kept the connection for %v", name, bound)
	}
}

// halfOpen: connections that say nothing are cut when the handshake's time is over, and keep nobody else out.
func halfOpen(t *testing.T, s *suite) {
	s.networked(t)
	r := s.start(t, twoAccounts(), withLimits(transports.Limits{MaxConnections: 20, HandshakeTimeout: 300 * time.Millisecond}))
	var silent sync.WaitGroup
	for range 15 {
		silent.Go(func() { r.attack("silence", nil, false) })
	}
	for range 50 {
		r.attack("an immediate end", nil, true)
	}
	eventually(t, "a client is admitted", func() bool {
		c, err := r.tryDial(alphaKey)
		if err != nil {
			return false
		}
		c.submit(r.immediate("admitted", buy, 1, 0))
		return true
	})
	await(t, "silent connections are cut", run(silent.Wait))
	// All their places are free again.
	for i := range 15 {
		eventually(t, "a place is free", func() bool {
			c, err := r.tryDial(betaKey)
			if err == nil {
				c.submit(r.immediate(id("free-%d", i), buy, 1, 0))
			}
			return err == nil
		})
	}
}

// noise is n bytes that look like nothing, the same at every run.
func noise(n int) string {
	var out []byte
	sum := sha256.Sum256([]byte("transportstest"))
	for len(out) < n {
		out = append(out, sum[:]...)
		sum = sha256.Sum256(sum[:])
	}
	return string(out[:n])
}
