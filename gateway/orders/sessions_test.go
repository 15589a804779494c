package orders

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

const (
	stays        = uint8(pb.DisconnectMode_DISCONNECT_MODE_NONE)
	onDisconnect = uint8(pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT)
)

func logon(account uint32, sessionID string, mode uint8) *Command {
	return &Command{Kind: Logon, Account: account, SessionID: id(sessionID), DisconnectMode: mode, GraceNs: 7}
}

func end(kind Kind, account, session, incarnation uint32) *Command {
	return &Command{Kind: kind, Account: account, Session: session, Incarnation: incarnation}
}

func inSession(session uint32, c *Command) *Command {
	c.Session = session
	return c
}

// TestMassCancel: by account, symbol and side; answered once.
func TestMassCancel(t *testing.T) {
	const buy, sell = matching.Buy, matching.Sell
	mass := func(account uint32, requestID, name string, side matching.Side) *Command {
		c := &Command{Kind: MassCancel, Account: account, RequestID: id(requestID), Side: side}
		if name != "" {
			c.Symbol = symbol(name)
		}
		return c
	}
	r := newRig(t, Options{MaxIDs: 100}, "alpha", "beta")
	for i, side := range []matching.Side{buy, sell, buy, sell} {
		price := int64(90)
		if side == sell {
			price = 110
		}
		r.do(limit(0, fmt.Sprint("a", i), side, 1, price))
		r.do(of("BOLT", limit(0, fmt.Sprint("b", i), side, 1, price)))
	}
	r.do(limit(1, "other", buy, 1, 90))
	r.play(t, []step{
		{mass(0, "m1", "NOPE", 0), "REJECTED UNKNOWN_SYMBOL: no instrument has the symbol NOPE; ListInstruments names all"},
		{mass(0, "m2", "BOLT", sell), "2 orders"},
		{mass(0, "", "BOLT", sell), "CANCELED"},
		{mass(0, "m2", "BOLT", sell), "2 orders"},
		{mass(0, "m2", "BOLT", buy), "REJECTED DUPLICATE_ID: id m2 was used before for something else; take another id"},
		{cancel(0, "m2", "a0"), "REJECTED DUPLICATE_ID: id m2 was used before for something else; take another id"},
		{mass(0, "", "", buy), "4 orders"},
		{mass(0, "m1", "NOPE", 0), "REJECTED UNKNOWN_SYMBOL: no instrument has the symbol NOPE; ListInstruments names all"},
		{mass(0, "m3", "", 0), "2 orders"},
		{mass(0, "", "", 0), "CANCELED"},
	})
	again := r.do(mass(0, "m2", "BOLT", sell))
	if !again.Duplicate || again.Sequence != 10 || again.Count != 2 {
		t.Errorf("the first answer again is %+v", again)
	}
	wantLines(t, "alpha's cancels", r.story(0, 1)[8:], []string{
		"#9 CANCELED MASS_CANCEL b1 CANCELED 0/0/1 v2", "#10 CANCELED MASS_CANCEL b3 CANCELED 0/0/1 v2",
		"#11 CANCELED MASS_CANCEL a0 CANCELED 0/0/1 v2", "#12 CANCELED MASS_CANCEL b0 CANCELED 0/0/1 v2",
		"#13 CANCELED MASS_CANCEL a2 CANCELED 0/0/1 v2", "#14 CANCELED MASS_CANCEL b2 CANCELED 0/0/1 v2",
		"#15 CANCELED MASS_CANCEL a1 CANCELED 0/0/1 v2", "#16 CANCELED MASS_CANCEL a3 CANCELED 0/0/1 v2",
	})
	if o, _ := r.state.Order(1, id("other")); o.Leaves != 1 {
		t.Error("another account's order was canceled")
	}
}

// TestDeadManTimer: only the timer that is armed fires, and once.
func TestDeadManTimer(t *testing.T) {
	arm := func(trigger int64) *Command { return &Command{Kind: CancelAllAfter, TriggerNs: trigger} }
	fire := func(trigger int64) *Command { return &Command{Kind: FireTimer, TriggerNs: trigger} }
	r := newRig(t, Options{MaxIDs: 100}, "alpha", "beta")
	timers := func(want ...Timer) {
		t.Helper()
		var got []Timer
		r.state.Timers(func(timer Timer) bool { got = append(got, timer); return true })
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("armed are %v, want %v", got, want)
		}
	}
	r.do(limit(1, "other", matching.Buy, 1, 90))
	r.play(t, []step{
		{limit(0, "a", matching.Buy, 1, 90), "ACCEPTED"},
		{fire(0), ""},
		{arm(1000), ""},
		{arm(2000), ""},
		{fire(1000), ""},
	})
	timers(Timer{0, 2000})
	r.play(t, []step{
		{fire(2000), "1 orders"},
		{limit(0, "b", matching.Buy, 1, 90), "ACCEPTED"},
		{fire(2000), ""},
		{arm(3000), ""},
		{arm(0), ""},
		{fire(3000), ""},
		{arm(4000), ""},
		{cancel(0, "", "b"), "CANCELED"},
		{fire(4000), "CANCELED"},
	})
	timers()
	wantLines(t, "alpha", r.story(0, 1), []string{
		"#1 NEW a ACCEPTED 0/1/1 v1", "#2 CANCELED CANCEL_ALL_AFTER a CANCELED 0/0/1 v2",
		"#3 NEW b ACCEPTED 0/1/1 v1", "#4 CANCELED b CANCELED 0/0/1 v2",
	})
	if len(r.story(1, 1)) != 1 {
		t.Error("another account heard of it")
	}
}

// TestSessions: takeovers, orderly ends and lost connections.
func TestSessions(t *testing.T) {
	const buy = matching.Buy
	r := newRig(t, Options{MaxIDs: 100}, "alpha", "beta")
	wantLogon := func(c *Command, session, incarnation uint32, next uint64) {
		t.Helper()
		if a := r.do(c); a.Session != session || a.Incarnation != incarnation || a.NextSequence != next || a.Epoch != 1 {
			t.Errorf("%s logs on: %+v, want session %d, incarnation %d, next sequence %d", c.SessionID, a, session, incarnation, next)
		}
	}
	wantLogon(logon(0, "s", onDisconnect), 1, 1, 1)
	wantLogon(logon(1, "s", onDisconnect), 2, 1, 1) // another account's
	r.play(t, []step{
		{inSession(1, limit(0, "a", buy, 1, 90)), "ACCEPTED"},
		{limit(0, "free", buy, 1, 90), "ACCEPTED"},
		{inSession(2, limit(1, "b", buy, 1, 90)), "ACCEPTED"},
	})
	wantLogon(logon(0, "s", onDisconnect), 1, 2, 3) // takes over
	r.play(t, []step{
		{end(ExpireSession, 0, 1, 1), ""}, // the connection that was replaced
		{end(Logout, 0, 1, 1), ""},
		{inSession(1, limit(0, "c", buy, 2, 91)), "ACCEPTED"},
		{limit(1, "fill", matching.Sell, 1, 91), "FILLED"}, // a fill comes before the end
		{end(ExpireSession, 1, 1, 2), ""},                  // of another account
		{end(ExpireSession, 0, 1, 2), "2 orders"},
		{end(ExpireSession, 0, 1, 2), ""}, // and only once
		{end(Logout, 0, 1, 2), ""},
	})
	wantLogon(logon(0, "s", onDisconnect), 1, 3, 7)
	r.play(t, []step{
		{inSession(1, limit(0, "d", buy, 1, 90)), "ACCEPTED"},
		{end(Logout, 0, 1, 3), ""}, // in an orderly way: the orders stay
		{end(ExpireSession, 0, 1, 3), ""},
	})
	wantLogon(logon(0, "s", stays), 1, 4, 8)
	r.play(t, []step{{end(ExpireSession, 0, 1, 4), "CANCELED"}}) // the last logon's mode counts: nothing is canceled
	wantLines(t, "alpha", r.story(0, 1), []string{
		"#1 NEW a ACCEPTED 0/1/1 v1", "#2 NEW free ACCEPTED 0/1/1 v1", "#3 NEW c ACCEPTED 0/2/2 v1",
		"#4 TRADE c PARTIALLY_FILLED 1/1/2 v2 MAKER 1@91 match 1",
		"#5 CANCELED CANCEL_ON_DISCONNECT a CANCELED 0/0/1 v2", "#6 CANCELED CANCEL_ON_DISCONNECT c CANCELED 1/0/2 v3",
		"#7 NEW d ACCEPTED 0/1/1 v1",
	})
	if info, ok := r.state.Session(1); !ok || info != (SessionInfo{Number: 1, Account: 1, ID: id("s"), Mode: onDisconnect, GraceNs: 7, LoggedOn: true, Incarnation: 1}) {
		t.Errorf("beta's session is %+v", info)
	}
}

// TestSessionTableIsBounded: a full table gives a place away only when nobody would miss it, and an old end never hits the new session.
func TestSessionTableIsBounded(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 100, MaxSessions: 2}, "alpha")
	r.do(logon(0, "one", stays))
	r.do(logon(0, "two", onDisconnect))
	var out Answer
	if _, err := r.state.Decide(logon(0, "three", stays), &out); !errors.Is(err, ErrSessionsFull) {
		t.Errorf("a third session of two: %v", err)
	}
	r.do(inSession(1, limit(0, "a", matching.Buy, 1, 90)))
	r.do(end(Logout, 0, 1, 1))
	if _, err := r.state.Decide(logon(0, "three", stays), &out); !errors.Is(err, ErrSessionsFull) {
		t.Errorf("while an order of the first one rests: %v", err)
	}
	r.do(cancel(0, "", "a"))
	if a := r.do(logon(0, "three", onDisconnect)); a.Session != 1 || a.Incarnation != 2 {
		t.Errorf("the third session: %+v, want the place of the first, and its incarnations to go on", a)
	}
	r.do(inSession(1, limit(0, "b", matching.Buy, 1, 90)))
	if a := r.do(end(ExpireSession, 0, 1, 1)); a.Count != 0 {
		t.Errorf("the end of the first session canceled %d orders of the third", a.Count)
	}
	// The end of the day lets go of those that have logged out.
	r.do(end(ExpireSession, 0, 1, 2))
	r.do(&Command{Kind: EndDay})
	if u := r.state.Usage(); u.Sessions != 1 || u.MaxSessions != 2 {
		t.Errorf("after the end of the day: %+v", u)
	}
	if a := r.do(logon(0, "four", stays)); a.Session != 1 || a.Incarnation != 3 || a.Epoch != 2 || a.NextSequence != 1 {
		t.Errorf("the fourth session: %+v", a)
	}
	if r.state.Digest() != r.replayed(Options{MaxIDs: 100, MaxSessions: 50}).Digest() {
		t.Error("a replay with a larger table differs")
	}
}

// TestSessionsOfOneAccountAreBounded: an account that has its part of the table gets a place of its own idle sessions, and no other.
func TestSessionsOfOneAccountAreBounded(t *testing.T) {
	options := Options{MaxIDs: 100, MaxSessions: 4, MaxSessionsOfAccount: 2}
	r := newRig(t, options, "alpha", "beta")
	wantPlace := func(c *Command, session, incarnation uint32) {
		t.Helper()
		if a := r.do(c); a.Session != session || a.Incarnation != incarnation {
			t.Errorf("%s logs on: %+v, want session %d, incarnation %d", c.SessionID, a, session, incarnation)
		}
	}
	refused := func(c *Command, want error, text string) {
		t.Helper()
		var out Answer
		journal, err := r.state.Decide(c, &out)
		if journal || !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: journal %v, %v, want %v with %q", c.SessionID, journal, err, want, text)
		}
	}
	wantPlace(logon(0, "one", stays), 1, 1)
	wantPlace(logon(0, "two", stays), 2, 1)
	refused(logon(0, "three", stays), ErrAccountSessionsFull, "2 of its sessions are logged on")
	wantPlace(logon(0, "two", stays), 2, 2) // a known one may always come back
	wantPlace(logon(1, "one", stays), 3, 1) // another account has its own part
	r.do(end(Logout, 1, 3, 1))
	refused(logon(0, "three", stays), ErrAccountSessionsFull, "") // idle, but another account's
	r.do(end(Logout, 0, 2, 2))
	wantPlace(logon(0, "three", stays), 2, 3)

	// The end of the day lets go of beta's: the place is for those below their bound.
	r.do(&Command{Kind: EndDay})
	refused(logon(0, "four", stays), ErrAccountSessionsFull, "")
	wantPlace(logon(1, "new", stays), 3, 2)
	wantPlace(logon(1, "more", stays), 4, 1)
	r.do(end(Logout, 0, 1, 1))
	r.do(&Command{Kind: EndDay})
	wantPlace(logon(0, "five", stays), 1, 2)

	for _, of := range []int{1, 2, 50} { // which bound a replay has makes no difference
		again := r.replayed(Options{MaxIDs: 100, MaxSessions: 50, MaxSessionsOfAccount: of})
		if again.Digest() != r.state.Digest() {
			t.Errorf("a replay with %d of an account differs", of)
		}
	}
	restored, err := RestoreSnapshot(options, bytes.NewReader(snapshotOf(t, r.state)))
	if err != nil {
		t.Fatal(err)
	}
	r.state = restored
	refused(logon(0, "six", stays), ErrAccountSessionsFull, "2 of its sessions")
	refused(logon(1, "six", stays), ErrAccountSessionsFull, "2 of its sessions")
}

// TestSmallerSessionTable: places that were let go do not keep a smaller table from its snapshot, and nobody gets them.
func TestSmallerSessionTable(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 100, MaxSessions: 4}, "alpha")
	for i := range uint32(4) {
		r.do(logon(0, fmt.Sprint("s", i), stays))
	}
	for i := range uint32(3) {
		r.do(end(Logout, 0, 2+i, 1))
	}
	text := func() *bytes.Reader { return bytes.NewReader(snapshotOf(t, r.state)) }
	if _, err := RestoreSnapshot(Options{MaxIDs: 100, MaxSessions: 2}, text()); !errors.Is(err, ErrReplay) {
		t.Errorf("with sessions beyond the table: %v, want ErrReplay", err)
	}
	r.do(&Command{Kind: EndDay})
	restored, err := RestoreSnapshot(Options{MaxIDs: 100, MaxSessions: 2}, text())
	if err != nil {
		t.Fatal(err)
	}
	r.state = restored
	if a := r.do(logon(0, "new", stays)); a.Session != 2 || a.Incarnation != 2 {
		t.Errorf("a new session: %+v, want place 2", a)
	}
	var out Answer
	if _, err := r.state.Decide(logon(0, "third", stays), &out); !errors.Is(err, ErrSessionsFull) {
		t.Errorf("a third session of two: %v", err)
	}
	r.do(end(Logout, 0, 2, 2))
	if a := r.do(logon(0, "third", stays)); a.Session != 2 || a.Incarnation != 3 {
		t.Errorf("instead of an idle one: %+v, want place 2", a)
	}
}
