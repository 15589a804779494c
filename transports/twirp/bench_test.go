package twirp_test

import (
	"context"
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports/internal/fake"
	"tailgate/transports/internal/rpctest"
	"tailgate/transports/twirp"
)

// bare is Twirp's generated server with nothing behind it.
type bare struct{ pb.OrderEntryService }

// SubmitOrder implements pb.OrderEntryService.
func (bare) SubmitOrder(ctx context.Context, r *pb.SubmitOrderRequest) (*pb.SubmitOrderResponse, error) {
	return rpctest.Answer(ctx, r)
}

func BenchmarkHandler(b *testing.B) {
	generated := pb.NewOrderEntryServiceServer(bare{})
	rpctest.BenchHandler(b, twirp.NewHandler(fake.Null{}), generated, generated.PathPrefix()+"SubmitOrder", "application/protobuf")
}

func BenchmarkRoundTrip(b *testing.B) { rpctest.BenchRoundTrip(b, twirp.Transport()) }
