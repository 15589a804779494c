package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"tailgate/gateway/config"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
)

// deafProxy stands between a client and the gateway. It carries what the client sends; once deaf it carries nothing back and reads
// nothing from the gateway either, as a peer that does not read.
type deafProxy struct {
	listener net.Listener
	server   string
	deaf     chan struct{} // closed: reads nothing more from the gateway
	hungUp   chan struct{} // closed: ends both connections
	wait     sync.WaitGroup
}

func newDeafProxy(t *testing.T, server string) *deafProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &deafProxy{listener: l, server: server, deaf: make(chan struct{}), hungUp: make(chan struct{})}
	p.wait.Go(func() {
		near, err := l.Accept()
		if err != nil {
			return
		}
		defer near.Close()
		far, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer far.Close()
		p.wait.Go(func() {
			buffer := make([]byte, 4096)
			for {
				select {
				case <-p.deaf:
					return
				default:
				}
				n, err := far.Read(buffer)
				if err != nil {
					return
				}
				if _, err := near.Write(buffer[:n]); err != nil {
					return
				}
			}
		})
		p.wait.Go(func() { _, _ = io.Copy(far, near) }) // ends when either side closes
		<-p.hungUp
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.wait.Wait()
	})
	return p
}

// submitter sends orders one after the other and keeps how long each took.
func submitter(client transports.Client, prefix string, n, tag int) (latencies []time.Duration, err error) {
	request := limitOrder("", pb.Side_SIDE_BUY, 1, 9_000)
	request.ClientTag = make([]byte, tag)
	response := &pb.SubmitOrderResponse{}
	for i := range n {
		request.ClientOrderId = fmt.Sprint(prefix, i)
		begin := time.Now()
		if err := client.Do(context.Background(), &transports.Call{Operation: transports.SubmitOrder, Request: request, Response: response}); err != nil {
			return latencies, err
		}
		latencies = append(latencies, time.Since(begin))
		if response.GetClientOrderId() != request.GetClientOrderId() || response.GetStatus() != pb.OrderStatus_ORDER_STATUS_ACCEPTED {
			return latencies, fmt.Errorf("order %s got %v", request.GetClientOrderId(), response)
		}
	}
	return latencies, nil
}

func percentile(latencies []time.Duration, p float64) time.Duration {
	slices.Sort(latencies)
	return latencies[int(p*float64(len(latencies)-1))]
}

// TestPeerThatDoesNotReadDelaysNobody is the spike of the design, over the whole path and the strictest journal: answers are released
// later, by the goroutine that syncs the disk, and one of the peers takes none of its own. The others get every answer, the
// journal goes on, and what the deaf peer was not told can be asked for again under the same ids.
func TestPeerThatDoesNotReadDelaysNobody(t *testing.T) {
	const others, each, unread, tag = 4, 150, 200, 64 << 10
	c := quiet(t)
	c.Journal.Sync = "always"
	c.Journal.SegmentBytes = 0
	c.Connections.Write = config.Duration(time.Minute) // whoever waited for the deaf peer would wait until it is cut
	c.Listeners["tcp"] = Listener{Address: "127.0.0.1:0"}
	s, err := Start(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, s)
	spec, err := all.Parse("tcp:none") // without credit nothing but the out-buffer's bound stops the deaf peer
	if err != nil {
		t.Fatal(err)
	}
	dial := func(address string) transports.Client {
		t.Helper()
		client, err := spec.Transport.Dial(context.Background(), transports.DialConfig{Address: address, Flow: spec.Flow})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	// run lets the others trade and returns their latencies.
	run := func(prefix string) (latencies []time.Duration) {
		t.Helper()
		var mu sync.Mutex
		var wait sync.WaitGroup
		for i := range others {
			wait.Go(func() {
				client := dial(s.Addr("tcp").String())
				defer client.Close()
				mine, err := submitter(client, fmt.Sprint(prefix, i, "-"), each, 10)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				latencies = append(latencies, mine...)
			})
		}
		wait.Wait()
		return latencies
	}
	alone := run("alone-")

	proxy := newDeafProxy(t, s.Addr("tcp").String())
	deaf := dial(proxy.listener.Addr().String())
	if _, err := submitter(deaf, "hears-", 1, tag); err != nil {
		t.Fatal(err)
	}
	close(proxy.deaf)
	faults := make(chan error, unread)
	for i := range unread { // 200 x 64 KiB is far more than both sockets and the out-buffer hold
		go func() {
			_, err := submitter(deaf, fmt.Sprint("deaf-", i, "-"), 1, tag)
			faults <- err
		}()
	}
	beside := run("beside-")
	t.Logf("%d orders each: p50 %s, p99 %s alone; p50 %s, p99 %s beside a peer that does not read", len(alone),
		percentile(alone, 0.5), percentile(alone, 0.99), percentile(beside, 0.5), percentile(beside, 0.99))

	if len(beside) != others*each {
		t.Errorf("%d of %d answers came beside the deaf peer", len(beside), others*each)
	}
	// The deaf peer is still connected and still waits, so nobody's answer has waited for its end. One answer may have been on its way
	// back when the proxy stopped reading.
	if n := len(faults); n > 1 {
		t.Errorf("%d calls of the deaf peer have ended while the others traded: %v", n, <-faults)
	}
	if err := deaf.Close(); err != nil {
		t.Error(err)
	}
	close(proxy.hungUp)
	for range unread {
		if err := <-faults; err != nil && transports.AsFault(err).Reason != pb.Reason_REASON_CONNECTION_LOST {
			t.Errorf("a call of the deaf peer ended with %v", err)
		}
	}
	again := dial(s.Addr("tcp").String())
	defer again.Close()
	for i := range unread {
		request := limitOrder(fmt.Sprint("deaf-", i, "-0"), pb.Side_SIDE_BUY, 1, 9_000)
		response := &pb.SubmitOrderResponse{}
		if err := again.Do(context.Background(), &transports.Call{Operation: transports.SubmitOrder, Request: request, Response: response}); err != nil {
			t.Fatal(err)
		}
	}
	// Each id entered once, whether its first answer was read or not: 200 orders of one lot each, and the others' beside them.
	book := ask[*pb.GetBookResponse](t, s, transports.GetBook, &pb.GetBookRequest{Symbol: "ACME"})
	if want := uint64(2*others*each + 1 + unread); len(book.GetBids()) != 1 || book.GetBids()[0].GetQuantity() != want {
		t.Errorf("the book holds %v, want one level of %d lots", book.GetBids(), want)
	}
}
