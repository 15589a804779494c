package host

import (
	"context"
	"fmt"
	"log/slog"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
)

// null is a gateway that answers every new order at once, as filled, and knows nothing of it: no limits, no journal, no book. What a transport
// costs against it is the transport's own, and the client's.
type null struct{ transports.NoEvents }

// Open implements transports.Gateway.
func (null) Open(context.Context, transports.Peer) (transports.Session, error) { return null{}, nil }

// Handle implements transports.Session.
func (null) Handle(_ context.Context, x *transports.Exchange) error {
	switch request := x.Request.(type) {
	case *pb.SubmitOrderRequest:
		response, ok := x.Response.(*pb.SubmitOrderResponse)
		if !ok {
			break
		}
		response.Reset()
		response.ClientOrderId, response.OrderId, response.Status = request.ClientOrderId, 1, pb.OrderStatus_ORDER_STATUS_FILLED
		response.Quantity, response.FilledQuantity, response.ReceivedNs = request.Quantity, request.Quantity, uint64(x.ReceivedNs)
		if request.AckDetail != pb.AckDetail_ACK_DETAIL_MINIMAL {
			response.ClientTag = request.ClientTag
		}
		return nil
	case *pb.ListInstrumentsRequest:
		response, ok := x.Response.(*pb.ListInstrumentsResponse)
		if !ok {
			break
		}
		response.Reset()
		for _, i := range Instruments() {
			response.Instruments = append(response.Instruments, &pb.Instrument{
				Symbol: i.Symbol, ReferencePrice: i.ReferencePrice, MinNotional: i.MinNotional, State: pb.InstrumentState_INSTRUMENT_STATE_OPEN,
			})
		}
		return nil
	}
	return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "a null server takes new orders only, not %s", x.Operation)
}

// Commit implements transports.Session.
func (null) Commit(r transports.Releaser, mark uint64) { r.Release(mark, nil) }

// Close implements transports.Session.
func (null) Close() {}

// startNull runs a transport's own server in front of a null gateway.
func startNull(ctx context.Context, task Task, logger *slog.Logger) (served, error) {
	spec, err := all.Parse(task.Transport)
	if err != nil {
		return served{}, fmt.Errorf("host: null server: %w", err)
	}
	server, err := spec.Transport.Listen(ctx, null{}, transports.ListenConfig{
		Address: "127.0.0.1:0", CongestionControl: task.CongestionControl, Engine: task.Engine, Limits: transports.Limits{MaxConnections: task.MaxConnections}, Logger: logger,
	})
	if err != nil {
		return served{}, fmt.Errorf("host: null server: %w", err)
	}
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		return server.Shutdown(ctx)
	}
	s := served{address: server.Addr(), end: stop}
	if metered, ok := server.(transports.Metered); ok {
		s.metrics = metered.Metrics
	}
	return s, nil
}
