package orders

import (
	"errors"
	"io"
)

var errNotYet = errors.New("not carried out yet by this version")

// Exposure is what a firm or an account has open and holds.
type Exposure struct {
	OpenOrders   uint32
	OpenNotional int64 // |price| x leaves over the open orders, in ticks x lots
	Positions    []Position
}

// Position is one instrument's part of an exposure.
type Position struct {
	Symbol   Symbol
	Net      int64  // lots bought less lots sold
	OpenBuy  uint64 // lots open
	OpenSell uint64
}

// SessionInfo is a session as the state knows it.
type SessionInfo struct {
	Number      uint32
	Account     uint32
	ID          ID
	Mode        uint8 // proto orderentry.v1.DisconnectMode
	GraceNs     int64
	LoggedOn    bool
	Incarnation uint32 // counts logons under this number
}

// Timer is an armed dead-man timer.
type Timer struct {
	Account   uint32
	TriggerNs int64
}

// Events appends at most n reports of an account's events in an epoch, from a number on (0 is taken for 1). None where that is
// beyond the last one, or where the epoch is neither the present one nor the one before it.
func (s *State) Events(account, epoch uint32, from uint64, n int, out []Report) []Report {
	return out
}

// EventRange returns the number that the next event of an account in an epoch has or would have; ok for the present epoch and the
// one before it.
func (s *State) EventRange(account, epoch uint32) (next uint64, ok bool) { return 0, false }

// Epoch is the present one. It begins with 1 and the end of the day moves it on.
func (s *State) Epoch() uint32 { return s.epoch }

// Touched lists the accounts that got events by the last Apply, each once. It is valid until the next one.
func (s *State) Touched() []uint32 { return nil }

// Sessions calls yield for each session of the table, logged-out ones included, by number.
func (s *State) Sessions(yield func(SessionInfo) bool) {}

// Session returns one session.
func (s *State) Session(number uint32) (info SessionInfo, ok bool) { return SessionInfo{}, false }

// Timers calls yield for each armed dead-man timer, by account.
func (s *State) Timers(yield func(Timer) bool) {}

// Exposure returns a scope's exposure; positions in the order of the instruments' definition, those with nothing in them left out; of an unknown one nothing.
func (s *State) Exposure(scope Scope) Exposure { return Exposure{} }

// Limits returns a scope's limits, whose slice is the state's own; of an unknown one no bounds.
func (s *State) Limits(scope Scope) Limits { return Limits{} }

// ConfiguredLimits returns the limits that a scope got last from the configuration, as Limits.
func (s *State) ConfiguredLimits(scope Scope) Limits { return Limits{} }

// KillSwitch reports whether a scope's kill switch is engaged.
func (s *State) KillSwitch(scope Scope) bool { return false }

// Firm returns a firm's number.
func (s *State) Firm(name string) (number uint32, ok bool) { return 0, false }

// FirmOf returns the number of an account's firm; ok is false when it has none.
func (s *State) FirmOf(account uint32) (number uint32, ok bool) { return 0, false }

// AccountName returns an account's name.
func (s *State) AccountName(account uint32) string { return s.accounts[account].name }

// WriteSnapshot writes everything.
func (s *State) WriteSnapshot(w io.Writer) error { return errNotYet }

// RestoreSnapshot reads what WriteSnapshot wrote.
func RestoreSnapshot(options Options, r io.Reader) (*State, error) { return nil, errNotYet }

// Digest is equal for states that go on equally.
func (s *State) Digest() [32]byte { return [32]byte{} }
