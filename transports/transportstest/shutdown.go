package transportstest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// shutdownUnderLoad stops the server while clients enter orders as fast as they can, and then asks the gateway itself what
// became of each.
func shutdownUnderLoad(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	const clients, goroutines, warm = 4, 4, 100
	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		faults = map[string]*transports.Fault{} // by id, nil = acknowledged
		acks   atomic.Int32
		busy   = make(chan struct{})
	)
	for n := range clients {
		c := r.dial([]string{alphaKey, betaKey}[n%2])
		for g := range goroutines {
			group.Go(func() {
				for i := 0; ; i++ {
					order := r.limit(id("load-%d-%d-%d", n, g, i), pb.Side(1+i%2), 1, 0)
					order.ClientTag = tag(i, 500)
					_, fault := c.try(t.Context(), order)
					mu.Lock()
					faults[order.GetClientOrderId()] = fault
					mu.Unlock()
					if fault != nil {
						return
					}
					if acks.Add(1) == warm {
						close(busy)
					}
				}
			})
		}
	}
	await(t, "the load runs", busy)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var stops sync.WaitGroup
	for range 2 { // both of two shutdowns at once wait for the same end
		stops.Go(func() {
			if err := r.server.Shutdown(ctx); err != nil {
				t.Errorf("shutdown under load: %v", err)
			}
		})
	}
	await(t, "the shutdowns return", run(stops.Wait))
	await(t, "every call has ended", run(group.Wait))

	entered := map[string]bool{}
	for _, key := range []string{alphaKey, betaKey} {
		for _, o := range r.direct(key).all() {
			entered[o.GetClientOrderId()] = true
		}
	}
	handled := r.probe.handledOrders()
	for name, fault := range faults {
		switch {
		case fault == nil && !entered[name]:
			t.Errorf("%s was acknowledged and is not in the gateway", name)
		case fault != nil && fault.Outcome == notProcessed && entered[name]:
			t.Errorf("%s is in the gateway, but its call says not processed: %v", name, fault)
		case fault != nil && handled[name] > 0:
			t.Errorf("%s was accepted before the end of the shutdown, but not answered: %v", name, fault)
		case handled[name] > 1:
			t.Errorf("%s reached the gateway %d times", name, handled[name])
		}
	}
}

// shutdownAnswers: a shutdown takes nothing new and waits for what was accepted, which is answered.
func shutdownAnswers(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	gate := r.probe.hold(alphaKey)
	t.Cleanup(gate.open)
	var calls []*pending
	for i := range 4 {
		calls = append(calls, c.begin(t.Context(), r.limit(id("accepted-%d", i), buy, 1, int64(i))))
	}
	eventually(t, "all calls have reached the gateway", func() bool { return len(r.probe.handledOrders()) == len(calls) })
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var err error
	stopped := run(func() { err = r.server.Shutdown(ctx) })
	eventually(t, "a new connection is refused", func() bool {
		late, err := r.tryDial(betaKey)
		if err == nil {
			_ = late.Close()
		}
		return err != nil
	})
	select {
	case <-stopped:
		t.Errorf("the shutdown returned before the accepted calls were answered: %v", err)
	default:
	}
	gate.open()
	for i, call := range calls {
		if _, fault := call.wait(t); fault != nil {
			t.Errorf("accepted call %d: %v", i, fault)
		}
	}
	await(t, "the shutdown returns", stopped)
	if err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// shutdownStuck: when the journal never answers, a shutdown ends with its context, and the calls are in doubt.
func shutdownStuck(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	gate := r.probe.hold(alphaKey)
	t.Cleanup(gate.open)
	call := c.begin(t.Context(), r.limit("stuck", buy, 1, 0))
	gate.await(t)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	var err error
	await(t, "a shutdown whose context has ended returns", run(func() { err = r.server.Shutdown(over) }))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("shutdown with a stuck commit: %v, want the context's error", err)
	}
	_, fault := call.wait(t)
	wantOutcome(t, fault, unknown)
	gate.open()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		t.Errorf("shutdown again, with nothing left: %v", err)
	}
	if again := r.direct(alphaKey).submit(r.limit("stuck", buy, 1, 0)); !again.GetDuplicate() {
		t.Errorf("the stuck order was entered, but the same id again: %s", text(again))
	}
}

// afterShutdown: nothing listens any more, and says so.
func afterShutdown(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	c := r.dial(alphaKey)
	c.submit(r.limit("before", buy, 1, 0))
	for range 2 {
		if err := r.server.Shutdown(t.Context()); err != nil {
			t.Errorf("shutdown of an idle server: %v", err)
		}
	}
	if _, fault := c.begin(t.Context(), r.limit("after", buy, 1, 0)).wait(t); fault == nil {
		t.Error("a call after the shutdown was answered")
	}
	if n := r.probe.handledOrders()["after"]; n != 0 {
		t.Error("a call after the shutdown reached the gateway")
	}
	late, err := r.tryDial(alphaKey)
	if err == nil {
		_ = late.Close()
		t.Fatal("dialed a server that was shut down")
	}
	if address := r.server.Addr().String(); !strings.Contains(err.Error(), address) {
		t.Errorf("the error does not name the address %s: %v", address, err)
	}
}
