package entry

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"tailgate/gateway/feed"
	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// session is one admitted peer; after a logon it holds a named session.
type session struct {
	gateway *Gateway
	*credential

	over   atomic.Pointer[transports.Fault] // why nothing more is taken, or nil
	number atomic.Uint32                    // of the named session plus one, 0 = none; set under mu
	closed atomic.Bool

	// mu is held shared by requests of a connection that is logged on, so that none of them is between its check of over and the
	// writer's lock when another connection takes the session over.
	mu     sync.RWMutex
	info   orders.SessionInfo // of the named session, as this connection logged on to it
	reader *events            // of the named session: opened by the logon, so that no session is without; nil before
	taken  bool               // reader was given to a Subscribe, which closes it
}

// sessionName is how a client names a session.
type sessionName struct {
	account uint32
	id      orders.ID
}

// Account implements transports.AccountSession: its keys share what a transport gives by account.
func (s *session) Account() string { return s.Name }

// Commit implements transports.Session.
func (s *session) Commit(r transports.Releaser, mark uint64) { s.gateway.sequencer.Commit(r, mark) }

// Close implements transports.Session. It waits for locks that are held over memory only.
func (s *session) Close() {
	s.closed.Store(true)
	if s.number.Load() == 0 {
		return // a logon that is under way sees closed
	}
	s.gateway.logons.Lock()
	defer s.gateway.logons.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gateway.lost(s)
}

// lost lets go of the named session that a closed connection holds, unless it was replaced or has logged out. logons and s.mu are held.
func (g *Gateway) lost(s *session) {
	s.over.CompareAndSwap(nil, faultClosed) // the session's number may soon be another's
	if !s.taken {
		s.reader.Close()
	}
	name := sessionName{s.info.Account, s.info.ID}
	if g.holders[name] != s {
		return
	}
	delete(g.holders, name)
	if g.draining.Load() {
		return // the next start sees to it
	}
	g.lose(&s.info)
}

// execute runs a command of this session.
func (s *session) execute(c *orders.Command, answer *orders.Answer) error {
	if s.number.Load() == 0 {
		return s.gateway.sequencer.Execute(c, answer)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if f := s.over.Load(); f != nil {
		return f
	}
	if c.Kind == orders.Submit {
		c.Session = s.number.Load()
	}
	return s.gateway.sequencer.Execute(c, answer)
}

// logon opens a named session on this connection, or takes it over from another one. The reader of its events is opened first: who is refused
// that has changed nothing, and whoever held the session goes on.
func (s *session) logon(request *pb.Logon, response *pb.LogonAck, receivedNs int64) error {
	c := orders.Command{Kind: orders.Logon, Account: s.Key.Account, ReceivedNs: receivedNs}
	if err := checkLogon(request, &c); err != nil {
		return err
	}
	g := s.gateway
	g.logons.Lock()
	defer g.logons.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number.Load() != 0 {
		return transports.Malformed("", "this connection is logged on already, as session %s", s.info.ID)
	}
	if g.draining.Load() {
		return faultDraining
	}
	epoch, next, err := s.placeOf(request)
	if err != nil {
		return err
	}
	name := sessionName{s.Key.Account, c.SessionID}
	old := g.holders[name]
	if old != nil {
		old.mu.Lock() // its requests under way are executed first, later ones see that it is over
		defer old.mu.Unlock()
	}
	reader, err := s.openReader(old, epoch, next)
	if err != nil {
		return err
	}
	var answer orders.Answer
	if err := g.sequencer.Execute(&c, &answer); err != nil {
		reader.Close()
		return err
	}
	s.reader = reader
	if old != nil {
		old.over.Store(faultReplaced)
		g.endStreams(faultReplaced, func(e *events) bool { return e.session == old })
		old.reader.Close() // its place is the new reader's
		g.logger.Debug("session taken over", "account", s.Name, "session", c.SessionID.String())
	}
	s.info = orders.SessionInfo{
		Number: answer.Session - 1, Account: s.Key.Account, ID: c.SessionID,
		Mode: c.DisconnectMode, GraceNs: c.GraceNs, LoggedOn: true, Incarnation: answer.Incarnation,
	}
	s.number.Store(answer.Session)
	g.holders[name] = s
	g.timers.disarmGrace(s.info.Number)
	if s.closed.Load() {
		g.lost(s)
	}
	response.Epoch, response.NextSequence = epoch, next
	return nil
}

// placeOf finds the first event that follows the last one a client has seen.
func (s *session) placeOf(request *pb.Logon) (epoch uint32, next uint64, err error) {
	seen := request.GetLastSequence()
	if seen == math.MaxUint64 {
		return 0, 0, transports.Malformed("last_sequence", "no event has the number %d", seen)
	}
	s.gateway.sequencer.Read(func(state *orders.State, _ uint64) {
		epoch, next, err = feed.Place(state, s.Key.Account, request.GetEpoch(), seen+1)
	})
	if err != nil {
		f := *transports.AsFault(err)
		if f.Field == feed.FieldSequence {
			f.Field = "last_sequence"
		}
		return 0, 0, &f
	}
	return epoch, next, nil
}

// logout ends the named session in an orderly way. The connection is of no more use.
func (s *session) logout(request *pb.Logout, response *pb.Logout, receivedNs int64) error {
	if err := checkLogout(request); err != nil {
		return err
	}
	g := s.gateway
	g.logons.Lock()
	defer g.logons.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.over.Load(); f != nil {
		return f
	}
	if s.number.Load() == 0 {
		return transports.Malformed("", "no session is logged on on this connection")
	}
	c := orders.Command{Kind: orders.Logout, Account: s.Key.Account, Session: s.number.Load(), Incarnation: s.info.Incarnation, ReceivedNs: receivedNs}
	var answer orders.Answer
	if err := g.sequencer.Execute(&c, &answer); err != nil {
		return err
	}
	s.over.Store(faultLeft)
	delete(g.holders, sessionName{s.info.Account, s.info.ID})
	response.Text = ""
	return nil
}

// end ends the session with a final fault.
func (s *session) end(why *transports.Fault) {
	if s.over.CompareAndSwap(nil, why) {
		s.gateway.endStreams(why, func(e *events) bool { return e.session == s })
	}
}

// events is a reader that belongs to a session.
type events struct {
	*feed.Reader
	session *session
}

// Subscribe implements transports.Session.
func (s *session) Subscribe(ctx context.Context, request *pb.StreamExecutionsRequest) (transports.Events, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := checkStream(request); err != nil {
		return nil, err
	}
	if e := s.takeReader(request); e != nil {
		return e, nil // what comes of a logon was admitted with it
	}
	if err := s.admit(reading); err != nil {
		return nil, err
	}
	account, err := s.readable(request.GetAccount())
	if err != nil {
		return nil, err
	}
	g := s.gateway
	reader, err := g.feed.OpenStream(&s.streams, account, request.GetEpoch(), request.GetFromSequence())
	if err != nil {
		return nil, err
	}
	e := g.listed(s, reader)
	// What ended the session while it was not in the list yet did not find it there.
	if err := s.usable(ctx); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// openReader opens the reader of a session that logs on. It may have the place of the one whose session is taken over, which may be nil.
func (s *session) openReader(old *session, epoch uint32, next uint64) (*events, error) {
	var replaces *feed.Reader
	if old != nil {
		replaces = old.reader.Reader
	}
	reader, err := s.gateway.feed.OpenSession(replaces, s.Key.Account, epoch, next)
	if err != nil {
		return nil, err
	}
	return s.gateway.listed(s, reader), nil
}

// takeReader returns the reader that the logon opened where this is its subscription, once. Otherwise it returns nil: what is asked for is a
// stream beside the session.
func (s *session) takeReader(request *pb.StreamExecutionsRequest) *events {
	if s.number.Load() == 0 || request.GetAccount() != "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken || s.over.Load() != nil {
		return nil
	}
	if epoch, next := s.reader.Place(); request.GetEpoch() != epoch || request.GetFromSequence() != next {
		return nil
	}
	s.taken = true
	return s.reader
}

// listed makes a reader the session's, to end with it.
func (g *Gateway) listed(s *session, reader *feed.Reader) *events {
	e := &events{Reader: reader, session: s}
	g.streamsMu.Lock()
	defer g.streamsMu.Unlock()
	g.streams[e] = struct{}{}
	return e
}

// readable says which account's events are meant, and whether the key may read them. Who asks for another's is not told whether there is one.
func (s *session) readable(name string) (account uint32, err error) {
	if name == "" {
		if s.Role != Trade {
			return 0, transports.Malformed("account", "this key has no account of its own: name one of those whose events it reads")
		}
		return s.Key.Account, nil
	}
	account, ok := s.gateway.accountNumber(name)
	if ok && s.Role == Trade && account == s.Key.Account {
		return account, nil
	}
	if ok && s.Role == DropCopy && slices.Contains(s.Accounts, account) {
		return account, nil
	}
	f := transports.Refuse(pb.Reason_REASON_PERMISSION_DENIED, "this key may not read the events of account %q", name)
	f.Field = "account"
	return 0, f
}

// Close implements transports.Events.
func (e *events) Close() {
	g := e.session.gateway
	g.streamsMu.Lock()
	delete(g.streams, e)
	g.streamsMu.Unlock()
	e.Reader.Close()
}

// endStreams ends readers with a fault.
func (g *Gateway) endStreams(why *transports.Fault, which func(*events) bool) {
	g.streamsMu.Lock()
	defer g.streamsMu.Unlock()
	for e := range g.streams {
		if which(e) {
			e.End(why)
		}
	}
}
