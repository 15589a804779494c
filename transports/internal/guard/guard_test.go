package guard_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tailgate/transports/internal/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a net.Listener whose connections are in-memory pipes, so that time can be the test's.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{Port: 1} }

// dial returns the client's end.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// accept opens a connection and returns both ends, the guarded one nil where it found no place.
func accept(t *testing.T, p *pipes, l *guard.Listener) (client net.Conn, server *guard.Conn) {
	t.Helper()
	got := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			got <- c
		}
		close(got)
	}()
	client = p.dial()
	synctest.Wait()
	select {
	case c := <-got:
		return client, c.(*guard.Conn)
	default: // closed without a word; Accept waits for the next
		return client, nil
	}
}

// pass lets so much of the bubble's time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func closing(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func isClosed(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(time.Nanosecond)) //nolint:errcheck // a pipe takes it
	_, err := c.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := guard.Listen(p, guard.Options{MaxConnections: 2, SurplusTime: time.Second})
		defer closing(t, l)
		var regular []*guard.Conn
		for range 2 {
			_, c := accept(t, p, l)
			if c == nil || c.Surplus() {
				t.Fatal("a connection within the limit is refused")
			}
			regular = append(regular, c)
		}
		var surplus []net.Conn
		for range guard.MaxSurplus {
			client, c := accept(t, p, l)
			if c == nil || !c.Surplus() {
				t.Fatal("a connection beyond the limit is not surplus")
			}
			surplus = append(surplus, client)
		}
		client, c := accept(t, p, l)
		if c != nil || !isClosed(client) {
			t.Fatal("a connection beyond all places is not closed")
		}
		// The Accept of that one still waits. A freed regular place serves the next, closed twice or not.
		closing(t, regular[0])
		closing(t, regular[0])
		p.dial()
		synctest.Wait()
		pass(time.Second)
		for _, client := range surplus {
			if !isClosed(client) {
				t.Fatal("a surplus connection outlived its time")
			}
		}
		_, c = accept(t, p, l)
		if c == nil || !c.Surplus() {
			t.Error("a double close gave two places back")
		} else {
			closing(t, c)
		}
		closing(t, regular[1])
	})
}

func TestDrainClosesWhatWasNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := guard.Listen(p, guard.Options{MaxConnections: 9, SurplusTime: time.Second})
		usedClient, used := accept(t, p, l)
		idleClient, _ := accept(t, p, l)
		used.Use()
		l.Drain()
		if !isClosed(idleClient) {
			t.Error("an unused connection is open after Drain")
		}
		if isClosed(usedClient) {
			t.Error("a used connection is closed by Drain")
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Drain: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("Close after Drain: %v", err)
		}
		closing(t, used)
	})
}

func TestAddressesLeadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := guard.Listen(p, guard.Options{MaxConnections: 1, SurplusTime: time.Second})
		defer closing(t, l)
		_, c := accept(t, p, l)
		defer closing(t, c)
		if guard.Of(c.RemoteAddr()) != c || guard.Of(c.Remote()) != nil || guard.Of(nil) != nil {
			t.Error("an address does not lead to its connection")
		}
		if c.RemoteAddr().String() != c.Remote().String() || c.RemoteAddr().Network() != c.Remote().Network() {
			t.Errorf("%v is not %v", c.RemoteAddr(), c.Remote())
		}
	})
}

// TestWriteGoesOnWhileBytesMove: a slow peer is waited for, one that takes nothing is not.
func TestWriteGoesOnWhileBytesMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		p := newPipes()
		l := guard.Listen(p, guard.Options{MaxConnections: 1, SurplusTime: time.Second, WriteTimeout: timeout})
		defer closing(t, l)
		client, c := accept(t, p, l)
		defer closing(t, c)
		sent := bytes.Repeat([]byte("0123456789"), 3)
		done := make(chan error, 1)
		go func() {
			n, err := c.Write(sent)
			if n != len(sent) && err == nil {
				err = io.ErrShortWrite
			}
			done <- err
		}()
		var got []byte
		for len(got) < len(sent) {
			pass(timeout * 9 / 10) // longer than the timeout in sum, never at once
			b := make([]byte, 7)
			n, err := client.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, b[:n]...)
		}
		if err := <-done; err != nil || !bytes.Equal(got, sent) {
			t.Errorf("error %v, got %q", err, got)
		}
		start := time.Now()
		if n, err := c.Write(sent); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a peer that takes nothing: %d bytes, %v", n, err)
		}
		if waited := time.Since(start); waited != timeout {
			t.Errorf("waited %v, want %v", waited, timeout)
		}
	})
}

func TestCondemnedAreClosedWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := guard.Listen(p, guard.Options{MaxConnections: 2, SurplusTime: time.Second})
		defer closing(t, l)
		good, goodServer := accept(t, p, l)
		bad, badServer := accept(t, p, l)
		defer closing(t, good)
		badServer.Condemn()
		if isClosed(bad) {
			t.Error("a condemned connection is closed before its time")
		}
		l.CloseCondemned()
		if !isClosed(bad) || isClosed(good) {
			t.Errorf("closed are: condemned %t, other %t", isClosed(bad), isClosed(good))
		}
		l.CloseCondemned() // and it is forgotten
		closing(t, goodServer)
	})
}
