package orders_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"

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
			MaxEvents: options.MaxEvents, MaxSessions: options.MaxSessions, MaxSessionsOfAccount: options.MaxSessionsOfAccount,
		}),
	}
	var err error
	if w.state, err = orders.New(options); err != nil {
		return nil, err
	}
	if w.replica, err = orders.New(roomier(options)); err != nil {
		return nil, err
	}
	w.subject = mutate(w.state)
	return w, nil
}

// roomier options are those of a replica: what was refused for lack of room stays refused in a replay that has more of it.
func roomier(o orders.Options) orders.Options {
	return orders.Options{
		MaxIDs: 2 * o.MaxIDs, MaxOpenOrders: 2 * o.MaxOpenOrders, MaxLevels: 2 * o.MaxLevels, MaxEvents: 2 * o.MaxEvents, MaxSessions: 2 * o.MaxSessions,
	}
}

func unchanged(s *orders.State) subject { return s }

// faults are the errors of Decide, which are compared by what they wrap.
var faults = []error{orders.ErrIDsFull, orders.ErrDefinition, orders.ErrInvalid, orders.ErrEventsFull, orders.ErrSessionsFull, orders.ErrAccountSessionsFull}

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
			return fmt.Errorf("Decide says %w, the model %w", errOrNone(err), errOrNone(want.Err))
		}
	}
	if want.Err != nil {
		w.met[want.Err.Error()]++
		return nil //nolint:nilerr // both say so
	}
	switch {
	case err != nil:
		return fmt.Errorf("Decide: %w", err)
	case journal != want.Journal:
		return fmt.Errorf("Decide says journal %t with reason %s, the model %t with %s", journal, c.Verdict.Reason, want.Journal, want.Verdict.Reason)
	case !journal:
		w.meet(&c, &want.Answer)
		return errors.Join(differ("the answer", w.answer, want.Answer), w.holdText(&c))
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
	if err := errors.Join(differ("the answer", w.answer, expected), w.holdText(&c), w.holdPlaces()); err != nil {
		return err
	}
	return w.compareTouched(&c)
}

var errNone = errors.New("nothing")

func errOrNone(err error) error { return cmp.Or(err, errNone) }

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

// holdText holds that a refusal says why, and that nothing else does.
func (w *twins) holdText(c *orders.Command) error {
	if text := w.answer.Text(c); (text == "") != (w.answer.Reason == pb.Reason_REASON_UNSPECIFIED) {
		return fmt.Errorf("the text of %s is %q", w.answer.Reason, text)
	}
	return nil
}

// holdPlaces holds that each resting order has a place for the event of its end, so that cancels and the end of the day find room.
func (w *twins) holdPlaces() error {
	if u := w.state.Usage(); u.Events+u.OpenOrders > w.options.MaxEvents {
		return fmt.Errorf("%d events and %d open orders, with places for %d events", u.Events, u.OpenOrders, w.options.MaxEvents)
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
		switch r.Type {
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
