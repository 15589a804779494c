package restclient

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// sink is a socket that keeps what is written.
type sink struct {
	net.Conn
	bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) { return s.Buffer.Write(p) }
func (s *sink) Read(p []byte) (int, error)  { return copy(p, "220 hello"), nil }
func (s *sink) Close() error                { return nil }
func (s *sink) RemoteAddr() net.Addr        { return &net.TCPAddr{Port: 25} }

func TestBarKeepsARequestFromBeingWritten(t *testing.T) {
	inner := &sink{}
	c := &conn{Conn: inner, base: time.Now()}
	c.arm()
	if !c.bar() {
		t.Fatal("an armed connection cannot be barred")
	}
	if n, err := c.Write([]byte("x")); n != 0 || !errors.Is(err, errBarred) || inner.Len() != 0 {
		t.Errorf("a barred connection writes: %d, %v", n, err)
	}
	if !c.first().IsZero() {
		t.Error("FirstWrite of a request that was not written")
	}
	c.arm()
	if _, err := c.Write([]byte("y")); err != nil || inner.String() != "y" {
		t.Errorf("%v, %q", err, inner)
	}
	if c.bar() {
		t.Error("barred after bytes have left")
	}
	if c.first().Before(c.base) {
		t.Errorf("FirstWrite is %v", c.first())
	}
}

// TestBarAndWriteCannotBothWin races them: what bar calls unsent must not have been written.
func TestBarAndWriteCannotBothWin(t *testing.T) {
	var barredOnes, writtenOnes int
	for range 2000 {
		inner := &sink{}
		c := &conn{Conn: inner, base: time.Now()}
		c.arm()
		var group sync.WaitGroup
		group.Go(func() { c.Write([]byte("x")) }) //nolint:errcheck // either outcome is fine
		unsent := c.bar()
		group.Wait()
		if unsent != (inner.Len() == 0) {
			t.Fatalf("unsent is %t, and %d bytes were written", unsent, inner.Len())
		}
		if unsent {
			barredOnes++
		} else {
			writtenOnes++
		}
	}
	t.Logf("%d barred, %d written", barredOnes, writtenOnes)
}

func TestPeerThatSpeaksFirstIsNamed(t *testing.T) {
	c := &conn{Conn: &sink{}}
	if _, err := c.Read(make([]byte, 100)); err == nil || !bytes.Contains([]byte(err.Error()), []byte("220 hello")) {
		t.Errorf("%v", err)
	}
	c.arm()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 100)); n == 0 || err != nil {
		t.Errorf("after a request: %d, %v", n, err)
	}
}
