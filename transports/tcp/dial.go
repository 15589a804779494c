package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/sockopt"
	"tailgate/transports/tcp/internal/outbox"
	"tailgate/transports/tcp/internal/wire"
)

// dial opens a connection and shakes hands.
func dial(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
	c, err := connect(ctx, config, nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// connect opens a connection and shakes hands, with a reading goroutine where there are events to come. The error says who answered what; it wraps the
// gateway's *transports.Fault where it refused.
func connect(ctx context.Context, config transports.DialConfig, events *events) (*client, error) {
	if _, err := choose("encoding", config.Encoding, []string{"protobuf"}); err != nil {
		return nil, err
	}
	engine, err := choose("engine", config.Engine, clientEngines)
	if err != nil {
		return nil, err
	}
	flow, err := choose("flow", config.Flow, []string{flowCredit, flowSemaphore, flowNone})
	if err != nil {
		return nil, err
	}
	switch {
	case flow == flowSemaphore && config.Window < 1:
		return nil, fmt.Errorf("tcp: flow %q needs a Window of at least 1 request in flight, it is %d", flow, config.Window)
	case flow != flowSemaphore && config.Window != 0:
		return nil, fmt.Errorf("tcp: flow %q has no Window, it is %d; flow %q has one", flow, config.Window, flowSemaphore)
	case engine != engineNet && config.TLS != nil:
		return nil, fmt.Errorf("tcp: engine %q reads raw sockets and cannot be used with TLS; engine %q can", engine, engineNet)
	case events != nil:
		engine = engineNet // receive may block, and a loop must not
	}
	if len(config.Key) > wire.MaxKey {
		return nil, fmt.Errorf("tcp: the key has %d bytes, at most %d are possible", len(config.Key), wire.MaxKey)
	}
	limits := config.Limits.WithDefaults()
	ctx, cancel := context.WithTimeout(ctx, limits.HandshakeTimeout)
	defer cancel()
	socket, err := sockopt.Dialer(config.CongestionControl).DialContext(ctx, "tcp", config.Address)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	// The deadline ends every read and write of the handshake when the context does.
	stop := context.AfterFunc(ctx, func() { _ = socket.SetDeadline(aLongTimeAgo) })
	c, err := shake(ctx, socket, config, limits, flow, engine, events)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if c != nil {
			_ = c.Close()
		}
		_ = socket.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no answer to HELLO in time: %w", ctx.Err())
		}
		return nil, fmt.Errorf("tcp: dial %s: %w", config.Address, err)
	}
	return c, nil
}

// shake is the client's half of the handshake.
func shake(ctx context.Context, socket net.Conn, config transports.DialConfig, limits transports.Limits, flow, engine string, events *events) (*client, error) {
	nc := socket
	if config.TLS != nil {
		secure := withALPN(config.TLS)
		if secure.ServerName == "" {
			host, _, err := net.SplitHostPort(config.Address)
			if err != nil {
				return nil, err
			}
			secure.ServerName = host
		}
		conn := tls.Client(socket, secure)
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		nc = conn
	}
	model := wire.Model()
	largest, _ := model.Largest(uint32(min(max(limits.MaxRequestBytes, 1), maxMaxRequest)))
	hello := wire.HelloMessage{Lowest: wire.Version, Highest: wire.Version, MaxPayload: uint32(largest), Key: config.Key}
	if flow == flowCredit {
		hello.Features = wire.FeatureCredit
	}
	if _, err := nc.Write(wire.Frame(wire.Header{Type: wire.Hello, Correlation: firstCounter}, hello.Encode())); err != nil {
		return nil, err
	}
	h, ack, err := readAck(nc)
	if err != nil {
		return nil, err
	}
	if ack.Features&hello.Features != hello.Features {
		return nil, fmt.Errorf("the gateway does not offer flow %q", flow)
	}
	c := &client{
		socket: socket, nc: nc, remote: config.Address, ack: ack, maxWait: config.MaxWait,
		next: firstCounter, lastUse: time.Now(), inFlight: make(map[uint32]*exchange), events: events, reading: events != nil, borrow: readSize,
	}
	if flow == flowCredit {
		c.credit = account{on: true, floor: ack.Floor, reserve: ack.Reserve, granted: h.Credit, used: h.Aux}
	}
	c.interrupt = func() { _ = c.socket.SetReadDeadline(aLongTimeAgo) }
	raw := outbox.Raw(nc)
	if engine == engineNet {
		c.in = clientBuffers.Get(readSize)
	} else if raw, err = c.leaveRuntime(engine); err != nil {
		return nil, err
	}
	c.box = outbox.New(outbox.Config{
		Pool: &clientBuffers, Conn: c.nc, Raw: raw, Limit: 1<<64 - 1, // bounded by what the callers hold in memory already
		WriteTimeout: limits.WriteTimeout, StayOpen: true, Polled: c.engine != nil, OnReady: func() { c.engine.poke(c) },
	})
	if flow == flowSemaphore {
		c.window = joinWindow(config.Window)
	}
	c.mu.Lock() // it may fire before it is assigned
	c.timer = time.AfterFunc(c.tick(), c.look)
	c.mu.Unlock()
	switch {
	case events != nil:
		go c.pump()
	case c.engine != nil:
		if err := c.engine.join(c); err != nil {
			return c, err // which the caller closes
		}
	}
	return c, nil
}

// clientBuffers serve all clients of the process.
var clientBuffers outbox.Pool

// readAck reads the answer to HELLO.
func readAck(nc net.Conn) (h wire.Header, ack wire.AckMessage, err error) {
	var head [wire.HeaderSize]byte
	if n, err := io.ReadFull(nc, head[:]); err != nil {
		if n > 0 {
			return h, ack, fmt.Errorf("the peer answered HELLO with %q, which is not this protocol: %w", head[:n], err)
		}
		if errors.Is(err, io.EOF) {
			return h, ack, fmt.Errorf("the peer closed the connection without an answer to HELLO: %w", err)
		}
		return h, ack, err
	}
	h = wire.Parse(head[:])
	if h.Type != wire.HelloAck && h.Type != wire.Error || h.Length > wire.MaxHandshake {
		return h, ack, fmt.Errorf("the peer answered HELLO with %q, which is not this protocol", head)
	}
	payload := make([]byte, h.Length)
	if n, err := io.ReadFull(nc, payload); err != nil {
		return h, ack, fmt.Errorf("%v ended after %d of %d bytes: %w", h.Type, n, h.Length, err)
	}
	if h.Type == wire.Error {
		return h, ack, decodeFault(payload)
	}
	ack, err = wire.DecodeAck(payload)
	return h, ack, err
}

// decodeFault reads the payload of REJECT, GOAWAY and ERROR.
func decodeFault(payload []byte) *transports.Fault {
	var detail pb.ErrorDetail
	if err := proto.Unmarshal(payload, &detail); err != nil {
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the gateway's refusal cannot be read: %q", payload)
	}
	return transports.FaultFromDetail(&detail)
}
