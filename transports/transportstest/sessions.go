package transportstest

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

const (
	staying    = pb.DisconnectMode_DISCONNECT_MODE_NONE
	canceling  = pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT
	mostGraceM = 60_000 // the contract's longest grace time, in milliseconds
)

// trader is a client with a session; its calls are checked like any client's.
type trader struct {
	*client
	*inbox
	session transports.Trader
}

// tryLogon opens a session, which the end of the test closes.
func (r *rig) tryLogon(key string, logon *pb.Logon) (*trader, error) {
	config := r.dialed
	config.Key = key
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	box := newInbox(r.t)
	session, err := r.transport.Trade(ctx, config, logon, box.receive)
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() {
		_ = session.Close()
		await(r.t, "a closed session is done", session.Done())
	})
	return &trader{client: &client{Client: session, rig: r}, inbox: box, session: session}, nil
}

func (r *rig) logon(key string, logon *pb.Logon) *trader {
	r.t.Helper()
	x, err := r.tryLogon(key, logon)
	if err != nil {
		r.t.Fatalf("logon %s: %v", text(logon), err)
	}
	return x
}

// refusedLogon opens a session that must not be, and adds it to the table.
func (r *rig) refusedLogon(key string, logon *pb.Logon, reason pb.Reason, field string) {
	r.t.Helper()
	x, err := r.tryLogon(key, logon)
	if err == nil {
		_ = x.session.Close()
		r.t.Errorf("logon %s stands, want %v", text(logon), reason)
		return
	}
	fault := checkFault(r.t, "logon", err)
	r.see(fault.Reason)
	if fault.Reason != reason || fault.Outcome != notProcessed || fault.Field != field {
		r.t.Errorf("logon %s: %v, %v, field %q; want %v, %v, field %q", text(logon), fault.Reason, fault.Outcome, fault.Field, reason, notProcessed, field)
	}
	r.row("Logon "+text(logon), observed(nil, fault))
}

// lose ends the connection without a logout, and returns once it is gone.
func (x *trader) lose() {
	x.rig.t.Helper()
	if err := x.session.Close(); err != nil {
		x.rig.t.Errorf("close: %v", err)
	}
	await(x.rig.t, "a closed session is done", x.session.Done())
	if err := x.session.Err(); err != nil {
		x.rig.t.Errorf("a session that its own client closed ended with %v", err)
	}
}

// logout ends the session in an orderly way.
func (x *trader) logout() {
	x.rig.t.Helper()
	ctx, cancel := context.WithTimeout(x.rig.t.Context(), bound)
	defer cancel()
	if err := x.session.Logout(ctx, "the case is over"); err != nil {
		x.rig.t.Errorf("logout: %v", err)
	}
	await(x.rig.t, "a session that logged out is done", x.session.Done())
	if err := x.session.Err(); err != nil {
		x.rig.t.Errorf("a session that logged out ended with %v", err)
	}
}

// ended waits for the gateway to end the session and returns the fault that it ended with.
func (x *trader) ended() *transports.Fault {
	x.rig.t.Helper()
	await(x.rig.t, "the session ends", x.session.Done())
	fault := checkFault(x.rig.t, "the session", x.session.Err())
	x.rig.see(fault.Reason)
	return fault
}

// wantPlace holds the answer to a logon.
func (x *trader) wantPlace(epoch uint32, next uint64) {
	x.rig.t.Helper()
	if a := x.session.Ack(); a.GetEpoch() != epoch || a.GetNextSequence() != next {
		x.rig.t.Errorf("logged on at %s, want number %d of epoch %d", text(a), next, epoch)
	}
}

// session: answers and events on one connection, with one numbering; fills of others come by themselves.
func session(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	alpha, beta := r.logon(alphaKey, &pb.Logon{SessionId: "one"}), r.logon(betaKey, &pb.Logon{SessionId: "one"})
	epoch := alpha.session.Ack().GetEpoch()
	alpha.wantPlace(epoch, 1)
	beta.wantPlace(epoch, 1)
	answers := []numbered{
		alpha.submit(r.limit("bid", buy, 10, 0)),
		alpha.submit(with(r.limit("refused", buy, 1, 0), on("NO.SUCH.SYMBOL"))),
	}
	for i := range 3 {
		beta.becomes(r.immediate(id("hit-%d", i), sell, 2, 0), filled, 2, 0)
	}
	answers = append(answers,
		ask[*pb.ReplaceOrderResponse](alpha.client, r.replace("replace", "bid", 8, 1)),
		ask[*pb.CancelOrderResponse](alpha.client, cancelOrder("cancel", "bid")))
	last := answers[len(answers)-1].GetSequence()
	events := alpha.upTo(epoch, last)
	r.gapFree("alpha", events, epoch, 1)
	for _, a := range answers {
		r.announces(events, a)
	}
	r.folds(r.dial(alphaKey), events)
	others := beta.upTo(epoch, 6)
	r.gapFree("beta", others, epoch, 1)
	r.bothSides(slices.Concat(events, others))
	r.tabled("alpha", events)
	r.tabled("beta", others)
	alpha.logout()
	alpha.direct = true // the words of what was not sent are the client's own, and so not compared
	wantFault(t, alpha.refuse(r.limit("late", buy, 1, 0)), pb.Reason_REASON_CONNECTION_LOST, notProcessed)
	beta.submit(r.limit("others-go-on", buy, 1, -1))
}

// sessionResumes: who comes back and names the last event that it has gets the rest, the same bytes, and then what is new.
func sessionResumes(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	other := r.dial(betaKey)
	x := r.logon(alphaKey, &pb.Logon{SessionId: "again"})
	epoch := x.session.Ack().GetEpoch()
	x.submit(r.limit("bid", buy, 50, 0))
	for i := range 5 {
		other.submit(r.immediate(id("before-%d", i), sell, 1, 0))
	}
	had := x.upTo(epoch, 6)
	x.lose()
	for i := range 5 {
		other.submit(r.immediate(id("away-%d", i), sell, 1, 0)) // what happens while nobody listens is not lost
	}
	all := had
	for _, seen := range []uint64{6, 3, 0, 11} {
		x = r.logon(alphaKey, &pb.Logon{SessionId: "again", LastSequence: seen, Epoch: uint32(seen%2) * epoch})
		x.wantPlace(epoch, seen+1)
		name := id("after-%d", seen)
		last := x.submit(r.limit(name, buy, 1, -1)).GetSequence()
		events := x.upTo(epoch, last)
		r.gapFree("alpha", events, epoch, seen+1)
		sameEvents(t, id("behind %d", seen), events[:max(0, len(all)-int(seen))], all[min(len(all), int(seen)):])
		all = append(all[:min(len(all), int(seen)):min(len(all), int(seen))], events...)
		x.lose()
	}
	r.tabled("alpha", all)
}

// logonsInVain are refused and leave nothing.
func logonsInVain(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	got := r.dial(alphaKey).submit(r.limit("one", buy, 1, 0))
	const malformed = pb.Reason_REASON_MALFORMED
	for _, bad := range badIDs {
		r.refusedLogon(alphaKey, &pb.Logon{SessionId: bad.id}, malformed, "session_id")
	}
	r.refusedLogon(alphaKey, &pb.Logon{SessionId: "s", DisconnectMode: 3}, malformed, "disconnect_mode")
	r.refusedLogon(alphaKey, &pb.Logon{SessionId: "s", GraceMs: mostGraceM + 1}, malformed, "grace_ms")
	r.refusedLogon(alphaKey, &pb.Logon{SessionId: "s", LastSequence: 2}, malformed, "last_sequence")
	r.refusedLogon(alphaKey, &pb.Logon{SessionId: "s", LastSequence: math.MaxUint64}, malformed, "last_sequence")
	r.refusedLogon(alphaKey, &pb.Logon{SessionId: "s", Epoch: got.GetEpoch() + 1}, malformed, "epoch")
	r.refusedLogon("nobodys-key-0123456789abcdef", &pb.Logon{SessionId: "s"}, pb.Reason_REASON_UNAUTHENTICATED, "")
	r.logon(alphaKey, &pb.Logon{SessionId: "s", LastSequence: 1}).wantPlace(got.GetEpoch(), 2)
}

// takeover: a second logon under the same id ends the first connection, whose orders stay; a session of another name is another one.
func takeover(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	first := r.logon(alphaKey, &pb.Logon{SessionId: "same", DisconnectMode: canceling})
	bystander := r.logon(alphaKey, &pb.Logon{SessionId: "another"})
	namesake := r.logon(betaKey, &pb.Logon{SessionId: "same"})
	got := first.submit(r.limit("by-the-first", buy, 1, 0))
	first.upTo(got.GetEpoch(), got.GetSequence())
	second := r.logon(alphaKey, &pb.Logon{SessionId: "same", DisconnectMode: canceling, LastSequence: got.GetSequence()})
	wantFault(t, first.ended(), pb.Reason_REASON_SESSION_REPLACED, notProcessed)
	wantOutcome(t, first.refuse(r.limit("too-late", buy, 1, 0)), notProcessed)
	if n := r.probe.handledOrders()["too-late"]; n != 0 {
		t.Errorf("an order of the session that was replaced was answered %d times", n)
	}
	next := second.submit(r.limit("by-the-second", buy, 1, 0))
	events := second.upTo(next.GetEpoch(), next.GetSequence())
	r.gapFree("alpha", events, got.GetEpoch(), got.GetSequence()+1)
	r.wantOrder(second.client, "by-the-first", accepted, 1, 0, 1)
	bystander.upTo(next.GetEpoch(), next.GetSequence())
	bystander.submit(r.limit("by-another", buy, 1, 0))
	namesake.submit(r.limit("by-the-namesake", buy, 1, 0))
}

// logoutKeeps: a logout keeps the orders, whatever the mode. The session that loses its connection afterwards shows when they would be gone.
func logoutKeeps(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	x := r.logon(alphaKey, &pb.Logon{SessionId: "leaves", DisconnectMode: canceling})
	x.submit(r.limit("kept", buy, 1, 0))
	x.logout()
	lost := r.logon(alphaKey, &pb.Logon{SessionId: "lost", DisconnectMode: canceling})
	lost.submit(r.limit("gone", buy, 1, 0))
	lost.lose()
	r.awaitOrder(alphaKey, "gone", canceled)
	r.wantOrder(r.dial(alphaKey), "kept", accepted, 1, 0, 1)
}

// lostSession: the orders that a session entered are canceled after its grace time and not before, where it asked for that; all others stay.
func lostSession(t *testing.T, s *suite) {
	const grace = 2 * firstTime
	r := s.start(t, twoAccounts())
	plain := r.dial(alphaKey)
	plain.submit(r.limit("of-no-session", buy, 1, 0))
	stays := r.logon(alphaKey, &pb.Logon{SessionId: "stays", DisconnectMode: staying})
	patient := r.logon(alphaKey, &pb.Logon{SessionId: "patient", DisconnectMode: canceling, GraceMs: mostGraceM})
	goes := r.logon(alphaKey, &pb.Logon{SessionId: "goes", DisconnectMode: canceling, GraceMs: uint32(grace.Milliseconds())})
	stays.submit(r.limit("of-stays", buy, 1, 0))
	patient.submit(r.limit("of-patient", buy, 1, 0))
	goes.submit(r.limit("of-goes", buy, 3, 1))
	last := goes.submit(with(r.limit("of-goes-gtc", sell, 1, 9), gtc))
	r.dial(betaKey).becomes(r.immediate("takes-one", sell, 1, 1), filled, 1, 0)

	x := r.follow(alphaKey, &pb.StreamExecutionsRequest{FromSequence: last.GetSequence() + 2})
	stays.lose()
	patient.lose()
	began := transports.Now()
	goes.lose()
	r.awaitOrder(alphaKey, "of-goes", canceled)
	events := x.upTo(last.GetEpoch(), last.GetSequence()+3)
	for i, name := range []string{"of-goes", "of-goes-gtc"} {
		e := events[i]
		if e.GetOrder().GetClientOrderId() != name || e.GetReason() != pb.Reason_REASON_CANCEL_ON_DISCONNECT || e.GetType() != pb.ExecutionType_EXECUTION_TYPE_CANCELED {
			t.Errorf("event %d is %s, want the cancel of %s", i, text(e), name)
		}
		if after := time.Duration(int64(e.GetEventNs()) - began); after < grace {
			t.Errorf("%s was canceled %v after the connection was lost, its grace time is %v", name, after, grace)
		}
	}
	r.wantOrder(plain, "of-goes", canceled, 3, 1, 0)
	for _, name := range []string{"of-no-session", "of-stays", "of-patient"} {
		r.wantOrder(plain, name, accepted, 1, 0, 1)
	}
}

// returnInTime keeps the orders, under any incarnation of the session. Another one, lost later with the same grace time, shows when they would be gone.
func returnInTime(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	var x *trader
	last := inTime(t, func(grace time.Duration) time.Duration {
		logon := &pb.Logon{SessionId: id("returns-%d", grace.Milliseconds()), DisconnectMode: canceling, GraceMs: uint32(grace.Milliseconds())}
		x = r.logon(alphaKey, logon)
		x.submit(r.limit(id("kept-%d", grace.Milliseconds()), buy, 1, 0))
		x.lose()
		x = r.logon(alphaKey, logon)
		return grace
	})
	control := r.logon(alphaKey, &pb.Logon{SessionId: "does-not", DisconnectMode: canceling, GraceMs: uint32(last.Milliseconds())})
	control.submit(r.limit("gone", buy, 1, 0))
	control.lose()
	r.awaitOrder(alphaKey, "gone", canceled)
	r.wantOrder(x.client, id("kept-%d", last.Milliseconds()), accepted, 1, 0, 1)
	x.lose() // its orders of before are still the session's
	r.awaitOrder(alphaKey, id("kept-%d", last.Milliseconds()), canceled)
}

// fillRacesCancel: orders that others fill while they are canceled end once, and both sides agree on how.
func fillRacesCancel(t *testing.T, s *suite) {
	const orders, lots = 64, 3
	r := s.start(t, twoAccounts())
	x := r.logon(alphaKey, &pb.Logon{SessionId: "racing", DisconnectMode: canceling})
	for i := range orders {
		x.submit(r.limit(id("maker-%d", i), buy, lots, 0))
	}
	taker := r.direct(betaKey)
	started := make(chan struct{})
	var taken uint64
	over := run(func() {
		for i := range orders {
			taken += taker.submit(r.immediate(id("taker-%d", i), sell, 2, 0)).GetFilledQuantity()
			if i == 4 {
				close(started)
			}
		}
	})
	await(t, "the taker takes", started)
	x.lose()
	await(t, "the taker is done", over)
	r.awaitOrder(alphaKey, id("maker-%d", orders-1), canceled) // 64 times 2 never reach the last of 64 times 3
	c := r.dial(alphaKey)
	var bought uint64
	for _, o := range ask[*pb.ListOrdersResponse](c, &pb.ListOrdersRequest{State: pb.ListOrdersState_LIST_ORDERS_STATE_ALL}).GetOrders() {
		bought += o.GetFilledQuantity()
		if o.GetLeavesQuantity() != 0 || (o.GetStatus() == filled) != (o.GetFilledQuantity() == lots) {
			t.Errorf("order %s", text(o))
		}
	}
	if bought != taken || taken == 0 {
		t.Errorf("alpha bought %d lots, beta sold %d", bought, taken)
	}
	last := c.submit(r.limit("behind-the-race", buy, 1, 0))
	events := r.read(alphaKey, &pb.StreamExecutionsRequest{}, last.GetEpoch(), last.GetSequence())
	r.gapFree("alpha", events, last.GetEpoch(), 1)
	ends := map[string]int{}
	for _, e := range events[:len(events)-1] {
		if e.GetOrder().GetLeavesQuantity() == 0 {
			ends[e.GetOrder().GetClientOrderId()]++
		}
	}
	for i := range orders {
		if n := ends[id("maker-%d", i)]; n != 1 {
			t.Errorf("order %d ended %d times", i, n)
		}
	}
	r.wantBook(c, 0, []*pb.BookLevel{{Price: r.price, Quantity: 1, OrderCount: 1}}, nil, r.price)
}

// sessionDrains: what was accepted is answered, then the session ends and says why.
func sessionDrains(t *testing.T, s *suite) {
	r := s.start(t, twoAccounts())
	x := r.logon(alphaKey, &pb.Logon{SessionId: "drains"})
	gate := r.probe.hold(alphaKey)
	t.Cleanup(gate.open)
	call := x.begin(t.Context(), r.limit("accepted", buy, 1, 0))
	gate.await(t)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var err error
	stopped := run(func() { err = r.server.Shutdown(ctx) })
	eventually(t, "a new connection is refused", func() bool {
		late, err := r.tryDial(betaKey)
		if err == nil {
			_ = late.Close()
		}
		return err != nil
	})
	if call.over() {
		t.Error("answered before the commit was released")
	}
	gate.open()
	if _, fault := call.wait(t); fault != nil {
		t.Errorf("the accepted call: %v", fault)
	}
	wantFault(t, x.ended(), pb.Reason_REASON_DRAINING, notProcessed)
	await(t, "the shutdown returns", stopped)
	if err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// sessionShutOut: the throttle's second tier ends the session.
func sessionShutOut(t *testing.T, s *suite) {
	options := twoAccounts()
	options.Penalty = time.Hour
	r := s.start(t, options)
	x := r.logon(alphaKey, &pb.Logon{SessionId: "stubborn", DisconnectMode: canceling, GraceMs: mostGraceM})
	x.submit(r.limit("rests", buy, 1, -1))
	r.setLimits(ofAccount("alpha"), &pb.Limits{MaxOrderRate: 1})
	n := 0
	eventually(t, "who does not heed the refusals is shut out", func() bool {
		n++
		fault := x.untilFault(id("stubborn-%d", n))
		throttled(t, fault, "")
		return strings.Contains(fault.Message, "shut out")
	})
	wantFault(t, x.ended(), pb.Reason_REASON_THROTTLED, notProcessed)
	if _, err := r.tryLogon(alphaKey, &pb.Logon{SessionId: "stubborn"}); err == nil {
		t.Error("an account that is shut out logged on")
	} else {
		throttled(t, checkFault(t, "logon", err), "shut out")
	}
	r.setLimits(ofAccount("alpha"), &pb.Limits{})
	r.wantOrder(r.logon(alphaKey, &pb.Logon{SessionId: "stubborn"}).client, "rests", accepted, 1, 0, 1)
}

// sessionsFull: a name more than there may be is refused; a logout makes room.
func sessionsFull(t *testing.T, s *suite) {
	options := twoAccounts()
	options.MaxSessions = 1
	r := s.start(t, options)
	x := r.logon(alphaKey, &pb.Logon{SessionId: "only"})
	r.refusedLogon(betaKey, &pb.Logon{SessionId: "one-more"}, pb.Reason_REASON_OVERLOADED, "")
	x.logout()
	r.logon(betaKey, &pb.Logon{SessionId: "one-more"}).submit(r.limit("order", buy, 1, 0))
}
