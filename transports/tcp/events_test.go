package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/tcp"
	"tailgate/transports/tcp/internal/wire"
)

// heard is what a stream's receive is given, in order.
type heard chan *pb.ExecutionReport

func hear() heard { return make(heard, 1<<16) }

func (h heard) receive(report *pb.ExecutionReport) { h <- report }

// expect takes the events from..to of an epoch, as the fake feed has them.
func (h heard) expect(t testing.TB, epoch uint32, from, to uint64) {
	t.Helper()
	for n := from; n <= to; n++ {
		select {
		case got := <-h:
			if !proto.Equal(got, fake.Report(epoch, n)) {
				t.Fatalf("event %d of epoch %d is\n%v", n, epoch, got)
			}
		case <-time.After(patience):
			t.Fatalf("event %d of epoch %d never comes", n, epoch)
		}
	}
}

// trade opens a session that is closed with the test.
func trade(t testing.TB, server transports.Server, logon *pb.Logon, receive func(*pb.ExecutionReport)) transports.Trader {
	t.Helper()
	trader, err := tcp.Transport().Trade(bounded(t), transports.DialConfig{Address: server.Addr().String()}, logon, receive)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = trader.Close(); <-trader.Done() })
	return trader
}

// await fails where a channel is not closed in time.
func await(t testing.TB, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s never comes", what)
	}
}

// until waits for something that no channel tells.
func until(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("it never comes to this: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// logon sends a Logon by hand and reads its answer.
func (p *peer) logon(m *pb.Logon) *pb.LogonAck {
	p.t.Helper()
	p.send(p.request(transports.Logon, m))
	return p.ack()
}

// stream asks for a drop copy by hand and reads its answer.
func (p *peer) stream(m *pb.StreamExecutionsRequest) *pb.LogonAck {
	p.t.Helper()
	p.send(p.request(transports.StreamExecutions, m))
	return p.ack()
}

func (p *peer) ack() *pb.LogonAck {
	p.t.Helper()
	h, payload := p.read()
	var ack pb.LogonAck
	if err := proto.Unmarshal(payload, &ack); h.Type != wire.Response || h.Correlation != p.next-1 || err != nil {
		p.t.Fatalf("read %v of request %d (%v): %q, want the answer to request %d", h.Type, h.Correlation, err, payload, p.next-1)
	}
	return &ack
}

// event reads an EVENT, which must be the given one of the stream that a request opened.
func (p *peer) event(request, epoch uint32, sequence uint64) (payload []byte) {
	p.t.Helper()
	h, payload := p.read()
	want := wire.Header{Length: uint32(len(payload)), Type: wire.Event, Correlation: request, Aux: uint32(sequence), X: uint16(epoch)}
	if h != want {
		p.t.Fatalf("read %+v, want %+v", h, want)
	}
	var report pb.ExecutionReport
	if err := proto.Unmarshal(payload, &report); err != nil || !proto.Equal(&report, fake.Report(epoch, sequence)) {
		p.t.Fatalf("event %d of epoch %d is %v (%v)", sequence, epoch, &report, err)
	}
	return payload
}

// TestSession is a session from its logon to its logout, with calls beside one another and an event for each.
func TestSession(t *testing.T) {
	serverTLS, clientTLS := certificates(t)
	for name, test := range map[string]struct {
		listen transports.ListenConfig
		dial   transports.DialConfig
	}{
		"credit": {}, "none": {dial: transports.DialConfig{Flow: "none"}},
		"TLS": {listen: transports.ListenConfig{TLS: serverTLS}, dial: transports.DialConfig{TLS: clientTLS}},
	} {
		t.Run(name, func(t *testing.T) {
			feed := &fake.Feed{}
			feed.Publish(3)
			g := &fake.Gateway{Feed: feed}
			g.OnHandle = func(_ context.Context, x *transports.Exchange) error {
				g.Answer(x)
				if x.Operation == transports.SubmitOrder {
					feed.Publish(1)
				}
				return nil
			}
			test.dial.Address = listen(t, g, test.listen).Addr().String()
			h := hear()
			trader, err := tcp.Transport().Trade(t.Context(), test.dial, &pb.Logon{SessionId: "s", LastSequence: 1}, h.receive)
			if err != nil {
				t.Fatal(err)
			}
			if ack := trader.Ack(); ack.GetEpoch() != 1 || ack.GetNextSequence() != 2 {
				t.Errorf("the session stands at %v, want event 2 of epoch 1", ack)
			}
			const callers, each = 16, 50
			var group sync.WaitGroup
			for caller := range callers {
				group.Go(func() {
					for i := range each {
						id := fmt.Sprintf("c%d-%d", caller, i)
						call := fake.Call(transports.SubmitOrder, fake.Order(id, pattern(id, 100*i)))
						if err := trader.Do(context.Background(), call); err != nil {
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
			h.expect(t, 1, 2, 3+callers*each)
			if err := trader.Err(); err != nil {
				t.Errorf("Err of a session that goes on: %v", err)
			}
			if err := trader.Logout(bounded(t), "good night"); err != nil {
				t.Errorf("Logout: %v", err)
			}
			await(t, trader.Done(), "Done")
			if err := trader.Err(); err != nil {
				t.Errorf("Err after Logout: %v", err)
			}
			checkFault(t, trader.Do(t.Context(), order("late", 0)), pb.Reason_REASON_CONNECTION_LOST, pb.Outcome_OUTCOME_NOT_PROCESSED, "logged out")
			checkFault(t, trader.Logout(t.Context(), ""), pb.Reason_REASON_CONNECTION_LOST, pb.Outcome_OUTCOME_NOT_PROCESSED, "logged out")
			requests := g.Requests()
			if last, ok := requests[len(requests)-1].(*pb.Logout); !ok || last.GetText() != "good night" {
				t.Errorf("the gateway's last request is %v", requests[len(requests)-1])
			}
			until(t, "no session and no reader are open", func() bool { return g.Sessions() == 0 && feed.Readers() == 0 })
			if lost := g.Lost(); len(lost) != 0 {
				t.Errorf("sessions %v count as lost", lost)
			}
		})
	}
}

// TestLogoutAnswersWhatCameBefore: the answers of earlier calls wait for the journal, and so does the logout.
func TestLogoutAnswersWhatCameBefore(t *testing.T) {
	var mu sync.Mutex
	var held []func(error)
	g := &fake.Gateway{Feed: &fake.Feed{}}
	var holding bool
	g.OnCommit = func(release func(error)) {
		mu.Lock()
		defer mu.Unlock()
		if held = append(held, release); !holding {
			held = nil
			release(nil)
		}
	}
	server := listen(t, g, transports.ListenConfig{})
	h := hear()
	trader := trade(t, server, &pb.Logon{SessionId: "s"}, h.receive)
	mu.Lock()
	holding = true
	mu.Unlock()
	handled := func(n int) func() bool { return func() bool { return len(g.Requests()) == n } }
	results := make(chan error, 4)
	for i := range 3 {
		go func() {
			results <- trader.Do(context.Background(), fake.Call(transports.SubmitOrder, fake.Order(fmt.Sprint("order-", i), nil)))
		}()
	}
	until(t, "the orders are handled", handled(4)) // with the Logon
	go func() { results <- trader.Logout(context.Background(), "") }()
	until(t, "the Logout is handled", handled(5))
	const events = 200
	g.Feed.Publish(events)
	until(t, "the events wait behind the answers", func() bool { return tcp.Unflushed(server) > events*(wire.HeaderSize+100) })
	select {
	case err := <-results:
		t.Errorf("answered before the journal had kept its promise: %v", err)
	case <-trader.Done():
		t.Error("closed before the journal had kept its promise")
	default:
	}
	mu.Lock()
	holding = false
	for _, release := range held {
		release(nil)
	}
	mu.Unlock()
	for range 4 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	await(t, trader.Done(), "Done")
	h.expect(t, 1, 1, events)
}

// TestTakeoverToTheByte: the answers owed come first, and ERROR is the last frame.
func TestTakeoverToTheByte(t *testing.T) {
	h := newHeld()
	g := &fake.Gateway{Feed: &fake.Feed{}}
	var holding atomic.Bool
	g.OnCommit = func(release func(error)) {
		if !holding.Load() {
			release(nil)
			return
		}
		h.mu.Lock()
		h.marks = append(h.marks, release)
		h.mu.Unlock()
		h.came <- struct{}{}
	}
	server := listen(t, g, transports.ListenConfig{})
	p := greet(t, server, wire.FeatureCredit)
	p.logon(&pb.Logon{SessionId: "s"})
	holding.Store(true)
	p.send(p.order("accepted", 10))
	<-h.came
	holding.Store(false)
	trade(t, server, &pb.Logon{SessionId: "s"}, hear().receive)
	h.release(nil)
	if _, m := p.response(); m.ClientOrderId != "accepted" {
		t.Errorf("answered %q", m.ClientOrderId)
	}
	head, fault := p.expect(wire.Error)
	checkFault(t, fault, pb.Reason_REASON_SESSION_REPLACED, pb.Outcome_OUTCOME_NOT_PROCESSED, "another connection")
	if head.Correlation != 0 {
		t.Errorf("ERROR names request %d, which was not at fault", head.Correlation)
	}
	p.expectEnd()
}

// TestLostSession: a session whose connection is closed without a logout is closed in the gateway, and is not logged out there.
func TestLostSession(t *testing.T) {
	g := &fake.Gateway{Feed: &fake.Feed{}}
	server := listen(t, g, transports.ListenConfig{})
	for name, lose := range map[string]func(){
		"closed": func() {
			trader := trade(t, server, &pb.Logon{SessionId: "closed"}, hear().receive)
			_ = trader.Close()
			await(t, trader.Done(), "Done")
			if err := trader.Err(); err != nil {
				t.Errorf("Err after Close: %v", err)
			}
		},
		"killed": func() {
			p := greet(t, server, wire.FeatureCredit)
			p.logon(&pb.Logon{SessionId: "killed"})
			_ = p.conn.Close()
		},
	} {
		lose()
		until(t, name+" is lost", func() bool { return slices.Contains(g.Lost(), name) })
	}
	until(t, "no session and no reader are open", func() bool { return g.Sessions() == 0 && g.Feed.Readers() == 0 })
}

// TestServerThatIsLost: the session hears of it though nobody calls.
func TestServerThatIsLost(t *testing.T) {
	g := &fake.Gateway{Feed: &fake.Feed{}}
	server := listen(t, g, transports.ListenConfig{})
	trader := trade(t, server, &pb.Logon{SessionId: "s"}, hear().receive)
	p := greet(t, server, wire.FeatureCredit)
	p.logon(&pb.Logon{SessionId: "other"})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = server.Shutdown(over) // gives up at once, so connections are cut
	await(t, trader.Done(), "Done")
	if err := trader.Err(); err == nil {
		t.Error("the session ended and Err does not say why")
	}
	if err := server.Shutdown(bounded(t)); err != nil {
		t.Errorf("second Shutdown: %v", err)
	}
}

// TestFaultOfTheEvents: what Next says ends the connection, with a frame that says it.
func TestFaultOfTheEvents(t *testing.T) {
	for reason, frame := range map[pb.Reason]wire.Type{
		pb.Reason_REASON_DRAINING: wire.GoAway, pb.Reason_REASON_THROTTLED: wire.Error, pb.Reason_REASON_JOURNAL_UNAVAILABLE: wire.Error,
	} {
		t.Run(reason.String(), func(t *testing.T) {
			feed := &fake.Feed{}
			server := listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{})
			p := greet(t, server, wire.FeatureCredit)
			p.stream(&pb.StreamExecutionsRequest{})
			feed.Publish(1)
			feed.Fail(transports.Refuse(reason, "the reason of this test"))
			p.event(1, 1, 1)
			_, fault := p.expect(frame)
			checkFault(t, fault, reason, pb.Outcome_OUTCOME_NOT_PROCESSED, "the reason of this test")
			p.expectEnd()

			h := hear()
			trader, err := tcp.Transport().Trade(bounded(t), transports.DialConfig{Address: server.Addr().String()}, &pb.Logon{SessionId: "s"}, h.receive)
			if err != nil { // it may be over before its logon is answered
				checkFault(t, err, reason, pb.Outcome_OUTCOME_UNKNOWN, "the reason of this test")
				return
			}
			h.expect(t, 1, 1, 1)
			await(t, trader.Done(), "Done")
			checkFault(t, trader.Err(), reason, pb.Outcome_OUTCOME_NOT_PROCESSED, "the reason of this test")
		})
	}
}

// TestPanicOfTheEvents costs the connection and not the process.
func TestPanicOfTheEvents(t *testing.T) {
	log := &logged{}
	g := &fake.Gateway{OnSubscribe: func(_ context.Context, request *pb.StreamExecutionsRequest) (transports.Events, error) {
		if request.GetFromSequence() == 7 {
			panic("boom in Subscribe")
		}
		return bomb{}, nil
	}}
	p := greet(t, listen(t, g, transports.ListenConfig{Logger: log.logger()}), wire.FeatureCredit)
	p.send(p.request(transports.StreamExecutions, &pb.StreamExecutionsRequest{FromSequence: 7}))
	_, fault := p.expect(wire.Reject)
	checkFault(t, fault, pb.Reason_REASON_INTERNAL, pb.Outcome_OUTCOME_UNKNOWN, "")
	p.stream(&pb.StreamExecutionsRequest{})
	_, fault = p.expect(wire.Error)
	checkFault(t, fault, pb.Reason_REASON_INTERNAL, pb.Outcome_OUTCOME_NOT_PROCESSED, "")
	p.expectEnd()
	if text := log.String(); !strings.Contains(text, "boom in Subscribe") || !strings.Contains(text, "boom in Next") {
		t.Errorf("logged: %s", text)
	}
}

type bomb struct{}

func (bomb) Place() (uint32, uint64)                          { return 1, 1 }
func (bomb) Next(context.Context) ([]transports.Event, error) { panic("boom in Next") }
func (bomb) Close()                                           {}

// TestResume: a reader that comes back gets what follows the last event that it has seen, the same bytes that others got, over the change of an epoch.
func TestResume(t *testing.T) {
	feed := &fake.Feed{}
	feed.Publish(300)
	feed.Roll()
	feed.Publish(10)
	server := listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{})
	var whole [][]byte
	p := greet(t, server, wire.FeatureCredit)
	if ack := p.stream(&pb.StreamExecutionsRequest{Epoch: 1}); ack.GetEpoch() != 1 || ack.GetNextSequence() != 1 {
		t.Errorf("the stream stands at %v", ack)
	}
	for n := range uint64(300) {
		whole = append(whole, p.event(1, 1, n+1))
	}
	for n := range uint64(11) {
		whole = append(whole, p.event(1, 2, n+1))
	}
	for _, from := range []int{1, 2, 257, 300} {
		q := greet(t, server, wire.FeatureCredit)
		if ack := q.logon(&pb.Logon{SessionId: fmt.Sprint("s-", from), Epoch: 1, LastSequence: uint64(from - 1)}); ack.GetEpoch() != 1 || ack.GetNextSequence() != uint64(from) {
			t.Errorf("the session stands at %v, want event %d of epoch 1", ack, from)
		}
		for i, want := range whole[from-1:] {
			if h, got := q.read(); h.Type != wire.Event || string(got) != string(want) {
				t.Fatalf("from event %d on, event %d is %v %q, another reader got %q", from, i, h.Type, got, want)
			}
		}
	}
	q := greet(t, server, 0)
	q.send(q.request(transports.StreamExecutions, &pb.StreamExecutionsRequest{FromSequence: 13}))
	_, fault := q.expect(wire.Reject)
	checkFault(t, fault, pb.Reason_REASON_MALFORMED, pb.Outcome_OUTCOME_NOT_PROCESSED, "from_sequence: event 13 is not there")
	q.send(q.request(transports.StreamExecutions, &pb.StreamExecutionsRequest{FromSequence: 12})) // a refused one may be tried again
	q.ack()
	feed.Publish(1)
	q.event(2, 2, 12)
}

// TestOneStreamAConnection: a second one of either kind is refused, and the first goes on.
func TestOneStreamAConnection(t *testing.T) {
	openers := map[string]func(p *peer) []byte{
		"Logon":            func(p *peer) []byte { return p.request(transports.Logon, &pb.Logon{SessionId: "s"}) },
		"StreamExecutions": func(p *peer) []byte { return p.request(transports.StreamExecutions, &pb.StreamExecutionsRequest{}) },
	}
	for first, open := range openers {
		for second, again := range openers {
			t.Run(first+" and "+second, func(t *testing.T) {
				feed := &fake.Feed{}
				p := greet(t, listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{}), wire.FeatureCredit)
				p.send(p.order("before", 10)) // a session may begin late
				p.response()
				p.send(open(p))
				p.ack()
				p.send(again(p))
				_, fault := p.expect(wire.Reject)
				checkFault(t, fault, pb.Reason_REASON_MALFORMED, pb.Outcome_OUTCOME_NOT_PROCESSED, "by request 2")
				feed.Publish(1)
				p.event(2, 1, 1)
				p.alive()
			})
		}
	}
}

// TestSessionWithoutEventsEnds: a Logon that the gateway took and whose stream it refuses leaves nothing half open.
func TestSessionWithoutEventsEnds(t *testing.T) {
	g := &fake.Gateway{OnSubscribe: func(context.Context, *pb.StreamExecutionsRequest) (transports.Events, error) {
		return nil, transports.Refuse(pb.Reason_REASON_OVERLOADED, "too many readers")
	}}
	server := listen(t, g, transports.ListenConfig{})
	p := greet(t, server, wire.FeatureCredit)
	p.send(p.request(transports.Logon, &pb.Logon{SessionId: "s"}))
	_, fault := p.expect(wire.Reject)
	checkFault(t, fault, pb.Reason_REASON_OVERLOADED, pb.Outcome_OUTCOME_UNKNOWN, "too many readers")
	_, fault = p.expect(wire.Error)
	checkFault(t, fault, pb.Reason_REASON_OVERLOADED, pb.Outcome_OUTCOME_NOT_PROCESSED, "too many readers")
	p.expectEnd()
	until(t, "the session is lost", func() bool { return slices.Contains(g.Lost(), "s") })

	_, err := tcp.Transport().Trade(bounded(t), transports.DialConfig{Address: server.Addr().String()}, &pb.Logon{SessionId: "t"}, hear().receive)
	checkFault(t, err, pb.Reason_REASON_OVERLOADED, pb.Outcome_OUTCOME_UNKNOWN, "too many readers")
	// A drop copy changes nothing in the gateway, so a refused one may be tried again.
	p = greet(t, server, wire.FeatureCredit)
	p.send(p.request(transports.StreamExecutions, &pb.StreamExecutionsRequest{}))
	_, fault = p.expect(wire.Reject)
	checkFault(t, fault, pb.Reason_REASON_OVERLOADED, pb.Outcome_OUTCOME_NOT_PROCESSED, "too many readers")
	p.alive()
}

// TestFinalFaultEndsTheConnection: its request is rejected, the connection closed, and what came behind it is not processed.
func TestFinalFaultEndsTheConnection(t *testing.T) {
	g := &gateway{}
	g.handle = func(x *transports.Exchange) error {
		if x.Request.(*pb.SubmitOrderRequest).ClientOrderId == "too fast" {
			fault := transports.Refuse(pb.Reason_REASON_THROTTLED, "the session is ended")
			fault.RetryAfter, fault.Final = time.Second, true
			return fault
		}
		return g.acknowledge(x)
	}
	p := greet(t, listen(t, g, transports.ListenConfig{}), wire.FeatureCredit)
	p.send(append(append(p.order("before", 1), p.order("too fast", 1)...), p.order("behind", 1)...))
	p.response()
	for _, frame := range []wire.Type{wire.Reject, wire.Error} {
		h, fault := p.expect(frame)
		checkFault(t, fault, pb.Reason_REASON_THROTTLED, pb.Outcome_OUTCOME_NOT_PROCESSED, "the session is ended")
		if h.Correlation != 2 || fault.RetryAfter != time.Second {
			t.Errorf("%v %+v: want request 2, and a retry after 1 s", frame, h)
		}
	}
	p.expectEnd()
	if ids := g.ids(); !slices.Equal(ids, []string{"before"}) {
		t.Errorf("handled %v", ids)
	}
}

// TestStreamsAreNoCalls: Do does not take what would make the gateway send events to a client that cannot have them.
func TestStreamsAreNoCalls(t *testing.T) {
	g := &fake.Gateway{Feed: &fake.Feed{}}
	server := listen(t, g, transports.ListenConfig{})
	for name, client := range map[string]transports.Client{
		"client": dial(t, server, transports.DialConfig{}), "trader": trade(t, server, &pb.Logon{SessionId: "s"}, hear().receive),
	} {
		before := len(g.Requests())
		for _, op := range []transports.Operation{transports.Logon, transports.Logout, transports.StreamExecutions} {
			err := client.Do(t.Context(), fake.Call(op, op.NewRequest()))
			checkFault(t, err, pb.Reason_REASON_UNIMPLEMENTED, pb.Outcome_OUTCOME_NOT_PROCESSED, op.String()+" is no call")
		}
		for _, op := range transports.Operations() {
			fake.CheckThereAndBack(t, g, client, op)
		}
		if n := len(g.Requests()) - before; n != len(transports.Operations())-1 { // ListInstruments is not kept
			t.Errorf("%s: %d requests came to the gateway", name, n)
		}
	}
}

// TestExecutionsEndWithTheContext, with a receive under way, after which none comes.
func TestExecutionsEndWithTheContext(t *testing.T) {
	feed := &fake.Feed{}
	server := listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	inside, leave := make(chan struct{}), make(chan struct{})
	var returned bool
	ended := make(chan error, 1)
	go func() {
		err := tcp.Transport().Executions(ctx, transports.DialConfig{Address: server.Addr().String()}, &pb.StreamExecutionsRequest{Account: "demo"}, func(report *pb.ExecutionReport) {
			if returned { // a race, too, where it can be
				t.Error("receive is called after the return")
			}
			if report.GetSequence() == 1 {
				close(inside)
				<-leave
			}
		})
		returned = true
		ended <- err
	}()
	feed.Publish(100)
	await(t, inside, "the first event")
	cancel()
	close(leave)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Executions: %v, want the context's error", err)
	}
	err := tcp.Transport().Executions(t.Context(), transports.DialConfig{Address: server.Addr().String()}, &pb.StreamExecutionsRequest{Account: "else"}, hear().receive)
	checkFault(t, err, pb.Reason_REASON_PERMISSION_DENIED, pb.Outcome_OUTCOME_NOT_PROCESSED, "not the key's")
	until(t, "no reader is open", func() bool { return feed.Readers() == 0 })
}

// TestCloseFromReceive: the goroutine that reads may close what it reads from.
func TestCloseFromReceive(t *testing.T) {
	feed := &fake.Feed{}
	server := listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{})
	ready := make(chan transports.Trader, 1)
	trader := trade(t, server, &pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) { _ = (<-ready).Close() })
	ready <- trader
	feed.Publish(1)
	await(t, trader.Done(), "Done")
	if err := trader.Err(); err != nil {
		t.Errorf("Err after Close: %v", err)
	}
}
