// Package all is the one list of transports. Adding a transport is its folder and its line in [All].
package all

import (
	"tailgate/transports"
	"tailgate/transports/connect"
	"tailgate/transports/echo"
	"tailgate/transports/fasthttp"
	"tailgate/transports/fiber"
	"tailgate/transports/grpc"
	"tailgate/transports/rest"
	"tailgate/transports/tcp"
	"tailgate/transports/twirp"
)

// All returns every transport that listens on a socket, in the order of the tables and reports.
func All() []transports.Transport {
	return []transports.Transport{
		tcp.Transport(), rest.Transport(), grpc.Transport(), connect.Transport(), twirp.Transport(), fasthttp.Transport(), fiber.Transport(), echo.Transport(),
	}
}
