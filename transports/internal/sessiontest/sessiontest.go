// Package sessiontest holds what every transport with sessions and streams of events has to do alike, as tests that each of them runs on
// its own server and client with the fake gateway. Only tests import it.
package sessiontest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
)

// patience bounds every wait; only a failure takes so long.
const patience = 20 * time.Second

// rig is a server of the transport in front of a fake gateway.
type rig struct {
	*testing.T
	transport transports.Transport
	gateway   *fake.Gateway
	feed      *fake.Feed
	server    transports.Server
}

func start(t *testing.T, transport transports.Transport, limits transports.Limits) *rig {
	t.Helper()
	r := &rig{T: t, transport: transport, feed: &fake.Feed{}}
	r.gateway = &fake.Gateway{Feed: r.feed}
	var err error
	r.server, err = transport.Listen(t.Context(), r.gateway, transports.ListenConfig{Address: "127.0.0.1:0", Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		r.eventually("every session and every reader is closed", func() bool { return r.gateway.Sessions() == 0 && r.feed.Readers() == 0 })
	})
	return r
}

func (r *rig) config() transports.DialConfig {
	return transports.DialConfig{Address: r.server.Addr().String()}
}

// eventually polls: what it waits for is seen by nobody else.
func (r *rig) eventually(what string, holds func() bool) {
	r.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(end) {
			r.Fatalf("it did not come to pass within %v that %s", patience, what)
		}
	}
}

// inbox takes events as a receive callback, and can hold its caller up.
type inbox struct {
	mu     sync.Mutex
	events []*pb.ExecutionReport
	gate   chan struct{} // nil = open
	got    chan struct{}
}

func newInbox() *inbox { return &inbox{got: make(chan struct{}, 1)} }

func (b *inbox) receive(e *pb.ExecutionReport) {
	if b.gate != nil {
		<-b.gate
	}
	b.mu.Lock()
	b.events = append(b.events, e)
	b.mu.Unlock()
	select {
	case b.got <- struct{}{}:
	default:
	}
}

// wait waits until n events have come, and checks that they are the feed's of epoch 1 from that place on.
func (b *inbox) wait(t *testing.T, n int, first uint64) {
	t.Helper()
	b.count(t, n)
	b.mu.Lock()
	events := b.events[:n]
	b.mu.Unlock()
	for i, e := range events {
		if want := fake.Report(1, first+uint64(i)); !proto.Equal(e, want) {
			t.Fatalf("event %d is %v, want %v", i, e, want)
		}
	}
}

// count waits until n events have come.
func (b *inbox) count(t *testing.T, n int) {
	t.Helper()
	for end := time.After(patience); ; {
		b.mu.Lock()
		come := len(b.events)
		b.mu.Unlock()
		if come >= n {
			return
		}
		select {
		case <-b.got:
		case <-end:
			t.Fatalf("%d events came, want %d", come, n)
		}
	}
}

// trade opens a session, which the end of the test closes.
func (r *rig) trade(logon *pb.Logon, receive func(*pb.ExecutionReport)) transports.Trader {
	r.Helper()
	trader, err := r.transport.Trade(r.Context(), r.config(), logon, receive)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		trader.Close()
		<-trader.Done()
	})
	return trader
}

// done waits for the end of the session and returns why it ended.
func (r *rig) done(trader transports.Trader) error {
	r.Helper()
	select {
	case <-trader.Done():
		return trader.Err()
	case <-time.After(patience):
		r.Fatal("the session did not end")
		return nil
	}
}

func (r *rig) order(trader transports.Client, id string) error {
	c := fake.Call(transports.SubmitOrder, fake.Order(id, []byte(id)))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := trader.Do(ctx, c); err != nil {
		return err
	}
	ack := c.Response.(*pb.SubmitOrderResponse)
	if ack.GetClientOrderId() != id || string(ack.GetClientTag()) != id || ack.GetSentNs() < ack.GetReceivedNs() || ack.GetReceivedNs() == 0 {
		return fmt.Errorf("the answer to %s is %v", id, ack)
	}
	return nil
}

// checkFault checks a fault by its reason and outcome.
func checkFault(t *testing.T, what string, err error, reason pb.Reason, outcome pb.Outcome) {
	t.Helper()
	fault, ok := errors.AsType[*transports.Fault](err)
	if !ok || fault.Reason != reason || fault.Outcome != outcome {
		t.Errorf("%s: %v (%+v), want %v, %v", what, err, fault, reason, outcome)
	}
}

const (
	notProcessed = pb.Outcome_OUTCOME_NOT_PROCESSED
	unknown      = pb.Outcome_OUTCOME_UNKNOWN
)

type cases map[string]func(*testing.T, transports.Transport)

func (c cases) run(t *testing.T, transport func() transports.Transport) {
	for name, one := range c {
		t.Run(name, func(t *testing.T) { one(t, transport()) })
	}
}

// Run runs all cases, for a transport with sessions. The transport is made anew for each.
func Run(t *testing.T, transport func() transports.Transport) {
	RunStreams(t, transport)
	cases{
		"answers and events":              answersAndEvents,
		"every request":                   everyRequest,
		"errors leave the session":        errorsLeaveTheSession,
		"a final fault ends it":           finalFault,
		"answers wait for their commit":   answersWait,
		"a failed commit":                 failedCommit,
		"logout answers what was there":   logoutAnswers,
		"drain":                           drain,
		"drain by its context":            drainGivesUp,
		"takeover":                        takeover,
		"a lost session is taken up":      resume,
		"a logon in vain":                 refusedLogons,
		"a logon without events":          logonWithoutEvents,
		"the end of the events":           eventsEnd,
		"a panic costs one request":       panics,
		"a caller that gives up":          callerGivesUp,
		"what is not sent in a session":   otherOperations,
		"a closed session":                closed,
		"events beside many large orders": largeOrders,
	}.run(t, transport)
}

// RunStreams runs the cases of Transport.Executions alone.
func RunStreams(t *testing.T, transport func() transports.Transport) {
	cases{
		"executions":                     executions,
		"executions cross epochs":        crossing,
		"executions in vain":             refusedExecutions,
		"executions end":                 streamEnds,
		"executions end with the server": streamsDrain,
		"a slow reader is alone with it": slowReader,
	}.run(t, transport)
}
