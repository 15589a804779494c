package tcp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp"
	"tailgate/transports/tcp/internal/wire"
)

// TestTheOthersGoOnWhileOnePeerNeverReads is the risk that two moments in the contract bring: answers are released by the journal's goroutine, one
// for all connections, and one of them does not read. The others must get every answer, in order, and the releases must never wait.
func TestTheOthersGoOnWhileOnePeerNeverReads(t *testing.T) {
	for _, features := range []uint32{wire.FeatureCredit, 0} {
		t.Run(fmt.Sprint("features=", features), func(t *testing.T) {
			journal := newSyncer(t)
			g := &gateway{handle: acknowledgeOnly, commit: journal.commit}
			log := &logged{}
			server := listenWith(t, g, transports.ListenConfig{Logger: log.logger(), Limits: transports.Limits{WriteTimeout: 200 * time.Millisecond}}, wide)

			// The deaf peer sends until its socket is full or it is closed, without credit as with it, and reads nothing.
			deaf := greet(t, server, features)
			deafDone, start := make(chan int), deaf.used
			go func() {
				frames := 0
				for {
					b := deaf.order("deaf", 60<<10)
					if features != 0 && deaf.used-start > deaf.floor { // the floor is spent
						break
					}
					if _, err := deaf.conn.Write(b); err != nil {
						break
					}
					frames++
				}
				deafDone <- frames
			}()

			const clients, each = 8, 60
			var group sync.WaitGroup
			for i := range clients {
				group.Go(func() {
					client, err := tcp.Transport().Dial(context.Background(), transports.DialConfig{Address: server.Addr().String()})
					if err != nil {
						t.Error(err)
						return
					}
					defer client.Close()
					for k := range each {
						call := order(fmt.Sprintf("%d-%d", i, k), 1000*(k%20))
						if err := client.Do(context.Background(), call); err != nil {
							t.Error(err)
							return
						}
						if err := checkAnswer(call); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			if features == 0 {
				<-deafDone // its write fails when it is closed
				waitLog(t, log, "does not take its answers")
			} else if frames := <-deafDone; frames == 0 {
				t.Error("the deaf peer sent nothing")
			}
		})
	}
}

// TestPipelinedAnswersComeInOrder has one connection with much in flight and releases from another goroutine.
func TestPipelinedAnswersComeInOrder(t *testing.T) {
	journal := newSyncer(t)
	p := greet(t, listen(t, &gateway{commit: journal.commit}, transports.ListenConfig{}), 0)
	const n = 3000
	size := func(i int) int { // small ones, and every now and then a large one, whose answer is sent from where it came in
		if i%50 == 0 {
			return i * 37 % 200_000
		}
		return i % 3000
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range n {
			if _, err := p.conn.Write(p.order(fmt.Sprint("order-", i), size(i))); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for i := range n {
		h, payload := p.read()
		var m pb.SubmitOrderResponse
		if err := proto.Unmarshal(payload, &m); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("order-", i)
		if h.Type != wire.Response || h.Correlation != uint32(i+1) || m.ClientOrderId != id || !bytes.Equal(m.ClientTag, pattern(id, size(i))) {
			t.Fatalf("answer %d is %v of request %d, order %q with a tag of %d bytes", i, h.Type, h.Correlation, m.ClientOrderId, len(m.ClientTag))
		}
		if h.X == 0 || m.SentNs < m.ReceivedNs || binary.LittleEndian.Uint64(payload[h.X:]) != m.SentNs {
			t.Fatalf("answer %d: sent_ns is %d, at offset %d", i, m.SentNs, h.X)
		}
	}
	<-sent
}

func TestSlowReaderIsClosed(t *testing.T) {
	t.Parallel()
	log := &logged{}
	server := listen(t, &gateway{}, transports.ListenConfig{Logger: log.logger(), Limits: transports.Limits{WriteTimeout: 100 * time.Millisecond}})
	p := greet(t, server, 0)
	for {
		if _, err := p.conn.Write(p.order("x", 500<<10)); err != nil {
			break // closed, after at most what two socket buffers and the out-buffer hold
		}
	}
	waitLog(t, log, "no byte for 100ms")
}

// pings is n PINGs, which cost no credit.
func (p *peer) pings(n int) []byte {
	return bytes.Repeat(wire.Frame(wire.Header{Type: wire.Ping, Aux: p.used}, nil), n)
}

// pingFlood is what a PING flood needs: a server with small answers, and the most that may wait in its out-buffer, in bytes: one largest answer, and what the read
// before brought, which with PINGs is a batch.
func pingFlood(t *testing.T, g *gateway, config transports.ListenConfig) (server transports.Server, p *peer, most uint64) {
	config.Limits.MaxRequestBytes = 1024
	server = listen(t, g, config)
	p = greet(t, server, wire.FeatureCredit)
	largest, _ := p.model.Largest(1024)
	return server, p, largest + wire.HeaderSize + 16<<10
}

// TestPingFloodIsClosed floods with what costs no credit and reads nothing: the server takes as much as its out-buffer may hold, and closes.
func TestPingFloodIsClosed(t *testing.T) {
	t.Parallel()
	log := &logged{}
	server, p, most := pingFlood(t, &gateway{}, transports.ListenConfig{Logger: log.logger(), Limits: transports.Limits{WriteTimeout: 100 * time.Millisecond}})
	narrow(t, server)
	flood, held := p.pings(200), uint64(0)
	for {
		_, err := p.conn.Write(flood)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the server neither reads nor closes; %d bytes wait in it", tcp.Unflushed(server))
		}
		if err != nil {
			break
		}
		held = max(held, tcp.Unflushed(server))
	}
	if held > most {
		t.Errorf("%d bytes of PONGs waited for a peer that does not read, at most %d may", held, most)
	}
	waitLog(t, log, "does not take its answers")
}

// TestPingFloodBehindAHeldCommitIsNotRead: what waits for the journal counts as well, though no peer can be blamed for it. When the journal comes back, every
// PING has its PONG.
func TestPingFloodBehindAHeldCommitIsNotRead(t *testing.T) {
	t.Parallel()
	held := make(chan func(), 1)
	g := &gateway{commit: func(r transports.Releaser, mark uint64) { held <- func() { r.Release(mark, nil) } }}
	server, p, most := pingFlood(t, g, transports.ListenConfig{Limits: transports.Limits{WriteTimeout: patience}})
	p.send(p.order("held", 10))
	release := <-held
	n := int(3 * most / wire.HeaderSize)
	sent := make(chan error, 1)
	go func() {
		_, err := p.conn.Write(p.pings(n))
		sent <- err
	}()
	seen := uint64(0)
	look := func() bool {
		seen = max(seen, tcp.Unflushed(server))
		return seen >= most-32<<10
	}
	until(t, "the out-buffer is as full as it may be", look)
	for range 100 {
		look()
		<-time.After(100 * time.Microsecond) // gives a server that goes on reading the time to be caught
	}
	if seen > most {
		t.Errorf("%d bytes wait for the journal, at most %d may", seen, most)
	}
	release()
	p.response()
	for range n {
		if h, _ := p.read(); h.Type != wire.Pong {
			t.Fatalf("read %v, want PONG", h.Type)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func waitLog(t testing.TB, log *logged, text string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(log.String(), text); {
		if time.Now().After(deadline) {
			t.Fatalf("the log never says %q: %s", text, log)
		}
		<-time.After(time.Millisecond)
	}
}

// TestSlowButSteadyReaderIsKept reads less than the kernel's buffers hold at a time, and gets everything.
func TestSlowButSteadyReaderIsKept(t *testing.T) {
	t.Parallel()
	server := listen(t, &gateway{}, transports.ListenConfig{Limits: transports.Limits{WriteTimeout: time.Second}})
	p := greet(t, server, 0)
	const n, size = 60, 1 << 19
	go func() {
		for i := range n {
			if _, err := p.conn.Write(p.order(fmt.Sprint("order-", i), size)); err != nil {
				return // the reader will say so
			}
		}
	}()
	for i := range n {
		<-time.After(20 * time.Millisecond) // the slowness is the test
		h, payload := p.read()
		if h.Type != wire.Response || h.Correlation != uint32(i+1) || len(payload) < size {
			t.Fatalf("answer %d: %v of request %d with %d bytes", i, h.Type, h.Correlation, len(payload))
		}
	}
}

func TestJournalFailureIsTold(t *testing.T) {
	h := newHeld()
	g := &gateway{commit: h.commit}
	log := &logged{}
	server := listen(t, g, transports.ListenConfig{Logger: log.logger()})

	p := greet(t, server, wire.FeatureCredit)
	p.send(p.order("kept", 10))
	<-h.came
	h.release(nil)
	p.response()
	p.send(append(p.order("lost-1", 10), p.order("lost-2", 10)...))
	g.waitHandled(t, 3)
	<-h.came
	h.release(errors.New("disk full"))
	_, fault := p.expect(wire.Error) // and no RESPONSE before it
	checkFault(t, fault, pb.Reason_REASON_JOURNAL_UNAVAILABLE, pb.Outcome_OUTCOME_UNKNOWN, "before the answers were committed")
	p.expectEnd()
	if !strings.Contains(log.String(), "disk full") {
		t.Errorf("the cause is not logged: %s", log)
	}

	client := dial(t, server, transports.DialConfig{})
	answered := make(chan error, 1)
	go func() { answered <- client.Do(context.Background(), order("lost-3", 10)) }()
	g.waitHandled(t, 4)
	for len(h.came) > 0 {
		<-h.came
	}
	for ok := true; ok; {
		h.release(errors.New("disk full"))
		select {
		case err := <-answered:
			checkFault(t, err, pb.Reason_REASON_JOURNAL_UNAVAILABLE, pb.Outcome_OUTCOME_UNKNOWN, "")
			ok = false
		case <-h.came:
		}
	}
	err := client.Do(t.Context(), order("after", 10))
	checkFault(t, err, pb.Reason_REASON_JOURNAL_UNAVAILABLE, pb.Outcome_OUTCOME_NOT_PROCESSED, "the journal failed")
}

// TestDrainAnswersWhatWasAccepted: GOAWAY waits behind the answers that wait for the journal, and what is sent after the last accepted request is not
// handled.
func TestDrainAnswersWhatWasAccepted(t *testing.T) {
	h := newHeld()
	g := &gateway{commit: h.commit}
	server := listen(t, g, transports.ListenConfig{})
	p := greet(t, server, wire.FeatureCredit)
	p.send(append(p.order("a", 10), p.order("b", 10)...))
	g.waitHandled(t, 2)
	<-h.came
	stopped := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go func() { stopped <- server.Shutdown(ctx) }()
	waitRefused(t, server)
	p.send(p.order("late", 10))
	for len(h.came) > 0 {
		<-h.came
	}
	h.release(nil)
	p.response()
	p.response()
	head, fault := p.expect(wire.GoAway)
	checkFault(t, fault, pb.Reason_REASON_DRAINING, pb.Outcome_OUTCOME_NOT_PROCESSED, "")
	if head.Correlation != 2 || head.Aux == 0 || head.Aux > uint32(patience.Milliseconds()) {
		t.Errorf("GOAWAY %+v, want the last accepted request (2) and the grace in milliseconds", head)
	}
	p.expectEnd()
	_ = p.conn.Close()
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if ids := g.ids(); !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("handled %v", ids)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Errorf("second Shutdown: %v", err)
	}
}

// waitRefused waits until the server takes no new connection.
func waitRefused(t testing.TB, server transports.Server) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		client, err := tcp.Transport().Dial(context.Background(), transports.DialConfig{Address: server.Addr().String()})
		if err != nil {
			return
		}
		_ = client.Close()
		if time.Now().After(deadline) {
			t.Fatal("the server still takes connections")
		}
	}
}

func TestShutdownGivesUpWithItsContext(t *testing.T) {
	h := newHeld() // a journal that never answers
	g := &gateway{commit: h.commit}
	server := listen(t, g, transports.ListenConfig{})
	client := dial(t, server, transports.DialConfig{})
	ended := make(chan error, 1)
	go func() { ended <- client.Do(context.Background(), order("a", 10)) }()
	g.waitHandled(t, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v, want the context's error", err)
	}
	checkFault(t, <-ended, pb.Reason_REASON_CONNECTION_LOST, pb.Outcome_OUTCOME_UNKNOWN, "is lost")
	if err := server.Shutdown(bounded(t)); err != nil { // every goroutine has ended, though nothing was released
		t.Errorf("second Shutdown: %v", err)
	}
	h.release(nil) // a release that comes after all is harmless
}

// TestDrainUnderLoad stops the server while many clients send, and accounts for every call: answered and handled, or not processed and not handled.
func TestDrainUnderLoad(t *testing.T) {
	journal := newSyncer(t)
	g := &gateway{commit: journal.commit}
	server := listen(t, g, transports.ListenConfig{})
	const clients = 10
	var answered, refused, doubtful sync.Map
	var count atomic.Int64
	var group sync.WaitGroup
	for i := range clients {
		client := dial(t, server, transports.DialConfig{})
		for lane := range 3 {
			group.Go(func() {
				for k := 0; ; k++ {
					id := fmt.Sprintf("%d-%d-%d", i, lane, k)
					err := client.Do(context.Background(), order(id, 100))
					if err == nil {
						answered.Store(id, true)
						count.Add(1)
						continue
					}
					if f := transports.AsFault(err); f.Outcome == pb.Outcome_OUTCOME_NOT_PROCESSED {
						refused.Store(id, f.Reason)
					} else {
						doubtful.Store(id, err)
					}
					return
				}
			})
		}
	}
	for count.Load() < 500 {
		<-time.After(time.Millisecond)
	}
	if err := server.Shutdown(bounded(t)); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	group.Wait()
	handled := make(map[string]bool)
	for _, id := range g.ids() {
		if handled[id] {
			t.Errorf("%s was handled twice", id)
		}
		handled[id] = true
	}
	answered.Range(func(id, _ any) bool {
		if !handled[id.(string)] {
			t.Errorf("%s was answered and not handled", id)
		}
		delete(handled, id.(string))
		return true
	})
	refused.Range(func(id, reason any) bool {
		if handled[id.(string)] {
			t.Errorf("%s was handled, and its caller told that it was not", id)
		}
		if reason != pb.Reason_REASON_DRAINING {
			t.Errorf("%s was refused with %v, want DRAINING", id, reason)
		}
		return true
	})
	doubtful.Range(func(id, err any) bool {
		t.Errorf("an orderly stop leaves %s in doubt: %v", id, err)
		return true
	})
	if len(handled) > 0 {
		t.Errorf("handled, and nobody was told: %v", handled)
	}
}
