package connect_test

import (
	"context"
	"testing"

	connectrpc "connectrpc.com/connect"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/proto/gen/orderentry/v1/orderentryv1connect"
	"tailgate/transports/connect"
	"tailgate/transports/internal/fake"
	"tailgate/transports/internal/rpctest"
)

// bare is Connect's generated handler with nothing behind it.
type bare struct {
	orderentryv1connect.UnimplementedOrderEntryServiceHandler
}

// SubmitOrder implements orderentryv1connect.OrderEntryServiceHandler.
func (bare) SubmitOrder(ctx context.Context, r *connectrpc.Request[pb.SubmitOrderRequest]) (*connectrpc.Response[pb.SubmitOrderResponse], error) {
	answer, err := rpctest.Answer(ctx, r.Msg)
	return connectrpc.NewResponse(answer), err
}

func BenchmarkHandler(b *testing.B) {
	_, generated := orderentryv1connect.NewOrderEntryServiceHandler(bare{})
	rpctest.BenchHandler(b, connect.NewHandler(fake.Null{}), generated, orderentryv1connect.OrderEntryServiceSubmitOrderProcedure, "application/proto")
}

func BenchmarkRoundTrip(b *testing.B) { rpctest.BenchRoundTrip(b, connect.Transport()) }
