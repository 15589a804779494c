package outbox_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tailgate/transports/tcp/internal/outbox"
	"tailgate/transports/tcp/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is the two ends of a connection on loopback.
func pair(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	return accepted.(*net.TCPConn), dialed.(*net.TCPConn)
}

// box is an out-buffer over near; blocking is the way of TLS.
func box(near net.Conn, blocking bool, change func(*outbox.Config)) *outbox.Box {
	config := outbox.Config{Pool: &outbox.Pool{}, Conn: near, Limit: 1 << 40, EventRoom: 1 << 40, WriteTimeout: 20 * time.Second}
	if !blocking {
		config.Raw = outbox.Raw(near)
	}
	if change != nil {
		change(&config)
	}
	return outbox.New(config)
}

// answer appends a RESPONSE whose payload starts with a stamp, CONTROL one that waits for nobody. It returns the frame as it must arrive.
func answer(b *outbox.Box, id, credit uint32, size int, now int64) []byte {
	size = max(size, 8)
	frame := wire.Frame(wire.Header{Type: wire.Response, Correlation: id, Credit: credit, X: 0, Y: 7}, bytes.Repeat([]byte{byte(id)}, size+1))
	h := wire.Parse(frame)
	h.X = 1 // the stamp is at payload[1:9]
	h.Put(frame)
	room := b.Begin(len(frame))
	if room == nil {
		return nil
	}
	b.EndAnswer(copy(room, frame))
	binary.LittleEndian.PutUint64(frame[wire.HeaderSize+1:], uint64(now))
	return frame
}

func control(b *outbox.Box, id uint32) []byte {
	frame := wire.Frame(wire.Header{Type: wire.Pong, Correlation: id, Credit: id}, nil)
	room := b.Begin(len(frame))
	if room == nil {
		return nil
	}
	b.EndControl(copy(room, frame))
	return frame
}

// event appends an EVENT, and returns the frame as it must arrive.
func event(t interface{ Fatal(...any) }, b *outbox.Box, id uint32, size int) []byte {
	h := wire.Header{Type: wire.Event, Correlation: id, Credit: 12345} // no credit, whatever the field says
	payload := bytes.Repeat([]byte{byte(id)}, size)
	if !b.Event(h, payload) {
		t.Fatal("the box takes no event")
	}
	return wire.Frame(h, payload)
}

// TestWhatLeavesIsWhatWasReleased drives a box through random appends, marks, releases and failures, with a peer that reads at its own pace, and compares
// the peer's bytes with a list.
func TestWhatLeavesIsWhatWasReleased(t *testing.T) {
	for _, way := range []string{"raw", "blocking", "polled"} {
		t.Run(way, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				near, far := pair(t)
				var owed uint64
				var settled atomic.Uint64
				onFlushed := func(d outbox.Debt) { settled.Add(uint64(d.Cost)) }
				var b *outbox.Box
				if way == "polled" {
					b = polled(t, near, 1, func(c *outbox.Config) { c.OnFlushed = onFlushed })
				} else {
					b = box(near, way == "blocking", func(c *outbox.Config) { c.OnFlushed = onFlushed })
				}
				var got []byte
				var reading sync.WaitGroup
				reading.Go(func() { got, _ = io.ReadAll(far) })

				// The model: frames in order, and how far they may have left.
				type piece struct {
					frame  []byte
					answer bool
				}
				var queue []piece // not released
				var want []byte
				var marks []struct {
					mark uint64
					n    int // pieces of queue that it covers
				}
				dirty, now := false, int64(1000)
				settle := func() {
					if len(marks) == 0 && !dirty {
						for _, p := range queue {
							want = append(want, p.frame...)
						}
						queue = nil
					}
				}
				id, aborted := uint32(0), false
				for range rapid.IntRange(0, 60).Draw(r, "steps") {
					switch rapid.SampledFrom([]string{"answer", "answer", "large", "control", "event", "express", "mark", "release", "flush", "abort"}).Draw(r, "step") {
					case "answer":
						id++
						queue = append(queue, piece{answer(b, id, id, rapid.IntRange(8, 3000).Draw(r, "size"), now), true})
						dirty = true
					case "large":
						id++
						queue = append(queue, piece{answer(b, id, id, rapid.IntRange(15_000, 300_000).Draw(r, "size"), now), true})
						dirty = true
					case "control":
						id++
						queue = append(queue, piece{control(b, id), false})
						settle()
					case "event":
						id++
						queue = append(queue, piece{event(r, b, id, rapid.IntRange(0, 512).Draw(r, "size")), false})
						settle()
					case "express": // before all that waits, and what answers among that say of a place is out of date
						id++
						h := wire.Header{Type: wire.Credit, Credit: id}
						b.Express(h)
						want = append(want, wire.Frame(h, nil)...)
						if len(marks) > 0 || dirty {
							for _, p := range queue {
								if p.answer {
									binary.LittleEndian.PutUint16(p.frame[wire.PlaceOfY:], 0)
								}
							}
						}
					case "mark":
						owed += uint64(id)
						b.Owe(outbox.Debt{Cost: id})
						marks = append(marks, struct {
							mark uint64
							n    int
						}{b.Mark(), len(queue)})
						dirty = false
					case "release":
						if len(marks) == 0 {
							continue
						}
						m := marks[0]
						marks = marks[1:]
						for _, p := range queue[:m.n] {
							want = append(want, p.frame...)
						}
						queue = queue[m.n:]
						for i := range marks {
							marks[i].n -= m.n
						}
						b.Release(m.mark, now)
						settle()
					case "flush":
						b.Flush()
					case "abort":
						if rapid.IntRange(0, 9).Draw(r, "really") > 0 || len(marks) == 0 {
							continue
						}
						last := wire.Frame(wire.Header{Type: wire.Error}, []byte("end"))
						b.Abort(last)
						want, queue, aborted = append(want, last...), nil, true
						if b.Begin(1) != nil {
							r.Fatal("the box takes frames after an abort")
						}
					}
					if aborted {
						break
					}
				}
				if !aborted {
					last := b.Mark()
					for _, p := range queue {
						want = append(want, p.frame...)
					}
					marks = append(marks, struct {
						mark uint64
						n    int
					}{})
					b.Finish()
					for i, m := range marks {
						if i == len(marks)-1 {
							m.mark = last
						}
						b.Release(m.mark, now)
					}
				} else {
					for _, m := range marks { // late releases do nothing
						b.Release(m.mark, now)
					}
				}
				<-b.Done()
				if err := b.Err(); err != nil {
					r.Fatalf("the box died: %v", err)
				}
				b.WaitSettled()
				if got := settled.Load(); got != owed {
					r.Fatalf("%d is settled in the end, %d was owed", got, owed)
				}
				_ = near.Close()
				reading.Wait()
				if !bytes.Equal(got, want) {
					r.Fatalf("the peer read %d bytes, want %d; they differ", len(got), len(want))
				}
			})
		})
	}
}

// TestReleaseNeverWaits: nobody reads, the socket is full, and a release returns all the same; the bytes leave when somebody reads.
func TestReleaseNeverWaits(t *testing.T) {
	near, far := pair(t)
	b := box(near, false, nil)
	const n, size = 40, 1 << 20
	for i := range uint32(n) { // returns at all: on one goroutine, with nobody reading until it is through
		answer(b, i, i, size, 1)
		b.Release(b.Mark(), 1)
	}
	if b.Unflushed() == 0 {
		t.Fatalf("the kernel took all of %d MiB: the socket was never full", n)
	}
	b.Finish()
	var total int64
	read := make(chan struct{})
	go func() { defer close(read); total, _ = io.Copy(io.Discard, far) }()
	<-b.Done()
	_ = near.Close()
	<-read
	if want := int64(n * (wire.HeaderSize + size + 1)); total != want {
		t.Errorf("%d bytes arrived, want %d", total, want)
	}
}

// TestDebtsComeBackWithTheKernel: a debt is settled when all that it is owed for has left, or when the box is dead, and not before.
func TestDebtsComeBackWithTheKernel(t *testing.T) {
	near, far := pair(t)
	var settled atomic.Uint32
	b := box(near, false, func(c *outbox.Config) { c.OnFlushed = func(d outbox.Debt) { settled.Add(d.Cost) } })
	owe := func(id uint32, size int, cost uint32) {
		answer(b, id, 0, size, 1)
		b.Owe(outbox.Debt{Cost: cost})
	}
	owe(1, 8, 1)
	b.Flush()
	if got := settled.Load(); got != 0 {
		t.Errorf("%d settled before the release", got)
	}
	b.Release(b.Mark(), 1)
	b.WaitSettled()
	if got := settled.Load(); got != 1 {
		t.Errorf("%d settled after the answer has left, want 1", got)
	}
	owe(2, 64<<20, 10)
	owe(3, 8, 100)
	b.Release(b.Mark(), 1)
	if got := settled.Load(); got != 1 {
		t.Errorf("%d settled with half an answer in the kernel, want 1", got)
	}
	_ = far.Close()
	b.Die(outbox.ErrClosed)
	owe(4, 8, 1000) // of a batch that was being handled
	b.WaitSettled()
	if got := settled.Load(); got != 1111 {
		t.Errorf("%d settled in the end, want 1111", got)
	}
}

func TestDeaths(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*outbox.Config)
		blocking bool
		do       func(b *outbox.Box, far *net.TCPConn)
		want     string
		is       error
	}{
		"too much waits": {
			change: func(c *outbox.Config) { c.Limit = 1000 },
			do: func(b *outbox.Box, _ *net.TCPConn) {
				answer(b, 1, 1, 64<<20, 1)
				b.Release(b.Mark(), 1)
			},
			want: "at most 1000 may", is: outbox.ErrSlowReader,
		},
		"no byte taken": {
			change: func(c *outbox.Config) { c.WriteTimeout = 50 * time.Millisecond },
			do: func(b *outbox.Box, _ *net.TCPConn) {
				answer(b, 1, 1, 64<<20, 1)
				b.Release(b.Mark(), 1)
			},
			want: "no byte for 50ms", is: outbox.ErrSlowReader,
		},
		"no byte taken, blocking": {
			blocking: true,
			change:   func(c *outbox.Config) { c.WriteTimeout = 50 * time.Millisecond },
			do: func(b *outbox.Box, _ *net.TCPConn) {
				answer(b, 1, 1, 64<<20, 1)
				b.Release(b.Mark(), 1)
			},
			want: "no byte for 50ms", is: outbox.ErrSlowReader,
		},
		"the owner": {
			do:   func(b *outbox.Box, _ *net.TCPConn) { b.Die(outbox.ErrClosed) },
			want: "closed", is: outbox.ErrClosed,
		},
		"the peer is gone": {
			do: func(b *outbox.Box, far *net.TCPConn) {
				_ = far.SetLinger(0)
				_ = far.Close()
				for b.Err() == nil { // the reset takes its time
					control(b, 1)
					b.Flush()
				}
			},
			want: "write: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			died := make(chan error, 1)
			b := box(near, test.blocking, func(c *outbox.Config) {
				c.OnDeath = func(err error) { died <- err }
				if test.change != nil {
					test.change(c)
				}
			})
			test.do(b, far)
			err := <-died
			if !strings.Contains(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("died of %v, want %q", err, test.want)
			}
			<-b.Done()
			if b.Begin(1) != nil {
				t.Error("a dead box takes frames")
			}
			b.Release(b.Mark(), 1) // harmless, as are the others
			b.Flush()
			b.Finish()
			b.Abort(wire.Frame(wire.Header{}, nil))
			b.WaitBelow(0)
		})
	}
}

// TestWaitBelowEndsWithProgress pauses a producer until the peer has read.
func TestWaitBelowEndsWithProgress(t *testing.T) {
	near, far := pair(t)
	b := box(near, false, nil)
	answer(b, 1, 1, 64<<20, 1)
	b.Release(b.Mark(), 1)
	waited := make(chan struct{})
	go func() { defer close(waited); b.WaitBelow(1000) }()
	read := make(chan struct{})
	go func() { defer close(read); _, _ = io.Copy(io.Discard, far) }()
	<-waited
	b.Finish()
	<-b.Done()
	_ = near.Close()
	<-read
}

func TestPoolIsLIFOAndFits(t *testing.T) {
	var pool outbox.Pool
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3<<20).Draw(t, "bytes")
		first := pool.Get(n)
		if len(first.B) < n {
			t.Fatalf("asked for %d bytes, got %d", n, len(first.B))
		}
		pool.Put(first)
		if again := pool.Get(n); n <= 1<<20 && again != first {
			t.Fatalf("the last buffer put back is not the first one lent")
		} else {
			pool.Put(again)
		}
	})
	const payload = 64 << 10
	if b := pool.Get(wire.HeaderSize + payload + 1024); len(b.B) > payload+2<<10 {
		t.Errorf("64 KiB with header and overhead take a buffer of %d bytes", len(b.B))
	}
}

func TestWritingDoesNotAllocate(t *testing.T) {
	near, far := pair(t)
	b := box(near, false, nil)
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{far}, make([]byte, 1<<20))
	}()
	payload := make([]byte, 10_000)
	frame := wire.Frame(wire.Header{Type: wire.Response}, payload)
	run := func() {
		for range 3 { // three buffers, so one writev
			b.EndAnswer(copy(b.Begin(len(frame)), frame))
		}
		b.Release(b.Mark(), 1)
	}
	run()
	if n := testing.AllocsPerRun(20, run); n != 0 {
		t.Errorf("%v allocations a write, want 0", n)
	}
	b.Finish()
	<-b.Done()
	_ = near.Close()
	<-read
}
