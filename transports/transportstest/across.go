package transportstest

import (
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// RunTogether holds what must be true over transports that serve one gateway side by side: an order entered through one is read,
// filled, repeated and canceled through any other, and of the same order sent through all of them at once one is the first.
func RunTogether(t *testing.T, list []transports.Transport, newGateway NewGateway) {
	t.Helper()
	gateway := newGateway(t, twoAccounts())
	shared := func(*testing.T, GatewayOptions) transports.Gateway { return gateway }
	var rigs []*rig
	var alphas, betas []*client
	for _, transport := range list {
		s := &suite{transport: transport, newGateway: shared}
		r := s.start(t, twoAccounts())
		rigs, alphas, betas = append(rigs, r), append(alphas, r.dial(alphaKey)), append(betas, r.dial(betaKey))
	}
	for i, r := range rigs {
		name := id("entered-%d", i)
		order := r.limit(name, buy, 5, 0)
		first := alphas[i].submit(order)
		for j := range rigs {
			sameAnswer(t, first, alphas[j].submit(order))
			again := ask[*pb.GetOrderResponse](alphas[j], &pb.GetOrderRequest{ClientOrderId: name})
			if got := again.GetOrder(); got.GetOrderId() != first.GetOrderId() || got.GetStatus() != accepted {
				t.Errorf("entered through %s, read through %s: %s", r.transport.Name, rigs[j].transport.Name, text(got))
			}
		}
		other := (i + 1) % len(rigs)
		fill := betas[other].submit(r.immediate(id("fill-%d", i), sell, 2, 0))
		if fill.GetFilledQuantity() != 2 {
			t.Errorf("entered through %s, sold to through %s: %s", r.transport.Name, rigs[other].transport.Name, text(fill))
		}
		request := cancelOrder(id("cancel-%d", i), name)
		canceled := ask[*pb.CancelOrderResponse](alphas[other], request)
		for j := range rigs {
			want := proto.CloneOf(canceled)
			want.Duplicate = true
			equal(t, ask[*pb.CancelOrderResponse](alphas[j], request), want)
		}
	}

	const orders = 8
	var firsts [orders]atomic.Int32
	var group sync.WaitGroup
	for i, c := range alphas {
		group.Go(func() {
			for n := range orders {
				response, fault := c.try(t.Context(), rigs[i].limit(id("at-once-%d", n), buy, 1, 0))
				if fault != nil {
					t.Errorf("through %s: %v", rigs[i].transport.Name, fault)
				} else if !response.(*pb.SubmitOrderResponse).GetDuplicate() {
					firsts[n].Add(1)
				}
			}
		})
	}
	await(t, "all are answered", run(group.Wait))
	for n := range firsts {
		if got := firsts[n].Load(); got != 1 {
			t.Errorf("order %d was answered for the first time %d times", n, got)
		}
	}
	rigs[0].wantBook(alphas[0], 0, []*pb.BookLevel{{Price: rigs[0].price, Quantity: orders, OrderCount: orders}}, nil, rigs[0].price)
}
