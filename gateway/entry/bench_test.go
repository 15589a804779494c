package entry

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"tailgate/gateway/feed"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// BenchmarkHandle is the order path behind a transport, without a journal: checks, ids, limits, encoding, match, answer.
func BenchmarkHandle(b *testing.B) {
	const n = 1 << 20
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("bench-%06x", i)
	}
	request := order("")
	request.ClientTag = make([]byte, 64-proto.Size(order(ids[0]))-2)
	response := &pb.SubmitOrderResponse{}
	x := transports.Exchange{Operation: transports.SubmitOrder, Request: request, Response: response}
	var session transports.Session
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%n == 0 {
			b.StopTimer()
			g, _ := newGateway(b, nil, n)
			session, _ = g.Open(context.Background(), transports.Peer{})
			b.StartTimer()
		}
		request.ClientOrderId = ids[i%n]
		request.Side = pb.Side(matching.Buy) + pb.Side(i&1)
		x.ReceivedNs = transports.Now()
		if err := session.Handle(context.Background(), &x); err != nil || response.GetDuplicate() {
			b.Fatalf("order %d: %v, duplicate %v", i, err, response.GetDuplicate())
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}

// BenchmarkLiveBesideReaders is how long one order takes while others catch up from the start of a day with a million events, with the pace
// that is the default and without one. What the readers cost is the ratio of the percentiles.
func BenchmarkLiveBesideReaders(b *testing.B) {
	for _, c := range []struct {
		name    string
		readers int
		rate    int
	}{{"nobody", 0, 0}, {"4_paced", 4, 0}, {"4_unpaced", 4, 1 << 40}} {
		b.Run(c.name, func(b *testing.B) { benchmarkLive(b, c.readers, c.rate) })
	}
}

func benchmarkLive(b *testing.B, readers, rate int) {
	const day = 1 << 20
	g, _ := configured(b, Config{Feed: feed.Options{CatchUpRate: rate}}, day+1<<21)
	s := open(b, g, "")
	request, response := order(""), &pb.SubmitOrderResponse{}
	x := transports.Exchange{Operation: transports.SubmitOrder, Request: request, Response: response}
	n := 0
	submit := func() {
		request.ClientOrderId = fmt.Sprintf("bench-%07x", n)
		request.Side = pb.Side_SIDE_BUY + pb.Side(n&1)
		n++
		x.ReceivedNs = transports.Now()
		if err := s.Handle(context.Background(), &x); err != nil {
			b.Fatal(err)
		}
	}
	for n < day/2 { // each second one trades: 4 events for 2 orders
		submit()
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	var mu sync.Mutex
	given := 0
	for range readers {
		wait.Go(func() {
			for ctx.Err() == nil {
				e, err := s.Subscribe(ctx, &pb.StreamExecutionsRequest{})
				if err != nil {
					return
				}
				for got := 0; got < day; {
					batch, err := e.Next(ctx)
					if err != nil {
						break
					}
					got += len(batch)
					mu.Lock()
					given += len(batch)
					mu.Unlock()
				}
				e.Close()
			}
		})
	}
	took := make([]int64, 0, 1<<21)
	for b.Loop() {
		begin := transports.Now()
		submit()
		if len(took) < cap(took) {
			took = append(took, transports.Now()-begin)
		}
	}
	cancel()
	wait.Wait()
	g.Drain()
	slices.Sort(took)
	for _, p := range []struct {
		name  string
		share int
	}{{"p50-ns", 500}, {"p99-ns", 990}, {"p99.9-ns", 999}} {
		b.ReportMetric(float64(took[(len(took)-1)*p.share/1000]), p.name)
	}
	b.ReportMetric(float64(given)/b.Elapsed().Seconds(), "events/s")
}
