// Package fiber is order entry as REST served by Fiber (github.com/gofiber/fiber): the same API as transports/rest, whose operations Fiber's router
// finds. What differs from the transport fasthttp, on which Fiber stands, is what the framework costs.
//
// The life of the server, its bounds and its stop are those of the transport fasthttp, streams of events (Server-Sent Events) included. Fiber's own start, error
// handler and binders are not used: what a request means and what an answer looks like is decided in transports/internal/restapi, for all
// frameworks alike. There are no sessions: HTTP/1.1 has none. The client is that of rest.
package fiber

import (
	"slices"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"tailgate/transports"
	"tailgate/transports/internal/restapi"
	"tailgate/transports/internal/restclient"
	"tailgate/transports/internal/restfasthttp"
)

// Name of the transport, as in --transport.
const Name = "fiber"

// Transport returns the transport: port 8084, a connection for each client.
func Transport() transports.Transport {
	return transports.Transport{
		Name: Name, Port: 8084, Encodings: restapi.EncodingNames(), PerClient: true,
		Listen: restfasthttp.Listen(Name, server), Dial: restclient.Dial(Name), Executions: restclient.Executions(Name),
	}
}

// server is a Fiber application with a route for each of the API's. What its router does not find, the API refuses in its own words.
func server(b *restfasthttp.Binding) *fasthttp.Server {
	app := fiber.New(fiber.Config{
		CaseSensitive: true, StrictRouting: true,
		ErrorHandler: func(c fiber.Ctx, _ error) error { // of the router: our handlers return none
			b.Serve(nil, c.RequestCtx())
			return nil
		},
	})
	for _, route := range restapi.Routes() {
		app.Add(route.Methods(), route.Pattern(), func(c fiber.Ctx) error {
			b.Serve(route, c.RequestCtx())
			return nil
		})
	}
	s := app.Server()
	routed := app.Handler()
	s.Handler = func(c *fasthttp.RequestCtx) {
		if slices.Contains(fiber.DefaultMethods, string(c.Method())) {
			routed(c)
		} else { // for which Fiber has an answer of its own
			b.Serve(nil, c)
		}
	}
	return s
}
