package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/wire"
)

// handshake admits the peer. Its error is for the log; the peer has been told already.
func (c *conn) handshake() error {
	limit := c.server.limits.HandshakeTimeout
	_ = c.socket.SetDeadline(time.Now().Add(limit))
	if c.server.draining.Load() { // the kick may have come before the deadline
		c.kick()
	}
	peer := transports.Peer{Transport: "tcp", Remote: c.socket.RemoteAddr()}
	if c.server.tls != nil {
		secure := tls.Server(c.socket, c.server.tls)
		if err := secure.HandshakeContext(c.server.ctx); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		c.nc = secure
		state := secure.ConnectionState()
		peer.TLS = &state
	}
	hello, first, fault := c.readHello()
	if fault == nil {
		peer.Key = hello.Key
		ctx, cancel := context.WithTimeout(c.server.ctx, limit)
		session, err := c.server.gateway.Open(ctx, peer)
		cancel()
		if err != nil {
			fault = transports.AsFault(err)
		}
		c.session = session
	}
	if fault != nil {
		_ = c.socket.SetWriteDeadline(time.Now().Add(limit)) // the first one may be over, and that may be what has to be said
		if _, err := c.nc.Write(errorFrame(fault, 0)); err == nil {
			linger(c.nc, make([]byte, 512))
		}
		return fault
	}
	c.last, c.used = first-1, firstCounter
	c.maxPayload = uint64(hello.MaxPayload)
	ack := wire.AckMessage{
		Version: wire.Version, Features: hello.Features & wire.FeatureCredit, MaxRequest: uint32(c.server.limits.MaxRequestBytes),
		IdleTimeout: c.server.limits.IdleTimeout, RequestTimeout: c.server.limits.RequestTimeout, Model: c.server.model,
	}
	header := wire.Header{Type: wire.HelloAck}
	if ack.Features&wire.FeatureCredit != 0 {
		c.openShare()
		ack.Floor, ack.Reserve, ack.Largest = c.share.Floor(), c.server.credit.Reserve(), c.server.credit.Largest()
		header.Credit, header.Aux = c.announced.Load(), c.used
	}
	if _, err := c.nc.Write(wire.Frame(header, ack.Encode())); err != nil {
		if c.share != nil {
			c.share.Close(transports.Now())
		}
		c.session.Close()
		return err
	}
	// No deadline for writes: the box sets its own while it needs one.
	_ = c.socket.SetDeadline(time.Time{})
	return nil
}

// readHello reads the first frame and checks it.
func (c *conn) readHello() (hello wire.HelloMessage, first uint32, fault *transports.Fault) {
	var head [wire.HeaderSize]byte
	n, err := io.ReadFull(c.nc, head[:])
	if err != nil {
		return hello, 0, c.noHello(err, head[:n])
	}
	h := wire.Parse(head[:])
	if h.Type != wire.Hello {
		return hello, 0, transports.Refuse(pb.Reason_REASON_MALFORMED, "the first frame must be HELLO; received %q, which is another protocol or %v", head, h.Type)
	}
	if h.Length > wire.MaxHandshake {
		return hello, 0, transports.Refuse(pb.Reason_REASON_TOO_LARGE, "HELLO announces %d bytes, at most %d are taken", h.Length, wire.MaxHandshake)
	}
	payload := make([]byte, h.Length)
	if n, err = io.ReadFull(c.nc, payload); err != nil {
		return hello, 0, c.noHello(err, payload[:n])
	}
	if hello, err = wire.DecodeHello(payload); err != nil {
		return hello, 0, transports.Refuse(pb.Reason_REASON_MALFORMED, "%v", err)
	}
	if hello.Lowest > wire.Version || hello.Highest < wire.Version {
		return hello, 0, transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "this gateway speaks version %d of the protocol, the client %d to %d", wire.Version, hello.Lowest, hello.Highest)
	}
	return hello, h.Correlation, nil
}

// noHello says why there is no first frame.
func (c *conn) noHello(err error, received []byte) *transports.Fault {
	switch {
	case c.server.draining.Load():
		return transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "no whole HELLO within %v; received %d bytes: %q", c.server.limits.HandshakeTimeout, len(received), received)
	default:
		return transports.Refuse(pb.Reason_REASON_MALFORMED, "the connection ended within HELLO (%v); received %d bytes: %q", err, len(received), received)
	}
}
