package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/tcp"
	"tailgate/transports/tcp/internal/credit"
	"tailgate/transports/tcp/internal/wire"
)

// onEngines runs a test of the client on each engine that this system has.
func onEngines(t *testing.T, test func(t *testing.T, engine string)) {
	for _, engine := range tcp.ClientEngines {
		t.Run(engine, func(t *testing.T) { test(t, engine) })
	}
}

// TestCallWaitsForCreditInTurn spends the floor on answers that the journal holds back.
func TestCallWaitsForCreditInTurn(t *testing.T) {
	onEngines(t, testCallWaitsForCreditInTurn)
}

func testCallWaitsForCreditInTurn(t *testing.T, engine string) {
	h := newHeld()
	g := &gateway{commit: h.commit}
	model := wire.Model()
	_, largest := model.Largest(transports.DefaultMaxRequestBytes)
	own := uint32(credit.DefaultFloor + credit.DefaultReserve)
	client := dial(t, listenWith(t, g, transports.ListenConfig{}, credit.Config{Capacity: largest + own}), transports.DialConfig{Engine: engine})
	first := order("order-000", 700<<10)
	cost := model.Cost(transports.SubmitOrder, uint32(proto.Size(first.Request)))
	if 2*cost <= largest+own {
		t.Fatalf("two orders of cost %d fit a pool of %d", cost, largest+own)
	}

	results := make(chan error, 2)
	go func() { results <- client.Do(context.Background(), first) }()
	g.waitHandled(t, 1)

	// This one cannot be sent, and gives up.
	impatient := order("impatient", 700<<10)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	err := client.Do(ctx, impatient)
	cancel()
	checkFault(t, err, pb.Reason_REASON_NO_CREDIT, pb.Outcome_OUTCOME_NOT_PROCESSED, "waited for the gateway's credit")
	if !errors.Is(err, context.DeadlineExceeded) || impatient.CreditWait <= 0 || !impatient.FirstWrite.IsZero() {
		t.Errorf("impatient call: %v, waited %v, sent at %v", err, impatient.CreditWait, impatient.FirstWrite)
	}

	// This one waits, and is sent when the first has its answer.
	second := order("order-001", 700<<10)
	go func() { results <- client.Do(context.Background(), second) }()
	<-time.After(20 * time.Millisecond) // gives a client that does not wait the time to be caught
	if ids := g.ids(); len(ids) != 1 {
		t.Errorf("handled %v while the floor was spent", ids)
	}
	<-h.came
	h.release(nil)
	if err := <-results; err != nil {
		t.Fatal(err)
	}
	<-h.came
	h.release(nil)
	if err := <-results; err != nil {
		t.Error(err)
	}
	if second.CreditWait < 20*time.Millisecond {
		t.Errorf("the second waited %v for its credit, at least 20ms are known", second.CreditWait)
	}
}

// TestCallEndsWithItsContext: after sending, the call ends at once and in doubt, its late answer touches nothing, and the connection goes on.
func TestCallEndsWithItsContext(t *testing.T) {
	onEngines(t, testCallEndsWithItsContext)
}

func testCallEndsWithItsContext(t *testing.T, engine string) {
	for _, end := range []string{"deadline", "cancel"} {
		t.Run(end, func(t *testing.T) {
			h := newHeld()
			g := &gateway{commit: h.commit}
			client := dial(t, listen(t, g, transports.ListenConfig{}), transports.DialConfig{Engine: engine})
			call, next := order("abandoned", 700<<10), order("next", 900<<10)
			ctx, cancel := context.WithCancel(context.Background())
			if end == "deadline" {
				ctx, cancel = context.WithTimeout(context.Background(), 200*time.Millisecond)
			}
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- client.Do(ctx, call) }()
			g.waitHandled(t, 1)
			if end == "cancel" {
				cancel()
			}
			err := <-ended
			checkFault(t, err, pb.Reason_REASON_DEADLINE_EXCEEDED, pb.Outcome_OUTCOME_UNKNOWN, "before its answer came")
			if !errors.Is(err, ctx.Err()) {
				t.Errorf("%v does not wrap %v", err, ctx.Err())
			}
			// The messages are the caller's again: under -race, a late answer that touches them is found.
			call.Response.(*pb.SubmitOrderResponse).ClientTag = nil
			call.Request.(*pb.SubmitOrderRequest).ClientOrderId = "mine"

			// The next order needs the credit that the abandoned one holds until its answer comes.
			go func() { ended <- client.Do(context.Background(), next) }()
			<-h.came
			h.release(nil)
			<-h.came
			h.release(nil)
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if err := checkAnswer(next); err != nil {
				t.Error(err)
			}
			if call.Response.(*pb.SubmitOrderResponse).ClientOrderId != "" {
				t.Error("the late answer was written into a message that is not the client's any more")
			}
		})
	}
}

func TestCallThatIsOverIsNotSent(t *testing.T) {
	onEngines(t, testCallThatIsOverIsNotSent)
}

func testCallThatIsOverIsNotSent(t *testing.T, engine string) {
	g := &gateway{}
	client := dial(t, listen(t, g, transports.ListenConfig{}), transports.DialConfig{Engine: engine})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := client.Do(ctx, order("over", 10))
	checkFault(t, err, pb.Reason_REASON_DEADLINE_EXCEEDED, pb.Outcome_OUTCOME_NOT_PROCESSED, "before it was sent")
	err = client.Do(t.Context(), order("large", 1<<20))
	checkFault(t, err, pb.Reason_REASON_TOO_LARGE, pb.Outcome_OUTCOME_NOT_PROCESSED, "takes at most 1048576")
	err = client.Do(t.Context(), &transports.Call{
		Operation: transports.SubmitOrder, Request: &pb.SubmitOrderRequest{ClientOrderId: "\xff"}, Response: &pb.SubmitOrderResponse{},
	})
	checkFault(t, err, pb.Reason_REASON_MALFORMED, pb.Outcome_OUTCOME_NOT_PROCESSED, "client_order_id")
	if err := client.Do(t.Context(), order("fine", 10)); err != nil {
		t.Error(err)
	}
	if ids := g.ids(); len(ids) != 1 {
		t.Errorf("handled %v", ids)
	}
}

func TestDeadlineTravelsWithTheRequest(t *testing.T) {
	onEngines(t, testDeadlineTravelsWithTheRequest)
}

func testDeadlineTravelsWithTheRequest(t *testing.T, engine string) {
	p, client := fakeServer(t, engine)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go func() { _ = client.Do(ctx, order("a", 1)) }()
	h, _ := p.read()
	if h.Aux < 50_000_000 || h.Aux > 60_000_000 {
		t.Errorf("the frame says %d µs, want nearly a minute", h.Aux)
	}
	far, cancelFar := context.WithTimeout(context.Background(), 2*time.Hour)
	defer cancelFar()
	go func() { _ = client.Do(far, order("b", 1)) }()
	if h, _ = p.read(); h.Aux != 0 {
		t.Errorf("a deadline that 32 bits do not hold is sent as %d", h.Aux)
	}
}

// TestDeadlineReachesTheGateway: the context that the gateway gets has it, and ends with it. Without one there is none, whatever was before.
func TestDeadlineReachesTheGateway(t *testing.T) {
	t.Parallel()
	onEngines(t, testDeadlineReachesTheGateway)
}

func testDeadlineReachesTheGateway(t *testing.T, engine string) {
	type seen struct {
		left time.Duration
		has  bool
		err  error
	}
	arrived := make(chan seen, 1)
	g := &fake.Gateway{}
	g.OnHandle = func(ctx context.Context, x *transports.Exchange) error {
		deadline, has := ctx.Deadline()
		s := seen{left: time.Until(deadline), has: has}
		if s.left < time.Second && has {
			<-ctx.Done()
			s.err = ctx.Err()
		}
		arrived <- s
		g.Answer(x)
		return nil
	}
	client := dial(t, listen(t, g, transports.ListenConfig{}), transports.DialConfig{Engine: engine})
	for i, allowed := range []time.Duration{time.Hour, 0, 900 * time.Millisecond, 0} {
		ctx, cancel := context.WithCancel(t.Context())
		if allowed > 0 {
			ctx, cancel = context.WithTimeout(t.Context(), allowed)
		}
		err := client.Do(ctx, fake.Call(transports.SubmitOrder, fake.Order(fmt.Sprint("order-", i), nil)))
		cancel()
		got := <-arrived
		if got.has != (allowed > 0) || got.has && (got.left <= 0 || got.left > allowed) {
			t.Errorf("call %d: the gateway sees a deadline (%v) %v away, the caller allows %v", i, got.has, got.left, allowed)
		}
		if short := allowed > 0 && allowed < time.Second; short != errors.Is(got.err, context.DeadlineExceeded) || err != nil && !short {
			t.Errorf("call %d: the gateway's context ended with %v, the call with %v", i, got.err, err)
		}
	}
}

// fakeServer is a server made of bytes and a client that has shaken hands with it.
func fakeServer(t testing.TB, engine string) (*peer, transports.AsyncClient) {
	t.Helper()
	return fakeServerFor(t, transports.DialConfig{Engine: engine})
}

// fakeServerFor is fakeServer for a client of any kind, which is granted 100 units of credit and has a reserve of 18.
func fakeServerFor(t testing.TB, config transports.DialConfig) (*peer, transports.AsyncClient) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			close(accepted)
			return
		}
		var head [wire.HeaderSize]byte
		_, _ = io.ReadFull(conn, head[:])
		_, _ = io.CopyN(io.Discard, conn, int64(wire.Parse(head[:]).Length))
		ack := wire.AckMessage{Version: 1, Features: wire.FeatureCredit, MaxRequest: 1 << 20, Floor: 100, Reserve: 18, Largest: 100, IdleTimeout: time.Minute, Model: wire.Model()}
		_, _ = conn.Write(wire.Frame(wire.Header{Type: wire.HelloAck, Credit: 100 - 20, Aux: 1<<32 - 20}, ack.Encode())) // wraps with the first order
		accepted <- conn
	}()
	config.Address = listener.Addr().String()
	client, err := tcp.Transport().Dial(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	conn, ok := <-accepted
	if !ok {
		t.Fatal("no connection")
	}
	t.Cleanup(func() { _, _ = client.Close(), conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &peer{t: t, conn: conn, floor: 100, model: wire.Model()}, client.(transports.AsyncClient)
}

// answer is a RESPONSE to an order.
func answer(t testing.TB, correlation, credit uint32, id string) []byte {
	t.Helper()
	payload, err := proto.Marshal(&pb.SubmitOrderResponse{ClientOrderId: id, SentNs: 5})
	if err != nil {
		t.Fatal(err)
	}
	return wire.Frame(wire.Header{Type: wire.Response, Code: 1, Correlation: correlation, Credit: credit}, payload)
}

// TestServersThatBreakTheProtocol: each ends the connection with an error that says what was wrong, and the call in doubt.
func TestServersThatBreakTheProtocol(t *testing.T) {
	onEngines(t, testServersThatBreakTheProtocol)
}

func testServersThatBreakTheProtocol(t *testing.T, engine string) {
	for name, test := range map[string]struct {
		frame func(h wire.Header) []byte
		text  string
	}{
		"an answer to nothing": {func(h wire.Header) []byte { return answer(t, h.Correlation+1, 0, "a") }, "is not in flight"},
		"an answer too large": {func(h wire.Header) []byte {
			return header(wire.Header{Type: wire.Response, Correlation: h.Correlation, Length: 1 << 20})
		}, "1048576 bytes of payload, at most"},
		"a client's frame":      {func(wire.Header) []byte { return wire.Frame(wire.Header{Type: wire.Request}, nil) }, "may not send REQUEST"},
		"a second HELLO_ACK":    {func(wire.Header) []byte { return wire.Frame(wire.Header{Type: wire.HelloAck}, nil) }, "may not send HELLO_ACK"},
		"an unknown type":       {func(wire.Header) []byte { return wire.Frame(wire.Header{Type: 0x7f}, nil) }, "may not send type 0x7f"},
		"an event":              {func(wire.Header) []byte { return wire.Frame(wire.Header{Type: wire.Event}, nil) }, "an event that nobody asked for"},
		"the end of the stream": {func(wire.Header) []byte { return nil }, "the gateway closed it"},
		"an end within a frame": {func(h wire.Header) []byte { return answer(t, h.Correlation, 0, "a")[:30] }, "the gateway closed it"},
		"an answer that is none": {func(h wire.Header) []byte {
			return wire.Frame(wire.Header{Type: wire.Response, Correlation: h.Correlation}, []byte{0xff})
		}, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			p, client := fakeServer(t, engine)
			ended := make(chan error, 1)
			go func() { ended <- client.Do(context.Background(), order("a", 1)) }()
			h, _ := p.read()
			if b := test.frame(h); b != nil {
				p.send(b)
			}
			if name == "an answer that is none" {
				checkFault(t, <-ended, pb.Reason_REASON_INTERNAL, pb.Outcome_OUTCOME_UNKNOWN, test.text)
				return
			}
			_ = p.conn.(*net.TCPConn).CloseWrite()
			checkFault(t, <-ended, pb.Reason_REASON_CONNECTION_LOST, pb.Outcome_OUTCOME_UNKNOWN, test.text)
			err := client.Do(context.Background(), order("b", 1))
			checkFault(t, err, pb.Reason_REASON_CONNECTION_LOST, pb.Outcome_OUTCOME_NOT_PROCESSED, test.text)
		})
	}
}

// TestClientIgnoresWhatItMay: frames that a later server may send, and counters that are old, change nothing.
func TestClientIgnoresWhatItMay(t *testing.T) {
	onEngines(t, testClientIgnoresWhatItMay)
}

func testClientIgnoresWhatItMay(t *testing.T, engine string) {
	p, client := fakeServer(t, engine)
	for i := range 3 {
		ended := make(chan error, 1)
		go func() { ended <- client.Do(context.Background(), order("a", 1)) }()
		h, _ := p.read()
		p.send(wire.Frame(wire.Header{Type: 0x80, Flags: 0xff}, []byte("later")))
		p.send(wire.Frame(wire.Header{Type: wire.Credit, Credit: uint32(-10 * (i + 1))}, nil)) // behind what is granted
		p.send(answer(t, h.Correlation, 80, "a"))                                              // nothing new either
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// TestCreditFrameLetsAWaitingCallGo: what is not covered is announced once, and sent when it is.
func TestCreditFrameLetsAWaitingCallGo(t *testing.T) {
	onEngines(t, testCreditFrameLetsAWaitingCallGo)
}

func testCreditFrameLetsAWaitingCallGo(t *testing.T, engine string) {
	p, client := fakeServer(t, engine) // grants 100; an order of 1 KiB costs 18
	var group sync.WaitGroup
	results := make(chan error, 6)
	for i := range 6 {
		group.Go(func() { results <- client.Do(context.Background(), order(fmt.Sprint("order-", i), 1000)) })
	}
	var frames []wire.Header
	for range 5 {
		h, _ := p.read()
		frames = append(frames, h)
	}
	if h, _ := p.read(); h.Type != wire.Demand || h.Aux != 19 || h.Y != 19 {
		t.Fatalf("the sixth order is announced with %+v", h)
	}
	_ = p.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if h, _, err := p.tryRead(); err == nil {
		t.Fatalf("a sixth order was sent without credit: %+v", h)
	}
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	for range 2 { // a repetition changes nothing
		p.send(wire.Frame(wire.Header{Type: wire.Credit, Credit: 98}, nil))
	}
	h, _ := p.read()
	for _, h := range append(frames, h) {
		p.send(answer(t, h.Correlation, 98, "x"))
	}
	group.Wait()
	for range 6 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// TestAnswersMayComeInAnyOrder, as the urgent class of a later version will make them come.
func TestAnswersMayComeInAnyOrder(t *testing.T) {
	onEngines(t, testAnswersMayComeInAnyOrder)
}

func testAnswersMayComeInAnyOrder(t *testing.T, engine string) {
	p, client := fakeServer(t, engine)
	results := make(chan error, 4)
	for i := range 4 {
		go func() {
			call := order(fmt.Sprint("order-", i), 0)
			err := client.Do(context.Background(), call)
			if got := call.Response.(*pb.SubmitOrderResponse).ClientOrderId; err == nil && got != fmt.Sprint("order-", i) {
				err = fmt.Errorf("order %d got the answer of %s", i, got)
			}
			results <- err
		}()
	}
	answers := make([][]byte, 4)
	for i := range 4 {
		h, payload := p.read()
		var m pb.SubmitOrderRequest
		if err := proto.Unmarshal(payload, &m); err != nil {
			t.Fatal(err)
		}
		answers[3-i] = answer(t, h.Correlation, 80, m.ClientOrderId)
	}
	for _, b := range answers {
		p.send(b)
	}
	for range 4 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// TestGoAwaySplitsTheCalls: those up to the last accepted request are answered, the others are not processed.
func TestGoAwaySplitsTheCalls(t *testing.T) {
	onEngines(t, testGoAwaySplitsTheCalls)
}

func testGoAwaySplitsTheCalls(t *testing.T, engine string) {
	p, client := fakeServer(t, engine)
	type result struct {
		id  string
		err error
	}
	results := make(chan result, 4)
	for i := range 4 {
		go func() {
			id := fmt.Sprint("order-", i)
			results <- result{id, client.Do(context.Background(), order(id, 0))}
		}()
	}
	var heads []wire.Header
	var ids []string
	for range 4 {
		h, payload := p.read()
		var m pb.SubmitOrderRequest
		if err := proto.Unmarshal(payload, &m); err != nil {
			t.Fatal(err)
		}
		heads, ids = append(heads, h), append(ids, m.ClientOrderId)
	}
	detail, err := proto.Marshal(transports.Refuse(pb.Reason_REASON_DRAINING, "stopping").Detail())
	if err != nil {
		t.Fatal(err)
	}
	p.send(wire.Frame(wire.Header{Type: wire.GoAway, Code: 7, Correlation: heads[1].Correlation}, detail))
	for range 2 {
		r := <-results
		checkFault(t, r.err, pb.Reason_REASON_DRAINING, pb.Outcome_OUTCOME_NOT_PROCESSED, "stopping")
		if r.id != ids[2] && r.id != ids[3] {
			t.Errorf("%s was accepted and is reported as not processed", r.id)
		}
	}
	checkFault(t, client.Do(context.Background(), order("late", 0)), pb.Reason_REASON_DRAINING, pb.Outcome_OUTCOME_NOT_PROCESSED, "stopping")
	p.send(append(answer(t, heads[0].Correlation, 80, ids[0]), answer(t, heads[1].Correlation, 80, ids[1])...))
	for range 2 {
		if r := <-results; r.err != nil {
			t.Errorf("%s: %v", r.id, r.err)
		}
	}
	p.expectEnd() // with its last answer the client closes
}

func TestCloseEndsCallsInDoubt(t *testing.T) {
	onEngines(t, testCloseEndsCallsInDoubt)
}

func testCloseEndsCallsInDoubt(t *testing.T, engine string) {
	p, client := fakeServer(t, engine)
	ended := make(chan error, 1)
	go func() { ended <- client.Do(context.Background(), order("a", 0)) }()
	p.read()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	checkFault(t, <-ended, pb.Reason_REASON_CONNECTION_LOST, pb.Outcome_OUTCOME_UNKNOWN, "this client is closed")
	checkFault(t, client.Do(context.Background(), order("b", 0)), pb.Reason_REASON_CONNECTION_LOST, pb.Outcome_OUTCOME_NOT_PROCESSED, "this client is closed")
	if err := client.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestRequestThatNeverLeftIsNotProcessed fills the socket, so that the last order is in the client's buffer when the connection breaks.
func TestRequestThatNeverLeftIsNotProcessed(t *testing.T) {
	t.Parallel()
	onEngines(t, testRequestThatNeverLeftIsNotProcessed)
}

func testRequestThatNeverLeftIsNotProcessed(t *testing.T, engine string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		var head [wire.HeaderSize]byte
		_, _ = io.ReadFull(conn, head[:])
		_, _ = io.CopyN(io.Discard, conn, int64(wire.Parse(head[:]).Length))
		ack := wire.AckMessage{Version: 1, MaxRequest: 1 << 20, Floor: 100, Largest: 100, IdleTimeout: time.Minute, Model: wire.Model()}
		_, _ = conn.Write(wire.Frame(wire.Header{Type: wire.HelloAck}, ack.Encode()))
		accepted <- conn
	}()
	client, err := tcp.Transport().Dial(context.Background(), transports.DialConfig{
		Address: listener.Addr().String(), Flow: "none", Engine: engine, Limits: transports.Limits{WriteTimeout: 100 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn := <-accepted
	const calls = 40 // of 1 MiB: more than the kernel takes for a peer that does not read
	results := make(chan error, calls)
	for i := range calls {
		go func() { results <- client.Do(context.Background(), order(fmt.Sprint("order-", i), 1<<20-100)) }()
	}
	outcomes := map[pb.Outcome]int{}
	for i := range calls { // they end when nothing moves for WriteTimeout
		err := <-results
		f := transports.AsFault(err)
		if f.Reason != pb.Reason_REASON_CONNECTION_LOST {
			t.Fatalf("call %d: %v, want CONNECTION_LOST", i, err)
		}
		outcomes[f.Outcome]++
	}
	_ = conn.Close()
	if outcomes[pb.Outcome_OUTCOME_UNKNOWN] == 0 || outcomes[pb.Outcome_OUTCOME_NOT_PROCESSED] == 0 || len(outcomes) != 2 {
		t.Errorf("outcomes %v, want some sent and in doubt, and some never sent", outcomes)
	}
}

// TestIdleClientHearsTheGateway: nobody calls, and the next call still knows that the connection is gone.
func TestIdleClientHearsTheGateway(t *testing.T) {
	t.Parallel()
	onEngines(t, testIdleClientHearsTheGateway)
}

func testIdleClientHearsTheGateway(t *testing.T, engine string) {
	p, client := fakeServer(t, engine)
	detail, err := proto.Marshal(transports.Refuse(pb.Reason_REASON_DRAINING, "stopping").Detail())
	if err != nil {
		t.Fatal(err)
	}
	p.send(wire.Frame(wire.Header{Type: wire.GoAway, Code: 7}, detail))
	p.expectEnd() // the client reads it within watchAfter, and closes
	checkFault(t, client.Do(context.Background(), order("late", 0)), pb.Reason_REASON_DRAINING, pb.Outcome_OUTCOME_NOT_PROCESSED, "stopping")
}

// TestCallerOwnsItsMessagesAgain reuses the same call for orders of different sizes, as a load tester does.
func TestCallerOwnsItsMessagesAgain(t *testing.T) {
	onEngines(t, testCallerOwnsItsMessagesAgain)
}

func testCallerOwnsItsMessagesAgain(t *testing.T, engine string) {
	client := dial(t, listen(t, &gateway{}, transports.ListenConfig{}), transports.DialConfig{Engine: engine})
	call := order("a", 0)
	for i, size := range []int{100, 70_000, 0, 5, 20_000} {
		request := call.Request.(*pb.SubmitOrderRequest)
		request.ClientOrderId = fmt.Sprint("order-", i)
		request.ClientTag = pattern(request.ClientOrderId, size)
		if err := client.Do(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		if err := checkAnswer(call); err != nil {
			t.Fatal(err)
		}
	}
}
