// Package transports is the whole contract between a gateway and the ways orders reach it.
//
// A transport moves messages of proto/orderentry/v1 between a peer and a [Gateway]. It knows sockets, frames, encodings,
// deadlines and back-pressure. It must never know what an order means, a book, a config file, or when the process ends.
// Each transport is a folder beside this file with its server and its client; transports/all lists them, and
// transports/transportstest holds all of them to one behaviour.
//
// # The way of a request
//
// Two moments are kept apart, because durability and replication come between them:
//
//	Handle           takes one request and leaves its answer (it never waits for a disk or a peer)
//	Commit(r, mark)  ends a batch of handled requests; r.Release(mark, nil) is called once, when everything handled
//	                 before is as durable as the journal's mode promises
//
// Answers, and anything that reveals their effect, leave the process only after Release. Release runs inside Commit where
// nothing has to be waited for, otherwise later on another goroutine; it must never block, since it may carry the answers
// of many peers. So a transport appends the encoded answer to a bounded out-buffer after Handle, and Release lets the
// bytes up to the mark go. A transport with a goroutine for each request uses [Do], which waits.
//
// # Adding a transport
//
// A transport is one folder beside this file and one line in transports/all:
//
//   - The folder has a function Transport() that returns a [Transport]. Listen starts a server whose handler calls [Gateway.Open], then [Do] for each
//     request, and closes the session; Dial gives a [Client]. Sessions, streams of events and choices of encoding, protocol, flow or engine are fields
//     that stay nil where the transport has none.
//   - transports/all/list.go lists it, and the gateway listens, the load tester measures and the suite tests. configs/gateway.yaml shows its listener.
//   - Which transports have sessions, streams and deadlines stands in transports/transportstest (streams.go, commit.go), so that none is lost in silence.
//
// What is the same for several transports stands in transports/internal: guard and httpserver (connections, bounds and the stop of a server on net/http, HTTP/2
// included), h2client (a client on net/http), bearer (keys), rpccode and contractjson (codes and JSON of the contract), outcome (what is known of a request without an
// answer), cursor and envelope (events and sessions), sockopt. A transport never imports another one.
//
// It is done when `go test ./gateway/server -run TestTransports/NAME` passes, which holds it to the same answers, to the byte, as all others.
package transports
