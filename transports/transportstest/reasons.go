package transportstest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Each reason of the contract has to be reached on every transport with the same code and the same text. That it is, is not written down in a
// list that could lie: a run notes which reasons its clients have seen, and in which case, and fails where one is missing. A compared case
// counts, because its texts are then the same on every transport to the byte.

// sessionReasons are those of the session layer. The case "every reason" has a decorated gateway say each of them, so that its way through the
// transport is known whatever says it in the field; in is where it is reached for what it means, by the transport or the gateway itself, and why
// says what stands against that.
var sessionReasons = []struct {
	reason  pb.Reason
	in, why string
}{
	{pb.Reason_REASON_MALFORMED, "refusals", ""},
	{pb.Reason_REASON_UNAUTHENTICATED, "keys", ""},
	{pb.Reason_REASON_PERMISSION_DENIED, "drop copy", ""},
	{pb.Reason_REASON_NOT_FOUND, "refusals", ""},
	{pb.Reason_REASON_TOO_LARGE, "oversize request", ""},
	{pb.Reason_REASON_THROTTLED, "order rate", ""},
	{pb.Reason_REASON_DRAINING, "streams end with the server", ""},
	{pb.Reason_REASON_NO_CREDIT, "", "said by a client that may not send, so by one transport's client and its own tests"},
	{pb.Reason_REASON_JOURNAL_UNAVAILABLE, "broken disk", ""},
	{pb.Reason_REASON_OVERLOADED, "more readers than there may be", ""},
	{pb.Reason_REASON_UNIMPLEMENTED, "unknown operation", ""},
	{pb.Reason_REASON_DEADLINE_EXCEEDED, "call that is over", ""},
	{pb.Reason_REASON_INTERNAL, "panic", ""},
	{pb.Reason_REASON_ID_TABLE_FULL, "table of ids full", ""},
	{pb.Reason_REASON_CONNECTION_LOST, "closed client", ""},
	{pb.Reason_REASON_SESSION_REPLACED, "takeover", ""},
	{pb.Reason_REASON_EVENT_STORE_FULL, "store of events full", ""},
	{pb.Reason_REASON_SLOW_READER, "", "a connection that is full may end before the word has got through, see the case \"slow reader\""},
}

// reasonsSeen notes where which reason was seen. The zero value is ready.
type reasonsSeen struct {
	mu       sync.Mutex
	in       map[pb.Reason]map[string]bool // by case
	compared map[pb.Reason]bool            // in a compared case
	ran      map[string]bool               // cases that ran to their end
}

func (r *reasonsSeen) see(reason pb.Reason, caseName string, compared bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.in == nil {
		r.in, r.compared = make(map[pb.Reason]map[string]bool), make(map[pb.Reason]bool)
	}
	if r.in[reason] == nil {
		r.in[reason] = make(map[string]bool)
	}
	r.in[reason][caseName] = true
	if compared {
		r.compared[reason] = true
	}
}

// finished notes that a case ran to its end.
func (r *reasonsSeen) finished(caseName string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ran == nil {
		r.ran = make(map[string]bool)
	}
	r.ran[caseName] = true
}

// missing says which reasons were not seen in a compared case, and which of the session layer not where they are reached for what they mean. A
// transport without streams has no events to see the reasons of events on.
func (r *reasonsSeen) missing(hasStreams bool) (missing []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for number, name := range pb.Reason_name {
		if number != 0 && !r.compared[pb.Reason(number)] && (hasStreams || !slices.Contains(reasonsOfEvents, pb.Reason(number))) {
			missing = append(missing, "no compared case reached "+name)
		}
		if number > 0 && number < 100 && !slices.ContainsFunc(sessionReasons, func(s struct {
			reason  pb.Reason
			in, why string
		}) bool {
			return s.reason == pb.Reason(number) && (s.in == "") != (s.why == "")
		}) {
			missing = append(missing, name+" is not among sessionReasons with a case or the reason why there is none")
		}
	}
	for _, s := range sessionReasons {
		if r.ran[s.in] && !r.in[s.reason][s.in] {
			missing = append(missing, fmt.Sprintf("the case %q did not reach %v", s.in, s.reason))
		}
	}
	slices.Sort(missing)
	return missing
}

// see notes a reason; 0 is none.
func (s *suite) see(reason pb.Reason) {
	if reason != 0 && s.seen != nil {
		s.seen.see(reason, s.caseName, s.rows != nil)
	}
}

// reasonOf is why an answer refuses, 0 where it does not.
func reasonOf(response proto.Message) pb.Reason {
	if a, ok := response.(interface{ GetReason() pb.Reason }); ok {
		return a.GetReason()
	}
	return 0
}

// everyReason has a decorated gateway say each reason of the session layer, with both outcomes, and in answer to each kind of request: what a
// client gets is the fault in full.
func everyReason(t *testing.T, s *suite) {
	said, intercept := sayings()
	r := s.start(t, twoAccounts(), intercept)
	r.hearsAll(func() *client { return r.dial(alphaKey) }, said, []proto.Message{
		r.limit("a", buy, 1, 0), r.replace("r", "a", 1, 0), cancelOrder("c", "a"), &pb.MassCancelRequest{}, &pb.CancelAllAfterRequest{},
		&pb.GetOrderRequest{ClientOrderId: "a"}, &pb.ListOrdersRequest{}, &pb.GetBookRequest{Symbol: r.symbol}, &pb.ListInstrumentsRequest{},
	})
}

// everyReasonInSession is everyReason for what a session takes.
func everyReasonInSession(t *testing.T, s *suite) {
	said, intercept := sayings()
	r := s.start(t, twoAccounts(), intercept)
	n := 0
	open := func() *client {
		n++
		return r.logon(alphaKey, &pb.Logon{SessionId: id("s-%d", n)}).client
	}
	r.hearsAll(open, said, []proto.Message{
		r.limit("a", buy, 1, 0), r.replace("r", "a", 1, 0), cancelOrder("c", "a"), &pb.MassCancelRequest{},
	})
}

// sayings lets a case say what the gateway's Handle returns: nil lets the gateway itself answer.
func sayings() (say func(*transports.Fault), intercept setup) {
	var mu sync.Mutex
	var fault *transports.Fault
	say = func(f *transports.Fault) {
		mu.Lock()
		defer mu.Unlock()
		fault = f
	}
	return say, func(r *rig) {
		r.probe.intercept = func(_ context.Context, _ *transports.Exchange, next func() error) error {
			mu.Lock()
			said := fault
			mu.Unlock()
			if said != nil {
				return said
			}
			return next()
		}
	}
}

func (r *rig) hearsAll(open func() *client, say func(*transports.Fault), requests []proto.Message) {
	r.t.Helper()
	say(nil)
	c := open()
	for i, session := range sessionReasons {
		for _, outcome := range []pb.Outcome{notProcessed, unknown} {
			fault := &transports.Fault{
				Reason: session.reason, Outcome: outcome, Field: []string{"", "quantity"}[i%2],
				Message: id("said by the gateway: %v, \"quoted\", 100 %% ünï\n", session.reason), RetryAfter: time.Duration(i) * 1500 * time.Microsecond,
			}
			say(fault)
			for _, request := range requests {
				got := c.refuse(request)
				if want := fault.Detail(); !proto.Equal(got.Detail(), want) {
					r.t.Errorf("%v\n got %s\nwant %s", operationOf(request), text(got.Detail()), text(want))
				}
			}
		}
	}
	say(nil)
	c.submit(r.limit("goes-on", buy, 1, 0))
}

// brokenDisk: when the journal has failed, what was under way is in doubt, and what comes later is not processed; nobody is answered.
func brokenDisk(t *testing.T, s *suite) {
	options := twoAccounts()
	options.Disk = true
	r := s.start(t, options)
	c, other := r.dial(alphaKey), r.dial(betaKey)
	c.submit(r.limit("before", buy, 1, 0))
	r.probe.inner.(Disk).BreakDisk()
	wantFault(t, c.refuse(r.limit("lost", buy, 1, 0)), pb.Reason_REASON_JOURNAL_UNAVAILABLE, unknown)
	for i := range 2 {
		wantFault(t, other.refuse(r.limit(id("later-%d", i), buy, 1, 0)), pb.Reason_REASON_JOURNAL_UNAVAILABLE, notProcessed)
	}
	if n := r.probe.handledOrders()["later-0"]; n != 0 {
		t.Errorf("the gateway answered an order %d times after its journal had failed", n)
	}
}
