// Package tcp is order entry on raw TCP: fixed frames around protobuf payloads, and credit that the receiver hands out, so that a queue builds up
// where it can be seen, in the sender, and not in the kernel.
//
// proto/SPEC.md is the protocol to the byte, README.md says how to choose. On the server one goroutine a connection reads a batch of frames, takes every
// request through the session, appends the answers to the connection's out-buffer and commits; nothing is handed to another goroutine and nothing is
// allocated for an order; the events of a session or a drop copy have a goroutine beside it, which waits for their reader. The client's callers read for
// themselves: whoever waits first reads for all; one with a stream of events has a goroutine that always reads.
//
// The package knows sockets, frames, deadlines and credit. It must never know what an order means, a book, a config file or when the process
// ends.
package tcp

import (
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"tailgate/transports"
	"tailgate/transports/tcp/internal/wire"
)

// Flow-control modes.
const (
	flowCredit = "credit" // the client sends what the server granted
	flowNone   = "none"   // the client sends what it likes, TCP's window is the only limit
)

// flows are the flow-control modes, the first is the default. The server knows only whether the client is held to credit.
var flows = []string{flowCredit, flowSemaphore, flowNone}

// I/O engines, of a server or a client.
const (
	engineNet  = "net"                 // goroutines and the runtime's poller
	engineSpin = transports.EngineSpin // an event loop that never sleeps
	enginePark = "park"                // an event loop that sleeps while there is nothing to do
)

// alpn names the protocol in a TLS handshake.
const alpn = "tailgate-tcp"

// lingerTimeout is how long a connection that the server ends stays open for the peer to read why: closing it with unread input in the kernel would
// send a reset, which may overtake the last frames.
const lingerTimeout = time.Second

// firstCounter is where credit counters start on the server and correlation ids on the client: shortly before they wrap, so that every connection of some
// length crosses the wrap, and a mistake there is found on the first day (as Linux starts its jiffies five minutes before theirs).
const firstCounter uint32 = 1<<32 - 1<<10

// aLongTimeAgo is a deadline that ends a blocked read now.
var aLongTimeAgo = time.Unix(1, 0)

// Transport returns raw TCP.
func Transport() transports.Transport {
	return transports.Transport{
		Name: "tcp", Port: 7001, PerClient: true,
		Encodings: []string{"protobuf"}, Flows: flows, Engines: engines,
		Listen: listen, Dial: dial, Trade: trade, Executions: executions,
	}
}

// choose returns value, the first choice where it is empty, or an error that lists them.
func choose(what, value string, choices []string) (string, error) {
	if value == "" {
		return choices[0], nil
	}
	if !slices.Contains(choices, value) {
		return "", fmt.Errorf("tcp: no %s %q, there is %q", what, value, choices)
	}
	return value, nil
}

// withALPN copies a TLS configuration and adds the protocol's name.
func withALPN(config *tls.Config) *tls.Config {
	if config == nil {
		return nil
	}
	config = config.Clone()
	config.NextProtos = []string{alpn}
	return config
}

// maxMaxRequest bounds Limits.MaxRequestBytes: a cost has to fit the 16 bits that later versions announce demand in.
const maxMaxRequest = 32 << 20

// errorFrame is the last frame to a peer: what was wrong, and what became of the requests that have no answer.
func errorFrame(fault *transports.Fault, correlation uint32) []byte {
	return faultFrame(wire.Error, fault, correlation)
}
