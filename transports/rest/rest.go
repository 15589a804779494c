// Package rest is order entry over HTTP/1.1: resources and methods as a person would type them, JSON or protobuf bodies, problem+json
// errors, Server-Sent Events, and an OpenAPI document made from the contract.
//
// One table (routes.go) says which operation is which method and path; server, client and OpenAPI all read it. The package knows
// HTTP and the shape of messages. It must never know what an order means.
package rest

import "tailgate/transports"

// Name of the transport, as in --transport.
const Name = "rest"

// Transport returns the REST transport: port 8080, a connection for each client, no sessions (HTTP/1.1 has none). The encoding of its clients is protobuf unless told
// otherwise, so that a comparison of transports does not compare encodings; servers take both, request by request.
func Transport() transports.Transport {
	return transports.Transport{
		Name: Name, Port: 8080, Encodings: []string{protobuf.name, jsonText.name}, PerClient: true,
		Listen: listen, Dial: dial, Executions: executions,
	}
}
