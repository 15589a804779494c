// Package grpc is order entry over gRPC: HTTP/2 with one stream for each request, as google.golang.org/grpc speaks it.
//
// A caller with any gRPC library and the contract's proto files can enter orders here; health (grpc.health.v1) and server reflection
// are offered too. The package knows streams, status codes and metadata. It must never know what an order means.
//
// A session (Trade) is one stream with many requests in flight; its answers and events come on it too. Answers and events are encoded
// once and carried as bytes.
package grpc

import "tailgate/transports"

// Name of the transport, as in --transport.
const Name = "grpc"

// Transport returns the gRPC transport: port 50051, protobuf, all clients of a process on one connection unless told otherwise.
func Transport() transports.Transport {
	return transports.Transport{
		Name: Name, Port: 50051, Encodings: []string{"protobuf"}, PerClient: false,
		Listen: listen, Dial: dial, Trade: trade, Executions: executions,
	}
}
