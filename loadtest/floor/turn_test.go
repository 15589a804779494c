//go:build linux

package floor_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"tailgate/loadtest/floor"
	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

func source(t *testing.T, size int) *workload.Source {
	t.Helper()
	flow, err := workload.New(workload.Config{Prefix: "abcdef", Size: size, Clients: 1, EchoOnly: true, Instruments: []workload.Instrument{{Symbol: "ACME", ReferencePrice: 10_000}}})
	if err != nil {
		t.Fatal(err)
	}
	return flow.Source(0)
}

// TestTurns: many connections at a time, orders of every size, each answered with its own; everybody has had as many turns when the first is through.
func TestTurns(t *testing.T) {
	for _, engine := range []string{floor.EnginePark, floor.EngineSpin} {
		t.Run(engine, func(t *testing.T) {
			listener := listen(t)
			server, err := floor.ServeInTurn(listener, engine == floor.EngineSpin)
			if err != nil {
				t.Fatal(err)
			}
			const clients, requests = 60, 10
			transport := floor.InTurn()
			var all sync.WaitGroup
			for i := range clients {
				client, err := transport.Dial(t.Context(), transports.DialConfig{Address: listener.Addr().String(), Engine: engine})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { client.Close() })
				s := source(t, []int{31, 64, 4092, 4093, 64 << 10, 1 << 20}[i%6])
				async, ok := client.(transports.AsyncClient)
				if !ok {
					t.Fatalf("%T is not asynchronous", client)
				}
				var call transports.Call
				left := requests
				all.Add(1)
				var next func(error)
				next = func(err error) {
					if err == nil {
						_, err = s.Check(&call)
					}
					if left--; err != nil || left == 0 {
						if err != nil {
							t.Errorf("client %d: %v", i, err)
						}
						all.Done()
						return
					}
					s.Next(&call)
					async.Go(t.Context(), &call, next)
				}
				s.Next(&call)
				async.Go(t.Context(), &call, next)
			}
			all.Wait()
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTurnsEnd: what cannot be answered ends with the fault that says so, and nothing is left.
func TestTurnsEnd(t *testing.T) {
	for _, engine := range []string{floor.EnginePark, floor.EngineSpin} {
		t.Run(engine, func(t *testing.T) {
			listener := listen(t)
			silent := listener.Addr() // nobody accepts: the kernel takes the connection, and nothing comes back
			client, err := floor.InTurn().Dial(t.Context(), transports.DialConfig{Address: silent.String(), Engine: engine})
			if err != nil {
				t.Fatal(err)
			}
			s := source(t, 64)
			var call transports.Call
			s.Next(&call)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if f := fault(client.Do(ctx, &call)); f == nil || f.Reason != pb.Reason_REASON_DEADLINE_EXCEEDED || f.Outcome != pb.Outcome_OUTCOME_UNKNOWN {
				t.Errorf("no answer: %v", f)
			}
			if f := fault(client.Do(t.Context(), &call)); f == nil || f.Reason != pb.Reason_REASON_CONNECTION_LOST || f.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED {
				t.Errorf("after that: %v", f)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			server, err := floor.ServeInTurn(listener, engine == floor.EngineSpin)
			if err != nil {
				t.Fatal(err)
			}
			client, err = floor.InTurn().Dial(t.Context(), transports.DialConfig{Address: silent.String(), Engine: engine})
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Do(t.Context(), &call); err != nil {
				t.Error(err)
			}
			if err := server.Close(); err != nil {
				t.Error(err)
			}
			if f := fault(client.Do(t.Context(), &call)); f == nil || f.Reason != pb.Reason_REASON_CONNECTION_LOST {
				t.Errorf("the server has closed: %v", f)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := floor.InTurn().Dial(t.Context(), transports.DialConfig{Engine: "net"}); err == nil || !strings.Contains(err.Error(), "park and spin") {
		t.Errorf("an engine that there is not: %v", err)
	}
}

func fault(err error) *transports.Fault {
	f, _ := errors.AsType[*transports.Fault](err)
	return f
}
