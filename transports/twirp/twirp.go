// Package twirp is order entry over Twirp (github.com/twitchtv/twirp): one POST for each request, protobuf or JSON, over HTTP/1.1 and HTTP/2.
//
// Twirp has no streams, so sessions and streams of events are not offered here. Twirp's generated server routes, encodes answers and writes errors; requests are
// read and decoded before it sees them, since it reads bodies without a bound and leaves out JSON fields that it does not know. The package must
// never know what an order means.
package twirp

import "tailgate/transports"

// Name of the transport, as in --transport.
const Name = "twirp"

// The encodings, as in Transport.Encodings.
const (
	protobufName = "protobuf"
	jsonName     = "json"
)

// Transport returns the Twirp transport: port 8082, all clients of a process on one connection of HTTP/2 unless told otherwise, no sessions and no
// streams.
func Transport() transports.Transport {
	return transports.Transport{Name: Name, Port: 8082, Encodings: []string{protobufName, jsonName}, PerClient: false, Listen: listen, Dial: dial}
}
