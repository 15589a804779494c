package tcp_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"tailgate/transports"
	"tailgate/transports/tcp"
)

// BenchmarkClientPath is one client with one request in flight, both ends in this process, by engine and by door: Do, and Go from its own callback. The server has
// the client's engine where it can.
func BenchmarkClientPath(b *testing.B) {
	for _, engine := range tcp.ClientEngines {
		for _, size := range []int{64, 64 << 10} {
			start := func(b *testing.B) transports.AsyncClient {
				server := listen(b, &gateway{handle: acknowledgeOnly}, transports.ListenConfig{Engine: serverEngine(engine)})
				return dial(b, server, transports.DialConfig{Engine: engine}).(transports.AsyncClient)
			}
			b.Run(fmt.Sprintf("%s/do/%d", engine, size), func(b *testing.B) { calls(b, start(b), size) })
			b.Run(fmt.Sprintf("%s/go/%d", engine, size), func(b *testing.B) { callbacks(b, start(b), 1, size) })
		}
		b.Run(fmt.Sprintf("%s/pipelined/64", engine), func(b *testing.B) {
			server := listen(b, &gateway{handle: acknowledgeOnly}, transports.ListenConfig{Engine: serverEngine(engine)})
			callbacks(b, dial(b, server, transports.DialConfig{Engine: engine, Flow: "none"}).(transports.AsyncClient), 64, 64)
		})
	}
}

// serverEngine is the engine for a server beside a client with this one.
func serverEngine(client string) string {
	for _, engine := range tcp.Transport().Engines {
		if engine == client {
			return engine
		}
	}
	return ""
}

// callbacks keeps n requests in flight, each sent from the callback of one before.
func callbacks(b *testing.B, client transports.AsyncClient, n, size int) {
	samples := make([]time.Duration, 0, 1<<20)
	left, under := b.N, n // requests to begin, and those under way
	over := make(chan struct{})
	type flight struct {
		call  *transports.Call
		begin time.Time
		next  func(error)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range n {
		f := &flight{call: sized(size)}
		f.next = func(err error) {
			if err != nil {
				b.Error(err)
			}
			if !f.begin.IsZero() {
				samples = append(samples, time.Since(f.begin))
			}
			if left == 0 || err != nil {
				if under--; under == 0 {
					close(over)
				}
				return
			}
			left--
			f.begin = time.Now()
			client.Go(context.Background(), f.call, f.next)
		}
		// The first call of each is made by a callback too, so that one goroutine touches all of this.
		client.Go(context.Background(), f.call, func(err error) { f.next(err) })
	}
	<-over
	b.StopTimer()
	report(b, samples)
}
