package entry

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// timers are the dead-man timers of accounts and the grace times of lost sessions. What a timer does when its time has come is a command
// like any other; one that comes too late (the timer was prolonged, the session came back) is stale for the state and changes nothing. So
// nothing here has to be exact, only never forgotten.
//
// There are at most as many of them as accounts and sessions.
type timers struct {
	gateway *Gateway
	mu      sync.Mutex // a leaf: no command is executed under it
	stopped bool
	firing  sync.WaitGroup
	deadMan map[uint32]*alarm // by account
	grace   map[uint32]*alarm // by session number
}

// alarm is one armed timer. Which one it is tells the pointer: one that was replaced or stopped is in no map any more.
type alarm struct {
	timer   *time.Timer
	command orders.Command
}

func (t *timers) init(g *Gateway) {
	t.gateway = g
	t.deadMan, t.grace = make(map[uint32]*alarm), make(map[uint32]*alarm)
}

// armDeadMan sets an account's dead-man timer; trigger 0 disarms it.
func (t *timers) armDeadMan(account uint32, triggerNs int64) {
	command := orders.Command{Kind: orders.FireTimer, Account: account, TriggerNs: triggerNs}
	t.set(t.deadMan, account, &command, time.Duration(triggerNs-transports.Now()), triggerNs != 0)
}

// armGrace starts the grace time of a lost session.
func (t *timers) armGrace(s *orders.SessionInfo) {
	command := orders.Command{Kind: orders.ExpireSession, Account: s.Account, Session: s.Number + 1, Incarnation: s.Incarnation}
	t.set(t.grace, s.Number, &command, time.Duration(s.GraceNs), true)
}

// disarmGrace stops it.
func (t *timers) disarmGrace(number uint32) { t.set(t.grace, number, nil, 0, false) }

// set replaces what is armed under a number.
func (t *timers) set(where map[uint32]*alarm, number uint32, command *orders.Command, after time.Duration, arm bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := where[number]; have != nil {
		have.timer.Stop()
		delete(where, number)
	}
	if !arm || t.stopped {
		return
	}
	a := &alarm{command: *command}
	a.timer = time.AfterFunc(max(after, 0), func() { t.fire(where, number, a) })
	where[number] = a
}

// fire executes the command of an alarm whose time has come. While the journal takes nothing it tries again: this is what protects a
// client who cannot be asked any more.
func (t *timers) fire(where map[uint32]*alarm, number uint32, a *alarm) {
	t.mu.Lock()
	if t.stopped || where[number] != a {
		t.mu.Unlock()
		return
	}
	t.firing.Add(1)
	t.mu.Unlock()
	defer t.firing.Done()

	var answer orders.Answer
	a.command.ReceivedNs = transports.Now()
	err := t.gateway.execute(&a.command, &answer)
	var again time.Duration
	if fault, ok := errors.AsType[*transports.Fault](err); ok {
		again = fault.RetryAfter
		t.log(&a.command).Error("timer could not cancel", "retry_after", again.String(), "error", err)
	} else if answer.Count > 0 { // a client must not be able to fill the log with timers
		t.log(&a.command).Info("timer canceled orders", "command", a.command.Kind.String(), "orders", answer.Count)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if where[number] != a {
		return // armed anew meanwhile
	}
	if again > 0 && !t.stopped {
		a.timer.Reset(again)
		return
	}
	delete(where, number)
}

// log names whose timer it is, and of which session where it is a session's.
func (t *timers) log(c *orders.Command) *slog.Logger {
	var account, session string
	t.gateway.sequencer.Read(func(state *orders.State, _ uint64) {
		account = state.AccountName(c.Account)
		if info, ok := state.Session(c.Session - 1); ok && c.Session > 0 {
			session = info.ID.String()
		}
	})
	return t.gateway.logger.With("account", account, "session", session)
}

// stop stops all timers and waits for those that are executing, which is over memory only.
func (t *timers) stop() {
	t.mu.Lock()
	t.stopped = true
	for _, where := range []map[uint32]*alarm{t.deadMan, t.grace} {
		for number, a := range where {
			a.timer.Stop()
			delete(where, number)
		}
	}
	t.mu.Unlock()
	t.firing.Wait()
}

// resume arms what was armed when the log ended.
func (g *Gateway) resume() {
	var lost []orders.SessionInfo
	var armed []orders.Timer
	g.sequencer.Read(func(state *orders.State, _ uint64) {
		state.Sessions(func(s orders.SessionInfo) bool {
			if s.LoggedOn {
				lost = append(lost, s)
			}
			return true
		})
		state.Timers(func(timer orders.Timer) bool {
			armed = append(armed, timer)
			return true
		})
	})
	for _, timer := range armed {
		g.timers.armDeadMan(timer.Account, timer.TriggerNs)
	}
	for i := range lost {
		g.lose(&lost[i])
	}
}

// lose is the end of a session's connection without a logout.
func (g *Gateway) lose(s *orders.SessionInfo) {
	if s.Mode == uint8(pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT) {
		g.timers.armGrace(s)
		return
	}
	// Its orders stay, so nothing is waited for: the session is over.
	c := orders.Command{Kind: orders.Logout, Account: s.Account, Session: s.Number + 1, Incarnation: s.Incarnation, ReceivedNs: transports.Now()}
	var answer orders.Answer
	if err := g.execute(&c, &answer); err != nil {
		g.logger.Warn("lost session could not be logged out", "account", s.Account, "session", s.ID.String(), "error", err)
	}
}
