// Package feed gives an account's numbered events to its readers: sessions, and drop copies.
//
// The state keeps the events, so a reader has only a place in them. It pulls: it copies a batch under the writer's lock, encodes it
// outside, and gives it away when the journal's promise for it is kept, so that nothing leaves that a crash could take back. A reader
// that is slow keeps nothing and nobody waiting, and many readers cost the order path a wake-up each where they have nothing to read, and
// nothing where there is none. Readers that are far behind share one rate, account by account, so that they do not hurt the live path however
// many they are, and one account's do not hold up another's.
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

// Options bound the readers. A zero field means the default. A quarter of all places, and of an account's, rounded down, is kept for readers
// of sessions: streams beside them (drop copies, and what a trader watches with) never take these, so that nobody who only watches keeps
// a trader out.
type Options struct {
	MaxReaders          int // over all accounts; each holds up to 200 KiB
	MaxReadersOfAccount int // of one account
	MaxStreamsOfOwner   int // of one key, over all accounts that it may read; default: a quarter of MaxReaders, at least 16
	// CatchUpRate is how many events a second go to readers that are more than 16,384 events behind, to all of them together, account by account. It must be
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
	count   atomic.Int64 // readers: what the order path looks at

	mu      sync.Mutex // taken under the writer's lock, and nothing under it
	readers map[uint32][]*Reader
	streams int               // readers that are no session's
	closed  *transports.Fault // why there is no new reader, or nil
}

// New returns a feed without readers.
func New(source Source, options Options) *Feed {
	setDefault(&options.MaxReaders, DefaultMaxReaders)
	setDefault(&options.MaxReadersOfAccount, DefaultMaxReadersOfAccount)
	setDefault(&options.CatchUpRate, DefaultCatchUpRate)
	setDefault(&options.MaxStreamsOfOwner, max(options.MaxReaders/4, 16))
	return &Feed{source: source, options: options, readers: make(map[uint32][]*Reader), catchUp: newPace(options.CatchUpRate), nearEnd: nearEnd}
}

func setDefault(field *int, value int) {
	if *field <= 0 {
		*field = value
	}
}

// Touched wakes the readers of accounts that have new events. The writer calls it under its lock; it allocates nothing and, where there
// are no readers, does nothing.
func (f *Feed) Touched(accounts []uint32) {
	if f.count.Load() == 0 {
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

// Owner is whose streams are counted together: one API key's. The zero value is ready for use, and must not be copied.
type Owner struct{ streams int } // guarded by Feed.mu

// OpenStream returns a reader of an account's events from a place on, see [Place], beside sessions. The error is a *transports.Fault
// (OVERLOADED, MALFORMED, or why the feed is closed).
func (f *Feed) OpenStream(owner *Owner, account, epoch uint32, from uint64) (*Reader, error) {
	return f.open(&Reader{account: account, owner: owner}, nil, epoch, from)
}

// OpenSession is OpenStream for a session's own reader. Where it is to replace another one of the account, which may be nil or closed already,
// it needs no place beside that one's; there is one reader too many until the caller closes one of the two, so it must do so before it opens another.
func (f *Feed) OpenSession(replaces *Reader, account, epoch uint32, from uint64) (*Reader, error) {
	return f.open(&Reader{account: account}, replaces, epoch, from)
}

func (f *Feed) open(r, replaces *Reader, epoch uint32, from uint64) (*Reader, error) {
	r.feed, r.wake, r.ended, r.claim = f, make(chan struct{}, 1), make(chan struct{}), newClaim()
	r.copyFew = r.copyLocked
	if err := f.add(r, replaces); err != nil {
		return nil, err
	}
	var err error
	f.source.Read(func(state *orders.State, _ uint64) {
		r.name = state.AccountName(r.account)
		r.epoch, r.next, err = Place(state, r.account, epoch, from)
		if last, ok := state.EventRange(r.account, r.epoch); ok && err == nil {
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
func (f *Feed) Readers() int { return int(f.count.Load()) }

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

func (f *Feed) add(r, replaces *Reader) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		return f.closed
	}
	list := f.readers[r.account]
	readers, ofAccount := int(f.count.Load()), len(list)
	if slices.Contains(list, replaces) {
		readers, ofAccount = readers-1, ofAccount-1
	}
	most, mostOfAccount := f.options.MaxReaders, f.options.MaxReadersOfAccount
	switch {
	case readers >= most:
		return transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d readers of events are open already, as many as there may be", most)
	case ofAccount >= mostOfAccount:
		return transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d readers of this account's events are open already, as many as there may be", mostOfAccount)
	case r.owner != nil:
		if err := f.addStream(list, r.owner); err != nil {
			return err
		}
	}
	f.readers[r.account] = append(list, r)
	f.count.Add(1)
	return nil
}

// addStream counts one more stream beside the readers of an account. f.mu is held.
func (f *Feed) addStream(readers []*Reader, owner *Owner) error {
	ofAccount := 0
	for _, r := range readers {
		if r.owner != nil {
			ofAccount++
		}
	}
	most, mostOfAccount, mostOfOwner := withoutShare(f.options.MaxReaders), withoutShare(f.options.MaxReadersOfAccount), f.options.MaxStreamsOfOwner
	switch {
	case f.streams >= most:
		return transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d streams of events are open already, as many as there may be beside sessions", most)
	case ofAccount >= mostOfAccount:
		return transports.Refuse(pb.Reason_REASON_OVERLOADED, "%d streams of this account's events are open already, as many as there may be beside sessions", mostOfAccount)
	case owner.streams >= mostOfOwner:
		return transports.Refuse(pb.Reason_REASON_OVERLOADED, "this key has %d streams of events open already, as many as a key may", mostOfOwner)
	}
	f.streams++
	owner.streams++
	return nil
}

// withoutShare is what is left for streams when the share of the sessions is taken off.
func withoutShare(places int) int { return places - places/4 }

func (f *Feed) remove(r *Reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.readers[r.account]
	i := slices.Index(list, r)
	if i < 0 {
		return
	}
	f.count.Add(-1)
	if r.owner != nil {
		f.streams--
		r.owner.streams--
	}
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
