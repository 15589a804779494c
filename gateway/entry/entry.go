// Package entry is where a request becomes a command: it admits peers, holds requests to the contract and to their rate, keeps
// named sessions and their timers, and turns messages into commands for the sequencer and its answers into messages.
//
// It is the gateway that transports see (transports.Gateway). It must never know how a request travelled, what a book looks
// like inside, or how a journal writes. What is checked here needs no state (the shape of a message, a role, a rate); what needs
// state is decided by package orders under the writer's lock.
//
// # Locks
//
// They are taken in this order: Gateway.logons, session.mu of a connection that logs on, session.mu of the one that it replaces, the writer's
// lock (sequencer), and then one of the leaves: throttles.mu, timers.mu, committer.mu, Gateway.streamsMu, the feed's. None of them is held across a
// write to the disk or a wait for a peer: what is executed under them is committed afterwards, by the peer that waits for it or by the committer.
package entry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"tailgate/gateway/feed"
	"tailgate/gateway/orders"
	"tailgate/gateway/sequencer"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// DemoAccount is the account of every loopback client of a gateway without keys that trade.
const DemoAccount = "demo"

// DefaultPenalty is Config.Penalty unless told otherwise.
const DefaultPenalty = time.Second

// Config is what a gateway is told. Account numbers are those that the state has given.
type Config struct {
	// Keys say who is let in. Without any key of role Trade every loopback client trades for DemoAccount, which must then be defined.
	Keys map[KeyHash]Key
	// Anybody lets clients in from everywhere where only loopback ones would be.
	Anybody bool
	// Penalty is for how long the throttle shuts an account out that did not heed its refusals; 0 = DefaultPenalty.
	Penalty time.Duration
	// Feed bounds the readers of events.
	Feed feed.Options
	// Logger hears of sessions and timers; nil = discard.
	Logger *slog.Logger
}

// Gateway implements transports.Gateway. Safe for concurrent use.
type Gateway struct {
	sequencer *sequencer.Sequencer
	logger    *slog.Logger
	feed      *feed.Feed
	throttles throttles
	timers    timers
	committer committer
	keys      atomic.Pointer[keyring]
	draining  atomic.Bool // set under logons

	logons  sync.Mutex
	holders map[sessionName]*session // connections that hold a named session now

	streamsMu sync.Mutex
	streams   map[*events]struct{} // open readers; a leaf lock
}

// New returns a gateway over a sequencer that has replayed its log, and becomes its observer. Sessions that were logged on when the log
// ended have lost their connection: their grace times begin now. Dead-man timers that would have fired meanwhile fire at once.
func New(s *sequencer.Sequencer, c Config) (*Gateway, error) {
	if c.Penalty <= 0 {
		c.Penalty = DefaultPenalty
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{
		sequencer: s, logger: c.Logger, feed: feed.New(s, c.Feed), throttles: newThrottles(c.Penalty), committer: committer{sequencer: s},
		holders: make(map[sessionName]*session), streams: make(map[*events]struct{}),
	}
	g.timers.init(g)
	s.Observe(g)
	if err := g.SetKeys(c.Keys, c.Anybody); err != nil {
		return nil, err
	}
	g.resume()
	return g, nil
}

// Touched implements sequencer.Observer.
func (g *Gateway) Touched(accounts []uint32) { g.feed.Touched(accounts) }

// Changed implements sequencer.Observer.
func (g *Gateway) Changed(state *orders.State, c *orders.Command) {
	switch c.Kind {
	case orders.SetLimits, orders.DefineAccount:
		g.throttles.changed(state, c)
	case orders.CancelAllAfter:
		g.timers.armDeadMan(c.Account, c.TriggerNs)
	case orders.EndDay:
		g.feed.DayEnded(state)
	case orders.FireTimer:
		g.timers.armDeadMan(c.Account, 0)
	default:
	}
}

// Open implements transports.Gateway. A key is found by its hash, so nothing that depends on the key's bytes takes a time that
// depends on them.
func (g *Gateway) Open(_ context.Context, peer transports.Peer) (transports.Session, error) {
	if g.draining.Load() {
		return nil, faultDraining
	}
	who, err := g.keys.Load().find(peer.Key, peer.Remote)
	if err != nil {
		return nil, err
	}
	if who.Role == Admin {
		return nil, transports.Refuse(pb.Reason_REASON_PERMISSION_DENIED, "this key administers the gateway and has no part in order entry; its place is the admin listener")
	}
	if err := who.throttle.shut(); err != nil {
		return nil, err
	}
	return &session{gateway: g, credential: who}, nil
}

// AuthorizeAdmin says which administrator a peer of the admin listener is: by a key of role Admin, or, on a gateway without any key,
// anybody from loopback, who has no name. The error is a *transports.Fault.
func (g *Gateway) AuthorizeAdmin(key string, remote net.Addr) (name string, err error) {
	ring := g.keys.Load()
	if len(ring.byHash) == 0 {
		_, err := ring.find(key, remote)
		return "", err
	}
	who := ring.byHash[HashKey(key)]
	switch {
	case who != nil && who.Role != Admin:
		return "", transports.Refuse(pb.Reason_REASON_PERMISSION_DENIED, "this key is not an administrator's")
	case !ring.hasAdmin():
		return "", transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "this gateway has accounts and no administrator's key: set admin.keys and restart it")
	case key == "":
		return "", transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "an administrator's key is needed and none was sent")
	case who == nil:
		return "", transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "nobody has this API key")
	}
	return who.Name, nil
}

// hasAdmin reports whether any key is an administrator's.
func (r *keyring) hasAdmin() bool {
	for _, who := range r.byHash {
		if who.Role == Admin {
			return true
		}
	}
	return false
}

// SetKeys replaces all keys. Sessions and readers of a key that is gone, or stands for something else now, end with UNAUTHENTICATED; the
// others notice nothing.
func (g *Gateway) SetKeys(keys map[KeyHash]Key, anybody bool) error {
	ring := &keyring{byHash: make(map[KeyHash]*credential, len(keys)), anywhere: anybody}
	before := g.keys.Load()
	trades := false
	for hash, key := range keys {
		if have := before.lookup(hash); have != nil && have.Key.equal(&key) {
			ring.byHash[hash] = have
		} else {
			ring.byHash[hash] = g.credential(key)
		}
		trades = trades || key.Role == Trade
	}
	if !trades {
		if before != nil && before.demo != nil {
			ring.demo = before.demo
		} else {
			number, ok := g.accountNumber(DemoAccount)
			if !ok {
				return errors.New("entry: no key trades and the account " + DemoAccount + " is not defined")
			}
			ring.demo = g.credential(Key{Name: DemoAccount, Role: Trade, Account: number})
		}
	}
	g.keys.Store(ring)
	if before.revoke(ring) {
		g.endStreams(faultRevoked, func(e *events) bool { return e.session.revoked.Load() })
	}
	return nil
}

func (g *Gateway) credential(key Key) *credential {
	c := &credential{Key: key, throttle: unlimited()}
	if key.Role == Trade {
		g.sequencer.Read(func(state *orders.State, _ uint64) { c.throttle = g.throttles.account(state, key.Account) })
	}
	return c
}

func (g *Gateway) accountNumber(name string) (number uint32, ok bool) {
	g.sequencer.Read(func(state *orders.State, _ uint64) { number, ok = state.Account(name) })
	return number, ok
}

// Readers is how many readers of events are open.
func (g *Gateway) Readers() int { return g.feed.Readers() }

// Drain is the first step of a stop, before the transports'. Nobody is admitted any more, readers of events end with DRAINING, and timers
// stop without firing: none fires once Drain has returned, and those of sessions begin anew at the next start. Requests of
// open sessions go on, so that transports can answer what they accepted. Safe to call more than once.
func (g *Gateway) Drain() {
	g.logons.Lock()
	g.draining.Store(true)
	g.logons.Unlock()
	g.timers.stop()
	g.feed.Close(faultDraining)
}

// Faults that say the same to everybody.
var (
	faultDraining = transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later")
	faultRevoked  = final(pb.Reason_REASON_UNAUTHENTICATED, "this API key was taken away")
	faultReplaced = final(pb.Reason_REASON_SESSION_REPLACED, "another connection has logged on under this session's id")
	faultClosed   = final(pb.Reason_REASON_CONNECTION_LOST, "the session's connection is closed")
	faultLeft     = final(pb.Reason_REASON_MALFORMED, "the session has logged out; nothing may follow on this connection")
)

func final(reason pb.Reason, message string) *transports.Fault {
	f := transports.Refuse(reason, "%s", message)
	f.Final = true
	return f
}
