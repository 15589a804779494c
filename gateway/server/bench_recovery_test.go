package server

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// BenchmarkJournalModes is what an acknowledgement costs in each mode of the journal, whole path without a transport, by clients at a time.
func BenchmarkJournalModes(b *testing.B) {
	for _, mode := range []string{"off", "os", "always"} {
		for _, clients := range []int{1, 50} {
			b.Run(fmt.Sprintf("%s/clients=%d", mode, clients), func(b *testing.B) {
				c := quiet(b)
				c.Journal.Sync, c.Journal.SegmentBytes, c.IDs.Max = mode, 0, 1<<24
				s := start(b, c)
				b.ReportAllocs()
				b.ResetTimer()
				latencies := make([][]time.Duration, clients)
				var wait sync.WaitGroup
				for client := range clients {
					wait.Go(func() { latencies[client] = ackTimes(b, s, client, (b.N+clients-1)/clients) })
				}
				wait.Wait()
				b.StopTimer()
				all := slices.Concat(latencies...)
				b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "orders/s")
				b.ReportMetric(float64(percentile(all, 0.5).Microseconds()), "p50-µs")
				b.ReportMetric(float64(percentile(all, 0.99).Microseconds()), "p99-µs")
			})
		}
	}
}

// ackTimes sends n orders one after the other, each of which takes the one before.
func ackTimes(b *testing.B, s *Server, client, n int) []time.Duration {
	session, err := s.Gateway().Open(context.Background(), transports.Peer{})
	if err != nil {
		b.Error(err)
		return nil
	}
	latencies := make([]time.Duration, 0, n)
	request := limitOrder("", 0, 1, 10_000)
	x := &transports.Exchange{Operation: transports.SubmitOrder, Request: request, Response: &pb.SubmitOrderResponse{}}
	for i := range n {
		request.ClientOrderId, request.Side = fmt.Sprintf("%d-%d", client, i), pb.Side(1+i%2)
		begin := time.Now()
		x.ReceivedNs = transports.Now()
		if err := transports.Do(context.Background(), session, x); err != nil {
			b.Error(err)
			return latencies
		}
		latencies = append(latencies, time.Since(begin))
	}
	return latencies
}

// BenchmarkRecovery is a start on a journal of TAILGATE_RECOVERY_COMMANDS commands (100,000 by default): from the first one on, and from a
// snapshot of all of them; in one day, whose ids and events have to come back all, and in ten, of which only the last two days'
// have. Half of the orders trade, one in eight is replaced and one in eight canceled.
func BenchmarkRecovery(b *testing.B) {
	n := 100_000
	if text := os.Getenv("TAILGATE_RECOVERY_COMMANDS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 10 {
			b.Fatalf("TAILGATE_RECOVERY_COMMANDS is %q, needed is a number from 10", text)
		}
	}
	for _, days := range []int{1, 10} {
		c := quiet(b)
		c.Journal.Sync, c.Journal.SegmentBytes, c.Journal.SnapshotEvery, c.Journal.KeepSegments = "off", 0, 0, true
		c.IDs.Max, c.Events.Max, c.Book.MaxOrders = max(n, 1000), max(4*n, 10_000), 1<<20
		s := open(b, c)
		fillJournal(b, s, n, days)
		stop(b, s)

		b.Run(fmt.Sprintf("days=%d/replay", days), func(b *testing.B) { recoveries(b, c, n) })
		s = open(b, c)
		if err := s.sequencer.Snapshot(); err != nil {
			b.Fatal(err)
		}
		stop(b, s)
		b.Run(fmt.Sprintf("days=%d/snapshot", days), func(b *testing.B) { recoveries(b, c, n) })
	}
}

func recoveries(b *testing.B, c Config, n int) {
	for b.Loop() {
		s := open(b, c)
		b.StopTimer()
		if usage := lastUsage(s); usage.OrderIDs == 0 || usage.OrderIDs > n {
			b.Fatalf("%d orders came back", usage.OrderIDs)
		}
		stop(b, s)
		b.StartTimer()
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "commands/s")
}

// fillJournal executes n commands in so many days.
func fillJournal(b *testing.B, s *Server, n, days int) {
	account, _ := s.account("demo")
	symbol, _ := orders.ParseSymbol("ACME")
	last := orders.ID{}
	for i := range n {
		id, _ := orders.ParseID(fmt.Sprint("order-", i))
		c := orders.Command{
			Kind: orders.Submit, Account: account, ClientOrderID: id, Symbol: symbol, Side: matching.Side(1 + i%2), Type: matching.Limit,
			TimeInForce: matching.GoodTillCancel, Quantity: 5, Price: 10_000 + int64(i%4/2),
		}
		switch i % 8 {
		case 6:
			c = orders.Command{Kind: orders.Replace, Account: account, ClientOrderID: last, RequestID: id, Quantity: 7, Price: 10_000}
		case 7:
			c = orders.Command{Kind: orders.Cancel, Account: account, ClientOrderID: last, RequestID: id}
		default:
			last = id
		}
		if err := s.execute(&c); err != nil {
			b.Fatal(err)
		}
		if (i+1)%(n/days) == 0 && i+1 < n {
			if err := s.execute(&orders.Command{Kind: orders.EndDay}); err != nil {
				b.Fatal(err)
			}
		}
		if i%1024 == 0 { // or the journal's buffer fills up
			if err := s.sequencer.Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
}
