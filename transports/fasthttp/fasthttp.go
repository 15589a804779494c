// Package fasthttp is order entry as REST served by fasthttp (github.com/valyala/fasthttp), which reads HTTP/1.1 without net/http: the same API as
// transports/rest. What differs from rest is what the server costs.
//
// Streams of events (Server-Sent Events) are offered, as a response whose body is written in chunks. There are no sessions: HTTP/1.1 has none. The client is
// that of rest, so that a comparison of the two compares servers.
package fasthttp

import (
	"github.com/valyala/fasthttp"

	"tailgate/transports"
	"tailgate/transports/internal/restapi"
	"tailgate/transports/internal/restclient"
	"tailgate/transports/internal/restfasthttp"
)

// Name of the transport, as in --transport.
const Name = "fasthttp"

// Transport returns the transport: port 8083, a connection for each client.
func Transport() transports.Transport {
	return transports.Transport{
		Name: Name, Port: 8083, Encodings: restapi.EncodingNames(), PerClient: true,
		Listen: restfasthttp.Listen(Name, server), Dial: restclient.Dial(Name), Executions: restclient.Executions(Name),
	}
}

// server has the API as its handler: fasthttp has no router.
func server(b *restfasthttp.Binding) *fasthttp.Server {
	return &fasthttp.Server{Handler: func(c *fasthttp.RequestCtx) { b.Serve(nil, c) }}
}
