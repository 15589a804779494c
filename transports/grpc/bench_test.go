package grpc_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	ggrpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/grpc"
	"tailgate/transports/internal/fake"
)

func sizes(b *testing.B, run func(b *testing.B, m *pb.SubmitOrderRequest)) {
	for _, size := range []int{64, 64 << 10} {
		m := fake.Order("abcdefghijkl", nil)
		m.ClientTag = make([]byte, max(1, size-proto.Size(m)-2))
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(proto.Size(m)))
			run(b, m)
		})
	}
}

// BenchmarkServer is one order at a time over an in-memory pipe: the server with grpc's own client, no kernel. Both sides' allocations
// are counted.
func BenchmarkServer(b *testing.B) {
	sizes(b, func(b *testing.B, m *pb.SubmitOrderRequest) {
		listener := bufconn.Listen(256 << 10)
		server := grpc.ServeOn(listener, fake.Null{})
		conn, err := ggrpc.NewClient("passthrough:///x", ggrpc.WithTransportCredentials(insecure.NewCredentials()),
			ggrpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		if err != nil {
			b.Fatal(err)
		}
		stub := pb.NewOrderEntryServiceClient(conn)
		for b.Loop() {
			if _, err := stub.SubmitOrder(b.Context(), m); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		if err := conn.Close(); err != nil {
			b.Error(err)
		}
		if err := server.Shutdown(b.Context()); err != nil {
			b.Error(err)
		}
	})
}

// BenchmarkRoundTrip is one caller over loopback, client and server of this package in one process.
func BenchmarkRoundTrip(b *testing.B) {
	sizes(b, func(b *testing.B, m *pb.SubmitOrderRequest) {
		client := dial(b, listen(b, fake.Null{}, transports.ListenConfig{}), transports.DialConfig{})
		c := fake.Call(transports.SubmitOrder, m)
		for b.Loop() {
			if err := client.Do(b.Context(), c); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkTrade is the stream of one session over loopback, client and server of this package in one process: one order at a time, and
// many in flight.
func BenchmarkTrade(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("%d callers", callers), func(b *testing.B) {
			server := listen(b, &fake.Gateway{Feed: &fake.Feed{}, Forgetful: true}, transports.ListenConfig{})
			trader, err := grpc.Transport().Trade(b.Context(), transports.DialConfig{Address: server.Addr().String()}, &pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			var group sync.WaitGroup
			work := make(chan struct{}, callers)
			for range callers {
				group.Go(func() {
					c := fake.Call(transports.SubmitOrder, fake.Order("abcdefghijkl", make([]byte, 20)))
					for range work {
						if err := trader.Do(b.Context(), c); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for b.Loop() {
				work <- struct{}{}
			}
			close(work)
			group.Wait()
			trader.Close()
			<-trader.Done()
		})
	}
}
