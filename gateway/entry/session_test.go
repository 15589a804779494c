package entry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	none         = pb.DisconnectMode_DISCONNECT_MODE_NONE
	onDisconnect = pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT
)

// traders is a key for each of the accounts alpha and beta.
var traders = map[string]Key{"alpha": {Name: "alpha", Role: Trade, Account: 1}, "beta": {Name: "beta", Role: Trade, Account: 2}}

// do runs one exchange and returns its fault.
func do[Q, P any, PQ message[Q], PP message[P]](s *session, op transports.Operation, request PQ) (PP, *transports.Fault) {
	response := PP(new(P))
	x := transports.Exchange{Operation: op, Request: request, Response: response, ReceivedNs: transports.Now()}
	if err := s.Handle(context.Background(), &x); err != nil {
		return response, transports.AsFault(err)
	}
	return response, nil
}

type message[T any] interface {
	proto.Message
	*T
}

func enter(t testing.TB, s *session, id string, side pb.Side, lots uint64) *pb.SubmitOrderResponse {
	t.Helper()
	request := order(id)
	request.Side, request.Quantity = side, lots
	response, f := do[pb.SubmitOrderRequest, pb.SubmitOrderResponse](s, transports.SubmitOrder, request)
	if f != nil {
		t.Fatalf("order %s: %v", id, f)
	}
	return response
}

func logon(s *session, request *pb.Logon) (*pb.LogonAck, *transports.Fault) {
	return do[pb.Logon, pb.LogonAck](s, transports.Logon, request)
}

func mustLogon(t testing.TB, s *session, id string, mode pb.DisconnectMode, grace time.Duration) {
	t.Helper()
	if _, f := logon(s, &pb.Logon{SessionId: id, DisconnectMode: mode, GraceMs: uint32(grace / time.Millisecond)}); f != nil {
		t.Fatalf("logon %s: %v", id, f)
	}
}

func logout(s *session) *transports.Fault {
	_, f := do[pb.Logout, pb.Logout](s, transports.Logout, &pb.Logout{})
	return f
}

// openOrders lists the ids of an account's open orders in the order of their entry.
func openOrders(g *Gateway, account uint32) string {
	var ids []string
	g.sequencer.Read(func(state *orders.State, _ uint64) {
		page, _, _ := state.List(account, true, 0, 1000, nil)
		for _, o := range page {
			ids = append(ids, o.ClientOrderID.String())
		}
	})
	return strings.Join(ids, " ")
}

// TestCancelOnDisconnect plays scripts over connections of one account. Each step is followed by what is open then.
//
//	A.logon none            connection A logs on to session S, orders stay when it is lost; "on 5s" = they are canceled after 5s
//	A.logon2 on 5s          the same for session T
//	A.order x               enters order x
//	A.close  A.logout       loses the connection, logs out
//	wait 5s                 lets time pass
func TestCancelOnDisconnect(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"orders stay without a session", `
			A.order a    = a
			A.close      = a
			wait 2h      = a`},
		{"orders stay with mode NONE", `
			A.logon none = 
			A.order a    = a
			A.close      = a
			wait 2h      = a`},
		{"orders are canceled when the grace time has passed, not before", `
			A.logon on 5s = 
			A.order a     = a
			A.order b     = a b
			A.close       = a b
			wait 4999ms   = a b
			wait 1ms      = `},
		{"no grace time, no wait", `
			A.logon on 0s = 
			A.order a     = a
			A.close       = `},
		{"after a logout they stay", `
			A.logon on 5s = 
			A.order a     = a
			A.logout      = a
			A.close       = a
			wait 2h       = a`},
		{"who returns in time keeps them", `
			A.logon on 5s = 
			A.order a     = a
			A.close       = a
			wait 4s       = a
			B.logon on 5s = a
			wait 2h       = a
			B.order b     = a b
			B.close       = a b
			wait 4999ms   = a b
			wait 1ms      = `},
		{"who returns with mode NONE keeps them for good", `
			A.logon on 5s = 
			A.order a     = a
			A.close       = a
			B.logon none  = a
			B.close       = a
			wait 2h       = a`},
		{"who returns too late finds the session without them", `
			A.logon on 5s = 
			A.order a     = a
			A.close       = a
			wait 6s       = 
			B.logon on 5s = 
			B.order b     = b
			wait 2h       = b`},
		{"only the session's own orders are canceled", `
			A.logon on 5s  = 
			B.logon2 on 5s = 
			A.order a      = a
			B.order b      = a b
			C.order c      = a b c
			A.close        = a b c
			wait 5s        = b c
			C.close        = b c
			B.close        = b c
			wait 5s        = c`},
		{"a taken-over connection takes nothing with it", `
			A.logon on 5s = 
			A.order a     = a
			B.logon on 5s = a
			A.close       = a
			wait 2h       = a
			B.close       = a
			wait 5s       = `},
		{"orders of all connections of the session are canceled", `
			A.logon on 5s = 
			A.order a     = a
			B.logon on 9s = a
			B.order b     = a b
			B.close       = a b
			wait 8999ms   = a b
			wait 1ms      = `},
		{"a lost connection lost again is lost once", `
			A.logon on 5s = 
			A.order a     = a
			A.close       = a
			wait 3s       = a
			A.close       = a
			wait 2s       = `},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, _ := newGateway(t, traders, 100)
				defer g.Drain()
				connections := map[string]*session{}
				for step := range strings.SplitSeq(strings.TrimSpace(c.script), "\n") {
					what, want, _ := strings.Cut(strings.TrimSpace(step), "=")
					words := strings.Fields(what)
					if words[0] == "wait" {
						d, err := time.ParseDuration(words[1])
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(d)
					} else {
						name, verb, _ := strings.Cut(words[0], ".")
						if connections[name] == nil {
							connections[name] = open(t, g, "alpha")
						}
						act(t, connections[name], verb, words[1:])
					}
					synctest.Wait()
					if got := openOrders(g, 1); got != strings.TrimSpace(want) {
						t.Fatalf("after %q open are %q", strings.TrimSpace(what), got)
					}
				}
			})
		})
	}
}

func act(t *testing.T, s *session, verb string, words []string) {
	t.Helper()
	switch verb {
	case "logon", "logon2":
		id := map[string]string{"logon": "S", "logon2": "T"}[verb]
		if words[0] == "none" {
			mustLogon(t, s, id, none, time.Second)
			return
		}
		grace, err := time.ParseDuration(words[1])
		if err != nil {
			t.Fatal(err)
		}
		mustLogon(t, s, id, onDisconnect, grace)
	case "order":
		enter(t, s, words[0], pb.Side_SIDE_BUY, 1)
	case "close":
		s.Close()
	case "logout":
		if f := logout(s); f != nil {
			t.Fatal(f)
		}
	default:
		t.Fatalf("no such step: %s", verb)
	}
}

// TestTakeover: the older connection can do nothing more, and is told why; the newer one goes on with the session.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGateway(t, traders, 100)
		defer g.Drain()
		old, other := open(t, g, "alpha"), open(t, g, "beta")
		mustLogon(t, old, "S", onDisconnect, time.Second)
		mustLogon(t, other, "S", onDisconnect, time.Second) // another account's session may have the same name
		stream, err := old.Subscribe(t.Context(), &pb.StreamExecutionsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := stream.Next(context.Background())
			ended <- err
		}()
		synctest.Wait()

		young := open(t, g, "alpha")
		mustLogon(t, young, "S", none, 0)
		if f := transports.AsFault(<-ended); f.Reason != pb.Reason_REASON_SESSION_REPLACED || !f.Final {
			t.Errorf("the older stream ended with %v, want a final SESSION_REPLACED", f)
		}
		for _, op := range []transports.Operation{transports.SubmitOrder, transports.CancelOrder, transports.GetBook, transports.Logon, transports.Logout} {
			x := transports.Exchange{Operation: op, Request: op.NewRequest(), Response: op.NewResponse()}
			f := transports.AsFault(old.Handle(t.Context(), &x))
			if f.Reason != pb.Reason_REASON_SESSION_REPLACED || !f.Final || f.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED {
				t.Errorf("%s on the older connection: %v, want a final SESSION_REPLACED", op, f)
			}
		}
		if _, err := old.Subscribe(t.Context(), &pb.StreamExecutionsRequest{}); reasonOf(err) != pb.Reason_REASON_SESSION_REPLACED {
			t.Errorf("a new stream of the older connection: %v", err)
		}
		enter(t, young, "a", pb.Side_SIDE_BUY, 1)
		enter(t, other, "b", pb.Side_SIDE_BUY, 1)
	})
}

func TestLogonRefusals(t *testing.T) {
	g, _ := newGateway(t, traders, 100)
	defer g.Drain()
	s := open(t, g, "alpha")
	enter(t, s, "a", pb.Side_SIDE_BUY, 1)
	for _, c := range []struct {
		logon *pb.Logon
		field string
	}{
		{&pb.Logon{}, "session_id"},
		{&pb.Logon{SessionId: "a b"}, "session_id"},
		{&pb.Logon{SessionId: "S", DisconnectMode: 3}, "disconnect_mode"},
		{&pb.Logon{SessionId: "S", GraceMs: 60_001}, "grace_ms"},
		{&pb.Logon{SessionId: "S", Epoch: 2}, "epoch"},
		{&pb.Logon{SessionId: "S", LastSequence: 2}, "last_sequence"},
		{&pb.Logon{SessionId: "S", LastSequence: 1<<64 - 1}, "last_sequence"},
	} {
		_, f := logon(s, c.logon)
		if f == nil || f.Reason != pb.Reason_REASON_MALFORMED || f.Field != c.field || f.Final {
			t.Errorf("%v: %v, want MALFORMED about %q", c.logon, f, c.field)
		}
	}
	if f := logout(s); f == nil || f.Reason != pb.Reason_REASON_MALFORMED || f.Final {
		t.Errorf("logout before a logon: %v", f)
	}
	ack, f := logon(s, &pb.Logon{SessionId: "S", Epoch: 1, LastSequence: 1, GraceMs: 60_000})
	if f != nil || ack.GetEpoch() != 1 || ack.GetNextSequence() != 2 {
		t.Fatalf("%v, %v", ack, f)
	}
	if _, f := logon(s, &pb.Logon{SessionId: "T"}); f == nil || f.Reason != pb.Reason_REASON_MALFORMED {
		t.Errorf("a second logon: %v", f)
	}
	if f := logout(s); f != nil {
		t.Fatal(f)
	}
	if _, f := do[pb.SubmitOrderRequest, pb.SubmitOrderResponse](s, transports.SubmitOrder, order("b")); f == nil || !f.Final {
		t.Errorf("an order after the logout: %v, want a final fault", f)
	}
}

// TestRestart: what was logged on when the process died has its grace time from the start on.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := newGateway(t, traders, 100)
		for id, mode := range map[string]pb.DisconnectMode{"stays": none, "goes": onDisconnect, "left": onDisconnect} {
			s := open(t, g, "alpha")
			mustLogon(t, s, id, mode, 5*time.Second)
			enter(t, s, id, pb.Side_SIDE_BUY, 1)
			if id == "left" {
				if f := logout(s); f != nil {
					t.Fatal(f)
				}
			}
		}
		g.Drain()
		time.Sleep(time.Hour)
		g, log = restarted(t, log, traders)
		time.Sleep(4 * time.Second)
		g.Drain()
		time.Sleep(time.Hour)
		g, _ = restarted(t, log, traders)
		defer g.Drain()
		time.Sleep(4999 * time.Millisecond)
		synctest.Wait()
		if n := strings.Count(openOrders(g, 1), " ") + 1; n != 3 {
			t.Errorf("%d orders are open within the grace time, want 3", n)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if open := openOrders(g, 1); strings.Contains(open, "goes") || !strings.Contains(open, "stays") || !strings.Contains(open, "left") {
			t.Errorf("open after the grace time: %s", open)
		}
		var logged int
		g.sequencer.Read(func(state *orders.State, _ uint64) {
			for info := range state.Sessions {
				if info.LoggedOn {
					logged++
				}
			}
		})
		if logged != 0 {
			t.Errorf("%d sessions are still logged on", logged)
		}
	})
}

// TestDeadManTimer plays calls of CancelAllAfter ("5s", "0s" disarms) and waits; each step is followed by what is open then.
func TestDeadManTimer(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"fires in time, once", "arm 5s = a; wait 4999ms = a; wait 1ms = ; order = a; wait 2h = a"},
		{"another call prolongs it", "arm 5s = a; wait 4s = a; arm 5s = a; wait 4s = a; arm 5s = a; wait 5s = "},
		{"a shorter one brings it forward", "arm 1h = a; arm 1s = a; wait 1s = "},
		{"disarmed it never fires", "arm 5s = a; wait 4s = a; arm 0s = a; wait 2h = a"},
		{"disarming nothing does nothing", "arm 0s = a; wait 2h = a"},
		{"a restart does not forget it", "arm 5s = a; restart = a; wait 4999ms = a; wait 1ms = "},
		{"it fires at the start where its time has passed", "arm 5s = a; stop = a; wait 1h = a; start = "},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, log := newGateway(t, traders, 100)
				s := open(t, g, "alpha")
				entered := 0
				more := func() { enter(t, s, fmt.Sprint("o", entered), pb.Side_SIDE_BUY, 1); entered++ }
				more()
				for step := range strings.SplitSeq(c.script, ";") {
					what, want, _ := strings.Cut(step, "=")
					words := strings.Fields(what)
					var d time.Duration
					if len(words) > 1 {
						var err error
						if d, err = time.ParseDuration(words[1]); err != nil {
							t.Fatal(err)
						}
					}
					switch words[0] {
					case "arm":
						before := transports.Now()
						ack, f := do[pb.CancelAllAfterRequest, pb.CancelAllAfterResponse](s, transports.CancelAllAfter, &pb.CancelAllAfterRequest{TimeoutMs: uint32(d / time.Millisecond)})
						if f != nil {
							t.Fatal(f)
						}
						if at := int64(ack.GetTriggerNs()); d == 0 && at != 0 || d > 0 && at != before+int64(d) {
							t.Errorf("fires at %d, want %v after %d", at, d, before)
						}
					case "wait":
						time.Sleep(d)
					case "order":
						more()
					case "stop":
						g.Drain()
					case "restart", "start":
						g.Drain()
						g, log = restarted(t, log, traders)
						s = open(t, g, "alpha")
					}
					synctest.Wait()
					if open := openOrders(g, 1) != ""; open != (strings.TrimSpace(want) == "a") {
						t.Fatalf("after %q something is open: %v", strings.TrimSpace(what), open)
					}
				}
				g.Drain()
			})
		})
	}
}

// TestTimersOutliveARefusingJournal: while the disk is full nothing can be canceled; it is done as soon as there is room.
func TestTimersOutliveARefusingJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := newGateway(t, traders, 100)
		defer g.Drain()
		a, b := open(t, g, "alpha"), open(t, g, "beta")
		mustLogon(t, a, "S", onDisconnect, time.Second)
		enter(t, a, "a", pb.Side_SIDE_BUY, 1)
		enter(t, b, "b", pb.Side_SIDE_BUY, 1)
		if _, f := do[pb.CancelAllAfterRequest, pb.CancelAllAfterResponse](b, transports.CancelAllAfter, &pb.CancelAllAfterRequest{TimeoutMs: 1000}); f != nil {
			t.Fatal(f)
		}
		log.refuse(errors.New("disk full"))
		a.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		if openOrders(g, 1) != "a" || openOrders(g, 2) != "b" {
			t.Errorf("open are %q and %q though the journal took nothing", openOrders(g, 1), openOrders(g, 2))
		}
		log.refuse(nil)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if openOrders(g, 1) != "" || openOrders(g, 2) != "" {
			t.Errorf("open are %q and %q, want nothing", openOrders(g, 1), openOrders(g, 2))
		}
	})
}

// TestSameBytesAfterARestart: whoever resumes at another incarnation of the process gets what he would have got.
func TestSameBytesAfterARestart(t *testing.T) {
	g, log := newGateway(t, traders, 1000)
	a, b := open(t, g, "alpha"), open(t, g, "beta")
	mustLogon(t, a, "S", none, 0)
	for i := range 300 {
		s, side := a, pb.Side_SIDE_BUY
		if i%3 == 1 {
			s, side = b, pb.Side_SIDE_SELL
		}
		enter(t, s, fmt.Sprint("o", i), side, uint64(1+i%7))
		if i%10 == 9 {
			id := fmt.Sprint("o", i-3)
			if _, f := do[pb.CancelOrderRequest, pb.CancelOrderResponse](a, transports.CancelOrder, &pb.CancelOrderRequest{ClientOrderId: id, RequestId: id}); f != nil {
				t.Fatal(f)
			}
		}
		if i == 200 {
			if err := g.sequencer.Execute(&orders.Command{Kind: orders.EndDay}, &orders.Answer{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, f := do[pb.MassCancelRequest, pb.MassCancelResponse](a, transports.MassCancel, &pb.MassCancelRequest{RequestId: "all"}); f != nil {
		t.Fatal(f)
	}
	again, _ := restarted(t, log, traders)
	for _, key := range []string{"alpha", "beta"} {
		before, after := stream(t, open(t, g, key)), stream(t, open(t, again, key))
		if len(before) < 100 || !slices.EqualFunc(before, after, bytes.Equal) {
			t.Errorf("%s: %d events before the restart and %d after it, or other ones", key, len(before), len(after))
		}
	}
	g.Drain()
	again.Drain()
}

// TestStreamOutlivesQuietDays: a reader that has everything goes on behind days in which its account had no event.
func TestStreamOutlivesQuietDays(t *testing.T) {
	g, _ := newGateway(t, traders, 100)
	defer g.Drain()
	s := open(t, g, "alpha")
	e, err := s.Subscribe(t.Context(), &pb.StreamExecutionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for range 3 {
		if err := g.sequencer.Execute(&orders.Command{Kind: orders.EndDay}, &orders.Answer{}); err != nil {
			t.Fatal(err)
		}
	}
	enter(t, s, "a", pb.Side_SIDE_BUY, 1)
	batch, err := e.Next(t.Context())
	if err != nil || len(batch) != 1 || batch[0].Epoch != 4 || batch[0].Sequence != 1 {
		t.Errorf("%v, %v; want event 1 of epoch 4", batch, err)
	}
}

// stream reads all that is there of an account's events, from the first epoch on.
func stream(t *testing.T, s *session) (list [][]byte) {
	t.Helper()
	left := map[uint32]uint64{}
	s.gateway.sequencer.Read(func(state *orders.State, _ uint64) {
		for epoch := range state.Epoch() {
			next, _ := state.EventRange(s.Key.Account, epoch+1)
			left[epoch+1] = next - 1
		}
	})
	e, err := s.Subscribe(t.Context(), &pb.StreamExecutionsRequest{Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for left[1]+left[2] > 0 {
		batch, err := e.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range batch {
			list = append(list, slices.Clone(event.Report))
			left[event.Epoch]--
		}
	}
	return list
}

// TestDrain: nobody is admitted, readers end, timers that are armed never fire and none is armed any more; requests go on.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGateway(t, traders, 100)
		lost, stays, late := open(t, g, "alpha"), open(t, g, "alpha"), open(t, g, "beta")
		mustLogon(t, lost, "S", onDisconnect, time.Second)
		mustLogon(t, stays, "T", onDisconnect, time.Second)
		enter(t, lost, "a", pb.Side_SIDE_BUY, 1)
		enter(t, stays, "b", pb.Side_SIDE_BUY, 1)
		stream, err := stays.Subscribe(t.Context(), &pb.StreamExecutionsRequest{FromSequence: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := stream.Next(context.Background())
			ended <- err
		}()
		synctest.Wait()
		lost.Close()
		g.Drain()
		if err := <-ended; reasonOf(err) != pb.Reason_REASON_DRAINING {
			t.Errorf("the stream ended with %v, want DRAINING", err)
		}
		enter(t, stays, "c", pb.Side_SIDE_BUY, 1)
		stays.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := openOrders(g, 1); got != "a b c" {
			t.Errorf("open are %q, want a b c: no timer fires while the gateway stops", got)
		}
		if _, err := g.Open(t.Context(), transports.Peer{Key: "alpha"}); reasonOf(err) != pb.Reason_REASON_DRAINING {
			t.Errorf("Open: %v, want DRAINING", err)
		}
		if _, f := logon(late, &pb.Logon{SessionId: "S"}); f == nil || f.Reason != pb.Reason_REASON_DRAINING {
			t.Errorf("logon: %v, want DRAINING", f)
		}
		if _, err := late.Subscribe(t.Context(), &pb.StreamExecutionsRequest{}); reasonOf(err) != pb.Reason_REASON_DRAINING {
			t.Errorf("subscribe: %v, want DRAINING", err)
		}
	})
}

// TestThrottleEndsTheSession: the streams of the session end with it, other sessions of the account are shut out for the penalty, and rates
// follow the limits at run time.
func TestThrottleEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGateway(t, traders, 100)
		defer g.Drain()
		limit := func(scope orders.Scope, rate uint32) {
			var out orders.Answer
			if err := g.sequencer.Execute(&orders.Command{Kind: orders.SetLimits, Scope: scope, Limits: &orders.Limits{MaxOrderRate: rate}}, &out); err != nil {
				t.Fatal(err)
			}
		}
		greedy, other, foreign := open(t, g, "alpha"), open(t, g, "alpha"), open(t, g, "beta")
		mustLogon(t, greedy, "S", onDisconnect, 10*time.Second)
		submit := func(s *session, id string) *transports.Fault {
			_, f := do[pb.SubmitOrderRequest, pb.SubmitOrderResponse](s, transports.SubmitOrder, order(id))
			return f
		}
		limit(orders.Scope{Number: 1}, 2)
		stream, err := greedy.Subscribe(t.Context(), &pb.StreamExecutionsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		for i, want := range []struct{ refused, final bool }{{}, {}, {refused: true}, {refused: true}, {true, true}, {true, true}} {
			f := submit(greedy, "a") // a repetition costs what a new order does
			if (f != nil) != want.refused || f != nil && f.Final != want.final {
				t.Errorf("order %d: %v", i+1, f)
			}
		}
		if _, err := stream.Next(t.Context()); reasonOf(err) != pb.Reason_REASON_THROTTLED {
			t.Errorf("the session's stream: %v, want THROTTLED", err)
		}
		if f := submit(other, "b"); f == nil || f.Reason != pb.Reason_REASON_THROTTLED || f.Final || f.RetryAfter != DefaultPenalty {
			t.Errorf("another session of the account: %v", f)
		}
		if _, err := g.Open(t.Context(), transports.Peer{Key: "alpha"}); reasonOf(err) != pb.Reason_REASON_THROTTLED {
			t.Errorf("a new session of the account: %v", err)
		}
		if f := submit(foreign, "c"); f != nil {
			t.Errorf("another account: %v", f)
		}
		time.Sleep(DefaultPenalty)
		if f := submit(other, "b"); f != nil {
			t.Errorf("after the penalty: %v", f)
		}
		if f := submit(greedy, "d"); f == nil || !f.Final {
			t.Errorf("the ended session lives again: %v", f)
		}
		limit(orders.Scope{Number: 1}, 0)
		for i := range 100 {
			if f := submit(other, fmt.Sprint("e", i%10)); f != nil {
				t.Fatalf("without a limit: %v", f)
			}
		}
		limit(orders.Scope{Firm: true, Number: 0}, 3) // alpha's firm
		refused := 0
		for i := range 5 {
			if f := submit(other, fmt.Sprint("e", i)); f != nil {
				refused++
			}
		}
		if refused != 2 {
			t.Errorf("%d of 5 orders refused by a firm's rate of 3, want 2", refused)
		}
		var out orders.Answer
		if err := g.sequencer.Execute(&orders.Command{Kind: orders.DefineAccount, Name: "alpha"}, &out); err != nil { // leaves the firm
			t.Fatal(err)
		}
		if f := submit(other, "e1"); f != nil {
			t.Errorf("outside the firm: %v", f)
		}
	})
}
