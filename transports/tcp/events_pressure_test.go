package tcp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/tcp"
	"tailgate/transports/tcp/internal/wire"
)

// narrow makes the kernel hold little between a server and its peers, so that a peer that does not read is felt soon. The receive buffer of one that never
// read is small by itself; making it smaller than a segment of the loopback makes the kernel drop segments and repeat them after seconds.
func narrow(t testing.TB, server transports.Server) {
	t.Helper()
	if err := tcp.SetWriteBuffers(server, 4096); err != nil {
		t.Fatal(err)
	}
}

// TestSlowStreamIsCutBesideOthers: a reader of events that takes none is closed, and the others have their events and answers meanwhile and after.
func TestSlowStreamIsCutBesideOthers(t *testing.T) {
	feed := &fake.Feed{}
	log := &logged{}
	server := listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{Logger: log.logger(), Limits: transports.Limits{WriteTimeout: time.Second}})
	deaf := greet(t, server, wire.FeatureCredit)
	deaf.stream(&pb.StreamExecutionsRequest{})
	narrow(t, server)
	const traders, events, calls = 3, 3000, 100
	var group sync.WaitGroup
	for i := range traders {
		h := hear()
		trader := trade(t, server, &pb.Logon{SessionId: fmt.Sprint("s-", i)}, h.receive)
		group.Go(func() {
			for k := range calls {
				call := fake.Call(transports.SubmitOrder, fake.Order(fmt.Sprintf("%d-%d", i, k), nil))
				if err := trader.Do(context.Background(), call); err != nil {
					t.Error(err)
					return
				}
			}
		})
		group.Go(func() { h.expect(t, 1, 1, events+1) })
	}
	for range events / 100 {
		feed.Publish(100)
	}
	waitLog(t, log, "REASON_SLOW_READER")
	until(t, "the deaf reader is closed", func() bool { return feed.Readers() == traders })
	feed.Publish(1)
	group.Wait()
}

// TestEventsWaitForTheirReader: however many there are, the out-buffer holds few of them, and the answers have their room beside. Nothing is lost.
func TestEventsWaitForTheirReader(t *testing.T) {
	feed := &fake.Feed{}
	g := &fake.Gateway{Feed: feed}
	server := listenWith(t, g, transports.ListenConfig{Limits: transports.Limits{WriteTimeout: patience}}, wide)
	p := greet(t, server, wire.FeatureCredit)
	p.logon(&pb.Logon{SessionId: "s"})
	narrow(t, server)
	const events, orders, tag = 5000, 8, 60 << 10
	feed.Publish(events)
	held := uint64(0)
	look := func() bool {
		held = max(held, tcp.Unflushed(server))
		return held > tcp.EventRoom-wire.HeaderSize-transports.MaxEventBytes
	}
	until(t, "the room for events is used", look)
	for range 100 {
		look()
		<-time.After(100 * time.Microsecond) // gives events that do not wait the time to be caught
	}
	if held > tcp.EventRoom {
		t.Errorf("%d bytes of events wait in the out-buffer, at most %d may", held, tcp.EventRoom)
	}
	for i := range orders {
		p.send(p.order(fmt.Sprint("order-", i), tag))
	}
	until(t, "the orders are handled though nobody reads", func() bool { return len(g.Requests()) == orders+1 })
	next, answered := uint64(1), uint32(0)
	for next <= events || answered < orders {
		h, payload := p.read()
		switch h.Type {
		case wire.Event:
			var report pb.ExecutionReport
			if err := proto.Unmarshal(payload, &report); err != nil || !proto.Equal(&report, fake.Report(1, next)) {
				t.Fatalf("event %d is %v (%v)", next, &report, err)
			}
			next++
		case wire.Response:
			if answered++; h.Correlation != answered+1 || len(payload) < tag {
				t.Fatalf("answer %d is for request %d and has %d bytes", answered, h.Correlation, len(payload))
			}
		default:
			t.Fatalf("read %v %q", h.Type, payload)
		}
	}
	p.alive()
}

// TestStalledReceiveStallsItsConnectionOnly: its own calls wait, nobody else's do, and everything goes on when it returns.
func TestStalledReceiveStallsItsConnectionOnly(t *testing.T) {
	feed := &fake.Feed{}
	g := &fake.Gateway{Feed: feed}
	server := listen(t, g, transports.ListenConfig{})
	inside, leave := make(chan struct{}), make(chan struct{})
	slow := hear()
	stalled := trade(t, server, &pb.Logon{SessionId: "stalled"}, func(report *pb.ExecutionReport) {
		if report.GetSequence() == 1 {
			close(inside)
			<-leave
		}
		slow.receive(report)
	})
	h := hear()
	other := trade(t, server, &pb.Logon{SessionId: "other"}, h.receive)
	feed.Publish(1)
	await(t, inside, "the first event")
	waits := make(chan error, 1)
	go func() {
		waits <- stalled.Do(context.Background(), fake.Call(transports.SubmitOrder, fake.Order("waits", nil)))
	}()
	feed.Publish(99)
	for i := range 20 {
		if err := other.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order(fmt.Sprint("order-", i), nil))); err != nil {
			t.Fatal(err)
		}
	}
	h.expect(t, 1, 1, 100)
	until(t, "its order is handled", func() bool { return len(g.Requests()) == 2+20+1 })
	select {
	case err := <-waits:
		t.Errorf("the call ended (%v) while nobody could read its answer", err)
	default:
	}
	close(leave)
	if err := <-waits; err != nil {
		t.Error(err)
	}
	slow.expect(t, 1, 1, 100)
}

// TestEventsBehindAHeldAnswer leave with it: frames of a connection leave in order, whatever the journal holds back.
func TestEventsBehindAHeldAnswer(t *testing.T) {
	h := newHeld()
	feed := &fake.Feed{}
	g := &fake.Gateway{Feed: feed}
	g.OnCommit = func(release func(error)) {
		h.mu.Lock()
		h.marks = append(h.marks, release)
		h.mu.Unlock()
		h.came <- struct{}{}
	}
	server := listen(t, g, transports.ListenConfig{})
	p := greet(t, server, wire.FeatureCredit)
	feed.Publish(1000) // more than the room for them
	p.send(p.request(transports.Logon, &pb.Logon{SessionId: "s"}))
	<-h.came
	until(t, "the room for events is used", func() bool { return tcp.Unflushed(server) > tcp.EventRoom-wire.HeaderSize-transports.MaxEventBytes })
	_ = p.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // gives a frame that does not wait the time to be caught
	if head, _, err := p.tryRead(); err == nil {
		t.Fatalf("%v left before the journal had kept its promise", head.Type)
	}
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	h.release(nil)
	p.ack()
	for n := range uint64(1000) {
		p.event(1, 1, n+1)
	}
}
