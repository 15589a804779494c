package grpc

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports/internal/guard"
)

// watch cuts the connection of a peer that begins a request and does not end it within RequestTimeout. grpc waits for the bytes of a
// stream as long as the stream lasts, and lets nobody end a single stream from outside, so the connection goes as a whole. Its
// timer is used again by the next request.
type watch struct {
	timer *time.Timer
	conn  *guard.Conn
}

var watches = sync.Pool{New: func() any { return new(watch) }}

// watch starts to wait for the bytes of a request. It is nil where the connection is not known, as in tests without sockets.
func (s *server) watch(ctx context.Context) *watch {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil
	}
	conn := guard.Of(p.Addr)
	if conn == nil {
		return nil
	}
	w := watches.Get().(*watch)
	w.conn = conn
	if w.timer == nil {
		w.timer = time.AfterFunc(s.limits.RequestTimeout, func() { w.conn.Close() }) //nolint:errcheck // the peer sees it
	} else {
		w.timer.Reset(s.limits.RequestTimeout)
	}
	return w
}

// end says that the request has come, or will not.
func (w *watch) end() {
	if w == nil {
		return
	}
	if w.timer.Stop() { // else it has fired, may still look at conn, and is left to the garbage collector
		w.conn = nil
		watches.Put(w)
	}
}

// foreignStream serves the streams of health and reflection; those of order entry have handlers of their own. Their connections count as used,
// so that a watcher of health lives to see NOT_SERVING; with that, or with SERVICE_UNKNOWN, which would never change, its
// stream ends, or it would hold up every shutdown.
func (s *server) foreignStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if strings.HasPrefix(info.FullMethod, "/"+pb.OrderEntryService_ServiceDesc.ServiceName+"/") {
		return next(srv, stream)
	}
	if p, ok := peer.FromContext(stream.Context()); ok {
		if conn := guard.Of(p.Addr); conn != nil {
			conn.Use()
		}
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	return next(srv, &healthStream{ServerStream: stream, ctx: ctx, cancel: cancel})
}

type healthStream struct {
	grpc.ServerStream
	ctx    context.Context
	cancel context.CancelFunc
}

// Context implements grpc.ServerStream.
func (h *healthStream) Context() context.Context { return h.ctx }

// SendMsg implements grpc.ServerStream.
func (h *healthStream) SendMsg(m any) error {
	err := h.ServerStream.SendMsg(m)
	if r, ok := m.(*healthpb.HealthCheckResponse); ok && r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		h.cancel()
	}
	return err
}
