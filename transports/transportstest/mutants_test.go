package transportstest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/memory"
	"tailgate/transports/transportstest"
)

// A suite that cannot fail proves nothing. Each mutant is the in-memory transport with one fault of a kind that transports have
// had; a child process runs the one case that must catch it, and the test fails when that case passes.

// mutant changes a transport at its two doors; nil leaves one as it is.
type mutant struct {
	caught string // by this case
	// do is around a client's Do.
	do func(ctx context.Context, call *transports.Call, next doFunc) error
	// gateway is what the server gets in place of the gateway, its limits what it gets in place of its own.
	gateway func(transports.Gateway) transports.Gateway
	limits  func(*transports.Limits)
	// naive changes the gateway behind the suite's own probe.
	naive func(*naive)
	// logon changes what a session is opened with, and event is around the delivery of each event of a session or a stream.
	logon func(*pb.Logon)
	event func(e *pb.ExecutionReport, next func(*pb.ExecutionReport))
	// ending is what a session or a stream says in place of its own end.
	ending func(error) error
	// amputated takes the sessions away.
	amputated bool
	// shutdown is around a server's Shutdown.
	shutdown func(ctx context.Context, next func(context.Context) error) error
}

type doFunc func(context.Context, *transports.Call) error

// afterwards is a mutant that spoils answers to new orders.
func afterwards(caught string, spoil func(*pb.SubmitOrderResponse)) mutant {
	return mutant{caught: caught, do: func(ctx context.Context, call *transports.Call, next doFunc) error {
		err := next(ctx, call)
		if r, ok := call.Response.(*pb.SubmitOrderResponse); ok && err == nil {
			spoil(r)
		}
		return err
	}}
}

// faulty is a mutant that spoils faults.
func faulty(caught string, spoil func(*transports.Fault) error) mutant {
	return mutant{caught: caught, do: func(ctx context.Context, call *transports.Call, next doFunc) error {
		if fault, ok := errors.AsType[*transports.Fault](next(ctx, call)); ok {
			copied := *fault
			return spoil(&copied)
		}
		return nil
	}}
}

// committing is a mutant whose server does something else than to wait for the release.
func committing(caught string, commit func(s transports.Session, r transports.Releaser, mark uint64)) mutant {
	return mutant{caught: caught, gateway: func(g transports.Gateway) transports.Gateway {
		return spoiledGateway{g, func(s transports.Session) transports.Session { return spoiledSession{Session: s, commit: commit} }}
	}}
}

var mutants = map[string]mutant{
	"loses the duplicate flag": afterwards("duplicate order", func(r *pb.SubmitOrderResponse) { r.Duplicate = false }),
	"loses large tags": afterwards("tag echo", func(r *pb.SubmitOrderResponse) {
		if len(r.ClientTag) > 64<<10 {
			r.ClientTag = nil
		}
	}),
	"cuts a tag's last byte":  afterwards("tag echo", func(r *pb.SubmitOrderResponse) { r.ClientTag = r.ClientTag[:max(len(r.ClientTag), 1)-1] }),
	"hides a business reason": afterwards("refusals", func(r *pb.SubmitOrderResponse) { r.Reason = 0 }),
	"loses the text":          afterwards("refusals", func(r *pb.SubmitOrderResponse) { r.Text = "" }),
	"rounds to a double":      afterwards("extreme numbers", func(r *pb.SubmitOrderResponse) { r.FilledNotional = int64(float64(r.FilledNotional)) }),
	"stamps with another clock": afterwards("submit rests", func(r *pb.SubmitOrderResponse) {
		r.SentNs -= uint64(time.Hour)
	}),

	"hides the reason of a fault": faulty("refusals", func(f *transports.Fault) error { f.Reason = pb.Reason_REASON_INTERNAL; return f }),
	"hides the field of a fault":  faulty("refusals", func(f *transports.Fault) error { f.Field = ""; return f }),
	"says unknown always":         faulty("refusals", func(f *transports.Fault) error { f.Outcome = pb.Outcome_OUTCOME_UNKNOWN; return f }),
	"says not processed always":   faulty("canceled call", func(f *transports.Fault) error { f.Outcome = pb.Outcome_OUTCOME_NOT_PROCESSED; return f }),
	"returns plain errors":        faulty("refusals", func(f *transports.Fault) error { return errors.New(f.Message) }),

	"answers the call before": {caught: "concurrent calls", do: func() func(context.Context, *transports.Call, doFunc) error {
		var mu sync.Mutex
		var before proto.Message
		return func(ctx context.Context, call *transports.Call, next doFunc) error {
			err := next(ctx, call)
			if _, isOrder := call.Response.(*pb.SubmitOrderResponse); err != nil || !isOrder {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			mine := proto.Clone(call.Response)
			if before != nil {
				proto.Reset(call.Response)
				proto.Merge(call.Response, before)
			}
			before = mine
			return nil
		}
	}()},
	"sends everything twice": {caught: "concurrent clients", do: func(ctx context.Context, call *transports.Call, next doFunc) error {
		twin := transports.Call{Operation: call.Operation, Request: call.Request, Response: call.Operation.NewResponse()}
		err := next(ctx, call)
		if twin.Response != nil {
			_ = next(ctx, &twin)
		}
		return err
	}},
	"does not reset the response": {caught: "get book", do: func(ctx context.Context, call *transports.Call, next doFunc) error {
		fresh := transports.Call{Operation: call.Operation, Request: call.Request, Response: call.Operation.NewResponse()}
		err := next(ctx, &fresh)
		if err == nil {
			proto.Merge(call.Response, fresh.Response)
		}
		return err
	}},
	"changes the request": {caught: "submit rests", do: func(ctx context.Context, call *transports.Call, next doFunc) error {
		err := next(ctx, call)
		if q, ok := call.Request.(*pb.SubmitOrderRequest); ok {
			q.ClientOrderId = "spoiled"
		}
		return err
	}},
	"enters what is over": {caught: "call that is over", do: func(ctx context.Context, call *transports.Call, next doFunc) error {
		return next(context.WithoutCancel(ctx), call)
	}},
	"keeps the deadline to itself": {caught: "deadline reaches the gateway", do: func(ctx context.Context, call *transports.Call, next doFunc) error {
		plain, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return next(plain, call)
	}},
	"writes into the caller's message late": {caught: "late answer", do: func(ctx context.Context, call *transports.Call, next doFunc) error {
		done := make(chan error, 1)
		fresh := transports.Call{Operation: call.Operation, Request: proto.Clone(call.Request), Response: call.Operation.NewResponse()}
		go func() {
			err := next(context.WithoutCancel(ctx), &fresh)
			proto.Reset(call.Response)
			proto.Merge(call.Response, fresh.Response)
			done <- err
		}()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, ctx.Err(), "gave up")
		}
	}},
	"loses the page token": {caught: "list orders", do: func(ctx context.Context, call *transports.Call, next doFunc) error {
		if q, ok := call.Request.(*pb.ListOrdersRequest); ok {
			call = &transports.Call{Operation: call.Operation, Response: call.Response, Request: &pb.ListOrdersRequest{State: q.State, PageSize: q.PageSize}}
		}
		return next(ctx, call)
	}},

	"answers before the release": committing("gated commit", func(s transports.Session, r transports.Releaser, mark uint64) {
		s.Commit(discard{}, mark)
		r.Release(mark, nil)
	}),
	"answers although the commit failed": committing("failing commit", func(s transports.Session, r transports.Releaser, mark uint64) {
		s.Commit(forgiving{r}, mark)
	}),
	"waits for everybody's commits": {caught: "gated commit delays nobody else", gateway: func(g transports.Gateway) transports.Gateway {
		queue := make(chan struct{}, 1)
		return spoiledGateway{g, func(s transports.Session) transports.Session {
			return spoiledSession{Session: s, commit: func(s transports.Session, r transports.Releaser, mark uint64) {
				queue <- struct{}{}
				s.Commit(inTurn{r, queue}, mark)
			}}
		}}
	}},
	"never closes a session": {caught: "submit rests", gateway: func(g transports.Gateway) transports.Gateway {
		return spoiledGateway{g, func(s transports.Session) transports.Session { return spoiledSession{Session: s, leaks: true} }}
	}},
	"keeps the first peer's session": {caught: "duplicate on another connection", gateway: func(g transports.Gateway) transports.Gateway {
		var once sync.Once
		var first transports.Session
		return spoiledGateway{g, func(s transports.Session) transports.Session {
			once.Do(func() { first = s })
			return first
		}}
	}},
	"takes larger requests":   {caught: "oversize request", limits: func(l *transports.Limits) { l.MaxRequestBytes = 16 << 20 }},
	"takes only smaller ones": {caught: "largest request", limits: func(l *transports.Limits) { *l = l.WithDefaults(); l.MaxRequestBytes-- }},
	"takes more connections":  {caught: "maximum of connections", limits: func(l *transports.Limits) { l.MaxConnections = 0 }},
	"cuts calls at the shutdown": {caught: "shutdown answers what was accepted", shutdown: func(_ context.Context, next func(context.Context) error) error {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = next(over)
		return nil
	}},
	"hides that the shutdown was cut": {caught: "shutdown with a stuck commit", shutdown: func(ctx context.Context, next func(context.Context) error) error {
		_ = next(ctx)
		return nil
	}},
	"does not shut down": {caught: "after shutdown", shutdown: func(context.Context, func(context.Context) error) error { return nil }},
	"skips an event": events("places in a stream", func(e *pb.ExecutionReport, next func(*pb.ExecutionReport)) {
		if e.Sequence != 3 {
			next(e)
		}
	}),
	"gives an event twice": events("session", func(e *pb.ExecutionReport, next func(*pb.ExecutionReport)) {
		next(e)
		if e.Sequence == 2 {
			next(e)
		}
	}),
	"swaps two events": {caught: "session", event: func() func(e *pb.ExecutionReport, next func(*pb.ExecutionReport)) {
		var mu sync.Mutex
		held := map[string]*pb.ExecutionReport{}
		return func(e *pb.ExecutionReport, next func(*pb.ExecutionReport)) {
			mu.Lock()
			defer mu.Unlock()
			if e.Sequence == 2 {
				held[e.Account] = e
				return
			}
			next(e)
			if before := held[e.Account]; before != nil && e.Sequence == 3 {
				next(before)
			}
		}
	}()},
	"says another epoch": events("session", func(e *pb.ExecutionReport, next func(*pb.ExecutionReport)) { e.Epoch++; next(e) }),
	"numbers events itself": events("session resumes", func() func(e *pb.ExecutionReport, next func(*pb.ExecutionReport)) {
		var n atomic.Uint64
		return func(e *pb.ExecutionReport, next func(*pb.ExecutionReport)) { e.Sequence = n.Add(1); next(e) }
	}()),
	"loses who made the market": events("session", func(e *pb.ExecutionReport, next func(*pb.ExecutionReport)) { e.Liquidity = 0; next(e) }),
	"loses a field on the way": events("session", func(e *pb.ExecutionReport, next func(*pb.ExecutionReport)) {
		e.Order.FilledNotional &= 1<<10 - 1
		next(e)
	}),
	"keeps fills of others": events("session", func(e *pb.ExecutionReport, next func(*pb.ExecutionReport)) {
		if e.Liquidity != pb.Liquidity_LIQUIDITY_MAKER {
			next(e)
		}
	}),
	"does not resume": {caught: "session resumes", logon: func(l *pb.Logon) { l.LastSequence = 0 }},
	"ignores a takeover": {caught: "takeover", logon: func() func(*pb.Logon) {
		var n atomic.Uint32
		return func(l *pb.Logon) { l.SessionId = fmt.Sprintf("%s-%d", l.SessionId, n.Add(1)) }
	}()},
	"hides why a session ended":        {caught: "takeover", ending: func(error) error { return nil }},
	"hides why a stream ended":         {caught: "streams end with the server", ending: func(error) error { return context.Canceled }},
	"gives events before their commit": {caught: "events wait for their commit", naive: func(g *naive) { g.leaks = true }},
	"gives events of a failed commit":  {caught: "events of a failed commit", naive: func(g *naive) { g.leaks = true }},
	"renames a reason": faulty("every reason in a session", func(f *transports.Fault) error {
		if f.Reason == pb.Reason_REASON_SESSION_REPLACED {
			f.Reason = pb.Reason_REASON_CONNECTION_LOST
		}
		return f
	}),
	"rounds the time to wait": faulty("every reason", func(f *transports.Fault) error { f.RetryAfter = f.RetryAfter.Truncate(time.Second); return f }),
	"has no sessions":         {caught: "who streams", amputated: true},
	"leaves a goroutine": {caught: "", do: func(ctx context.Context, call *transports.Call, next doFunc) error {
		go func() { select {} }()
		return next(ctx, call)
	}},
}

// events is a mutant that spoils the delivery of events.
func events(caught string, event func(e *pb.ExecutionReport, next func(*pb.ExecutionReport))) mutant {
	return mutant{caught: caught, event: event}
}

// mutantVariable names the mutant that a child process has to run.
const mutantVariable = "TRANSPORTSTEST_MUTANT"

// TestMutants starts a child for each mutant and wants its case to fail.
func TestMutants(t *testing.T) {
	if os.Getenv(mutantVariable) != "" {
		t.Skip("this is a child")
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pattern, wanted := "^TestMutant$/^memory$/^"+strings.ReplaceAll(m.caught, " ", "_")+"$", "--- FAIL: TestMutant/memory/"+strings.ReplaceAll(m.caught, " ", "_")
			if m.caught == "" {
				pattern, wanted = "^TestMutant$/^memory$/^submit_rests$", "found unexpected goroutines"
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			child := exec.CommandContext(ctx, executable, "-test.run="+pattern)
			child.Env = append(os.Environ(), mutantVariable+"="+name)
			output, err := child.CombinedOutput()
			if _, failed := errors.AsType[*exec.ExitError](err); !failed || !strings.Contains(string(output), wanted) {
				t.Errorf("the case %q did not catch a transport that %s: %v\n%s", m.caught, name, err, output)
			}
		})
	}
}

// TestMutant is the child's half.
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantVariable)
	if name == "" {
		t.Skip("only TestMutants runs this, in a process of its own")
	}
	m, ok := mutants[name]
	if !ok {
		t.Fatalf("no mutant %q", name)
	}
	transportstest.SetBound(3 * time.Second) // some of them hang
	transportstest.Run(t, m.of(memory.Transport()), func(_ *testing.T, o transportstest.GatewayOptions) transports.Gateway {
		g := newNaive(o.Keys, o.Limits)
		if m.naive != nil {
			m.naive(g)
		}
		return g
	})
}

// TestCompare: two tables that differ in one byte of one answer are not the same, and the failure names the call.
func TestCompare(t *testing.T) {
	row := transportstest.Row{Case: "refusals", Call: "SubmitOrder a", Answer: "no"}
	other := row
	other.Answer = "nO"
	for _, c := range []struct {
		name string
		rows []transportstest.Row
		want string
	}{
		{"equal", []transportstest.Row{row}, ""},
		{"an answer differs", []transportstest.Row{other}, "nO"},
		{"a call is missing", []transportstest.Row{row, row}, "made 1 calls"},
		{"the case was not run", nil, ""},
	} {
		recorder := &recorder{TB: t}
		transportstest.Compare(recorder, transportstest.Table{Name: "a", Rows: []transportstest.Row{row}}, transportstest.Table{Name: "b", Rows: c.rows})
		if got := strings.Join(recorder.errors, "\n"); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: reported %q, want %q", c.name, got, c.want)
		}
	}
}

type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// of makes the mutant of a transport.
func (m mutant) of(t transports.Transport) transports.Transport {
	listen, dial := t.Listen, t.Dial
	t.Listen = func(ctx context.Context, g transports.Gateway, config transports.ListenConfig) (transports.Server, error) {
		if m.gateway != nil {
			g = m.gateway(g)
		}
		if m.limits != nil {
			m.limits(&config.Limits)
		}
		server, err := listen(ctx, g, config)
		if err != nil {
			return nil, err
		}
		return spoiledServer{server, m}, nil
	}
	t.Dial = func(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
		client, err := dial(ctx, config)
		if err != nil {
			return nil, err
		}
		return spoiledClient{client, m}, nil
	}
	trade, executions := t.Trade, t.Executions
	t.Trade = func(ctx context.Context, config transports.DialConfig, logon *pb.Logon, receive func(*pb.ExecutionReport)) (transports.Trader, error) {
		logon = proto.CloneOf(logon)
		if m.logon != nil {
			m.logon(logon)
		}
		trader, err := trade(ctx, config, logon, m.receiving(receive))
		if err != nil {
			return nil, err
		}
		return spoiledTrader{trader, m}, nil
	}
	if m.amputated {
		t.Trade = nil
	}
	t.Executions = func(ctx context.Context, config transports.DialConfig, request *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) error {
		return m.ended(executions(ctx, config, request, m.receiving(receive)))
	}
	return t
}

func (m mutant) receiving(receive func(*pb.ExecutionReport)) func(*pb.ExecutionReport) {
	if m.event == nil {
		return receive
	}
	return func(e *pb.ExecutionReport) { m.event(e, receive) }
}

func (m mutant) ended(err error) error {
	if m.ending == nil {
		return err
	}
	return m.ending(err)
}

type spoiledTrader struct {
	transports.Trader
	mutant
}

func (t spoiledTrader) Do(ctx context.Context, call *transports.Call) error {
	if t.do == nil {
		return t.Trader.Do(ctx, call)
	}
	return t.do(ctx, call, t.Trader.Do)
}

func (t spoiledTrader) Err() error { return t.ended(t.Trader.Err()) }

type spoiledServer struct {
	transports.Server
	mutant
}

func (s spoiledServer) Addr() net.Addr { return s.Server.Addr() }

func (s spoiledServer) Shutdown(ctx context.Context) error {
	if s.shutdown == nil {
		return s.Server.Shutdown(ctx)
	}
	return s.shutdown(ctx, s.Server.Shutdown)
}

type spoiledClient struct {
	transports.Client
	mutant
}

func (c spoiledClient) Do(ctx context.Context, call *transports.Call) error {
	if c.do == nil {
		return c.Client.Do(ctx, call)
	}
	return c.do(ctx, call, c.Client.Do)
}

type spoiledGateway struct {
	transports.Gateway
	spoil func(transports.Session) transports.Session
}

func (g spoiledGateway) Open(ctx context.Context, peer transports.Peer) (transports.Session, error) {
	s, err := g.Gateway.Open(ctx, peer)
	if err != nil {
		return nil, err
	}
	return g.spoil(s), nil
}

type spoiledSession struct {
	transports.Session
	commit func(s transports.Session, r transports.Releaser, mark uint64)
	leaks  bool
}

func (s spoiledSession) Commit(r transports.Releaser, mark uint64) {
	if s.commit == nil {
		s.Session.Commit(r, mark)
		return
	}
	s.commit(s.Session, r, mark)
}

func (s spoiledSession) Close() {
	if !s.leaks {
		s.Session.Close()
	}
}

// discard, forgiving and inTurn are releasers that do something else than they should.
type discard struct{}

func (discard) Release(uint64, error) {}

type forgiving struct{ to transports.Releaser }

func (f forgiving) Release(mark uint64, _ error) { f.to.Release(mark, nil) }

type inTurn struct {
	to    transports.Releaser
	queue chan struct{}
}

func (i inTurn) Release(mark uint64, err error) {
	<-i.queue
	i.to.Release(mark, err)
}
