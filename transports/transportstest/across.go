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
// filled, repeated and canceled through any other, of the same order sent through all of them at once one is the first, and events have
// the same bytes and numbers wherever they are read, so that a session may go on elsewhere.
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
	streamsTogether(t, rigs)
}

// streamsTogether reads alpha's events through every transport that has streams, and takes one session from one transport with sessions to the next.
func streamsTogether(t *testing.T, rigs []*rig) {
	var readers, traders []*rig
	for _, r := range rigs {
		if r.transport.Executions != nil {
			readers = append(readers, r)
		}
		if r.transport.Trade != nil {
			traders = append(traders, r)
		}
	}
	last := rigs[0].dial(alphaKey).submit(rigs[0].limit("last-of-all", buy, 1, -1))
	epoch, end := last.GetEpoch(), last.GetSequence()
	all := readers[0].read(alphaKey, &pb.StreamExecutionsRequest{}, epoch, end)
	readers[0].gapFree("alpha", all, epoch, 1)
	for _, r := range readers[1:] {
		for _, from := range []uint64{1, end / 2, end} {
			sameEvents(t, id("from %d through %s", from, r.transport.Name), r.read(alphaKey, &pb.StreamExecutionsRequest{FromSequence: from}, epoch, end), all[from-1:])
		}
	}
	seen := uint64(0)
	for round := range 2 {
		for i, r := range traders {
			x := r.logon(alphaKey, &pb.Logon{SessionId: "moves", LastSequence: seen})
			x.wantPlace(epoch, seen+1)
			got := x.submit(r.limit(id("moved-%d-%d", round, i), buy, 1, -1))
			events := x.upTo(epoch, got.GetSequence())
			r.gapFree("alpha", events, epoch, seen+1)
			sameEvents(t, "a session that goes on through "+r.transport.Name, events[:uint64(len(all))-seen], all[seen:])
			x.rig.announces(events, got)
			all = append(all[:seen:seen], events...)
			seen = uint64(len(all)) - 2 // the next one has the last two to read again
			if i%2 == 0 {
				x.lose()
			} else {
				x.logout()
			}
		}
	}
	// A connection through one transport takes the session over from another.
	for i, r := range traders {
		first := r.logon(alphaKey, &pb.Logon{SessionId: "contested"})
		second := traders[(i+1)%len(traders)].logon(alphaKey, &pb.Logon{SessionId: "contested"})
		wantFault(t, first.ended(), pb.Reason_REASON_SESSION_REPLACED, notProcessed)
		second.submit(r.limit(id("after-%d", i), buy, 1, -1))
	}
}
