package outbox_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"tailgate/transports/tcp/internal/outbox"
	"tailgate/transports/tcp/internal/wire"
)

// full is a box whose peer reads nothing and whose socket is full, with an answer of 1 MiB on its way, and room for a number of events of 100 bytes.
func full(t *testing.T, blocking bool, events int, change func(*outbox.Config)) (b *outbox.Box, far *net.TCPConn) {
	near, far := pair(t)
	if err := near.SetWriteBuffer(4096); err != nil { // and the receive buffer of a peer that never reads does not grow
		t.Fatal(err)
	}
	b = box(near, blocking, func(c *outbox.Config) {
		c.EventRoom = uint64(events) * (wire.HeaderSize + 100)
		if change != nil {
			change(c)
		}
	})
	answer(b, 1, 1, 1<<20, 1)
	b.Release(b.Mark(), 1)
	return b, far
}

// TestEventWaitsForRoom: the event that has no room waits, until the peer reads or there are to be no more events.
func TestEventWaitsForRoom(t *testing.T) {
	const room = 10
	for name, test := range map[string]struct {
		do    func(b *outbox.Box, far *net.TCPConn, group *sync.WaitGroup)
		taken bool
	}{
		"the peer reads": {func(_ *outbox.Box, far *net.TCPConn, group *sync.WaitGroup) {
			group.Go(func() { _, _ = io.Copy(io.Discard, far) })
		}, true},
		"no more events": {func(b *outbox.Box, _ *net.TCPConn, _ *sync.WaitGroup) { b.EndEvents() }, false},
		"no more frames": {func(b *outbox.Box, _ *net.TCPConn, _ *sync.WaitGroup) { b.Finish() }, false},
		"death":          {func(b *outbox.Box, _ *net.TCPConn, _ *sync.WaitGroup) { b.Die(outbox.ErrClosed) }, false},
		"abort": {func(b *outbox.Box, _ *net.TCPConn, _ *sync.WaitGroup) {
			b.Abort(wire.Frame(wire.Header{Type: wire.Error}, nil))
		}, false},
	} {
		for _, blocking := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b, far := full(t, blocking, room, nil)
				for i := range uint32(room) {
					event(t, b, i, 100)
				}
				taken := make(chan bool, 1)
				go func() { taken <- b.Event(wire.Header{Type: wire.Event}, make([]byte, 100)) }()
				select {
				case got := <-taken:
					t.Fatalf("an event without room does not wait: %v", got)
				case <-time.After(20 * time.Millisecond): // gives one that does not wait the time to be caught
				}
				var group sync.WaitGroup
				test.do(b, far, &group)
				if got := <-taken; got != test.taken {
					t.Errorf("the event was taken: %v, want %v", got, test.taken)
				}
				b.Die(outbox.ErrClosed)
				_ = far.Close()
				group.Wait()
			})
		}
	}
}

// TestEventLargerThanTheRoom goes alone.
func TestEventLargerThanTheRoom(t *testing.T) {
	near, far := pair(t)
	b := box(near, false, func(c *outbox.Config) { c.EventRoom = 10 })
	var want []byte
	for i := range uint32(3) {
		want = append(want, event(t, b, i, 400)...)
	}
	b.Finish()
	<-b.Done()
	_ = near.Close()
	if got, err := io.ReadAll(far); err != nil || string(got) != string(want) {
		t.Errorf("%d bytes arrived (%v), want %d", len(got), err, len(want))
	}
}

// TestEventsTakeNoRoomOfOthers: as many events as may wait do not make the box refuse an answer that it would else take, nor its owner stop reading. Only
// what is beside them does.
func TestEventsTakeNoRoomOfOthers(t *testing.T) {
	const room, limit = 1000, 2 << 20 // the answer under way, and another one
	b, _ := full(t, false, room, func(c *outbox.Config) { c.Limit = limit })
	b.Flush()
	below := limit - 1<<19
	b.WaitBelow(uint64(below)) // returns at all, before and after
	for i := range uint32(room) {
		event(t, b, i, 100)
	}
	b.WaitBelow(uint64(below))
	answer(b, 2, 2, 1<<18, 1)
	b.Release(b.Mark(), 1)
	if err := b.Err(); err != nil {
		t.Fatalf("with %d bytes of events the box dies of an answer that it has room for: %v", room*(wire.HeaderSize+100), err)
	}
	answer(b, 3, 3, 2<<20, 1)
	b.Release(b.Mark(), 1)
	if b.Err() == nil {
		t.Errorf("the box holds %d bytes that nobody reads, at most %d may wait beside the events", b.Unflushed(), limit)
	}
}

// TestWaitReleased waits for the journal, and for a death in its place.
func TestWaitReleased(t *testing.T) {
	for name, end := range map[string]func(b *outbox.Box, mark uint64){
		"release": func(b *outbox.Box, mark uint64) { b.Release(mark, 1) },
		"abort":   func(b *outbox.Box, _ uint64) { b.Abort(wire.Frame(wire.Header{Type: wire.Error}, nil)) },
		"death":   func(b *outbox.Box, _ uint64) { b.Die(outbox.ErrClosed) },
	} {
		t.Run(name, func(t *testing.T) {
			near, _ := pair(t)
			b := box(near, false, nil)
			b.WaitReleased() // nothing is marked
			answer(b, 1, 1, 10, 1)
			first := b.Mark()
			answer(b, 2, 2, 10, 1)
			mark := b.Mark()
			waited := make(chan struct{})
			go func() { defer close(waited); b.WaitReleased() }()
			b.Release(first, 1)
			select {
			case <-waited:
				t.Error("it returns while a mark is not released")
			case <-time.After(20 * time.Millisecond): // gives one that does not wait the time to be caught
			}
			end(b, mark)
			<-waited
			b.Die(outbox.ErrClosed)
		})
	}
}
