package orders_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"tailgate/gateway/orders"
	"tailgate/gateway/orders/internal/model"
	pb "tailgate/proto/gen/orderentry/v1"
)

// run carries out operations until one shows a difference; step is its number, or -1.
func run(options orders.Options, mutate func(*orders.State) subject, operations []operation) (step int, err error) {
	w, err := newTwins(options, mutate)
	if err != nil {
		return 0, err
	}
	for i := range operations {
		if err := w.do(&operations[i]); err != nil {
			return i, err
		}
	}
	return -1, nil
}

// scenario is one seeded run: how large the tables are, and what is drawn.
type scenario struct {
	name    string
	options orders.Options
	day     int // commands of an average day
}

// scenarios are taken in turn. Most have room for everything; the others meet each bound.
var scenarios = []scenario{
	{"roomy", orders.Options{MaxIDs: 100_000, MaxOpenOrders: 1000, MaxLevels: 500, MaxEvents: 1 << 20, MaxSessions: 100, MaxSessionsOfAccount: 100}, 700},
	{"few ids and sessions", orders.Options{MaxIDs: 150, MaxOpenOrders: 1000, MaxLevels: 500, MaxEvents: 1 << 20, MaxSessions: 5, MaxSessionsOfAccount: 2}, 700},
	{"small books", orders.Options{MaxIDs: 100_000, MaxOpenOrders: 25, MaxLevels: 18, MaxEvents: 1 << 20, MaxSessions: 100, MaxSessionsOfAccount: 100}, 700},
	{"few events", orders.Options{MaxIDs: 100_000, MaxOpenOrders: 1000, MaxLevels: 500, MaxEvents: 500, MaxSessions: 3, MaxSessionsOfAccount: 3}, 700},
	{"short days", orders.Options{MaxIDs: 100_000, MaxOpenOrders: 1000, MaxLevels: 500, MaxEvents: 1 << 20, MaxSessions: 100, MaxSessionsOfAccount: 100}, 60},
}

const (
	operationsOfSeed = 10_000 // one run; short enough to be shrunk quickly
	lookEvery        = 1000
)

// drive draws operations from a seed until one shows a difference.
func drive(s *scenario, seed uint64, n int, mutate func(*orders.State) subject) (w *twins, history []operation, err error) {
	if w, err = newTwins(s.options, mutate); err != nil {
		return nil, nil, err
	}
	g := model.NewGenerator(seed, w.model)
	g.Day = s.day
	do := func(op operation) error {
		history = append(history, op)
		return w.do(&history[len(history)-1])
	}
	for _, c := range g.Setup() {
		if err := do(operation{command: c}); err != nil {
			return w, history, err
		}
	}
	for i := range n {
		if err := do(operation{command: g.Next()}); err != nil {
			return w, history, err
		}
		if (i+1)%lookEvery == 0 {
			if err := do(operation{look: true}); err != nil {
				return w, history, err
			}
		}
	}
	return w, history, do(operation{end: true})
}

// TestStateEqualsModel drives seeded commands of all kinds through a state and the model, operationsOfSeed from each seed.
// ORDERS_MODEL_OPERATIONS says how many in all, ORDERS_MODEL_SEED which seed is the first.
func TestStateEqualsModel(t *testing.T) {
	total := fromEnvironment(t, "ORDERS_MODEL_OPERATIONS", usualOperations)
	first := fromEnvironment(t, "ORDERS_MODEL_SEED", 1)
	var (
		lock   sync.Mutex
		met    = map[string]int{}
		failed bool
	)
	t.Run("seeds", func(t *testing.T) {
		for from := 0; from < total; from += operationsOfSeed {
			seed := uint64(first + from/operationsOfSeed)
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				lock.Lock()
				skip := failed
				lock.Unlock()
				if skip {
					t.Skip("another seed showed a difference")
				}
				s := &scenarios[seed%uint64(len(scenarios))]
				w, history, err := drive(s, seed, min(total-from, operationsOfSeed), unchanged)
				lock.Lock()
				defer lock.Unlock()
				if err != nil {
					if failed {
						t.Fatal(err)
					}
					failed = true
					t.Fatal(tell(s, seed, history, unchanged, err))
				}
				for what, n := range w.met {
					met[what] += n
				}
			})
		}
	})
	for _, what := range slices.Sorted(maps.Keys(met)) {
		t.Logf("%8d %s", met[what], what)
	}
	if failed || total < len(scenarios)*operationsOfSeed {
		return // too short for everything to come
	}
	for _, what := range mustMeet() {
		if met[what] == 0 {
			t.Errorf("the flow never met %s", what)
		}
	}
}

// mustMeet is what a flow that is worth something meets: each kind of command and its repetition, each reason, each kind of event, each fault.
func mustMeet() (all []string) {
	for _, kind := range []orders.Kind{
		orders.DefineInstrument, orders.DefineAccount, orders.DefineFirm, orders.SetLimits, orders.SetKillSwitch, orders.Submit,
		orders.Replace, orders.Cancel, orders.MassCancel, orders.CancelAllAfter, orders.FireTimer, orders.Logon, orders.Logout,
		orders.ExpireSession, orders.EndDay,
	} {
		all = append(all, kind.String())
	}
	for _, kind := range []orders.Kind{orders.Submit, orders.Replace, orders.Cancel, orders.MassCancel} {
		all = append(all, fmt.Sprintf("%s duplicate", kind), fmt.Sprintf("%s %s", kind, pb.Reason_REASON_DUPLICATE_ID))
	}
	for _, kind := range []orders.Kind{orders.MassCancel, orders.SetKillSwitch, orders.FireTimer, orders.ExpireSession, orders.EndDay} {
		all = append(all, fmt.Sprintf("%s counts", kind))
	}
	for reason := pb.Reason_REASON_INSTRUMENT_NOT_OPEN; reason <= pb.Reason_REASON_MIN_NOTIONAL; reason++ {
		all = append(all, fmt.Sprintf("%s %s", orders.Submit, reason), fmt.Sprintf("%s %s", orders.Replace, reason))
	}
	for _, reason := range []pb.Reason{
		pb.Reason_REASON_UNKNOWN_SYMBOL, pb.Reason_REASON_POST_ONLY_WOULD_TAKE, pb.Reason_REASON_FILL_OR_KILL, pb.Reason_REASON_MINIMUM_QUANTITY,
		pb.Reason_REASON_BOOK_FULL,
	} {
		all = append(all, fmt.Sprintf("%s %s", orders.Submit, reason))
	}
	for _, reason := range []pb.Reason{
		pb.Reason_REASON_UNKNOWN_ORDER, pb.Reason_REASON_TOO_LATE, pb.Reason_REASON_QUANTITY_FILLED,
		pb.Reason_REASON_POST_ONLY_WOULD_TAKE, pb.Reason_REASON_BOOK_FULL,
	} {
		all = append(all, fmt.Sprintf("%s %s", orders.Replace, reason))
	}
	all = append(all, fmt.Sprintf("%s %s", orders.MassCancel, pb.Reason_REASON_UNKNOWN_SYMBOL))
	for _, reason := range []pb.Reason{
		pb.Reason_REASON_UNSPECIFIED, pb.Reason_REASON_IMMEDIATE_OR_CANCEL, pb.Reason_REASON_SELF_TRADE, pb.Reason_REASON_MASS_CANCEL,
		pb.Reason_REASON_CANCEL_ON_DISCONNECT, pb.Reason_REASON_CANCEL_ALL_AFTER, pb.Reason_REASON_KILL_SWITCH,
	} {
		all = append(all, pb.ExecutionType_EXECUTION_TYPE_CANCELED.String()+" "+reason.String())
	}
	for _, fault := range faults {
		all = append(all, fault.Error())
	}
	return all
}

func fromEnvironment(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text, set := os.LookupEnv(name)
	if !set {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, set it to a whole number above 0", name, text)
	}
	return n
}

// tell shrinks a run that showed a difference, and tells what is left of it.
func tell(s *scenario, seed uint64, history []operation, mutate func(*orders.State) subject, found error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "scenario %q, step %d: %v\nagain: ORDERS_MODEL_SEED=%d ORDERS_MODEL_OPERATIONS=%d go test -run TestStateEqualsModel ./gateway/orders\n",
		s.name, len(history)-1, found, seed, operationsOfSeed)
	short := shrink(s.options, mutate, history)
	if _, err := run(s.options, mutate, short); err != nil {
		fmt.Fprintf(&b, "\nshrunk to %d steps: %v\n", len(short), err)
	}
	for i := max(0, len(short)-60); i < len(short); i++ {
		what := "look at everything"
		if !short[i].look && !short[i].end {
			what = model.Describe(&short[i].command)
		}
		fmt.Fprintf(&b, "%6d %s\n", i, what)
	}
	return b.String()
}

// shrink leaves out ever smaller stretches of a run as long as what is left still shows a difference.
func shrink(options orders.Options, mutate func(*orders.State) subject, history []operation) []operation {
	first := slices.IndexFunc(history, func(op operation) bool {
		return op.look || op.command.Kind != orders.DefineInstrument && op.command.Kind != orders.DefineFirm && op.command.Kind != orders.DefineAccount
	})
	budget := 1_500_000 // operations carried out
	for length := (len(history) - first) / 2; length > 0; length /= 2 {
		for from := first; from < len(history) && budget > 0; {
			shorter := slices.Concat(history[:from], history[min(from+length, len(history)):])
			step, err := run(options, mutate, shorter)
			budget -= len(shorter)
			if err == nil {
				from += length
				continue
			}
			history = shorter[:step+1]
		}
	}
	return history
}
