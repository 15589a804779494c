package tcp_test

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tailgate/transports"
	"tailgate/transports/tcp/internal/wire"
)

// BenchmarkEngines is one request at a time from a client of raw system calls that spins, so that what differs is the server: each of its engines, and the least
// that can be, a thread that spins on one socket and sends back what it has read.
func BenchmarkEngines(b *testing.B) {
	for _, size := range []int{64, 64 << 10} {
		b.Run(fmt.Sprintf("spinning echo/%d", size), func(b *testing.B) { spinningEcho(b, size) })
		for _, engine := range []string{"spin", "park", "net"} {
			b.Run(fmt.Sprintf("%s/%d", engine, size), func(b *testing.B) {
				server := listenWith(b, &gateway{handle: acknowledgeOnly}, transports.ListenConfig{Engine: engine}, wide)
				p := greet(b, server, wire.FeatureCredit)
				frame := p.request(transports.SubmitOrder, sized(size).Request)
				h := wire.Parse(frame)
				exchanges(b, p.conn, frame, func() {
					h.Correlation++
					h.Put(frame)
				})
			})
		}
	}
}

// exchanges sends a request and reads its answer, again and again. next makes the request after it.
func exchanges(b *testing.B, conn net.Conn, frame []byte, next func()) {
	_ = conn.SetDeadline(time.Time{})
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	in := make([]byte, len(frame)+1024)
	samples := make([]time.Duration, 0, 1<<20)
	failed := raw.Control(func(fd uintptr) {
		b.ReportAllocs()
		for b.Loop() {
			begin := time.Now()
			if err = sendAll(int(fd), frame); err != nil {
				return
			}
			for n, whole := 0, wire.HeaderSize; n < whole; {
				var k int
				if k, err = spinRead(int(fd), in[n:]); err != nil {
					return
				}
				if n += k; n >= wire.HeaderSize {
					whole = wire.HeaderSize + int(wire.Parse(in).Length)
				}
			}
			samples = append(samples, time.Since(begin))
			next()
		}
	})
	if failed != nil || err != nil {
		b.Fatal(failed, err)
	}
	report(b, samples)
}

func spinningEcho(b *testing.B, size int) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		runtime.LockOSThread()
		buffer := make([]byte, 1<<17)
		raw, _ := conn.(*net.TCPConn).SyscallConn()
		_ = raw.Control(func(fd uintptr) {
			for {
				n, err := spinRead(int(fd), buffer)
				if err != nil || n == 0 || sendAll(int(fd), buffer[:n]) != nil {
					return
				}
			}
		})
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	exchanges(b, conn, wire.Frame(wire.Header{}, make([]byte, size)), func() {})
}

// spinRead reads at least one byte, 0 at the end.
func spinRead(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Read(fd, p)
		if !errors.Is(err, syscall.EAGAIN) {
			return n, err
		}
	}
}

func sendAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			return err
		}
		p = p[max(n, 0):]
	}
	return nil
}
