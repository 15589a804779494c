package orders

import (
	"errors"
	"fmt"
	"math"

	"tailgate/matching"
)

// Defaults and ceilings of Options.
const (
	DefaultMaxIDs      = 4 << 20
	MaxIDsCeiling      = 1 << 30
	DefaultMaxEvents   = 16 << 20
	MaxEventsCeiling   = 1 << 30
	DefaultMaxSessions = 10_000
	MaxSessionsCeiling = 1 << 20

	DefaultMaxSessionsOfAccount = 100

	// MaxAccounts, MaxFirms and MaxGroups bound definitions, which are never forgotten.
	MaxAccounts = 10_000
	MaxFirms    = 10_000
	MaxGroups   = 10_000
	// MaxInstruments is what one answer to ListInstruments holds. A definition is never forgotten.
	MaxInstruments = 1_000
)

// Faults, told apart with errors.Is. A business refusal is never one of these; it is an Answer.
var (
	// ErrIDsFull comes from Decide for an id that has no room in the table. It uses up no id.
	ErrIDsFull = errors.New("the table of ids is full")
	// ErrEventsFull comes from Decide for a command whose events could find no room in the store. It uses up no id.
	ErrEventsFull = errors.New("the store of events is full")
	// ErrSessionsFull comes from Decide for the logon of a session that has no room in the table. It changes nothing.
	ErrSessionsFull = errors.New("the table of sessions is full")
	// ErrAccountSessionsFull comes from Decide for the logon of a session whose account has its part of the table. It changes nothing.
	ErrAccountSessionsFull = errors.New("the account has as many sessions as it may")
	// ErrDefinition comes from Decide for a definition or limits that have no room, are there already, or make no sense. It changes
	// nothing.
	ErrDefinition = errors.New("cannot be defined")
	// ErrInvalid comes from Decide for a command that the contract does not allow. It changes nothing and uses up no id.
	ErrInvalid = errors.New("not a valid command")
	// ErrReplay comes from Apply when the command cannot have been decided by this state: a journal that does not fit the
	// options, or a damaged one.
	ErrReplay = errors.New("the command does not fit the state")
)

// Options size a state.
type Options struct {
	// MaxIDs bounds the ids of orders, and as many ids of requests, until the end of the day. 0 = DefaultMaxIDs, at most MaxIDsCeiling.
	MaxIDs int
	// ReserveIDs is for how many orders, and twice as many events, memory is taken and touched at the start, so that the first ones
	// cost no page fault. At most MaxIDs.
	ReserveIDs int
	// MaxOpenOrders and MaxLevels bound what rests, as in matching.Options; 0 = its defaults.
	MaxOpenOrders int
	MaxLevels     int
	// MaxEvents bounds the events of one epoch over all accounts; those of the epoch before are kept besides. 0 = DefaultMaxEvents, at
	// most MaxEventsCeiling.
	MaxEvents int
	// MaxSessions bounds the sessions that are known. 0 = DefaultMaxSessions, at most MaxSessionsCeiling.
	MaxSessions int
	// MaxSessionsOfAccount bounds those of one account, so that no account can take the whole table. 0 = DefaultMaxSessionsOfAccount, at
	// most MaxSessionsCeiling. A replay does not depend on it.
	MaxSessionsOfAccount int
}

func (o Options) resolved() (Options, error) {
	for _, option := range []struct {
		name      string
		value     *int
		byDefault int
		ceiling   int
	}{
		{"max_ids", &o.MaxIDs, DefaultMaxIDs, MaxIDsCeiling},
		{"max_events", &o.MaxEvents, DefaultMaxEvents, MaxEventsCeiling},
		{"max_sessions", &o.MaxSessions, DefaultMaxSessions, MaxSessionsCeiling},
		{"max_sessions_of_account", &o.MaxSessionsOfAccount, DefaultMaxSessionsOfAccount, MaxSessionsCeiling},
	} {
		if *option.value == 0 {
			*option.value = option.byDefault
		}
		if *option.value < 1 || *option.value > option.ceiling {
			return o, fmt.Errorf("%s is %d, allowed are 1 to %d", option.name, *option.value, option.ceiling)
		}
	}
	if o.ReserveIDs < 0 || o.ReserveIDs > o.MaxIDs {
		return o, fmt.Errorf("reserve_ids is %d, allowed are 0 to max_ids (%d)", o.ReserveIDs, o.MaxIDs)
	}
	return o, nil
}

// State is the fold. See the package comment; not safe for concurrent use.
type State struct {
	options Options
	engine  *matching.Engine
	booked  []matching.Event // of one command of the engine, reused

	accounts      []account
	accountNumber map[string]uint32
	firms         []firm
	firmNumber    map[string]uint32
	groups        []string
	groupNumber   map[string]uint32
	instruments   []instrument
	bySymbol      map[Symbol]uint32

	epoch     uint32
	today     day
	yesterday day // what the events of the epoch before speak of
	byID      index
	byRequest index

	store      eventStore
	executions uint64 // id of the last one
	matches    uint64 // id of the last trade
	sessions   sessionTable

	// Of one Apply.
	applied uint64   // counts them
	touched []uint32 // accounts that got events by the last one
	eventNs int64    // its command's time
	failed  error    // why it cannot have been decided by this state
}

// account is one account's place in the state.
type account struct {
	name      string
	firm      uint32 // number plus one, 0 = none
	group     uint32 // number in s.groups plus one; 0 = a group of its own
	risk      risk
	events    stream // of the present epoch
	before    stream // of the epoch before
	touched   uint64 // State.applied when it got events last
	triggerNs int64  // of the dead-man timer, 0 = disarmed

	// Its orders in the order of entry: record number plus one, 0 = none.
	first     uint32
	last      uint32
	firstOpen uint32
	lastOpen  uint32
}

// firm is a group of accounts with limits of its own.
type firm struct {
	name string
	risk risk
}

// instrument is a definition with what trading did to it.
type instrument struct {
	Instrument
	lastPrice int64 // of the last trade
	traded    bool
	parts     [2]uint64 // by side less one: in how many parts its open orders can trade, see parts
}

// New returns an empty state: no accounts, no instruments, epoch 1.
func New(options Options) (*State, error) {
	options, err := options.resolved()
	if err != nil {
		return nil, err
	}
	engine, err := matching.NewEngine(matching.Options{
		MaxOrders: options.MaxOpenOrders, MaxLevels: options.MaxLevels, MaxInstruments: MaxInstruments,
	})
	if err != nil {
		return nil, err
	}
	s := &State{
		options: options, engine: engine, epoch: 1,
		byID: newIndex(options.ReserveIDs), byRequest: newIndex(0),
		accountNumber: make(map[string]uint32), firmNumber: make(map[string]uint32), groupNumber: make(map[string]uint32),
		bySymbol: make(map[Symbol]uint32), sessions: newSessionTable(),
	}
	s.today.orders.reserve(options.ReserveIDs)
	s.store.reserve(min(2*options.ReserveIDs, options.MaxEvents))
	return s, nil
}

// groupOf is the account's group as the engine knows it: accounts without one are each a group of its own.
func (s *State) groupOf(number uint32) uint32 {
	if group := s.accounts[number].group; group > 0 {
		return MaxAccounts + group
	}
	return number + 1
}

// risksOf returns the account's and its firm's part of the checks; an account without a firm gets one that bounds nothing.
func (s *State) risksOf(a *account) (account, firm *risk) {
	if a.firm == 0 {
		return &a.risk, &unbounded
	}
	return &a.risk, &s.firms[a.firm-1].risk
}

// unbounded is the firm of accounts that have none. It is only read.
var unbounded risk

// magnitude is |v|, also for the least int64.
func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

const maxInt64 = int64(math.MaxInt64)
