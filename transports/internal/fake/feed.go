package fake

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Feed is a source of numbered events of one account. The zero value is empty, in epoch 1. Safe for concurrent use.
type Feed struct {
	mu      sync.Mutex
	history []transports.Event
	wake    chan struct{}            // closed and replaced at every change; nil until somebody waits
	fault   *transports.Fault        // ends every reader behind the last event
	readers map[*feedReader]*session // nil for those without
}

// Report is the event that a Feed has at a place: every field is set, and no two are equal.
func Report(epoch uint32, sequence uint64) *pb.ExecutionReport {
	return &pb.ExecutionReport{
		Sequence: sequence, Epoch: epoch, Type: pb.ExecutionType_EXECUTION_TYPE_TRADE, ExecutionId: sequence<<8 | uint64(epoch), MatchId: 7,
		Order: &pb.Order{
			ClientOrderId: "o-1", OrderId: 9, Symbol: "DEMO", Side: pb.Side_SIDE_SELL, Type: pb.OrderType_ORDER_TYPE_LIMIT,
			TimeInForce: pb.TimeInForce_TIME_IN_FORCE_GTC, Status: pb.OrderStatus_ORDER_STATUS_PARTIALLY_FILLED, Price: -3,
			Quantity: 1 << 40, FilledQuantity: sequence, LeavesQuantity: 1<<40 - sequence, LastPrice: -3, FilledNotional: -3 * int64(sequence),
			OrderVersion: uint32(sequence), ReceivedNs: 1,
		},
		LastPrice: -3, LastQuantity: 1, Liquidity: pb.Liquidity_LIQUIDITY_MAKER, EventNs: sequence, Account: "demo",
	}
}

// Publish adds n events to the last epoch.
func (f *Feed) Publish(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	epoch, next := f.end()
	for i := range uint64(n) {
		f.add(epoch, next+i)
	}
}

// Roll begins the next epoch with its first event.
func (f *Feed) Roll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	epoch, _ := f.end()
	f.add(epoch+1, 1)
}

func (f *Feed) add(epoch uint32, sequence uint64) {
	report, err := proto.MarshalOptions{Deterministic: true}.Marshal(Report(epoch, sequence))
	if err != nil {
		panic(err) // it is ours
	}
	f.history = append(f.history, transports.Event{Epoch: epoch, Sequence: sequence, Report: report})
	f.change()
}

// Fail ends every reader, those that come later too, with the fault, behind the last event.
func (f *Feed) Fail(fault *transports.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
	f.change()
}

// change wakes the readers. The lock is held.
func (f *Feed) change() {
	if f.wake != nil {
		close(f.wake)
		f.wake = nil
	}
}

// End is the place of the next event.
func (f *Feed) End() (epoch uint32, sequence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end()
}

func (f *Feed) end() (epoch uint32, sequence uint64) {
	if len(f.history) == 0 {
		return 1, 1
	}
	last := f.history[len(f.history)-1]
	return last.Epoch, last.Sequence + 1
}

// Readers returns how many are open now.
func (f *Feed) Readers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.readers)
}

// Subscribe is as transports.Session has it; it serves as [Gateway].OnSubscribe for tests that need no sessions.
func (f *Feed) Subscribe(_ context.Context, request *pb.StreamExecutionsRequest) (transports.Events, error) {
	return f.subscribe(request, nil)
}

func (f *Feed) subscribe(request *pb.StreamExecutionsRequest, of *session) (transports.Events, error) {
	if a := request.GetAccount(); a != "" && a != "demo" {
		return nil, transports.Refuse(pb.Reason_REASON_PERMISSION_DENIED, "account %q is not the key's", a)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	from := max(1, request.GetFromSequence())
	epoch, err := f.place("from_sequence", request.GetEpoch(), from)
	if err != nil {
		return nil, err
	}
	r := &feedReader{feed: f, epoch: epoch, sequence: from}
	for r.at < len(f.history) {
		if event := f.history[r.at]; event.Epoch > epoch || event.Epoch == epoch && event.Sequence >= from {
			break
		}
		r.at++
	}
	if r.at < len(f.history) { // the rest of an epoch may be empty: then the next one's first
		r.epoch, r.sequence = f.history[r.at].Epoch, f.history[r.at].Sequence
	}
	if f.readers == nil {
		f.readers = make(map[*feedReader]*session)
	}
	f.readers[r] = of
	return r, nil
}

// place is the epoch of a place that the feed has, or a refusal that names the field. The lock is held.
func (f *Feed) place(field string, e uint32, from uint64) (epoch uint32, err error) {
	epoch, end := f.end()
	if e != 0 && e != epoch {
		if e+1 != epoch {
			return 0, transports.Malformed("epoch", "epoch %d is not there; there are %d and %d", e, epoch-1, epoch)
		}
		epoch = e
		end = 1
		for _, event := range f.history {
			if event.Epoch == e {
				end = event.Sequence + 1
			}
		}
	}
	if from > end {
		return 0, transports.Malformed(field, "event %d is not there; the next one is %d", from, end)
	}
	return epoch, nil
}

type feedReader struct {
	feed     *Feed
	epoch    uint32
	sequence uint64
	at       int // index of the next event
}

// Place implements transports.Events.
func (r *feedReader) Place() (epoch uint32, sequence uint64) { return r.epoch, r.sequence }

// Next implements transports.Events.
func (r *feedReader) Next(ctx context.Context) ([]transports.Event, error) {
	f := r.feed
	for {
		f.mu.Lock()
		of := f.readers[r]
		if of != nil && of.replaced.Load() {
			f.mu.Unlock()
			return nil, replacedFault()
		}
		if r.at < len(f.history) {
			batch := f.history[r.at:min(len(f.history), r.at+transports.MaxEvents)]
			r.at += len(batch)
			f.mu.Unlock()
			return batch, nil
		}
		fault := f.fault
		if f.wake == nil {
			f.wake = make(chan struct{})
		}
		wake := f.wake
		f.mu.Unlock()
		if fault != nil {
			return nil, fault
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close implements transports.Events.
func (r *feedReader) Close() {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	delete(r.feed.readers, r)
}

func replacedFault() *transports.Fault {
	fault := transports.Refuse(pb.Reason_REASON_SESSION_REPLACED, "another connection logged on under this session's id")
	fault.Final = true
	return fault
}
