// Package feed gives an account's numbered events to its readers: sessions, and drop copies.
//
// The state keeps the events, so a reader has only a place in them. It pulls: it copies a batch under the writer's lock, encodes it
// outside, and gives it away when the journal's promise for it is kept, so that nothing leaves that a crash could take back. A reader
// that is slow keeps nothing and nobody waiting, and many readers cost the order path a wake-up each where they have nothing to read, and
// nothing where there is none. Readers that are far behind share one rate, so that they do not hurt the live path however many they are.
//
// The room must never know who enters orders, how a journal works, or how events travel.
package feed

import (
	"slices"
	"sync"
	"sync/atomic"

	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Defaults of Options.
const (
	DefaultMaxReaders          = 1_024
	DefaultMaxReadersOfAccount = 64
	DefaultCatchUpRate         = 250_000
)

// Options bound the readers. A zero field means the default.
type Options struct {
	MaxReaders          int // over all accounts; each holds up to 200 KiB
	MaxReadersOfAccount int // of one account
	// CatchUpRate is how many events a second go to readers that are more than 16,384 events behind, to all of them together. It must be
	// above the events that an account sees in a second for long, or its readers never catch up.
	CatchUpRate int
}

// Source is where events come from: the sequencer.
type Source interface {
	// Read shows the state and the number of the last record in it, under the writer's lock.
	Read(read func(state *orders.State, last uint64))
	// Committed and Commit are those of the log.
	Committed() uint64
	Commit(r transports.Releaser, mark uint64)
}

// Feed keeps track of the readers. Safe for concurrent use.
type Feed struct {
	source  Source
	options Options
	catchUp pace
	nearEnd uint64       // nearEnd, less in tests
	open    atomic.Int64 // readers: what the order path looks at

	mu      sync.Mutex // taken under the writer's lock, and nothing under it
	readers map[uint32][]*Reader
	closed  *transports.Fault // why there is no new reader, or nil
}

// New returns a feed without readers.
func New(source Source, options Options) *Feed {
	setDefault(&options.MaxReaders, DefaultMaxReaders)
	setDefault(&options.MaxReadersOfAccount, DefaultMaxReadersOfAccount)
	setDefault(&options.CatchUpRate, DefaultCatchUpRate)
	return &Feed{source: source, options: options, readers: make(map[uint32][]*Reader), catchUp: pace{rate: options.CatchUpRate}, nearEnd: nearEnd}
}

func setDefault(field *int, value int) {
	if *field <= 0 {
		*field = value
	}
}

// Touched wakes the readers of accounts that have new events. The writer calls it under its lock; it allocates nothing and, where there
// are no readers, does nothing.
func (f *Feed) Touched(accounts []uint32) {
	if f.open.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, account := range accounts {
		for _, r := range f.readers[account] {
			r.nudge()
		}
	}
}

// epochEnd is where an account's numbering stopped in an epoch.
type epochEnd struct {
	epoch uint32
	next  uint64 // number that the next event would have had
}

// DayEnded tells all readers that another epoch has begun. The writer calls it under its lock. What it notes lets a reader who has everything
// of its epoch go on, also where the state has let go of that epoch before the reader comes to look.
func (f *Feed) DayEnded(state *orders.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	over := state.Epoch() - 1
	for account, list := range f.readers {
		next, ok := state.EventRange(account, over)
		if !ok {
			continue
		}
		for _, r := range list {
			r.ends = append(r.ends, epochEnd{over, next})
			r.nudge()
		}
	}
}

// endOf returns the number of the next event in the epoch that a reader is in; ok is false where events that it has not read were let go.
// It runs under the writer's lock.
func (f *Feed) endOf(state *orders.State, r *Reader) (next uint64, ok bool) {
	if next, ok = state.EventRange(r.account, r.epoch); ok {
		return next, true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(r.ends) > 0 && r.ends[0].epoch < r.epoch {
		r.ends = r.ends[1:]
	}
	return r.next, len(r.ends) > 0 && r.ends[0] == epochEnd{r.epoch, r.next}
}

// Open returns a reader of an account's events from a place on, see [Place]. The error is a *transports.Fault.
func (f *Feed) Open(account, epoch uint32, from uint64) (*Reader, error) {
	r := &Reader{feed: f, account: account, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	r.copyFew = r.copyLocked
	if err := f.add(r); err != nil {
		return nil, err
	}
	var err error
	f.source.Read(func(state *orders.State, _ uint64) {
		r.name = state.AccountName(account)
		r.epoch, r.next, err = Place(state, account, epoch, from)
		if last, ok := state.EventRange(account, r.epoch); ok && err == nil {
			r.behind = last - r.next
		}
	})
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Readers is how many are open.
func (f *Feed) Readers() int { return int(f.open.Load()) }

// Close ends every reader with a fault and refuses new ones with it.
func (f *Feed) Close(why *transports.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = why
	for _, list := range f.readers {
		for _, r := range list {
			r.End(why)
		}
	}
}

func (f *Feed) add(r *Reader) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.readers[r.account]
	switch {
	case f.closed != nil:
		return f.closed
	case int(f.open.Load()) >= f.options.MaxReaders:
		return transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d readers of events are open already, as many as there may be", f.options.MaxReaders)
	case len(list) >= f.options.MaxReadersOfAccount:
		return transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d readers of this account's events are open already, as many as there may be", f.options.MaxReadersOfAccount)
	}
	f.readers[r.account] = append(list, r)
	f.open.Add(1)
	return nil
}

func (f *Feed) remove(r *Reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.readers[r.account]
	i := slices.Index(list, r)
	if i < 0 {
		return
	}
	f.open.Add(-1)
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(f.readers, r.account)
	} else {
		f.readers[r.account] = list
	}
}

// FieldEpoch and FieldSequence are the fields that a fault of [Place] names.
const (
	FieldEpoch    = "epoch"
	FieldSequence = "from_sequence"
)

// Place finds a place in an account's stream: event number from (0 or 1 = the first) of an epoch (0 = the present one), at most one beyond
// the last. Only the present epoch and the one before it are there; behind the last event of the latter comes the first of the former.
// The error is a *transports.Fault that names what there is.
func Place(state *orders.State, account, epoch uint32, from uint64) (uint32, uint64, error) {
	present := state.Epoch()
	if epoch == 0 {
		epoch = present
	}
	from = max(from, 1)
	end, ok := state.EventRange(account, epoch)
	if !ok {
		return 0, 0, transports.Malformed(FieldEpoch, "there are events of epoch %d (the present one) and the one before it; asked for is epoch %d: begin anew with epoch 0 and sequence 0, and read what is open with ListOrders", present, epoch)
	}
	if from > end {
		return 0, 0, transports.Malformed(FieldSequence, "the next event of epoch %d (present: %d) is number %d, asked for is %d: this numbering was not given by this gateway", epoch, present, end, from)
	}
	if from == end && epoch != present {
		return present, 1, nil
	}
	return epoch, from, nil
}
