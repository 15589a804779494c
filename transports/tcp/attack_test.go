package tcp_test

import (
	"context"
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
	"tailgate/transports/tcp/internal/credit"
	"tailgate/transports/tcp/internal/wire"
)

// The attacks: what a client may do to the others, by malice or by mistake. Each test has clients in closed loop, and beside them an attacker. In the suite it holds
// the server to its behaviour: every call of the others is answered, the attacker hears why it is closed, and nothing grows without bound. With TCP_ATTACKS=1
// rounds with and without the attack take turns, and the median ratio of the others' p99 has to be at most attackRatio.

// attackRatio is how much worse than without an attack the others' p99 may be.
const attackRatio = 1.2

// longAttacks reports whether figures are wanted.
func longAttacks() bool { return os.Getenv("TCP_ATTACKS") == "1" }

// attack is one of them.
type attack struct {
	name    string
	clients int // the others
	tag     int // size of their orders, in bytes
	limits  transports.Limits
	pool    credit.Config
	handle  func(*transports.Exchange) error // nil: acknowledge
	// begin starts the attack. What it returns ends it, and checks what became of the attacker.
	begin func(*site) (end func())
}

// site is a server under attack.
type site struct {
	t      *testing.T
	server transports.Server
	log    *logged
	attack *attack
	others []transports.AsyncClient

	answered atomic.Int64 // calls of the others
}

func (a *attack) run(t *testing.T) {
	if engine == "park" && !longAttacks() {
		t.Skip("as with spin, but for the sleep")
	}
	s := &site{t: t, log: &logged{}, attack: a}
	handle := a.handle
	if handle == nil {
		handle = acknowledgeOnly
	}
	s.server = listenWith(t, &gateway{handle: handle}, transports.ListenConfig{Logger: s.log.logger(), Limits: a.limits}, a.pool)
	s.others = asyncs(t, s.server, a.clients, transports.DialConfig{Engine: lightEngine()})
	pairs, length := 1, 120*time.Millisecond
	if longAttacks() {
		// Short and many, so that most pairs meet no slow moment of the machine, whatever it has of them.
		pairs, length = 25, 150*time.Millisecond
	}
	s.round(length / 4) // warm
	var ratios, quiets, attackeds []float64
	for pair := range pairs {
		var quiet, attacked result
		for half := range 2 {
			if half == pair%2 {
				quiet = s.round(length)
				continue
			}
			watch := s.watch()
			end := a.begin(s)
			attacked = s.round(length)
			end()
			watch()
		}
		ratios = append(ratios, float64(attacked.p99)/float64(quiet.p99))
		quiets, attackeds = append(quiets, float64(quiet.p99)), append(attackeds, float64(attacked.p99))
		if longAttacks() {
			t.Logf("pair %d: without %v, with %v", pair+1, quiet, attacked)
		}
	}
	ratio := median(ratios)
	t.Logf("%s, engine %s: p99 of the others %v without, %v with the attack, ratio %.2f (median of %d)",
		a.name, engine, time.Duration(median(quiets)), time.Duration(median(attackeds)), ratio, pairs)
	if longAttacks() && ratio > attackRatio {
		t.Errorf("the others' p99 is %.2f times what it is without the attack, at most %.1f is allowed; single pairs: %.2f", ratio, attackRatio, ratios)
	}
	s.settled()
}

// lightEngine is a client engine that needs no goroutine a connection, where there is one.
func lightEngine() string {
	if slices.Contains(tcp.ClientEngines, "park") {
		return "park"
	}
	return tcp.ClientEngines[0]
}

// result is what a round showed.
type result struct {
	calls         int
	p50, p99, max time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, max %v of %d", r.p50.Round(time.Microsecond), r.p99.Round(time.Microsecond), r.max.Round(time.Microsecond), r.calls)
}

// round has every client call, closed loop, for so long. Every call has to be answered.
func (s *site) round(length time.Duration) result {
	s.t.Helper()
	times, err := closedLoops(s.others, s.attack.tag, length, &s.answered)
	if err != nil {
		s.t.Fatal(err)
	}
	return resultOf(times)
}

func resultOf(times []time.Duration) result {
	if len(times) == 0 {
		return result{}
	}
	slices.Sort(times)
	return result{len(times), times[len(times)/2], times[len(times)*99/100], times[len(times)-1]}
}

// closedLoops has every client call for so long, each next call from the callback of the one before, and returns how long each call took.
func closedLoops(clients []transports.AsyncClient, tag int, length time.Duration, answered *atomic.Int64) (times []time.Duration, failed error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var group sync.WaitGroup
	var mu sync.Mutex
	until := time.Now().Add(length)
	for i, client := range clients {
		group.Add(1)
		call := order(fmt.Sprint("other-", i), tag)
		var mine []time.Duration
		var since time.Time
		var next func(error)
		next = func(err error) {
			now := time.Now()
			mine = append(mine, now.Sub(since))
			if err == nil {
				answered.Add(1)
				err = echoed(call)
			}
			if err == nil && now.Before(until) {
				since = now
				client.Go(ctx, call, next)
				return
			}
			mu.Lock()
			times = append(times, mine...)
			if failed == nil && err != nil {
				failed = fmt.Errorf("a call of the others: %w", err)
			}
			mu.Unlock()
			group.Done()
		}
		since = time.Now()
		client.Go(ctx, call, next)
	}
	group.Wait()
	return times, failed
}

// echoed compares the sizes of an order and its answer, which is enough to see a mixed up one and cheap enough for every call.
func echoed(call *transports.Call) error {
	request, response := call.Request.(*pb.SubmitOrderRequest), call.Response.(*pb.SubmitOrderResponse)
	if response.ClientOrderId != request.ClientOrderId || len(response.ClientTag) != len(request.ClientTag) {
		return fmt.Errorf("order %s got the answer of %q, with a tag of %d bytes for one of %d",
			request.ClientOrderId, response.ClientOrderId, len(response.ClientTag), len(request.ClientTag))
	}
	return nil
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

// metrics are the server's, by name.
func (s *site) metrics() map[string]float64 {
	m := make(map[string]float64)
	for _, metric := range s.server.(transports.Metered).Metrics() {
		m[metric.Name] = metric.Value
	}
	return m
}

// watch looks at the server's bounds until it is told to stop.
func (s *site) watch() (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			m := s.metrics()
			if m["credit_granted_units"] > m["credit_capacity_units"] {
				s.t.Errorf("%v units granted, the capacity is %v", m["credit_granted_units"], m["credit_capacity_units"])
			}
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() { close(end); <-done }
}

// settled waits until the attack has left nothing behind: no connection but the others', none of their requests in service.
func (s *site) settled() {
	s.t.Helper()
	s.await("the connections of the attack are gone and nothing is in service", func() bool {
		m := s.metrics()
		return int(m["connections"]) == len(s.others) && m["credit_used_units"] == 0 && m["credit_queue_connections"] == 0
	})
}

// await waits for what has to come to pass.
func (s *site) await(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !is(); {
		if time.Now().After(end) {
			s.t.Fatalf("not in %v: %s; metrics %v; log:\n%.2000s", patience, what, s.metrics(), s.log)
		}
		<-time.After(time.Millisecond)
	}
}

// logs waits for a line of the server's log that has all of these.
func (s *site) logs(texts ...string) {
	s.t.Helper()
	s.await("the log says "+strings.Join(texts, " ... "), func() bool {
		for line := range strings.Lines(s.log.String()) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return true
			}
		}
		return false
	})
}

func contains(text, part string) bool { return strings.Contains(text, part) }

// tryFault reads the next frame that is not CREDIT, and its fault where it is one that ends the connection.
func (p *peer) tryFault() (h wire.Header, fault *transports.Fault, err error) {
	for {
		var payload []byte
		if h, payload, err = p.tryRead(); err != nil || h.Type == wire.Credit {
			if err != nil {
				return h, nil, err
			}
			continue
		}
		if h.Type == wire.Error || h.Type == wire.GoAway {
			var detail pb.ErrorDetail
			if err = proto.Unmarshal(payload, &detail); err == nil {
				fault = transports.FaultFromDetail(&detail)
			}
		}
		return h, fault, err
	}
}

// repeat has n goroutines do something every so often until they are told to stop.
func repeat(n int, every time.Duration, what func()) (stop func()) {
	end := make(chan struct{})
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				what()
				select {
				case <-end:
					return
				case <-tick.C:
				}
			}
		})
	}
	return func() { close(end); group.Wait() }
}
