// Package rest is order entry over HTTP/1.1: resources and methods as a person would type them, JSON or protobuf bodies, problem+json
// errors, Server-Sent Events, and an OpenAPI document made from the contract.
//
// It is net/http alone, without a framework: transports/internal has the API itself (restapi), its binding to net/http (resthttp), and the client
// (restclient), which it shares with the transports of the same contract in other frameworks.
package rest

import (
	"net/http"

	"tailgate/transports"
	"tailgate/transports/internal/restapi"
	"tailgate/transports/internal/restclient"
	"tailgate/transports/internal/resthttp"
)

// Name of the transport, as in --transport.
const Name = "rest"

// Transport returns the REST transport: port 8080, a connection for each client, no sessions (HTTP/1.1 has none). The encoding of its clients is protobuf unless told
// otherwise, so that a comparison of transports does not compare encodings; servers take both, request by request.
func Transport() transports.Transport {
	return transports.Transport{
		Name: Name, Port: 8080, Encodings: restapi.EncodingNames(), PerClient: true,
		Listen: resthttp.Listen(Name, handler), Dial: restclient.Dial(Name), Executions: restclient.Executions(Name),
	}
}

// handler is what the server serves: the binding as it is.
func handler(b *resthttp.Binding) http.Handler { return b }
