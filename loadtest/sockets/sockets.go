package sockets

import (
	"errors"
	"net/netip"
	"slices"
	"time"
)

// End is what TCP did at one end of the connections between two looks: sums over connections.
type End struct {
	NotAvailable string // why nothing is known; then all else is zero and means nothing

	Connections      int           // that both looks saw, or that were opened between them
	Gone             int           // that the first look alone saw: what they did since is not known
	Retransmits      uint64        // segments that were sent again
	Busy             time.Duration // with data under way or waiting to be sent
	ReceiverLimited  time.Duration // of Busy: the peer's window held the sender up
	BufferLimited    time.Duration // of Busy: the send buffer was too small
	BytesSent        uint64        // payload, what was sent again included
	BytesReceived    uint64        // payload
	SegmentsSent     uint64        // with payload or without
	SegmentsReceived uint64
}

// flow is a connection as one of its ends sees it.
type flow struct{ local, remote netip.AddrPort }

// socket is what the kernel shows of one socket.
type socket struct {
	flow
	cookie uint64 // of the socket, never used again
	inode  uint32
	figures
}

// figures are totals since the socket was opened.
type figures struct {
	retransmits, bytesSent, bytesReceived, segmentsSent, segmentsReceived uint64
	busy, receiverLimited, bufferLimited                                  time.Duration
}

var errNoAddress = errors.New("the server has no TCP address")

// Look is the sockets with the server's port at one moment.
type Look struct {
	sockets []socket
	err     error
}

// Watch looks at the connections that this process has to a server. One goroutine at a time uses it.
type Watch struct {
	remotes []netip.AddrPort
	own     map[uint32]bool // inodes of this process's sockets, those that it had at any time of looking
}

// NewWatch notes which sockets this process has now. The addresses are the server's, all with one port.
func NewWatch(remotes []netip.AddrPort) *Watch {
	w := &Watch{remotes: remotes, own: map[uint32]bool{}}
	w.noteOwn()
	return w
}

// Look reads the kernel's sockets. For a thousand of them it takes some milliseconds.
func (w *Watch) Look() Look {
	if len(w.remotes) == 0 {
		return Look{err: errNoAddress}
	}
	sockets, err := read(w.remotes[0].Port())
	return Look{sockets, err}
}

// Between compares two looks. Sockets that this process has opened since NewWatch are found as long as they are open now.
func (w *Watch) Between(first, last Look) (client, server End) {
	for _, look := range []Look{first, last} {
		if look.err != nil {
			return End{NotAvailable: look.err.Error()}, End{NotAvailable: look.err.Error()}
		}
	}
	w.noteOwn()
	before, after := w.ends(first), w.ends(last)
	client, server = difference(before[0], after[0]), difference(before[1], after[1])
	if client.Connections == 0 && client.Gone == 0 {
		client = End{NotAvailable: "none of this process's TCP connections goes to the server's address"}
	}
	if server.Connections == 0 && server.Gone == 0 {
		server = End{NotAvailable: "the server's end is on another machine, or in another network namespace"}
	}
	return client, server
}

// ends picks from a look the sockets of this process that go to the server, and those at their other end.
func (w *Watch) ends(look Look) [2]map[uint64]figures {
	ends := [2]map[uint64]figures{{}, {}}
	peers := map[flow]bool{}
	for _, s := range look.sockets {
		if w.own[s.inode] && slices.Contains(w.remotes, s.remote) {
			ends[0][s.cookie] = s.figures
			peers[flow{s.remote, s.local}] = true
		}
	}
	for _, s := range look.sockets {
		if peers[s.flow] {
			ends[1][s.cookie] = s.figures
		}
	}
	return ends
}

// difference sums up what the sockets did since the first look. One that was opened later began at zero.
func difference(before, after map[uint64]figures) End {
	var e End
	for cookie, now := range after {
		then := before[cookie]
		e.Connections++
		e.Retransmits += now.retransmits - then.retransmits
		e.BytesSent += now.bytesSent - then.bytesSent
		e.BytesReceived += now.bytesReceived - then.bytesReceived
		e.SegmentsSent += now.segmentsSent - then.segmentsSent
		e.SegmentsReceived += now.segmentsReceived - then.segmentsReceived
		e.Busy += now.busy - then.busy
		e.ReceiverLimited += now.receiverLimited - then.receiverLimited
		e.BufferLimited += now.bufferLimited - then.bufferLimited
	}
	for cookie := range before {
		if _, still := after[cookie]; !still {
			e.Gone++
		}
	}
	return e
}
