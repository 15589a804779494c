package model

import (
	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
)

// session is one place for a session. Its incarnations go on counting when another takes the place.
type session struct {
	orders.SessionInfo
	taken bool
}

// seat is where a session of an account logs on: at its place, at the first free one, or instead of the first that has ended and
// has nothing open; an account that has as many as it may logs on instead of one of its own only. It is negative when there is none.
func (m *Model) seat(account uint32, id orders.ID) int {
	for i, s := range m.sessions {
		if s.taken && s.Account == account && s.ID == id {
			return i
		}
	}
	if m.sessionsOf(account) >= m.options.MaxSessionsOfAccount {
		for i, s := range m.sessions {
			if s.taken && s.Account == account && m.idle(i) {
				return i
			}
		}
		return -1
	}
	for i, s := range m.sessions {
		if !s.taken {
			return i
		}
	}
	if len(m.sessions) < m.options.MaxSessions {
		return len(m.sessions)
	}
	for i := range m.sessions {
		if m.idle(i) {
			return i
		}
	}
	return -1
}

func (m *Model) sessionsOf(account uint32) (n int) {
	for _, s := range m.sessions {
		if s.taken && s.Account == account {
			n++
		}
	}
	return n
}

// has tells whether a session, given as its number plus one, is in the table and the account's.
func (m *Model) has(account, session uint32) bool {
	return session > 0 && int(session) <= len(m.sessions) && m.sessions[session-1].taken && m.sessions[session-1].Account == account
}

// idle tells whether a session has ended and none of its orders is open.
func (m *Model) idle(number int) bool {
	if m.sessions[number].LoggedOn {
		return false
	}
	for _, o := range m.open() {
		if o.session == uint32(number)+1 {
			return false
		}
	}
	return true
}

func (m *Model) logon(c *orders.Command, out *orders.Answer) {
	number := m.seat(c.Account, c.SessionID)
	if number == len(m.sessions) {
		m.sessions = append(m.sessions, session{})
	}
	s := &m.sessions[number]
	s.taken = true
	s.SessionInfo = orders.SessionInfo{
		Number: uint32(number), Account: c.Account, ID: c.SessionID, Mode: c.DisconnectMode, GraceNs: c.GraceNs,
		LoggedOn: true, Incarnation: s.Incarnation + 1,
	}
	out.Session, out.Incarnation = uint32(number)+1, s.Incarnation
	out.NextSequence = uint64(len(m.events[stream{c.Account, m.epoch}])) + 1
}

// ended tells whether a logout or an expiry comes too late, or is about a session of somebody else.
func (m *Model) ended(c *orders.Command) bool {
	if !m.has(c.Account, c.Session) {
		return true
	}
	s := m.sessions[c.Session-1]
	return !s.LoggedOn || s.Incarnation != c.Incarnation
}

// expire ends a session whose grace time has passed, and what it left open if it asked for that.
func (m *Model) expire(c *orders.Command, out *orders.Answer) {
	s := &m.sessions[c.Session-1]
	s.LoggedOn = false
	out.Status = pb.OrderStatus_ORDER_STATUS_CANCELED
	if pb.DisconnectMode(s.Mode) == pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT {
		out.Count = m.cancelAll(c.ReceivedNs, pb.Reason_REASON_CANCEL_ON_DISCONNECT, func(o *order) bool { return o.session == c.Session })
	}
}

// closeSessions lets those go at the end of the day that are idle.
func (m *Model) closeSessions() {
	for i := range m.sessions {
		if m.idle(i) {
			m.sessions[i].taken = false
		}
	}
}
