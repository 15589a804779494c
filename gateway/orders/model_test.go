package orders_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tailgate/gateway/orders"
	"tailgate/gateway/orders/internal/model"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// subject is what the comparison judges: a state, or a mutant around one.
type subject interface {
	Decide(c *orders.Command, out *orders.Answer) (journal bool, err error)
	Apply(c *orders.Command, out *orders.Answer) error
	Events(account, epoch uint32, from uint64, n int, out []orders.Report) []orders.Report
	EventRange(account, epoch uint32) (next uint64, ok bool)
	Touched() []uint32
	Exposure(scope orders.Scope) orders.Exposure
}

// twins runs a state and the model side by side, and beside them a replica that knows nothing but the journal's bytes.
type twins struct {
	options orders.Options
	mutate  func(*orders.State) subject

	state   *orders.State
	subject subject // the state, or a mutant around it
	replica *orders.State
	model   *model.Model
	journal [][]byte

	accounts, firms int
	seen            map[uint32]uint64       // number of the last event compared, by account, of the present epoch
	ledger          map[uint64]orders.Order // orders as the events alone tell them, by order id
	executions      uint64                  // executions reported so far
	before          map[orders.Scope]model.Exposure
	answer          orders.Answer  // the last one
	met             map[string]int // what the flow met, for the test that it met everything
}

// operation is a command, or a look at everything, or at the end at the whole journal too.
type operation struct {
	command orders.Command
	look    bool
	end     bool
}

func newTwins(options orders.Options, mutate func(*orders.State) subject) (*twins, error) {
	w := &twins{
		options: options, mutate: mutate, seen: map[uint32]uint64{}, ledger: map[uint64]orders.Order{}, met: map[string]int{},
		before: map[orders.Scope]model.Exposure{},
		model: model.New(model.Options{
			MaxIDs: options.MaxIDs, MaxOpenOrders: options.MaxOpenOrders, MaxLevels: options.MaxLevels,
			MaxEvents: options.MaxEvents, MaxSessions: options.MaxSessions,
		}),
	}
	var err error
	if w.state, err = orders.New(options); err != nil {
		return nil, err
	}
	if w.replica, err = orders.New(options); err != nil {
		return nil, err
	}
	w.subject = mutate(w.state)
	return w, nil
}

func unchanged(s *orders.State) subject { return s }

// faults are the errors of Decide, which are compared by what they wrap.
var faults = []error{orders.ErrIDsFull, orders.ErrDefinition, orders.ErrInvalid, orders.ErrEventsFull, orders.ErrSessionsFull}

// do carries out one operation on all and compares what became of it.
func (w *twins) do(op *operation) error {
	if op.end {
		return errors.Join(w.compareEverything(), w.replayAll())
	}
	if op.look {
		return w.compareEverything()
	}
	c := op.command
	w.answer = orders.Answer{}
	want := w.model.Decide(&c)
	journal, err := w.subject.Decide(&c, &w.answer)
	for _, fault := range faults {
		if errors.Is(err, fault) != errors.Is(want.Err, fault) {
			return fmt.Errorf("Decide says %v, the model %v", err, want.Err)
		}
	}
	switch {
	case want.Err != nil:
		w.met[want.Err.Error()]++
		return nil
	case err != nil:
		return fmt.Errorf("Decide: %w", err)
	case journal != want.Journal:
		return fmt.Errorf("Decide says journal %t with reason %s, the model %t with %s", journal, c.Verdict.Reason, want.Journal, want.Verdict.Reason)
	case !journal:
		w.meet(&c, &want.Answer)
		return differ("the answer", w.answer, want.Answer)
	case c.Verdict != want.Verdict:
		return fmt.Errorf("the verdict is %+v, the model's %+v", c.Verdict, want.Verdict)
	}
	if err := w.record(&c); err != nil {
		return err
	}
	if err := w.subject.Apply(&c, &w.answer); err != nil {
		return err
	}
	expected := w.model.Apply(&c)
	w.meet(&c, &expected)
	w.count(&c)
	if err := differ("the answer", w.answer, expected); err != nil {
		return err
	}
	return w.compareTouched(&c)
}

// record journals the command, and gives the replica what the bytes say.
func (w *twins) record(c *orders.Command) error {
	record := c.Append(nil)
	w.journal = append(w.journal, record)
	return replay(w.replica, record)
}

func replay(state *orders.State, record []byte) error {
	var c orders.Command
	if err := c.Decode(record); err != nil {
		return err
	}
	if again := c.Append(nil); !bytes.Equal(again, record) {
		return fmt.Errorf("the record % x is decoded and encoded as % x", record, again)
	}
	if err := state.Apply(&c, nil); err != nil {
		return fmt.Errorf("replayed: %w", err)
	}
	return nil
}

// count keeps how many accounts and firms there are.
func (w *twins) count(c *orders.Command) {
	if number, _ := w.state.Account(c.Name); c.Kind == orders.DefineAccount && int(number) == w.accounts {
		w.accounts++
	}
	if c.Kind == orders.DefineFirm {
		w.firms++
	}
}

// meet notes what happened, by kind, status and reason.
func (w *twins) meet(c *orders.Command, a *orders.Answer) {
	what := c.Kind.String()
	if a.Duplicate {
		what += " duplicate"
	}
	w.met[what]++
	w.met[fmt.Sprintf("%s %s", c.Kind, a.Reason)]++
	if a.Count > 0 {
		w.met[fmt.Sprintf("%s counts", c.Kind)]++
	}
}

// compareTouched compares the new events, and everything about the accounts that have some and the account of the command.
func (w *twins) compareTouched(c *orders.Command) error {
	if c.Kind == orders.EndDay {
		clear(w.seen)
	}
	touched := []uint32{}
	var all []orders.Report
	for account := range uint32(w.accounts) {
		fresh := w.model.Events(account, w.model.Epoch())[w.seen[account]:]
		if len(fresh) == 0 {
			continue
		}
		touched = append(touched, account)
		if err := w.compareEvents(account, w.model.Epoch(), w.seen[account], fresh); err != nil {
			return err
		}
		if err := w.holdLedger(fresh); err != nil {
			return err
		}
		all = append(all, fresh...)
		w.seen[account] += uint64(len(fresh))
	}
	if err := w.holdTrades(all); err != nil {
		return err
	}
	if got := slices.Sorted(slices.Values(w.subject.Touched())); !slices.Equal(got, touched) {
		return fmt.Errorf("Touched is %v, the model has events for %v", got, touched)
	}
	scopes := map[orders.Scope]bool{}
	for _, account := range touched {
		scopes[orders.Scope{Number: account}] = true
	}
	for firm := range uint32(w.firms) {
		scopes[orders.Scope{Firm: true, Number: firm}] = len(touched) > 0 || c.Kind == orders.DefineAccount
	}
	if c.Kind == orders.SetLimits || c.Kind == orders.SetKillSwitch {
		scopes[c.Scope] = true
	}
	for scope, look := range scopes {
		if !look {
			continue
		}
		now := w.model.Exposure(scope)
		if err := errors.Join(w.compareScope(scope, now), w.holdLimits(scope, now, c)); err != nil {
			return err
		}
	}
	if c.ClientOrderID.IsZero() {
		return nil
	}
	got, ok := w.state.Order(c.Account, c.ClientOrderID)
	want, known := w.model.Order(c.Account, c.ClientOrderID)
	if ok != known || got != want {
		return fmt.Errorf("order %s is\n      %+v, %t\nmodel %+v, %t", c.ClientOrderID, got, ok, want, known)
	}
	return nil
}

// compareEvents compares the events of an account after one that was compared before.
func (w *twins) compareEvents(account, epoch uint32, after uint64, want []orders.Report) error {
	next, ok := w.subject.EventRange(account, epoch)
	if last := after + uint64(len(want)); !ok || next != last+1 {
		return fmt.Errorf("the next event of account %d in epoch %d is %d, %t, the model has %d", account, epoch, next, ok, last)
	}
	got := w.subject.Events(account, epoch, after+1, len(want)+1, nil)
	for i := range want {
		if i == len(got) || got[i] != want[i] {
			return fmt.Errorf("events of account %d in epoch %d from %d:\n      %s\nmodel %s", account, epoch, after+1, reports(got), reports(want))
		}
	}
	if len(got) > len(want) {
		return fmt.Errorf("account %d has %d events from %d in epoch %d, the model %d", account, len(got), after+1, epoch, len(want))
	}
	return nil
}

func reports(list []orders.Report) string {
	var b strings.Builder
	for _, r := range list {
		fmt.Fprintf(&b, "\n%+v", r)
	}
	return b.String()
}

// holdLedger holds what an account's events alone must tell, whatever the model says: nothing happens to an order that has ended, so
// that a fill that races a cancel is resolved once; and filled + canceled + leaves = entered all the time.
func (w *twins) holdLedger(fresh []orders.Report) error {
	for i := range fresh {
		r := &fresh[i]
		w.met[r.Type.String()+" "+r.Reason.String()]++
		w.executions++
		if r.Type == pb.ExecutionType_EXECUTION_TYPE_REJECTED {
			continue
		}
		was, known := w.ledger[r.Order.OrderID]
		now := r.Order
		w.ledger[now.OrderID] = now
		if r.Type == pb.ExecutionType_EXECUTION_TYPE_NEW {
			was, known = orders.Order{}, !known
			was.Leaves = now.Quantity
		}
		ok := known && was.Leaves > 0 && now.Version == was.Version+1 && now.Filled+now.Leaves <= now.Quantity
		switch r.Type { //nolint:exhaustive // the others do not end up here
		case pb.ExecutionType_EXECUTION_TYPE_NEW:
			ok = ok && now.Filled == 0 && now.Leaves == now.Quantity
		case pb.ExecutionType_EXECUTION_TYPE_TRADE:
			ok = ok && now.Quantity == was.Quantity && now.Filled == was.Filled+r.LastQuantity && now.Leaves+r.LastQuantity == was.Leaves && r.LastQuantity > 0
		case pb.ExecutionType_EXECUTION_TYPE_REPLACED:
			ok = ok && now.Filled == was.Filled && now.Leaves == now.Quantity-now.Filled
		default: // canceled or expired
			ok = ok && now.Quantity == was.Quantity && now.Filled == was.Filled && now.Leaves < was.Leaves
		}
		if !ok {
			return fmt.Errorf("this cannot follow on order\n%+v:\n%+v", was, *r)
		}
	}
	return nil
}

// holdTrades holds of the new events of all accounts together: executions are numbered without a gap, and each trade has two sides.
func (w *twins) holdTrades(fresh []orders.Report) error {
	slices.SortFunc(fresh, func(a, b orders.Report) int { return cmp.Compare(a.ExecutionID, b.ExecutionID) })
	for i := range fresh {
		r := &fresh[i]
		if want := w.executions - uint64(len(fresh)) + uint64(i) + 1; r.ExecutionID != want {
			return fmt.Errorf("execution %d comes where %d should: %+v", r.ExecutionID, want, *r)
		}
		if r.Liquidity != pb.Liquidity_LIQUIDITY_TAKER {
			continue
		}
		if i+1 == len(fresh) {
			return fmt.Errorf("a trade has one side only: %+v", *r)
		}
		maker := &fresh[i+1]
		if maker.Liquidity != pb.Liquidity_LIQUIDITY_MAKER || maker.MatchID != r.MatchID || maker.LastPrice != r.LastPrice ||
			maker.LastQuantity != r.LastQuantity || maker.Order.Side == r.Order.Side || maker.Order.Symbol != r.Order.Symbol || maker.Order.Price != r.LastPrice {
			return fmt.Errorf("these are not the sides of one trade:\n%+v\n%+v", *r, *maker)
		}
	}
	return nil
}

// holdLimits holds that a command never brought a scope beyond a limit, by the model's own sums: what is beyond it now is no more
// than before, when the limit was lowered or an account came. A change of firm moves what is there and is judged by no limit.
func (w *twins) holdLimits(scope orders.Scope, now model.Exposure, c *orders.Command) error {
	before, known := w.before[scope]
	w.before[scope] = now
	if !known || c.Kind == orders.DefineAccount {
		return nil
	}
	limits, _, _ := w.model.Limits(scope)
	hold := func(what string, limit, was, is int64) error {
		if limit > 0 && is > limit && is > was {
			return fmt.Errorf("%+v: %s went from %d to %d, beyond the limit of %d", scope, what, was, is, limit)
		}
		return nil
	}
	if !now.OpenNotional.IsInt64() {
		return fmt.Errorf("%+v: the open notional is %d, which 63 bits do not hold", scope, now.OpenNotional)
	}
	faults := []error{
		hold("open orders", int64(limits.MaxOpenOrders), int64(before.OpenOrders), int64(now.OpenOrders)),
		hold("open notional", limits.MaxOpenNotional, before.OpenNotional.Int64(), now.OpenNotional.Int64()),
	}
	for i, is := range now.Positions {
		var was model.Position
		if i < len(before.Positions) {
			was = before.Positions[i]
		}
		most := int64(limits.MaxPosition)
		faults = append(faults,
			hold(fmt.Sprint("long position in ", i), most, was.Net+int64(was.OpenBuys), is.Net+int64(is.OpenBuys)),
			hold(fmt.Sprint("short position in ", i), most, int64(was.OpenSells)-was.Net, int64(is.OpenSells)-is.Net))
	}
	return errors.Join(faults...)
}

// compareScope compares exposure, limits and kill switch of an account or a firm.
func (w *twins) compareScope(scope orders.Scope, want model.Exposure) error {
	got := w.subject.Exposure(scope)
	if int(got.OpenOrders) != want.OpenOrders || big.NewInt(got.OpenNotional).Cmp(want.OpenNotional) != 0 {
		return fmt.Errorf("%+v has %d open orders with notional %d, the model %d with %d", scope, got.OpenOrders, got.OpenNotional, want.OpenOrders, want.OpenNotional)
	}
	var positions []orders.Position
	for i, in := range w.state.Instruments(nil) {
		if p := want.Positions[i]; p != (model.Position{}) {
			positions = append(positions, orders.Position{Symbol: in.Symbol, Net: p.Net, OpenBuy: p.OpenBuys, OpenSell: p.OpenSells})
		}
	}
	if !slices.Equal(got.Positions, positions) {
		return fmt.Errorf("%+v has positions %+v, the model %+v", scope, got.Positions, positions)
	}
	limits, configured := w.state.Limits(scope), w.state.ConfiguredLimits(scope)
	wantLimits, wantConfigured, killed := w.model.Limits(scope)
	if !limits.Equal(&wantLimits) || !configured.Equal(&wantConfigured) || w.state.KillSwitch(scope) != killed {
		return fmt.Errorf("%+v has limits %+v, configured %+v, kill switch %t; the model %+v, %+v, %t",
			scope, limits, configured, w.state.KillSwitch(scope), wantLimits, wantConfigured, killed)
	}
	return nil
}

// differ compares the exported fields of two structs of one type.
func differ(what string, got, want any) error {
	g, e := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if field := g.Type().Field(i); field.IsExported() && g.Field(i).Interface() != e.Field(i).Interface() {
			return fmt.Errorf("%s has %s %v, the model's %v\n      %+v\nmodel %+v", what, field.Name, g.Field(i), e.Field(i), got, want)
		}
	}
	return nil
}

// compareEverything compares all that can be asked of a state, then digests: of the replica, and of a state restored from a
// snapshot, which goes on in the state's place.
func (w *twins) compareEverything() error {
	for account := range uint32(w.accounts) {
		if err := w.compareAccount(account); err != nil {
			return err
		}
	}
	for firm := range uint32(w.firms) {
		scope := orders.Scope{Firm: true, Number: firm}
		if err := w.compareScope(scope, w.model.Exposure(scope)); err != nil {
			return err
		}
	}
	if err := errors.Join(w.compareBooks(), w.compareTables(), w.holdPositions()); err != nil {
		return err
	}
	digest := w.state.Digest()
	if replayed := w.replica.Digest(); replayed != digest {
		return fmt.Errorf("the digest is %x, of the replayed state %x", digest, replayed)
	}
	return w.restore(digest)
}

func (w *twins) compareAccount(account uint32) error {
	scope := orders.Scope{Number: account}
	if err := w.compareScope(scope, w.model.Exposure(scope)); err != nil {
		return err
	}
	firm, ok := w.state.FirmOf(account)
	if want, has := w.model.FirmOf(account); ok != has || ok && firm != want {
		return fmt.Errorf("account %d is of firm %d, %t, the model's of %d, %t", account, firm, ok, want, has)
	}
	for _, epoch := range []uint32{w.model.Epoch() - 1, w.model.Epoch()} {
		if epoch == 0 {
			continue
		}
		if err := w.compareEvents(account, epoch, 0, w.model.Events(account, epoch)); err != nil {
			return err
		}
	}
	if old := w.model.Epoch() - 2; int32(old) > 0 {
		if next, ok := w.subject.EventRange(account, old); ok {
			return fmt.Errorf("epoch %d is still there, up to event %d", old, next)
		}
	}
	for _, open := range []bool{false, true} {
		want := w.model.Orders(account, open)
		got := w.list(account, open)
		if !slices.Equal(got, want) {
			return fmt.Errorf("orders of account %d (open ones only: %t) are\n      %+v\nmodel %+v", account, open, got, want)
		}
	}
	return nil
}

// list reads all pages of an account's orders.
func (w *twins) list(account uint32, open bool) (list []orders.Order) {
	for after := uint64(0); ; {
		list, after, _ = w.state.List(account, open, after, 7, list)
		if after == 0 {
			return list
		}
	}
}

func (w *twins) compareBooks() error {
	for _, in := range w.state.Instruments(nil) {
		bids, asks, last, _ := w.state.Book(in.Symbol, 1000, nil, nil)
		for side, levels := range map[matching.Side][]matching.Level{matching.Buy: bids, matching.Sell: asks} {
			if want := w.model.Book(in.Symbol, side); !slices.Equal(levels, want) {
				return fmt.Errorf("%s, %s: the book is %v, the model's %v", in.Symbol, side, levels, want)
			}
		}
		if len(bids) > 0 && len(asks) > 0 && bids[0].Price >= asks[0].Price {
			return fmt.Errorf("%s: the book is crossed or locked: %v, %v", in.Symbol, bids, asks)
		}
		if want := w.model.LastPrice(in.Symbol); last != want {
			return fmt.Errorf("%s: last price %d, the model's %d", in.Symbol, last, want)
		}
	}
	return nil
}

// holdPositions holds that what one account bought another sold.
func (w *twins) holdPositions() error {
	net := map[orders.Symbol]int64{}
	for account := range uint32(w.accounts) {
		for _, p := range w.subject.Exposure(orders.Scope{Number: account}).Positions {
			net[p.Symbol] += p.Net
		}
	}
	for symbol, net := range net {
		if net != 0 {
			return fmt.Errorf("%s: the positions of all accounts add up to %d", symbol, net)
		}
	}
	return nil
}

func (w *twins) compareTables() error {
	var sessions []orders.SessionInfo
	w.state.Sessions(func(s orders.SessionInfo) bool { sessions = append(sessions, s); return true })
	if want := w.model.Sessions(); !slices.Equal(sessions, want) {
		return fmt.Errorf("the sessions are %+v, the model's %+v", sessions, want)
	}
	timers := map[uint32]int64{}
	w.state.Timers(func(t orders.Timer) bool { timers[t.Account] = t.TriggerNs; return true })
	if want := w.model.Timers(); !reflect.DeepEqual(timers, want) {
		return fmt.Errorf("the timers are %v, the model's %v", timers, want)
	}
	usage := w.state.Usage()
	ids, requests, open, events := w.model.Usage()
	if usage.OrderIDs != ids || usage.RequestIDs != requests || usage.OpenOrders != open || usage.Events != events || usage.Sessions != len(sessions) {
		return fmt.Errorf("the usage is %+v, the model's %d order ids, %d request ids, %d open orders, %d events", usage, ids, requests, open, events)
	}
	if usage.Events > w.options.MaxEvents || usage.OrderIDs > w.options.MaxIDs || usage.RequestIDs > w.options.MaxIDs || usage.Sessions > w.options.MaxSessions {
		return fmt.Errorf("a bound is passed: %+v", usage)
	}
	if epoch := w.state.Epoch(); epoch != w.model.Epoch() {
		return fmt.Errorf("the epoch is %d, the model's %d", epoch, w.model.Epoch())
	}
	return nil
}

// restore lets a state go on that was restored from a snapshot of this one.
func (w *twins) restore(digest [32]byte) error {
	var snapshot, again bytes.Buffer
	if err := w.state.WriteSnapshot(&snapshot); err != nil {
		return err
	}
	reader := bytes.NewReader(append(slices.Clone(snapshot.Bytes()), "what follows"...))
	restored, err := orders.RestoreSnapshot(w.options, reader)
	if err != nil {
		return err
	}
	if reader.Len() != len("what follows") {
		return fmt.Errorf("RestoreSnapshot left %d bytes behind the snapshot, there were %d", reader.Len(), len("what follows"))
	}
	if other := restored.Digest(); other != digest {
		return fmt.Errorf("the digest is %x, of the restored state %x", digest, other)
	}
	if err := restored.WriteSnapshot(&again); err != nil {
		return err
	}
	if !bytes.Equal(snapshot.Bytes(), again.Bytes()) {
		return fmt.Errorf("the restored state's snapshot has %d bytes and differs from the one it came from with %d", again.Len(), snapshot.Len())
	}
	w.state = restored
	w.subject = w.mutate(restored)
	return nil
}

// replayAll folds the whole journal anew.
func (w *twins) replayAll() error {
	state, err := orders.New(w.options)
	if err != nil {
		return err
	}
	for i, record := range w.journal {
		if err := replay(state, record); err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
	}
	if live, replayed := w.state.Digest(), state.Digest(); live != replayed {
		return fmt.Errorf("the digest is %x, of the journal replayed %x", live, replayed)
	}
	return nil
}

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
	{"roomy", orders.Options{MaxIDs: 100_000, MaxOpenOrders: 1000, MaxLevels: 500, MaxEvents: 1 << 20, MaxSessions: 100}, 700},
	{"few ids and sessions", orders.Options{MaxIDs: 150, MaxOpenOrders: 1000, MaxLevels: 500, MaxEvents: 1 << 20, MaxSessions: 5}, 700},
	{"small books", orders.Options{MaxIDs: 100_000, MaxOpenOrders: 25, MaxLevels: 18, MaxEvents: 1 << 20, MaxSessions: 100}, 700},
	{"few events", orders.Options{MaxIDs: 100_000, MaxOpenOrders: 1000, MaxLevels: 500, MaxEvents: 500, MaxSessions: 3}, 700},
	{"short days", orders.Options{MaxIDs: 100_000, MaxOpenOrders: 1000, MaxLevels: 500, MaxEvents: 1 << 20, MaxSessions: 100}, 60},
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

// TestStateEqualsModel drives seeded commands of all kinds through a state and the model. ORDERS_MODEL_OPERATIONS says how many in all,
// ORDERS_MODEL_SEED which seed is the first.
func TestStateEqualsModel(t *testing.T) {
	total, seed := fromEnvironment(t, "ORDERS_MODEL_OPERATIONS", 50_000), uint64(fromEnvironment(t, "ORDERS_MODEL_SEED", 1))
	met := map[string]int{}
	for ; total > 0; total -= operationsOfSeed {
		s := &scenarios[seed%uint64(len(scenarios))]
		w, history, err := drive(s, seed, min(total, operationsOfSeed), unchanged)
		if err != nil {
			t.Fatal(tell(s, seed, history, unchanged, err))
		}
		for what, n := range w.met {
			met[what] += n
		}
		seed++
	}
	for _, what := range slices.Sorted(maps.Keys(met)) {
		t.Logf("%8d %s", met[what], what)
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
	fmt.Fprintf(&b, "scenario %q, ORDERS_MODEL_SEED=%d, step %d: %v\n", s.name, seed, len(history)-1, found)
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

// TestFillRacesCancelOnDisconnect: whichever of the two comes first in the journal decides; the other finds nothing left to do.
func TestFillRacesCancelOnDisconnect(t *testing.T) {
	const onDisconnect = uint8(pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT)
	fill := func(lots uint64) orders.Command {
		return submit(1, "taker", matching.Sell, lots, 0)
	}
	expire := orders.Command{Kind: orders.ExpireSession, Account: 0, Session: 1, Incarnation: 1}
	for _, race := range []struct {
		name   string
		second []orders.Command
		maker  string // the maker's events
		taker  string
		count  uint32 // what the expiry canceled
	}{
		{"the fill comes first", []orders.Command{fill(10), expire}, "NEW 10, TRADE 0", "NEW 10, TRADE 0", 0},
		{"a part is filled first", []orders.Command{fill(4), expire}, "NEW 10, TRADE 6, CANCELED 0", "NEW 4, TRADE 0", 1},
		{"the expiry comes first", []orders.Command{expire, fill(10)}, "NEW 10, CANCELED 0", "NEW 10", 1},
		{"the session came back", []orders.Command{{Kind: orders.Logon, SessionID: id("s"), DisconnectMode: onDisconnect}, expire, fill(4)}, "NEW 10, TRADE 6", "NEW 4, TRADE 0", 0},
	} {
		t.Run(race.name, func(t *testing.T) {
			w, err := newTwins(scenarios[0].options, unchanged)
			if err != nil {
				t.Fatal(err)
			}
			rests := submit(0, "maker", matching.Buy, 10, 1)
			all := append([]orders.Command{
				{Kind: orders.DefineInstrument, Instrument: &orders.Instrument{
					Symbol: rests.Symbol, TickNanos: 1, LotSize: 1, Currency: "USD", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN, ReferencePrice: 100,
				}},
				{Kind: orders.DefineAccount, Name: "a"},
				{Kind: orders.DefineAccount, Name: "b"},
				{Kind: orders.Logon, SessionID: id("s"), DisconnectMode: onDisconnect},
				rests,
			}, race.second...)
			var canceled uint32
			for i, c := range all {
				if err := w.do(&operation{command: c}); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				if c.Kind == orders.ExpireSession {
					canceled = w.answer.Count
				}
			}
			if err := w.do(&operation{end: true}); err != nil {
				t.Fatal(err)
			}
			if got := story(w.state, 0); got != race.maker {
				t.Errorf("the maker's events are %q, want %q", got, race.maker)
			}
			if got := story(w.state, 1); got != race.taker {
				t.Errorf("the taker's events are %q, want %q", got, race.taker)
			}
			if canceled != race.count {
				t.Errorf("the expiry canceled %d orders, want %d", canceled, race.count)
			}
		})
	}
}

func submit(account uint32, name string, side matching.Side, lots uint64, session uint32) orders.Command {
	symbol, _ := orders.ParseSymbol("ACME")
	return orders.Command{
		Kind: orders.Submit, Account: account, ClientOrderID: id(name), Symbol: symbol, Side: side,
		Type: matching.Limit, TimeInForce: matching.Day, Quantity: lots, Price: 100, Session: session,
	}
}

func id(text string) orders.ID {
	id, _ := orders.ParseID(text)
	return id
}

// story is an account's events of the first epoch: what happened and what was open then.
func story(s *orders.State, account uint32) string {
	var parts []string
	for _, r := range s.Events(account, 1, 1, 100, nil) {
		parts = append(parts, fmt.Sprint(strings.TrimPrefix(r.Type.String(), "EXECUTION_TYPE_"), " ", r.Order.Leaves))
	}
	return strings.Join(parts, ", ")
}

// The mutants are states that are wrong in one thing each.

// deafToCancels goes on counting canceled orders as open.
type deafToCancels struct {
	*orders.State
	canceled map[uint32]uint32
}

func (m *deafToCancels) Apply(c *orders.Command, out *orders.Answer) error {
	if c.Kind == orders.Cancel && c.Verdict.Reason == pb.Reason_REASON_UNSPECIFIED {
		m.canceled[c.Account]++
	}
	return m.State.Apply(c, out)
}

func (m *deafToCancels) Exposure(scope orders.Scope) orders.Exposure {
	e := m.State.Exposure(scope)
	if !scope.Firm {
		e.OpenOrders += m.canceled[scope.Number]
	}
	return e
}

// skipsNumber leaves out the tenth number of each stream.
type skipsNumber struct{ *orders.State }

func (m skipsNumber) Events(account, epoch uint32, from uint64, n int, out []orders.Report) []orders.Report {
	start := len(out)
	out = m.State.Events(account, epoch, from, n, out)
	for i := start; i < len(out); i++ {
		if out[i].Sequence >= 10 {
			out[i].Sequence++
		}
	}
	return out
}

// oneTooMany lets one open order more rest than the limit says.
type oneTooMany struct{ *orders.State }

func (m oneTooMany) Decide(c *orders.Command, out *orders.Answer) (journal bool, err error) {
	journal, err = m.State.Decide(c, out)
	if v := &c.Verdict; v.Reason == pb.Reason_REASON_MAX_OPEN_ORDERS && c.Kind == orders.Submit && !v.Firm &&
		int64(m.Exposure(orders.Scope{Number: c.Account}).OpenOrders) == v.Limit {
		*v = orders.Verdict{}
	}
	return journal, err
}

// latestAnswer repeats what an order is now instead of its first answer.
type latestAnswer struct{ *orders.State }

func (m latestAnswer) Decide(c *orders.Command, out *orders.Answer) (journal bool, err error) {
	journal, err = m.State.Decide(c, out)
	if o, known := m.Order(c.Account, c.ClientOrderID); known && c.Kind == orders.Submit && out.Duplicate {
		out.Status, out.Filled, out.Leaves, out.Version = o.Status, o.Filled, o.Leaves, o.Version
	}
	return journal, err
}

// expiresAll cancels on a disconnect what other sessions of the account entered, too.
type expiresAll struct{ *orders.State }

func (m expiresAll) Apply(c *orders.Command, out *orders.Answer) error {
	err := m.State.Apply(c, out)
	if c.Kind == orders.ExpireSession && out.Count > 0 {
		all := orders.Command{Kind: orders.MassCancel, Account: c.Account, ReceivedNs: c.ReceivedNs}
		err = errors.Join(err, m.State.Apply(&all, nil))
	}
	return err
}

// TestComparisonNoticesMutants: states that are wrong in one thing differ from the model soon, in what they are wrong in.
func TestComparisonNoticesMutants(t *testing.T) {
	for _, mutant := range []struct {
		name   string
		mutate func(*orders.State) subject
		notice string
	}{
		{"exposure is not reduced by a cancel", func(s *orders.State) subject { return &deafToCancels{s, map[uint32]uint32{}} }, "open orders with notional"},
		{"an event number is skipped", func(s *orders.State) subject { return skipsNumber{s} }, "events of account"},
		{"one open order too many", func(s *orders.State) subject { return oneTooMany{s} }, "the verdict is"},
		{"the latest answer, not the first", func(s *orders.State) subject { return latestAnswer{s} }, "the answer has"},
		{"a disconnect cancels other sessions' orders", func(s *orders.State) subject { return expiresAll{s} }, "event"},
	} {
		t.Run(mutant.name, func(t *testing.T) {
			_, history, err := drive(&scenarios[0], 1, operationsOfSeed, mutant.mutate)
			if err == nil {
				t.Fatalf("%d operations showed no difference", len(history))
			}
			if !strings.Contains(err.Error(), mutant.notice) {
				t.Errorf("noticed as %q, want something about %q", err, mutant.notice)
			}
			t.Logf("noticed after %d operations: %.200s", len(history), err.Error())
		})
	}
}
