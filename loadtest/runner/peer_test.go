package runner_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"tailgate/loadtest/runner"
	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a transport whose server is a function: what do answers the n-th order, from 1. The zero value acknowledges everything.
type peer struct {
	do        func(ctx context.Context, n int64, call *transports.Call) error
	dial      func(n int64) error // nil, or why the n-th dial fails
	perClient bool
	async     bool // its connections are asynchronous, and the cell's engine is the one that uses it
	inline    bool // do never waits, so that an asynchronous answer comes before Go returns

	orders, dials, open, inFlight, mostInFlight atomic.Int64

	mu   sync.Mutex
	keys map[string]int
}

func (p *peer) transport() transports.Transport {
	return transports.Transport{Name: "scripted", PerClient: p.perClient, Engines: []string{"net", "loop"}, Dial: func(_ context.Context, config transports.DialConfig) (transports.Client, error) {
		n := p.dials.Add(1)
		if p.dial != nil {
			if err := p.dial(n); err != nil {
				return nil, err
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.keys == nil {
			p.keys = map[string]int{}
		}
		p.keys[config.Key]++
		p.open.Add(1)
		return &connection{peer: p}, nil
	}}
}

type connection struct {
	peer   *peer
	closed atomic.Bool
}

func (c *connection) Close() error {
	if !c.closed.Swap(true) {
		c.peer.open.Add(-1)
	}
	return nil
}

func (c *connection) Do(ctx context.Context, call *transports.Call) error {
	if call.Operation == transports.ListInstruments {
		response, _ := call.Response.(*pb.ListInstrumentsResponse)
		response.Instruments = []*pb.Instrument{
			{Symbol: "SHUT", State: pb.InstrumentState_INSTRUMENT_STATE_CLOSED, ReferencePrice: 1},
			{Symbol: "ACME", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN, ReferencePrice: 10_000},
		}
		return nil
	}
	p := c.peer
	raise(&p.mostInFlight, p.inFlight.Add(1))
	defer p.inFlight.Add(-1)
	n := p.orders.Add(1)
	if p.do != nil {
		return p.do(ctx, n, call)
	}
	return acknowledge(call)
}

// Go implements transports.AsyncClient. Without work to wait for the answer comes from within, otherwise from another goroutine.
func (c *connection) Go(ctx context.Context, call *transports.Call, done func(error)) {
	if c.peer.do == nil || c.peer.inline {
		done(c.Do(ctx, call))
		return
	}
	go func() { done(c.Do(ctx, call)) }()
}

// TryDo implements transports.AsyncClient.
func (c *connection) TryDo(ctx context.Context, call *transports.Call) error { return c.Do(ctx, call) }

// ways runs a test with clients that wait for their answers and with those that are driven by them: their accounts and stamps are to be the same.
func ways(t *testing.T, test func(t *testing.T, async bool)) {
	t.Helper()
	t.Run("waiting", func(t *testing.T) { test(t, false) })
	t.Run("async", func(t *testing.T) { test(t, true) })
}

func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); n > old && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

func acknowledge(call *transports.Call) error {
	request, _ := call.Request.(*pb.SubmitOrderRequest)
	response, _ := call.Response.(*pb.SubmitOrderResponse)
	proto.Reset(response)
	response.ClientOrderId, response.ClientTag, response.Quantity = request.ClientOrderId, request.ClientTag, request.Quantity
	response.Status, response.OrderId = pb.OrderStatus_ORDER_STATUS_FILLED, 1
	response.ReceivedNs, response.SentNs = 1000, 3000
	return nil
}

// cell is a small cell against the peer.
func cell(p *peer, change func(*runner.Cell)) runner.Cell {
	c := runner.Cell{
		Transport: p.transport(), Dial: transports.DialConfig{Address: "nowhere"}, Clients: 4, Requests: 1000, Timeout: time.Second,
		Flow: workload.Config{Seed: 1, Size: 64},
	}
	if p.async {
		c.Dial.Engine = "loop"
	}
	if change != nil {
		change(&c)
	}
	return c
}

func mustRun(t *testing.T, c runner.Cell) runner.Outcome {
	t.Helper()
	out, err := runner.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if out.Response.Count() != out.Counts.Offered() || out.Admitted.Count() != out.Counts.Answered() {
		t.Errorf("offered %d, in the response times %d; answered %d, in the admitted %d", out.Counts.Offered(), out.Response.Count(), out.Counts.Answered(), out.Admitted.Count())
	}
	return out
}
