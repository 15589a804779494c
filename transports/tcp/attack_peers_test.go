package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/credit"
	"tailgate/transports/tcp/internal/wire"
)

const large = 64 << 10

// crowd is how many connections are meant by hundreds.
func crowd() int {
	if longAttacks() {
		return 499
	}
	return 120
}

// TestAttackByHoarders: clients ask for the credit of a large message, do not use it, and do not give it back. One works.
func TestAttackByHoarders(t *testing.T) {
	a := &attack{name: "hoarders", clients: 1, tag: large, pool: credit.Config{ReclaimAfter: 100 * time.Millisecond}}
	a.begin = func(s *site) func() {
		hoarders := make([]*peer, crowd())
		for i := range hoarders {
			p := greet(s.t, s.server, wire.FeatureCredit)
			cost := p.model.Cost(transports.SubmitOrder, large+200)
			p.send(header(wire.Header{Type: wire.Demand, Aux: cost, Y: uint16(cost)}))
			hoarders[i] = p
		}
		return func() {
			for _, p := range hoarders {
				_ = p.conn.Close()
			}
			s.settled()
		}
	}
	a.run(t)
}

// TestHoardersThatKeepWhatTheyAreAskedFor: with a pool that hoards fill, they are asked for what they have, and closed when they keep it.
func TestHoardersThatKeepWhatTheyAreAskedFor(t *testing.T) {
	s := &site{t: t, log: &logged{}, attack: &attack{tag: large}}
	s.server = listenWith(t, &gateway{handle: acknowledgeOnly}, transports.ListenConfig{Logger: s.log.logger(), Limits: transports.Limits{MaxRequestBytes: 100_000}},
		credit.Config{Capacity: 1200, ReclaimAfter: 50 * time.Millisecond})
	s.others = asyncs(t, s.server, 1, transports.DialConfig{Engine: lightEngine()})
	hoarders := make([]*peer, 30)
	for i := range hoarders {
		p := greet(t, s.server, wire.FeatureCredit)
		cost := p.model.Cost(transports.SubmitOrder, large+200)
		p.send(header(wire.Header{Type: wire.Demand, Aux: cost, Y: uint16(cost)}))
		hoarders[i] = p
	}
	s.await("somebody has been closed", func() bool {
		s.round(10 * time.Millisecond)
		return s.metrics()["credit_violations_total"] > 0
	})
	s.await("the log tells of it", func() bool { return contains(s.log.String(), "RECLAIM") })
	asked, told := 0, 0
	for _, p := range hoarders {
		_ = p.conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		for {
			h, fault, err := p.tryFault()
			if err != nil {
				break
			}
			switch h.Type {
			case wire.Reclaim:
				asked++
			case wire.Error:
				told++
				checkFault(t, fault, pb.Reason_REASON_NO_CREDIT, pb.Outcome_OUTCOME_NOT_PROCESSED, "RECLAIM")
			default:
				t.Errorf("a hoarder read %v", h.Type)
			}
		}
		_ = p.conn.Close()
	}
	if asked == 0 || told == 0 {
		t.Errorf("%d hoarders were asked, %d were told why they are closed", asked, told)
	}
	s.settled()
}

// TestHoardersThatAreHonest: idle connections of the client library give back what they are asked for, and work when they are used again.
func TestHoardersThatAreHonest(t *testing.T) {
	onEngines(t, func(t *testing.T, clientEngine string) {
		if !longAttacks() && (engine == "park" || clientEngine == "spin") {
			t.Skip("as with the other event loop, but for the sleep")
		}
		server := listenWith(t, &gateway{handle: acknowledgeOnly}, transports.ListenConfig{}, credit.Config{ReclaimAfter: 500 * time.Millisecond, Capacity: 4096})
		idle := asyncs(t, server, 40, transports.DialConfig{Engine: clientEngine})
		busy := asyncs(t, server, 30, transports.DialConfig{Engine: clientEngine})
		for i, client := range idle { // each keeps a grant of its last size, while the pool is not short
			if err := client.Do(bounded(t), order(fmt.Sprint("idle-", i), large)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := closedLoops(busy, large, 200*time.Millisecond, new(atomic.Int64)); err != nil {
			t.Fatal(err)
		}
		for i, client := range idle {
			if err := client.Do(bounded(t), order(fmt.Sprint("again-", i), large)); err != nil {
				t.Errorf("idle client %d: %v", i, err)
			}
		}
		for _, m := range server.(transports.Metered).Metrics() {
			if m.Name == "credit_violations_total" && m.Value != 0 {
				t.Errorf("%v violations by the client library", m.Value)
			}
		}
	})
}

// TestAttackByADeepQueue: one connection has 10,000 requests queued, the others one each. It gets no more turns than they.
func TestAttackByADeepQueue(t *testing.T) {
	a := &attack{name: "a deep queue", clients: crowd(), tag: 16 << 10}
	a.begin = func(s *site) func() {
		const depth = 10_000
		client := asyncs(s.t, s.server, 1, transports.DialConfig{Engine: lightEngine()})[0]
		ctx, cancel := context.WithCancel(context.Background())
		var done sync.WaitGroup
		var answered, failed atomic.Int64
		request, from := order("deep", s.attack.tag), time.Now()
		for range depth {
			done.Add(1)
			client.Go(ctx, &transports.Call{Operation: transports.SubmitOrder, Request: request.Request, Response: &pb.SubmitOrderResponse{}}, func(err error) {
				if err == nil {
					answered.Add(1)
				} else if !errors.Is(err, context.Canceled) {
					failed.Add(1)
				}
				done.Done()
			})
		}
		before, early := s.answered.Load(), answered.Load()
		return func() {
			mine, theirs := answered.Load()-early, float64(s.answered.Load()-before)/float64(len(s.others))
			s.t.Logf("in %v: %d answers for the deep queue, %.1f for each of the others", time.Since(from).Round(time.Millisecond), mine, theirs)
			// By turns it is about one each. Who is not in the queue has no turn, so on a machine where the others' process waits for a core they have fewer; first
			// come, first served, nearly all would be the deep queue's.
			if all := float64(mine) + theirs*float64(len(s.others)); float64(mine) > 0.5*all || longAttacks() && float64(mine) > 3*theirs+20 {
				s.t.Errorf("the deep queue got %d of %.0f answers, each of the others %.1f", mine, all, theirs)
			}
			cancel()
			_ = client.Close()
			done.Wait()
			if failed.Load() > 0 && answered.Load() == 0 {
				s.t.Errorf("%d of its calls failed and none was answered", failed.Load())
			}
		}
	}
	a.run(t)
}

// TestAttackByOneWhoNeverReads: a client sends for as long as it may have credit, and takes no answer.
func TestAttackByOneWhoNeverReads(t *testing.T) {
	a := &attack{name: "never reads", clients: 16, tag: 4 << 10, limits: transports.Limits{WriteTimeout: 100 * time.Millisecond}}
	a.begin = func(s *site) func() {
		p := greet(s.t, s.server, wire.FeatureCredit)
		_ = p.conn.(*net.TCPConn).SetReadBuffer(4096)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer p.conn.Close()
			// It guesses that each answer brings its next grant.
			for range 10_000 {
				if _, err := p.conn.Write(p.order("deaf", 3000)); err != nil {
					return // it was closed
				}
			}
			s.t.Error("30 MB of answers were made that nobody reads")
		}()
		return func() {
			<-done
			s.await("it was closed for what it did", func() bool {
				return contains(s.log.String(), "is granted") || contains(s.log.String(), "SLOW_READER")
			})
		}
	}
	a.run(t)
}

// TestAttackByDribbling: frames come a byte at a time, and never whole.
func TestAttackByDribbling(t *testing.T) {
	a := &attack{name: "dribbles", clients: 16, tag: 4 << 10, limits: transports.Limits{RequestTimeout: 80 * time.Millisecond}}
	a.begin = func(s *site) func() {
		stop := repeat(20, time.Millisecond, func() {
			p := greet(s.t, s.server, wire.FeatureCredit)
			defer p.conn.Close()
			frame := p.order("slow", 1000)
			for i := range 500 {
				if _, err := p.conn.Write(frame[i : i+1]); err != nil {
					return // closed; a reset may have overtaken what it was told
				}
				_ = p.conn.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
				_, fault, err := p.tryFault()
				if errors.Is(err, os.ErrDeadlineExceeded) {
					continue
				}
				if err == nil {
					checkFault(s.t, fault, pb.Reason_REASON_DEADLINE_EXCEEDED, pb.Outcome_OUTCOME_NOT_PROCESSED, "bytes of a frame and no more")
				}
				return
			}
			s.t.Error("500 bytes of a frame, one at a time, and the connection is open")
		})
		return func() {
			stop()
			s.logs("bytes of a frame and no more for 80ms")
		}
	}
	a.run(t)
}

// TestAttackWithoutCredit: a client sends past its grant, again and again on new connections.
func TestAttackWithoutCredit(t *testing.T) {
	a := &attack{name: "ignores credit", clients: 16, tag: 4 << 10}
	a.begin = func(s *site) func() {
		stop := repeat(1, 10*time.Millisecond, func() {
			p := greet(s.t, s.server, wire.FeatureCredit)
			defer p.conn.Close()
			p.send(p.order("small", 10))
			p.response()
			p.send(p.order("large", large))
			_, fault := p.expect(wire.Error)
			checkFault(s.t, fault, pb.Reason_REASON_NO_CREDIT, pb.Outcome_OUTCOME_NOT_PROCESSED, "is granted")
			p.expectEnd()
		})
		return func() {
			stop()
			s.logs("is granted", "REQUEST")
		}
	}
	a.run(t)
}

// TestAttackByKilledClients: connections are reset in mid-frame, with requests in service and credit unspent.
func TestAttackByKilledClients(t *testing.T) {
	a := &attack{name: "killed in mid-frame", clients: 16, tag: 4 << 10}
	a.begin = func(s *site) func() {
		n := 0
		stop := repeat(1, 5*time.Millisecond, func() {
			p := greet(s.t, s.server, wire.FeatureCredit)
			whole, half := p.order("whole", 10), p.order("half", 3000)
			p.send(append(whole, half[:1+n*37%(len(half)-1)]...))
			n++
			_ = p.conn.(*net.TCPConn).SetLinger(0) // a reset, as the kernel does for a process that is killed
			_ = p.conn.Close()
		})
		return func() {
			stop()
			s.settled()
			m := s.metrics()
			if floor := float64(len(s.others)) * credit.DefaultFloor; m["credit_granted_units"] > floor+m["credit_float_units"] {
				s.t.Errorf("credit of the killed did not return: %v", m)
			}
		}
	}
	a.run(t)
}

// TestAttackByReconnecting: connections come and go as fast as they can, some with a handshake, some without.
func TestAttackByReconnecting(t *testing.T) {
	a := &attack{name: "reconnect storm", clients: 16, tag: 4 << 10, limits: transports.Limits{MaxConnections: 64}}
	a.begin = func(s *site) func() {
		var greeted, refused atomic.Int64
		var count atomic.Int64
		stop := repeat(4, 10*time.Millisecond, func() {
			p := connect(s.t, s.server)
			defer p.conn.Close()
			if count.Add(1)%4 == 0 {
				return
			}
			hello := wire.HelloMessage{Lowest: 1, Highest: 1, Features: wire.FeatureCredit, MaxPayload: 1<<32 - 1}
			_, _ = p.conn.Write(wire.Frame(wire.Header{Type: wire.Hello, Correlation: 1}, hello.Encode()))
			switch h, fault, err := p.tryFault(); {
			case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE):
				s.t.Error(err)
			case err == nil && h.Type == wire.Error:
				refused.Add(1)
				checkFault(s.t, fault, pb.Reason_REASON_OVERLOADED, pb.Outcome_OUTCOME_NOT_PROCESSED, "connections are open, at most 64 are taken")
			case err == nil:
				greeted.Add(1)
			}
		})
		return func() {
			stop()
			if greeted.Load() == 0 {
				s.t.Errorf("no connection of the storm got through, %d were refused", refused.Load())
			}
			s.settled()
		}
	}
	a.run(t)
}

// TestSlowHandler: the order path becomes ten times slower. The others' calls take ten times longer and no more, since what waits, waits with the clients.
func TestSlowHandler(t *testing.T) {
	const work = 40 * time.Microsecond
	var slow atomic.Bool
	a := &attack{name: "a handler ten times slower", clients: 32, tag: large, handle: func(x *transports.Exchange) error {
		busy := work
		if slow.Load() {
			busy *= 10
		}
		for start := time.Now(); time.Since(start) < busy; {
		}
		return acknowledgeOnly(x)
	}}
	s := &site{t: t, log: &logged{}, attack: a}
	if engine == "park" && !longAttacks() {
		t.Skip("as with spin, but for the sleep")
	}
	s.server = listenWith(t, &gateway{handle: a.handle}, transports.ListenConfig{Logger: s.log.logger()}, a.pool)
	s.others = asyncs(t, s.server, a.clients, transports.DialConfig{Engine: lightEngine()})
	length := 150 * time.Millisecond
	if longAttacks() {
		length = 2 * time.Second
	}
	s.round(length)
	quick := s.round(length)
	slow.Store(true)
	s.round(length) // the controller sees it
	stop := s.watch()
	slower := s.round(length)
	stop()
	m := s.metrics()
	t.Logf("%s, engine %s: %v, then %v; ratio of p99 %.1f; float %v units, queueing delay %v s",
		a.name, engine, quick, slower, float64(slower.p99)/float64(quick.p99), m["credit_float_units"], m["credit_queue_delay_seconds"])
	if m["credit_violations_total"] != 0 || contains(s.log.String(), "connection closed") {
		t.Errorf("clients were blamed for a slow handler: %v\n%s", m, s.log)
	}
	// What waits at the server is what the float holds: with 1 ms of work at 400 us a request, at most a handful.
	if at, whole := m["credit_float_units"], float64(a.clients)*81; longAttacks() && at > whole/2 {
		t.Errorf("a float of %v units holds half of the %v that the clients have under way", at, whole)
	}
	s.settled()
}
