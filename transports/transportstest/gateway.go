package transportstest

import (
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
)

// GatewayOptions is what a case asks of the gateway behind the transport. Everything else is the gateway's choice, within this:
// it is new and its books are empty, it offers at least two open instruments whose reference price is at least
// 1,000 ticks and whose bounds let 1,000,000 lots at that price pass, and it runs until the end of the test that asked for it.
//
// A field from Accounts on is set only by cases that need [Administration] or [Disk], so a gateway without them need not look at it.
type GatewayOptions struct {
	// Keys maps API keys to accounts. Empty: no keys are configured, and every loopback peer is one account.
	Keys map[string]string
	// Limits bind every account; a zero field is no bound but the contract's. Nil: none that the other cases could meet.
	// MaxQuantity, MaxNotional and PriceCollarBps are what cases set.
	Limits *pb.Limits

	// Accounts says to which firm and group an account belongs; one that is not named is a firm and a group of its own.
	Accounts map[string]Membership
	// DropCopies maps API keys that only read to the accounts whose events they read.
	DropCopies map[string][]string
	// MaxIDs, MaxEvents, MaxSessions, MaxReaders and MaxBookOrders are the sizes of tables: ids of orders, events of the day, named
	// sessions, open readers, resting orders and as many levels. 0 = more than a case needs.
	MaxIDs, MaxEvents, MaxSessions, MaxReaders, MaxBookOrders int
	// Penalty is for how long the throttle's second tier shuts an account out; 0 = the gateway's choice.
	Penalty time.Duration
	// Disk asks for a journal that fsyncs before it lets an answer go, on a disk that the case holds and breaks through [Disk].
	Disk bool
}

// Membership is where an account belongs.
type Membership struct{ Firm, Group string }

// Administration is what a gateway implements that has the whole order path: every rule of the contract's orders, limits and kill switches of
// accounts and firms, timers, epochs. Its instruments are then, beside the two that [GatewayOptions] names, one that is halted and one with a
// least notional. A case does through it what an administrator does beside the transport; each call returns when it has taken effect.
type Administration interface {
	// SetLimits sets all limits of an account or a firm.
	SetLimits(whose *pb.Scope, limits *pb.Limits) error
	// SetKillSwitch engages or lifts a kill switch and returns how many orders it canceled.
	SetKillSwitch(whose *pb.Scope, engaged bool) (canceled uint32, err error)
	// Exposure returns what an account or a firm has open and holds.
	Exposure(whose *pb.Scope) (*pb.GetExposureResponse, error)
	// EndDay ends the day and returns how many orders expired, and the new epoch.
	EndDay() (expired, epoch uint32, err error)
}

// Disk is what a gateway implements whose journal a case can hold and break. It need work only where [GatewayOptions].Disk asked for it.
type Disk interface {
	// HoldDisk keeps every commit back from now on, until the returned function is called, which may be called more than once.
	HoldDisk() (release func())
	// BreakDisk makes every later write and fsync fail. What was not committed never is.
	BreakDisk()
}

// ofAccount and ofFirm name whose limits are meant.
func ofAccount(name string) *pb.Scope { return &pb.Scope{Scope: &pb.Scope_Account{Account: name}} }

func ofFirm(name string) *pb.Scope { return &pb.Scope{Scope: &pb.Scope_Firm{Firm: name}} }

// admin is the gateway's administration, for a case that needs the whole order path.
func (r *rig) admin() Administration {
	r.t.Helper()
	a, ok := r.probe.inner.(Administration)
	if !ok {
		r.t.Fatal("a case that needs the whole order path does not say so in the list")
	}
	return a
}

func (r *rig) setLimits(whose *pb.Scope, limits *pb.Limits) {
	r.t.Helper()
	if err := r.admin().SetLimits(whose, limits); err != nil {
		r.t.Fatalf("set limits: %v", err)
	}
}

func (r *rig) killSwitch(whose *pb.Scope, engaged bool) (canceled uint32) {
	r.t.Helper()
	canceled, err := r.admin().SetKillSwitch(whose, engaged)
	if err != nil {
		r.t.Fatalf("set the kill switch: %v", err)
	}
	return canceled
}

func (r *rig) endDay() (expired, epoch uint32) {
	r.t.Helper()
	expired, epoch, err := r.admin().EndDay()
	if err != nil {
		r.t.Fatalf("end the day: %v", err)
	}
	return expired, epoch
}
