package server

import (
	"context"
	"fmt"
	"testing"
	"unsafe"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
	"tailgate/transports/memory"
)

// BenchmarkOrder is one order of 64 B or 64 KiB over the whole path, journal in mode os, client and server in this process: a round trip over
// loopback. Its allocations are the client's and the server's together.
func BenchmarkOrder(b *testing.B) {
	for _, size := range []int{64, 64 << 10} {
		for _, transport := range append(all.All(), memory.Transport()) {
			b.Run(fmt.Sprintf("%s/%dB", transport.Name, size), func(b *testing.B) { benchmarkOrder(b, transport, size) })
		}
	}
}

func benchmarkOrder(b *testing.B, transport transports.Transport, size int) {
	c := quiet(b)
	c.Journal.SegmentBytes = 0
	c.IDs.Max, c.IDs.Reserve = 4<<20, 1<<18
	s, err := Open(context.Background(), c, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer stop(b, s)
	server, err := transport.Listen(context.Background(), s.Gateway(), transports.ListenConfig{Address: "127.0.0.1:0"})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Shutdown(context.Background()) //nolint:errcheck // nothing is in flight
	client, err := transport.Dial(context.Background(), transports.DialConfig{Address: server.Addr().String()})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	request := limitOrder("000000000000", pb.Side_SIDE_BUY, 1, 10_000)
	request.ClientTag = make([]byte, size)
	request.ClientTag = request.ClientTag[:2*size-proto.Size(request)]
	if proto.Size(request) != size {
		b.Fatalf("the request has %d bytes, not %d", proto.Size(request), size)
	}
	call := &transports.Call{Operation: transports.SubmitOrder, Request: request, Response: &pb.SubmitOrderResponse{}}
	id := []byte(request.GetClientOrderId())
	request.ClientOrderId = unsafe.String(unsafe.SliceData(id), len(id)) // nobody holds it between two calls
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for i := len(id) - 1; ; i-- { // count the id up
			if id[i]++; id[i] <= '9' {
				break
			}
			id[i] = '0'
		}
		request.Side = pb.Side_SIDE_BUY + pb.Side(id[len(id)-1]&1)
		if err := client.Do(context.Background(), call); err != nil {
			b.Fatal(err)
		}
	}
}
