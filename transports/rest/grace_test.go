package rest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/rest"
)

// Here time is the tests' own, and connections are pipes: what is open when, and until when, is exact. No request goes as far as
// transports.Do, whose pooled channels would leave one test's bubble for another.

// pipes is a net.Listener of in-memory connections.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

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

// connect returns the client's end.
func (p *pipes) connect() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	synctest.Wait()
	return client
}

// used connects, and has a request answered.
func (p *pipes) used(t *testing.T) net.Conn {
	t.Helper()
	conn := p.connect()
	if status, body := say(t, conn, "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"); status != 200 {
		t.Fatalf("status %d, %s", status, body)
	}
	synctest.Wait()
	return conn
}

func serve(gateway transports.Gateway) (*pipes, transports.Server) {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	return p, rest.Serve(p, gateway, transports.ListenConfig{})
}

// pass lets so much of the bubble's time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func isOpen(conn net.Conn) bool {
	conn.SetReadDeadline(time.Now().Add(time.Nanosecond)) //nolint:errcheck // a pipe takes it
	_, err := conn.Read(make([]byte, 1))
	conn.SetReadDeadline(time.Time{}) //nolint:errcheck // a pipe takes it
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// stop begins a Shutdown; the channel says how long it took and how it ended.
func stop(ctx context.Context, server transports.Server) <-chan stopped {
	done := make(chan stopped, 1)
	start := time.Now()
	go func() {
		err := server.Shutdown(ctx)
		done <- stopped{took: time.Since(start), err: err}
	}()
	synctest.Wait()
	return done
}

type stopped struct {
	took time.Duration
	err  error
}

func TestWhichConnectionsStayOpenForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, server := serve(&fake.Gateway{})
		long := p.used(t)
		pass(time.Minute)
		old := p.used(t)
		pass(rest.Grace / 2)
		silent, half := p.connect(), p.connect()
		if _, err := io.WriteString(half, "GET /v1/orders HTTP/1.1\r\n"); err != nil {
			t.Fatal(err)
		}
		speaks, quiet := p.used(t), p.used(t)
		pass(rest.Grace / 2)
		done := stop(t.Context(), server)
		for name, c := range map[string]struct {
			conn net.Conn
			open bool
		}{
			"no request yet": {silent, false}, "half a request": {half, false}, "idle for a minute": {long, false},
			"idle for the whole grace": {old, false}, "used within it": {speaks, true}, "used within it too": {quiet, true},
		} {
			if open := isOpen(c.conn); open != c.open {
				t.Errorf("%s: open is %t", name, open)
			}
		}
		pass(rest.Grace * 9 / 10)
		checkRefused(t, speaks)
		if !isOpen(quiet) {
			t.Error("a connection was closed before its time")
		}
		if s := <-done; s.err != nil || s.took != rest.Grace {
			t.Errorf("Shutdown took %v (%v), want %v for the one that had nothing to say", s.took, s.err, rest.Grace)
		}
		if isOpen(quiet) {
			t.Error("a connection is open after Shutdown")
		}
	})
}

func TestShutdownEndsWithTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, server := serve(&fake.Gateway{})
		a, b := p.used(t), p.used(t)
		done := stop(t.Context(), server)
		checkRefused(t, a)
		pass(time.Millisecond)
		checkRefused(t, b)
		if s := <-done; s.err != nil || s.took >= 2*time.Millisecond {
			t.Errorf("Shutdown took %v (%v), want 1ms and nothing that waits", s.took, s.err)
		}
		if s := <-stop(t.Context(), server); s.err != nil || s.took != 0 {
			t.Errorf("Shutdown again took %v (%v)", s.took, s.err)
		}
	})
}

func TestGraceEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, server := serve(&fake.Gateway{})
		conn := p.used(t)
		ctx, cancel := context.WithTimeout(t.Context(), rest.Grace/5)
		defer cancel()
		// Nothing accepted is left, so that this is no failure.
		if s := <-stop(ctx, server); s.err != nil || s.took != rest.Grace/5 {
			t.Errorf("Shutdown took %v (%v), want %v", s.took, s.err, rest.Grace/5)
		}
		if isOpen(conn) {
			t.Error("a connection is open after Shutdown")
		}
	})
}

// TestAcceptedOutlivesTheGrace: the bound is on connections that wait for a request, never on an accepted request; that one has the
// context's time, and two Shutdowns at once wait for it alike.
func TestAcceptedOutlivesTheGrace(t *testing.T) {
	const long = 10 * rest.Grace
	for name, c := range map[string]struct {
		answered bool
		context  time.Duration
		status   int
		err      error
	}{
		"answered late":  {true, time.Minute, 401, nil},
		"answered never": {false, long, 0, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				entered, leave := make(chan struct{}), make(chan struct{})
				p, server := serve(&fake.Gateway{OnOpen: func(context.Context, transports.Peer) error {
					close(entered)
					<-leave
					return transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "after all")
				}})
				conn := p.connect()
				status := make(chan int, 1)
				go func() {
					got, _ := say(t, conn, "GET /v1/orders HTTP/1.1\r\nHost: x\r\n\r\n")
					status <- got
				}()
				<-entered
				ctx, cancel := context.WithTimeout(t.Context(), c.context)
				defer cancel()
				one, two := stop(ctx, server), stop(ctx, server)
				pass(long - 1)
				if len(one)+len(two) != 0 {
					t.Error("Shutdown has returned before the accepted request was answered")
				}
				if c.answered {
					close(leave)
				}
				if got := <-status; got != c.status {
					t.Errorf("status %d, want %d", got, c.status)
				}
				for _, done := range []<-chan stopped{one, two} {
					// net/http looks for the end of the last request every half second.
					if s := <-done; !errors.Is(s.err, c.err) || s.took < long-1 || s.took > long+time.Second {
						t.Errorf("Shutdown took %v (%v), want about %v (%v)", s.took, s.err, long, c.err)
					}
				}
				if !c.answered {
					close(leave) // late: nobody waits, nothing breaks
				}
			})
		})
	}
}
