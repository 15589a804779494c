package entry

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"tailgate/gateway/feed"
	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/memory"
)

// copiers is traders and a key that copies what alpha gets.
func copiers() map[string]Key {
	keys := map[string]Key{"copy": {Name: "copy", Role: DropCopy, Accounts: []uint32{1}}}
	maps.Copy(keys, traders)
	return keys
}

// subscribed is a session's subscription after its logon.
func subscribed(t *testing.T, s *session, ack *pb.LogonAck) transports.Events {
	t.Helper()
	e, err := s.Subscribe(t.Context(), &pb.StreamExecutionsRequest{Epoch: ack.GetEpoch(), FromSequence: ack.GetNextSequence()})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestLogonWithoutAReaderChangesNothing: whoever holds the session goes on where another's logon is refused because no reader can be had for
// it, or for another reason that comes up later. A logon that is acknowledged has its reader, also where all places are taken meanwhile.
func TestLogonWithoutAReaderChangesNothing(t *testing.T) {
	g, log := configured(t, Config{Keys: hashed(copiers()), Feed: feed.Options{MaxReadersOfAccount: 4}}, 100)
	defer g.Drain()
	var copies []transports.Events
	for dropCopy := open(t, g, "copy"); ; {
		e, err := dropCopy.Subscribe(t.Context(), &pb.StreamExecutionsRequest{Account: "alpha"})
		if err != nil {
			if reasonOf(err) != pb.Reason_REASON_OVERLOADED || len(copies) != 3 {
				t.Fatalf("%v after %d drop copies, want OVERLOADED after 3 of 4 places", err, len(copies))
			}
			break
		}
		copies = append(copies, e)
	}

	holder := open(t, g, "alpha")
	ack, f := logon(holder, &pb.Logon{SessionId: "S", DisconnectMode: onDisconnect})
	if f != nil {
		t.Fatalf("logon where drop copies took all that they may: %v", f)
	}
	enter(t, holder, "a", pb.Side_SIDE_BUY, 1)

	// refused holds a logon to its refusal, and the holder to its session.
	refused := func(id string, reason pb.Reason) {
		t.Helper()
		before, readers := log.lsn.Load(), g.Readers()
		late := open(t, g, "alpha")
		if _, f := logon(late, &pb.Logon{SessionId: id, DisconnectMode: onDisconnect}); f == nil || f.Reason != reason || f.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED {
			t.Fatalf("logon of %s: %v, want %s", id, f, reason)
		}
		late.Close()
		if g.Readers() != readers || log.lsn.Load() != before || openOrders(g, 1) != "a" {
			t.Errorf("a refused logon left %d readers for %d, %d records, and open: %s", g.Readers(), readers, log.lsn.Load()-before, openOrders(g, 1))
		}
		if order := enter(t, holder, "a", pb.Side_SIDE_BUY, 1); !order.GetDuplicate() {
			t.Error("the holder's order is not there any more")
		}
	}
	refused("T", pb.Reason_REASON_OVERLOADED)
	log.refuse(errors.New("disk full"))
	refused("S", pb.Reason_REASON_JOURNAL_UNAVAILABLE)
	log.refuse(nil)

	// The holder's reader is there for it, and once it is closed, its place is anybody's.
	events := subscribed(t, holder, ack)
	if batch, err := events.Next(t.Context()); err != nil || len(batch) != 1 || batch[0].Sequence != 1 {
		t.Fatalf("%v, %v; want the event of order a", batch, err)
	}
	events.Close()
	other := open(t, g, "alpha")
	mustLogon(t, other, "T", none, 0)
	refused("S", pb.Reason_REASON_OVERLOADED)

	// A taken-over session's place is the new connection's, whether its reader was subscribed to or not, and though nobody has closed it.
	mustLogon(t, open(t, g, "alpha"), "T", none, 0)
	third := open(t, g, "alpha")
	if ack, f = logon(third, &pb.Logon{SessionId: "T"}); f != nil {
		t.Fatalf("takeover where all places are taken: %v", f)
	}
	left := subscribed(t, third, ack)
	defer left.Close()
	fourth := open(t, g, "alpha")
	if ack, f = logon(fourth, &pb.Logon{SessionId: "T"}); f != nil {
		t.Fatalf("takeover where all places are taken, of a connection that reads: %v", f)
	}
	if _, err := left.Next(t.Context()); reasonOf(err) != pb.Reason_REASON_SESSION_REPLACED {
		t.Errorf("the reader of the connection that was replaced: %v", err)
	}
	if g.Readers() != 4 {
		t.Errorf("%d readers, want 4", g.Readers())
	}

	// What was not subscribed to is let go with the session, what was is its reader's to close.
	read := subscribed(t, fourth, ack)
	fourth.Close()
	if g.Readers() != 4 {
		t.Errorf("%d readers after a session with a subscription was closed, want 4", g.Readers())
	}
	read.Close()
	fifth := open(t, g, "alpha")
	mustLogon(t, fifth, "T", none, 0)
	fifth.Close()
	for _, e := range copies {
		e.Close()
	}
	if g.Readers() != 0 {
		t.Errorf("%d readers after all were closed", g.Readers())
	}
}

// TestSubscriptionsAreReads: streams beside a session count as reads of the throttle, a session's own was admitted with its logon.
func TestSubscriptionsAreReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGateway(t, traders, 100)
		defer g.Drain()
		if err := g.sequencer.Execute(&orders.Command{Kind: orders.SetLimits, Scope: orders.Scope{Number: 1}, Limits: &orders.Limits{MaxOrderRate: 2}}, &orders.Answer{}); err != nil {
			t.Fatal(err)
		}
		s := open(t, g, "alpha")
		ack, f := logon(s, &pb.Logon{SessionId: "S"})
		if f != nil {
			t.Fatal(f)
		}
		for n := range 2*roomFactor + 1 {
			e, err := s.Subscribe(t.Context(), &pb.StreamExecutionsRequest{})
			if err == nil {
				e.Close()
			}
			if want := n == 2*roomFactor; want != (err != nil) || want && reasonOf(err) != pb.Reason_REASON_THROTTLED {
				t.Errorf("stream %d within a second: %v", n+1, err)
			}
		}
		subscribed(t, s, ack).Close()
		if _, err := s.Subscribe(t.Context(), &pb.StreamExecutionsRequest{Epoch: ack.GetEpoch(), FromSequence: ack.GetNextSequence()}); reasonOf(err) != pb.Reason_REASON_THROTTLED {
			t.Errorf("the session's subscription, a second time: %v, want THROTTLED", err)
		}
		time.Sleep(time.Second)
		e, err := s.Subscribe(t.Context(), &pb.StreamExecutionsRequest{})
		if err != nil {
			t.Fatalf("a second later: %v", err)
		}
		e.Close()
	})
}

// TestNobodyWaitsForTheDiskOfALostSession: while the disk takes a commit that no peer waits for, connections are closed, timers fire, others log
// on and trade, and the gateway can begin to stop. All of it is committed in the end.
func TestNobodyWaitsForTheDiskOfALostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := newGateway(t, traders, 100)
		disk := make(chan struct{})
		commits := make(chan uint64, 100) // what is in the log when each of them is done
		log.onCommit = func() { <-disk; commits <- log.lsn.Load() }
		for _, id := range []string{"S", "T", "U"} {
			s := open(t, g, "alpha")
			mustLogon(t, s, id, none, 0)
			s.Close() // a logout that is journaled
		}
		dead := open(t, g, "alpha")
		mustLogon(t, dead, "V", onDisconnect, time.Second)
		enter(t, dead, "a", pb.Side_SIDE_BUY, 1)
		dead.Close()
		time.Sleep(time.Second)
		synctest.Wait() // the disk is still busy
		if len(commits) != 0 || openOrders(g, 1) != "" {
			t.Fatalf("%d commits are done, open: %q; want none, and the orders canceled", len(commits), openOrders(g, 1))
		}
		other := open(t, g, "beta")
		mustLogon(t, other, "S", none, 0)
		enter(t, other, "b", pb.Side_SIDE_BUY, 1)
		g.Drain()
		close(disk)
		synctest.Wait()
		// One commit was under way, and one more has taken along all that came meanwhile.
		if n := len(commits); n != 2 {
			t.Errorf("%d commits, want 2", n)
		}
	})
}

// TestFullOfDropCopiesOverATransport: drop copies that take all that they may keep no trader out, and a trader who finds no place disturbs none
// that has one.
func TestFullOfDropCopiesOverATransport(t *testing.T) {
	g, _ := configured(t, Config{Keys: hashed(copiers()), Feed: feed.Options{MaxReaders: 4}}, 100)
	network := memory.Transport()
	server, err := network.Listen(t.Context(), g, transports.ListenConfig{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	dial := func(key string) transports.DialConfig {
		return transports.DialConfig{Address: server.Addr().String(), Key: key}
	}
	trade := func(id string) (transports.Trader, chan string, error) {
		events := make(chan string, 100)
		trader, err := network.Trade(t.Context(), dial("alpha"), &pb.Logon{SessionId: id, DisconnectMode: onDisconnect}, func(r *pb.ExecutionReport) { events <- told(r) })
		return trader, events, err
	}
	submit := func(trader transports.Trader, id string) {
		t.Helper()
		if err := trader.Do(t.Context(), &transports.Call{Operation: transports.SubmitOrder, Request: order(id), Response: &pb.SubmitOrderResponse{}}); err != nil {
			t.Fatal(err)
		}
	}
	enter(t, open(t, g, "alpha"), "before", pb.Side_SIDE_BUY, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 4)
	opened := make(chan struct{}, 100)
	follow := func() {
		ended <- network.Executions(ctx, dial("copy"), &pb.StreamExecutionsRequest{Account: "alpha"}, func(r *pb.ExecutionReport) {
			if r.GetSequence() == 1 {
				opened <- struct{}{}
			}
		})
	}
	for range 3 {
		go follow()
		<-opened
	}
	follow()
	if err := <-ended; reasonOf(err) != pb.Reason_REASON_OVERLOADED {
		t.Errorf("a fourth drop copy of four places: %v, want OVERLOADED", err)
	}
	first, events, err := trade("S")
	if err != nil {
		t.Fatalf("a trader beside the drop copies: %v", err)
	}
	submit(first, "a")
	if _, _, err := trade("T"); reasonOf(err) != pb.Reason_REASON_OVERLOADED || transports.AsFault(err).Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED {
		t.Errorf("a trader for whom there is no place: %v, want OVERLOADED", err)
	}
	submit(first, "b")
	for _, want := range []string{"1 NEW before 1", "2 NEW a 10", "3 NEW b 10"} {
		if got := <-events; got != want {
			t.Errorf("the first trader is told %q, want %q", got, want)
		}
	}
	second, _, err := trade("S") // takes the session over, and its place
	if err != nil {
		t.Fatalf("a takeover where all places are taken: %v", err)
	}
	<-first.Done()
	submit(second, "c")
	if got := openOrders(g, 1); got != "before a b c" {
		t.Errorf("open are %q, want before a b c", got)
	}
	cancel()
	for range 3 {
		if err := <-ended; err == nil {
			t.Error("a drop copy ended without a word")
		}
	}
	g.Drain()
	<-second.Done()
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
