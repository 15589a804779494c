package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// asyncs connects n clients of one kind.
func asyncs(t testing.TB, server transports.Server, n int, config transports.DialConfig) []transports.AsyncClient {
	t.Helper()
	list := make([]transports.AsyncClient, n)
	for i := range list {
		list[i] = dial(t, server, config).(transports.AsyncClient)
	}
	return list
}

// TestGoKeepsTheOrder: the requests reach the gateway in the order of the calls, and each is told of once, in the order of the answers.
func TestGoKeepsTheOrder(t *testing.T) { onEngines(t, testGoKeepsTheOrder) }

func testGoKeepsTheOrder(t *testing.T, engine string) {
	for _, config := range []transports.DialConfig{{Flow: "credit"}, {Flow: "none"}, {Flow: "semaphore", Window: 3}} {
		config.Engine = engine
		t.Run(config.Flow, func(t *testing.T) {
			g := &gateway{}
			client := asyncs(t, listen(t, g, transports.ListenConfig{}), 1, config)[0]
			const calls = 500
			told := make(chan int, 2*calls)
			sent := make([]*transports.Call, calls)
			for i := range sent {
				sent[i] = order(fmt.Sprintf("order-%03d", i), i*40)
				client.Go(context.Background(), sent[i], func(err error) {
					if err != nil {
						t.Errorf("order %d: %v", i, err)
					}
					told <- i
				})
			}
			for i := range calls {
				if got := <-told; got != i {
					t.Fatalf("order %d is told of as number %d", got, i)
				}
				if err := checkAnswer(sent[i]); err != nil {
					t.Fatal(err)
				}
			}
			for i, id := range g.ids() {
				if want := fmt.Sprintf("order-%03d", i); id != want {
					t.Fatalf("request %d was %s, want %s", i, id, want)
				}
			}
			_ = client.Close()
			if len(told) != 0 {
				t.Errorf("%d calls are told of twice", len(told))
			}
		})
	}
}

// TestGoFromItsCallback runs clients closed loop, each next call from the callback of the one before, with Do beside it on the same connections. The event loops
// need no goroutine a client for it.
func TestGoFromItsCallback(t *testing.T) { onEngines(t, testGoFromItsCallback) }

func testGoFromItsCallback(t *testing.T, engine string) {
	const clients, each = 40, 50
	for _, config := range []transports.DialConfig{{Flow: "credit"}, {Flow: "none"}, {Flow: "semaphore", Window: 7}} {
		config.Engine = engine
		t.Run(config.Flow, func(t *testing.T) {
			// Answers are held until the goroutines are counted.
			gate := make(chan struct{})
			var once sync.Once
			g := &gateway{handle: func(x *transports.Exchange) error { <-gate; return acknowledgeOnly(x) }}
			server := listen(t, g, transports.ListenConfig{})
			list := asyncs(t, server, clients, config)
			before := runtime.NumGoroutine()
			var group sync.WaitGroup
			for c, client := range list {
				group.Add(1)
				call := order(fmt.Sprintf("c%d", c), 3000)
				left := each
				var next func(error)
				next = func(err error) {
					if err == nil && left < each {
						err = sameTag(call)
					}
					if err != nil || left == 0 {
						if err != nil {
							t.Error(err)
						}
						group.Done()
						return
					}
					left--
					client.Go(context.Background(), call, next)
				}
				next(nil)
			}
			if n := runtime.NumGoroutine() - before; engine != "net" && n > 2 {
				t.Errorf("%d more goroutines for %d clients that wait for their answers", n, clients)
			}
			once.Do(func() { close(gate) })
			for c, client := range list {
				group.Go(func() {
					for range 5 {
						call := order(fmt.Sprintf("d%d", c), 10)
						if err := errors.Join(client.Do(context.Background(), call), sameTag(call)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
		})
	}
}

func sameTag(call *transports.Call) error {
	request, response := call.Request.(*pb.SubmitOrderRequest), call.Response.(*pb.SubmitOrderResponse)
	if request.ClientOrderId != response.ClientOrderId || string(request.ClientTag) != string(response.ClientTag) {
		return fmt.Errorf("order %s got the answer of %s", request.ClientOrderId, response.ClientOrderId)
	}
	return nil
}

// TestGoEndsWithItsContext: while it waits for credit the demand is taken back, after sending the call is in doubt; it is told of once, at once, and the messages are
// the caller's again.
func TestGoEndsWithItsContext(t *testing.T) { onEngines(t, testGoEndsWithItsContext) }

func testGoEndsWithItsContext(t *testing.T, engine string) {
	p, client := fakeServer(t, engine) // grants 100
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan error, 4)
	tell := func(err error) { told <- err }
	sent, waits := order("sent", 80<<10), order("waits", 80<<10) // 97 each
	client.Go(ctx, sent, tell)
	first := p.is(t, "REQUEST", 0, 0, 0)
	client.Go(ctx, waits, tell)
	p.is(t, "DEMAND", 0, 98, 98)
	cancel()
	for range 2 {
		err := <-told
		if f := transports.AsFault(err); f.Reason == pb.Reason_REASON_NO_CREDIT {
			checkFault(t, err, pb.Reason_REASON_NO_CREDIT, pb.Outcome_OUTCOME_NOT_PROCESSED, "waited for the gateway's credit")
			if waits.CreditWait <= 0 {
				t.Errorf("it waited %v for credit", waits.CreditWait)
			}
		} else {
			checkFault(t, err, pb.Reason_REASON_DEADLINE_EXCEEDED, pb.Outcome_OUTCOME_UNKNOWN, "before its answer came")
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not wrap the context's error", err)
		}
	}
	p.is(t, "DEMAND", 0, 0, 0)
	sent.Response.(*pb.SubmitOrderResponse).ClientOrderId = "mine" // -race finds a late answer that touches it
	client.Go(t.Context(), order("next", 80<<10), tell)
	p.is(t, "DEMAND", 0, 98, 98)
	p.send(answer(t, first.Correlation, 80+98, "sent"))
	p.send(answer(t, p.is(t, "REQUEST", 0, 0, 0).Correlation, 80+2*98, "next"))
	if err := <-told; err != nil {
		t.Error(err)
	}
	if id := sent.Response.(*pb.SubmitOrderResponse).ClientOrderId; id != "mine" || len(told) != 0 {
		t.Errorf("the late answer was written over %q, %d calls were told of again", id, len(told))
	}
}

// TestGoIsToldOfTheEnd: every call under way gets one error, in doubt where it was sent, and one that comes later gets it from Go itself.
func TestGoIsToldOfTheEnd(t *testing.T) { onEngines(t, testGoIsToldOfTheEnd) }

func testGoIsToldOfTheEnd(t *testing.T, engine string) {
	for _, end := range []string{"close", "peer"} {
		t.Run(end, func(t *testing.T) {
			p, client := fakeServer(t, engine)
			outcomes := make(chan pb.Outcome, 20)
			tell := func(err error) {
				if f := transports.AsFault(err); f.Reason != pb.Reason_REASON_CONNECTION_LOST {
					t.Errorf("%v, want CONNECTION_LOST", err)
				} else {
					outcomes <- f.Outcome
				}
			}
			for i := range 8 { // 5 are covered
				client.Go(context.Background(), order(fmt.Sprint(i), 1000), tell)
			}
			for range 5 {
				p.read()
			}
			if end == "close" {
				_ = client.Close()
			} else {
				_ = p.conn.Close()
			}
			count := map[pb.Outcome]int{}
			for range 8 {
				count[<-outcomes]++
			}
			if count[pb.Outcome_OUTCOME_UNKNOWN] != 5 || count[pb.Outcome_OUTCOME_NOT_PROCESSED] != 3 {
				t.Errorf("outcomes %v, want 5 in doubt and 3 not processed", count)
			}
			here := false
			client.Go(context.Background(), order("late", 0), func(err error) {
				here = true
				tell(err)
			})
			if !here || <-outcomes != pb.Outcome_OUTCOME_NOT_PROCESSED {
				t.Error("a call on a connection that has ended is not refused at once")
			}
		})
	}
}

// TestWindowIsOneForTheProcess: never more than its slots are handled at once, over all clients of the size, and who waits is served in turn or gives up.
func TestWindowIsOneForTheProcess(t *testing.T) { onEngines(t, testWindowIsOneForTheProcess) }

func testWindowIsOneForTheProcess(t *testing.T, engine string) {
	held := make(chan func(), 10)
	g := &gateway{commit: func(r transports.Releaser, mark uint64) { held <- func() { r.Release(mark, nil) } }}
	list := asyncs(t, listen(t, g, transports.ListenConfig{}), 6, transports.DialConfig{Flow: "semaphore", Window: 2, Engine: engine})
	told := make(chan int, 10)
	for i, client := range list[:4] {
		client.Go(context.Background(), order(fmt.Sprint("order-", i), 10), func(err error) {
			if err != nil {
				t.Error(err)
			}
			told <- i
		})
		if i < 2 {
			g.waitHandled(t, i+1)
		}
	}
	// One who will not wait, one who gives up, and one who leaves.
	checkFault(t, list[4].TryDo(t.Context(), order("try", 1)), pb.Reason_REASON_NO_CREDIT, pb.Outcome_OUTCOME_NOT_PROCESSED, "all 2 slots of the window")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	err := list[4].Do(ctx, order("impatient", 1))
	cancel()
	checkFault(t, err, pb.Reason_REASON_NO_CREDIT, pb.Outcome_OUTCOME_NOT_PROCESSED, "slot of the window")
	left := make(chan error, 1)
	list[5].Go(t.Context(), order("leaves", 1), func(err error) { left <- err })
	_ = list[5].Close()
	checkFault(t, <-left, pb.Reason_REASON_CONNECTION_LOST, pb.Outcome_OUTCOME_NOT_PROCESSED, "this client is closed")
	for i := range 4 {
		if n := len(g.ids()); n > 2+i {
			t.Fatalf("%d requests were in flight, the window is 2", n-i)
		}
		(<-held)()
		<-told
		g.waitHandled(t, min(3+i, 4))
	}
	if ids := fmt.Sprint(g.ids()); ids != "[order-0 order-1 order-2 order-3]" {
		t.Errorf("handled %v, want the order of the calls", ids)
	}
	go func() { (<-held)() }()
	if err := list[4].TryDo(t.Context(), order("free", 1)); err != nil { // the slots have come back
		t.Error(err)
	}
}

// TestCallsDoNotAllocate counts over both ends of a connection.
func TestCallsDoNotAllocate(t *testing.T) { onEngines(t, testCallsDoNotAllocate) }

func testCallsDoNotAllocate(t *testing.T, engine string) {
	for _, size := range []int{64, 64 << 10} {
		client := asyncs(t, listen(t, &gateway{handle: acknowledgeOnly}, transports.ListenConfig{}), 1, transports.DialConfig{Engine: engine})[0]
		call := sized(size)
		do := func() {
			if err := client.Do(context.Background(), call); err != nil {
				t.Error(err)
			}
		}
		for range 50 {
			do()
		}
		if n := mallocs(200, do); n > 0.9 { // the race detector makes pools forget some
			t.Errorf("%d bytes: Do allocates %v times a call", size, n)
		}
		const calls = 1000
		finished := make(chan struct{})
		left := 0
		var next func(error)
		next = func(err error) {
			if err != nil {
				t.Error(err)
			}
			if left--; left < 0 {
				finished <- struct{}{}
				return
			}
			client.Go(context.Background(), call, next)
		}
		loop := func() {
			left = calls
			next(nil)
			<-finished
		}
		loop()
		if n := mallocs(1, loop) / calls; n > 0.9 { // the race detector makes pools forget some
			t.Errorf("%d bytes: Go allocates %v times a call", size, n)
		}
	}
}

// mallocs is testing.AllocsPerRun without its GOMAXPROCS of 1, under which a loop that polls and the scheduler wait for one another.
func mallocs(runs int, f func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(runs)
}
