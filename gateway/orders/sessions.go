package orders

import (
	"fmt"
	"math"

	pb "tailgate/proto/gen/orderentry/v1"
)

// SessionInfo is a session as the state knows it.
type SessionInfo struct {
	Number      uint32
	Account     uint32
	ID          ID
	Mode        uint8 // proto orderentry.v1.DisconnectMode
	GraceNs     int64
	LoggedOn    bool
	Incarnation uint32 // counts logons under this number, and goes on when the number is given to another session
}

// session is a place in the table.
type session struct {
	id          ID // zero = let go
	account     uint32
	incarnation uint32
	graceNs     int64
	open        uint32 // orders that rest
	mode        uint8
	loggedOn    bool
}

// sessionTable numbers sessions. A number that was let go is given again, the lowest first.
type sessionTable struct {
	table  []session
	letGo  int // places that were
	number map[key]uint32
	of     map[uint32]int // how many an account has; none = not in it
}

func newSessionTable() sessionTable {
	return sessionTable{number: make(map[key]uint32), of: make(map[uint32]int)}
}

// isOf reports whether a link (number plus one, 0 = none) is none or one of the account's.
func (t *sessionTable) isOf(link, account uint32) bool {
	return link == 0 || uint64(link) <= uint64(len(t.table)) && t.table[link-1].account == account && !t.table[link-1].id.IsZero()
}

// count adds to the open orders of a session, if there is one.
func (t *sessionTable) count(link uint32, change int32) {
	if link > 0 {
		t.table[link-1].open += uint32(change)
	}
}

// place finds where a new session of an account goes: in the place of the first one that is let go, at the end, or where nobody would miss
// the one that is there. An account that has its most gets only the place of one of its own. ok is false when there is no such place.
func (t *sessionTable) place(account uint32, most, mostOfAccount int) (number uint32, ok bool) {
	own := t.of[account] >= mostOfAccount
	if !own && t.letGo == 0 && len(t.table) < most {
		return uint32(len(t.table)), true
	}
	for i := range t.table[:min(len(t.table), most)] {
		switch e := &t.table[i]; {
		case e.id.IsZero():
			if !own {
				return uint32(i), true
			}
		case e.idle() && (!own || e.account == account) && !ok:
			number, ok = uint32(i), true
		}
	}
	return number, ok
}

// take gives a place that is let go to a session of an account.
func (t *sessionTable) take(number, account uint32, id ID) {
	t.table[number].id, t.table[number].account = id, account
	t.number[key{account, id}] = number
	t.of[account]++
}

// idle tells a session that nobody would miss.
func (e *session) idle() bool { return !e.loggedOn && e.open == 0 }

// forget lets all idle sessions go.
func (t *sessionTable) forget() {
	for i := range t.table {
		if e := &t.table[i]; e.idle() && !e.id.IsZero() {
			t.drop(uint32(i))
		}
	}
}

func (t *sessionTable) drop(number uint32) {
	e := &t.table[number]
	delete(t.number, key{e.account, e.id})
	if t.of[e.account]--; t.of[e.account] == 0 {
		delete(t.of, e.account)
	}
	*e = session{incarnation: e.incarnation}
	t.letGo++
}

func (s *State) decideLogon(c *Command) (journal bool, err error) {
	if c.SessionID.IsZero() || c.DisconnectMode > uint8(pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT) || c.GraceNs < 0 {
		return false, fmt.Errorf("%w: a logon needs a session id, a disconnect mode and a grace time that is not negative", ErrInvalid)
	}
	number, known := s.sessions.number[key{c.Account, c.SessionID}]
	if !known {
		var ok bool
		if number, ok = s.sessions.place(c.Account, s.options.MaxSessions, s.options.MaxSessionsOfAccount); !ok {
			return false, s.noPlace(c.Account)
		}
	}
	if int(number) < len(s.sessions.table) && s.sessions.table[number].incarnation == math.MaxUint32 {
		return false, fmt.Errorf("%w: session %s has logged on 2^32 times; take another id", ErrInvalid, c.SessionID)
	}
	c.Session = number + 1
	return true, nil
}

// noPlace says which bound keeps a session of an account out.
func (s *State) noPlace(account uint32) error {
	if n := s.sessions.of[account]; n >= s.options.MaxSessionsOfAccount {
		return fmt.Errorf("%w: %d of its sessions are logged on or have open orders", ErrAccountSessionsFull, n)
	}
	return fmt.Errorf("%w: %d sessions are logged on or have open orders", ErrSessionsFull, s.options.MaxSessions)
}

// applyLogon takes the place that Decide found: which one depends on how large the table may be, and on how much of it one account may have.
func (s *State) applyLogon(c *Command, out *Answer) error {
	t := &s.sessions
	known, ok := t.number[key{c.Account, c.SessionID}]
	number := c.Session - 1
	if c.Session == 0 || ok && known != number || int(number) > len(t.table) || int(number) >= s.options.MaxSessions {
		return fmt.Errorf("%w: session %s cannot be number %d of %d, max_sessions is %d", ErrReplay, c.SessionID, number, len(t.table), s.options.MaxSessions)
	}
	if !ok {
		if int(number) == len(t.table) {
			t.table = append(t.table, session{})
			t.letGo++
		} else if e := &t.table[number]; !e.id.IsZero() {
			if !e.idle() {
				return fmt.Errorf("%w: session %s cannot take the place of %s", ErrReplay, c.SessionID, e.id)
			}
			t.drop(number)
		}
		t.letGo--
		t.take(number, c.Account, c.SessionID)
	}
	e := &t.table[number]
	e.incarnation++
	e.loggedOn, e.mode, e.graceNs = true, c.DisconnectMode, c.GraceNs
	out.Session, out.Incarnation = number+1, e.incarnation
	out.NextSequence = s.accounts[c.Account].events.length + 1
	return nil
}

// decideSessionEnd finds out whether the logon that is to end is still the session's last one.
func (s *State) decideSessionEnd(c *Command, out *Answer) (journal bool, err error) {
	*out = Answer{Epoch: s.epoch, ReceivedNs: c.ReceivedNs}
	return s.sessionToEnd(c) != nil, nil
}

func (s *State) sessionToEnd(c *Command) *session {
	if c.Session == 0 || !s.sessions.isOf(c.Session, c.Account) {
		return nil
	}
	e := &s.sessions.table[c.Session-1]
	if !e.loggedOn || e.incarnation != c.Incarnation {
		return nil
	}
	return e
}

// applySessionEnd logs a session out. Where its connection was lost for too long, its orders are canceled if that was agreed.
func (s *State) applySessionEnd(c *Command, out *Answer) (err error) {
	e := s.sessionToEnd(c)
	if e == nil {
		return fmt.Errorf("%w: logon %d of session %d is not the last one, or not logged on", ErrReplay, c.Incarnation, c.Session)
	}
	e.loggedOn = false
	if c.Kind == Logout {
		return nil
	}
	out.Status = pb.OrderStatus_ORDER_STATUS_CANCELED
	if e.mode == uint8(pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT) {
		out.Count, err = s.cancelOpen(c.Account, selection{session: c.Session}, pb.Reason_REASON_CANCEL_ON_DISCONNECT)
	}
	return err
}

func (t *sessionTable) info(number uint32) (info SessionInfo, ok bool) {
	if int(number) >= len(t.table) || t.table[number].id.IsZero() {
		return SessionInfo{}, false
	}
	e := &t.table[number]
	return SessionInfo{
		Number: number, Account: e.account, ID: e.id, Mode: e.mode, GraceNs: e.graceNs, LoggedOn: e.loggedOn, Incarnation: e.incarnation,
	}, true
}

// Session returns one session by its number.
func (s *State) Session(number uint32) (info SessionInfo, ok bool) { return s.sessions.info(number) }

// Sessions calls yield for each session that is known, logged-out ones included, by number. The state must not be changed meanwhile.
func (s *State) Sessions(yield func(SessionInfo) bool) {
	for number := range s.sessions.table {
		if info, ok := s.sessions.info(uint32(number)); ok && !yield(info) {
			return
		}
	}
}
