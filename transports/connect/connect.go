// Package connect is order entry over the Connect protocol, gRPC and gRPC-Web from one handler and one listener, over HTTP/1.1 and HTTP/2, with
// and without TLS, in protobuf and JSON, as connectrpc.com/connect speaks them.
//
// A caller with curl, a browser's fetch, a Connect library or any gRPC library can enter orders here without a proxy between. The package knows
// streams, codes and encodings. It must never know what an order means.
//
// An order's bytes are decoded and answered inside the library's call, so that what it costs beyond the bare library can be measured
// (bench_test.go). Events are encoded once by the gateway and carried as bytes, but for JSON.
package connect

import (
	"tailgate/transports"
)

// Name of the transport, as in --transport.
const Name = "connect"

// The protocols that a client can choose from; the server speaks all of them at the same time.
const (
	protocolConnect = "connect"
	protocolGRPC    = "grpc"
	protocolGRPCWeb = "grpcweb"
)

// Transport returns the Connect transport: port 8081, all clients of a process on one connection of HTTP/2 unless told otherwise, no sessions.
func Transport() transports.Transport {
	return transports.Transport{
		Name: Name, Port: 8081, Encodings: []string{protobufName, jsonName}, Protocols: []string{protocolConnect, protocolGRPC, protocolGRPCWeb},
		PerClient: false, Listen: listen, Dial: dial, Executions: executions,
	}
}
