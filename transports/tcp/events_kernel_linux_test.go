package tcp_test

import (
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/tcp"
	"tailgate/transports/tcp/internal/wire"
)

// TestKernelHoldsFewEvents: what a reader that is behind has not made room for waits in its account's stream and not in the kernel, where its
// answers would wait behind it.
func TestKernelHoldsFewEvents(t *testing.T) {
	serverTLS, clientTLS := certificates(t)
	for name, config := range map[string]transports.ListenConfig{"plain": {}, "TLS": {TLS: serverTLS}} {
		t.Run(name, func(t *testing.T) {
			feed := &fake.Feed{}
			const read = 2000 // by then the kernel has seen a peer that reads fast, and gives it room
			feed.Publish(read)
			config.Limits.WriteTimeout = patience
			server := listen(t, &fake.Gateway{Feed: feed}, config)
			inside, leave := make(chan struct{}), make(chan struct{})
			dial := transports.DialConfig{Address: server.Addr().String()}
			if config.TLS != nil {
				dial.TLS = clientTLS
			}
			trader, err := tcp.Transport().Trade(bounded(t), dial, &pb.Logon{SessionId: "s"}, func(report *pb.ExecutionReport) {
				if report.GetSequence() == read {
					close(inside)
					<-leave
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = trader.Close(); <-trader.Done() }()
			defer close(leave)
			await(t, inside, "the last event that is read")
			full := func() bool { return tcp.Unflushed(server) > tcp.EventRoom-wire.HeaderSize-transports.MaxEventBytes }
			before := -1
			until(t, "all buffers are full", func() bool {
				held, err := tcp.NotSent(server)
				if err != nil {
					t.Fatal(err)
				}
				still := full() && held == before
				before = held
				if !full() {
					feed.Publish(1000)
				} else if !still {
					<-time.After(10 * time.Millisecond)
				}
				return still
			})
			// A write fills a buffer of the kernel's, 64 KiB at most, and under TLS one more.
			if most := tcp.MostNotSent + 128<<10; before > most {
				t.Errorf("the kernel holds %d bytes that it has not sent, at most %d are meant", before, most)
			}
		})
	}
}
