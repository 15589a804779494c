package tcp_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// sized is an order whose encoding has about n bytes.
func sized(n int) *transports.Call {
	call := order("order-000001", 0)
	rest := n - proto.Size(call.Request) - 2
	if rest > 127 {
		rest--
	}
	if rest > 1<<14 {
		rest--
	}
	call.Request.(*pb.SubmitOrderRequest).ClientTag = pattern("order-000001", rest)
	return call
}

// report adds the median and the 99th percentile to a benchmark.
func report(b *testing.B, samples []time.Duration) {
	slices.Sort(samples)
	b.ReportMetric(float64(samples[len(samples)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(samples[len(samples)*99/100].Nanoseconds())/1e3, "p99-µs")
}

// BenchmarkLoopback compares one client of this transport with the least that a framed request and answer on package net can be.
func BenchmarkLoopback(b *testing.B) {
	for _, size := range []int{64, 64 << 10} {
		b.Run(fmt.Sprintf("echo/%d", size), func(b *testing.B) { bareEcho(b, size) })
		for _, flow := range []string{"credit", "none"} {
			b.Run(fmt.Sprintf("%s/%d", flow, size), func(b *testing.B) {
				calls(b, dial(b, listen(b, &gateway{handle: acknowledgeOnly}, transports.ListenConfig{}), transports.DialConfig{Flow: flow}), size)
			})
		}
		b.Run(fmt.Sprintf("session/%d", size), func(b *testing.B) { // a goroutine reads for the caller
			g := exampleGateway()
			logon := g.handle
			g.handle = func(x *transports.Exchange) error {
				if x.Operation == transports.SubmitOrder {
					return acknowledgeOnly(x)
				}
				return logon(x)
			}
			calls(b, trade(b, listen(b, g, transports.ListenConfig{}), &pb.Logon{SessionId: "s"}, func(*pb.ExecutionReport) {}), size)
		})
	}
}

// calls measures one call after the other.
func calls(b *testing.B, client transports.Client, size int) {
	call := sized(size)
	samples := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		begin := time.Now()
		if err := client.Do(context.Background(), call); err != nil {
			b.Fatal(err)
		}
		samples = append(samples, time.Since(begin))
	}
	report(b, samples)
}

// acknowledgeOnly is the cheapest answer that is a real one.
func acknowledgeOnly(x *transports.Exchange) error {
	request, response := x.Request.(*pb.SubmitOrderRequest), x.Response.(*pb.SubmitOrderResponse)
	response.ClientOrderId, response.ClientTag = request.ClientOrderId, request.ClientTag
	response.Status, response.Quantity, response.LeavesQuantity = pb.OrderStatus_ORDER_STATUS_ACCEPTED, request.Quantity, request.Quantity
	response.OrderId, response.Sequence, response.ReceivedNs = 7, 9, uint64(x.ReceivedNs)
	return nil
}

// bareEcho is a length prefix, the bytes, and the same back: blocking reads and writes, a goroutine a side.
func bareEcho(b *testing.B, size int) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		buffer := make([]byte, 4+size)
		for {
			if readFrame(conn, buffer) != nil {
				return
			}
			if _, err := conn.Write(buffer); err != nil {
				return
			}
		}
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	request, answer := make([]byte, 4+size), make([]byte, 4+size)
	binary.LittleEndian.PutUint32(request, uint32(size))
	samples := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		begin := time.Now()
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if err := readFrame(conn, answer); err != nil {
			b.Fatal(err)
		}
		samples = append(samples, time.Since(begin))
	}
	report(b, samples)
}

// readFrame reads one frame into a buffer of its size, in as few reads as the kernel allows.
func readFrame(conn net.Conn, buffer []byte) error {
	n, err := io.ReadAtLeast(conn, buffer, 4)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(conn, buffer[n:4+binary.LittleEndian.Uint32(buffer)])
	return err
}
