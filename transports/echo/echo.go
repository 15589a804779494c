// Package echo is order entry as REST served by Echo (github.com/labstack/echo): the same API as transports/rest, whose operations Echo's router
// finds and whose answers pass its response. What differs from rest is what the framework costs.
//
// Echo stands on net/http, so that the life of the server, its bounds and its stop are those of rest, streams of events (Server-Sent Events)
// included. Echo's own server start, error handler, binder and renderer are not used: what a request means and what an answer looks like is decided in
// transports/internal/restapi, for all frameworks alike.
package echo

import (
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v5"

	"tailgate/transports"
	"tailgate/transports/internal/restapi"
	"tailgate/transports/internal/restclient"
	"tailgate/transports/internal/resthttp"
)

// Name of the transport, as in --transport.
const Name = "echo"

// Transport returns the transport: port 8085, a connection for each client, no sessions (HTTP/1.1 has none). Its client is that of rest.
func Transport() transports.Transport {
	return transports.Transport{
		Name: Name, Port: 8085, Encodings: restapi.EncodingNames(), PerClient: true,
		Listen: resthttp.Listen(Name, handler), Dial: restclient.Dial(Name), Executions: restclient.Executions(Name),
	}
}

// handler is an Echo with a route for each of the API's. What its router does not find, the API refuses in its own words.
func handler(b *resthttp.Binding) http.Handler {
	unrouted := func(c *echo.Context) error {
		b.Serve(nil, c.Response(), c.Request())
		return nil
	}
	e := echo.NewWithConfig(echo.Config{
		Logger: slog.New(slog.DiscardHandler), // nothing of Echo's own is left to say: the API logs
		Router: echo.NewRouter(echo.RouterConfig{
			NotFoundHandler: unrouted, MethodNotAllowedHandler: unrouted, OptionsMethodHandler: unrouted,
		}),
	})
	for _, route := range restapi.Routes() {
		serve := func(c *echo.Context) error {
			b.Serve(route, c.Response(), c.Request())
			return nil
		}
		for _, method := range route.Methods() {
			e.Add(method, route.Pattern(), serve)
		}
	}
	return e
}
