package sessiontest

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// follow reads executions until the test's end, or its own.
func (r *rig) follow(ctx context.Context, request *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.transport.Executions(ctx, r.config(), request, receive) }()
	return done
}

func executions(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	r.feed.Publish(300) // more than one batch has
	ctx, cancel := context.WithCancel(t.Context())
	fromStart, fromMiddle, fromEnd := newInbox(), newInbox(), newInbox()
	ends := []<-chan error{
		r.follow(ctx, &pb.StreamExecutionsRequest{}, fromStart.receive),
		r.follow(ctx, &pb.StreamExecutionsRequest{Account: "demo", Epoch: 1, FromSequence: 150}, fromMiddle.receive),
		r.follow(ctx, &pb.StreamExecutionsRequest{FromSequence: 301}, fromEnd.receive),
	}
	r.eventually("three readers are there", func() bool { return r.feed.Readers() == 3 })
	for range 10 {
		r.feed.Publish(30)
	}
	fromStart.wait(t, 600, 1)
	fromMiddle.wait(t, 451, 150)
	fromEnd.wait(t, 300, 301)
	cancel()
	for _, end := range ends {
		if err := <-end; !errors.Is(err, context.Canceled) {
			t.Errorf("a stream whose context ended: %v", err)
		}
	}
	r.eventually("the readers have left", func() bool { return r.feed.Readers() == 0 && r.gateway.Sessions() == 0 })
}

func crossing(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	r.feed.Publish(10)
	r.feed.Roll()
	r.feed.Publish(4)
	ctx, cancel := context.WithCancel(t.Context())
	box := newInbox()
	end := r.follow(ctx, &pb.StreamExecutionsRequest{Epoch: 1, FromSequence: 8}, box.receive)
	box.wait(t, 3, 8)
	r.eventually("the next epoch has come", func() bool {
		box.mu.Lock()
		defer box.mu.Unlock()
		return len(box.events) == 8 && box.events[3].GetEpoch() == 2 && box.events[7].GetSequence() == 5
	})
	cancel()
	if err := <-end; !errors.Is(err, context.Canceled) {
		t.Errorf("the stream ended with %v", err)
	}
}

func refusedExecutions(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	r.gateway.OnOpen = func(_ context.Context, peer transports.Peer) error {
		if peer.Key != "" {
			return transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "no such key")
		}
		return nil
	}
	for name, c := range map[string]struct {
		request *pb.StreamExecutionsRequest
		key     string
		reason  pb.Reason
	}{
		"account": {&pb.StreamExecutionsRequest{Account: "other"}, "", pb.Reason_REASON_PERMISSION_DENIED},
		"place":   {&pb.StreamExecutionsRequest{FromSequence: 2}, "", pb.Reason_REASON_MALFORMED},
		"epoch":   {&pb.StreamExecutionsRequest{Epoch: 7}, "", pb.Reason_REASON_MALFORMED},
		"key":     {&pb.StreamExecutionsRequest{}, "bad", pb.Reason_REASON_UNAUTHENTICATED},
	} {
		config := r.config()
		config.Key = c.key
		err := transport.Executions(t.Context(), config, c.request, func(*pb.ExecutionReport) { t.Errorf("%s: an event", name) })
		checkFault(t, name, err, c.reason, notProcessed)
	}
	config := r.config()
	if err := r.server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := transport.Executions(t.Context(), config, &pb.StreamExecutionsRequest{}, func(*pb.ExecutionReport) {}); err == nil {
		t.Error("a server that is gone is no matter")
	}
}

func streamEnds(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	box := newInbox()
	end := r.follow(t.Context(), &pb.StreamExecutionsRequest{}, box.receive)
	r.feed.Publish(300)
	fault := transports.Refuse(pb.Reason_REASON_THROTTLED, "the account was ended")
	fault.RetryAfter = 1500 * time.Millisecond
	r.feed.Fail(fault)
	got, ok := errors.AsType[*transports.Fault](<-end)
	if !ok || got.Reason != fault.Reason || got.Outcome != fault.Outcome || got.Message != fault.Message || got.RetryAfter != fault.RetryAfter {
		t.Errorf("the stream ended with %+v, want %+v", got, fault)
	}
	box.wait(t, 300, 1) // none is lost before the end
}

func streamsDrain(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{})
	r.feed.Publish(3)
	busy, idle := newInbox(), newInbox()
	ends := []<-chan error{
		r.follow(t.Context(), &pb.StreamExecutionsRequest{}, busy.receive),
		r.follow(t.Context(), &pb.StreamExecutionsRequest{FromSequence: 4}, idle.receive),
	}
	busy.wait(t, 3, 1)
	r.eventually("both are there", func() bool { return r.feed.Readers() == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for _, end := range ends {
		checkFault(t, "the stream", <-end, pb.Reason_REASON_DRAINING, notProcessed)
	}
}

// slowReader: one that takes nothing is cut, within its time, while others get every event and every answer.
func slowReader(t *testing.T, transport transports.Transport) {
	r := start(t, transport, transports.Limits{WriteTimeout: 200 * time.Millisecond})
	const more = 20_000 // than buffers hold on the way, those of the kernel included
	r.feed.Publish(more)
	slow, box := newInbox(), newInbox()
	slow.gate = make(chan struct{})
	end := r.follow(t.Context(), &pb.StreamExecutionsRequest{}, slow.receive)
	ctx, cancel := context.WithCancel(t.Context())
	other := r.follow(ctx, &pb.StreamExecutionsRequest{FromSequence: more + 1}, box.receive)
	orders, err := transport.Dial(t.Context(), r.config())
	if err != nil {
		t.Fatal(err)
	}
	defer orders.Close()
	r.eventually("both are there", func() bool { return r.feed.Readers() == 2 })
	published, late := 0, time.Now().Add(patience)
	for r.feed.Readers() == 2 { // until buffers are full everywhere, and the time is over
		if time.Now().After(late) {
			t.Fatal("the slow one is still there")
		}
		r.feed.Publish(10)
		published += 10
		if err := r.order(orders, "o"); err != nil {
			t.Fatalf("the other's order: %v", err)
		}
		box.count(t, published)
	}
	close(slow.gate)
	fault, ok := errors.AsType[*transports.Fault](<-end)
	if !ok || fault.Reason != pb.Reason_REASON_SLOW_READER && fault.Reason != pb.Reason_REASON_CONNECTION_LOST {
		t.Errorf("the slow one ended with %+v", fault)
	}
	slow.wait(t, 1, 1)
	r.feed.Publish(1)
	box.wait(t, published+1, more+1)
	cancel()
	if err := <-other; !errors.Is(err, context.Canceled) {
		t.Errorf("the other one ended with %v", err)
	}
}
