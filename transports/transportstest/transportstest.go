// Package transportstest is the one behaviour that every transport keeps: a suite that runs against a transport's real sockets
// with a real gateway behind it.
//
// It exists so that "every transport offers the same operations with the same outcome" is a test and not a hope. It speaks only
// the contract: it opens servers and clients through [transports.Transport], and decorates the gateway to hold a commit, to
// fail it, to panic, or to watch what arrives. It must never know a concrete transport's frames, nor how the gateway decides; what
// it expects of an order stands in the contract's own words.
//
// A case that needs ports, TLS or the kernel is skipped, with one line that says so, for a transport without a network. Cases of sessions and
// streams run where the transport has them, and one case says which transports those are; cases of the whole order path run over a gateway that
// has it (see [Administration]). Which cases were left out for that stands in one line of each run.
package transportstest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tailgate/transports"
)

// NewGateway makes a gateway for one test; what has to be closed is left to t.Cleanup.
type NewGateway func(t *testing.T, o GatewayOptions) transports.Gateway

// Row is one answer as a client saw it: which case, the how manieth call of it, and the answer or the fault in full but for
// the stamps of the clock.
type Row struct {
	Case, Call, Answer string
}

// Table is what a run of the suite observed in the cases whose calls follow one another, in the order of the calls. It is the
// same for every transport, to the byte: see [Compare].
type Table struct {
	Name string // transport and variant, e.g. "rest json"
	Rows []Row
}

// bound is how long anything may take before a case calls it hung. It is a bound of failure and not a measure; only the suite's own
// tests change it, for transports that hang.
var bound = 30 * time.Second

// cases is the suite. A compared case makes its calls one after the other on a new gateway, so that its answers can be
// compared over transports.
var cases = slices.Concat(basicCases, orderPathCases, streamCases)

// testCase is one case and what it needs.
type testCase struct {
	name     string
	compared bool
	run      func(t *testing.T, s *suite)
	needs    need
}

// need is what a case needs that not every transport or gateway has; the zero need is what all have.
type need uint8

const (
	sessions   need = 1 << iota // Transport.Trade
	streams                     // Transport.Executions
	disk                        // a gateway that implements Disk
	orderPath                   // a gateway that implements Administration
	needsTotal      = iota

	// defaults is of another kind: a case that costs much, and that no variant makes a difference to, runs with the defaults only.
	defaults need = 1 << 7
)

var needNames = [needsTotal]string{"sessions", "streams of events", "a journal that can be held", "the whole order path"}

// lacks returns what of a need the transport and the gateway do not have.
func (n need) lacks(transport transports.Transport, gateway transports.Gateway) (lacking []string) {
	_, hasDisk := gateway.(Disk)
	_, hasOrderPath := gateway.(Administration)
	for i, has := range [needsTotal]bool{transport.Trade != nil, transport.Executions != nil, hasDisk, hasOrderPath} {
		if n&(1<<i) != 0 && !has {
			lacking = append(lacking, needNames[i])
		}
	}
	return lacking
}

// basicCases are those of requests and answers that any gateway can carry.
var basicCases = []testCase{
	{"submit rests", true, submitRests, 0},
	{"submit crosses", true, submitCrosses, 0},
	{"immediate or cancel", true, immediateOrCancel, 0},
	{"market", true, market, 0},
	{"replace keeps its place", true, replaceKeepsPlace, 0},
	{"replace loses its place", true, replaceLosesPlace, 0},
	{"replace fills", true, replaceFills, 0},
	{"cancel", true, cancels, 0},
	{"get order", true, getOrder, 0},
	{"list orders", true, listOrders, 0},
	{"get book", true, getBook, 0},
	{"extreme numbers", true, extremeNumbers, 0},
	{"list instruments", true, listInstruments, 0},
	{"refusals", true, refusals, 0},
	{"limits", true, limits, 0},
	{"keys", true, keys, 0},
	{"no keys", true, noKeys, 0},
	{"every reason", true, everyReason, 0},
	{"broken disk", false, brokenDisk, disk},
	{"encoding refused", false, encodingRefused, 0},
	{"unknown operation", false, unknownOperation, 0},
	{"duplicate order", true, duplicateOrder, 0},
	{"duplicate on another connection", true, duplicateElsewhere, 0},
	{"duplicate requests", true, duplicateRequests, 0},
	{"concurrent duplicates", false, concurrentDuplicates, 0},
	{"tag echo", false, tagEcho, 0},
	{"largest request", false, largestRequest, 0},
	{"oversize request", false, oversizeRequest, 0},
	{"large answers", false, largeAnswers, 0},
	{"gated commit", false, gatedCommit, 0},
	{"gated commit delays nobody else", false, gatedDelaysNobody, 0},
	{"canceled call", false, canceledCall, 0},
	{"late answer", false, lateAnswer, 0},
	{"deadline while gated", false, deadlineWhileGated, 0},
	{"call that is over", false, callThatIsOver, 0},
	{"deadline reaches the gateway", false, deadlineReachesGateway, 0},
	{"panic", false, panics, 0},
	{"failing commit", false, failingCommit, 0},
	{"closed client", false, closedClient, 0},
	{"concurrent calls", false, concurrentCalls, 0},
	{"concurrent clients", false, concurrentClients, 0},
	{"more calls than streams", false, moreCallsThanStreams, 0},
	{"lost connection", false, lostConnection, 0},
	{"cut answer", false, cutAnswer, 0},
	{"dial failures", false, dialFailures, 0},
	{"shutdown under load", false, shutdownUnderLoad, 0},
	{"shutdown answers what was accepted", false, shutdownAnswers, 0},
	{"shutdown with a stuck commit", false, shutdownStuck, 0},
	{"after shutdown", false, afterShutdown, 0},
	{"peer", false, peer, 0},
	{"maximum of connections", false, maxConnections, 0},
	{"tls", false, tlsWorks, 0},
	{"tls mismatch", false, tlsMismatch, 0},
	{"busy port", false, busyPort, 0},
	{"congestion control", false, congestionControl, 0},
	{"garbage", false, garbage, 0},
	{"half-open connections", false, halfOpen, 0},
}

// suite is one variant of one transport under test.
type suite struct {
	transport  transports.Transport
	newGateway NewGateway
	variant    transports.DialConfig // Encoding, Protocol, Flow and Engine of every client
	caseName   string
	rows       *rows // nil where the case is not compared
	seen       *reasonsSeen
}

// rows collects what compared cases see; such cases are serial, but run beside each other.
type rows struct {
	mu     sync.Mutex
	byCase map[string][]Row
}

// Run holds the transport to the suite, once with its defaults and once for each other encoding, protocol, flow and engine that it
// offers, and returns what clients saw with the defaults; the variants must have seen the same. Run fails the test when a
// goroutine outlives it, so no other test may run at the same time.
func Run(t *testing.T, transport transports.Transport, newGateway NewGateway) Table {
	t.Helper()
	leaked := goleak.IgnoreCurrent()
	var tables []Table
	for _, variant := range variants(transport) {
		tables = append(tables, runVariant(t, transport, newGateway, variant))
	}
	if !t.Failed() { // a failed case may well have left something, and says more than its goroutines
		Compare(t, tables...)
		goleak.VerifyNone(t, leaked)
	}
	return tables[0]
}

func runVariant(t *testing.T, transport transports.Transport, newGateway NewGateway, variant transports.DialConfig) Table {
	collected, seen := &rows{byCase: make(map[string][]Row)}, &reasonsSeen{}
	name := strings.Join(strings.Fields(fmt.Sprintln(transport.Name, variant.Protocol, variant.Encoding, variant.Flow, variant.Engine)), " ")
	chosen, whole := int32(0), false
	var started atomic.Int32
	t.Run(name, func(t *testing.T) {
		sample := newGateway(t, GatewayOptions{})
		leftOut := map[string][]string{}
		for _, c := range cases {
			if c.needs&defaults != 0 && variant != (transports.DialConfig{}) {
				continue
			}
			if lacking := strings.Join(c.needs.lacks(transport, sample), " and "); lacking != "" {
				leftOut[lacking] = append(leftOut[lacking], c.name)
				continue
			}
			s := &suite{transport: transport, newGateway: newGateway, variant: variant, caseName: c.name, seen: seen}
			if c.compared {
				s.rows = collected
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				started.Add(1)
				c.run(t, s)
				seen.finished(c.name)
			})
			chosen++
		}
		if len(leftOut) > 0 {
			t.Logf("left out for what this transport or gateway has not: %q", leftOut)
		}
		_, whole = sample.(Administration)
	})
	if whole && started.Load() == chosen && !t.Failed() { // a test that was told to run some cases only has nothing to say here
		for _, missing := range seen.missing(transport.Executions != nil) {
			t.Errorf("%s: %s", name, missing)
		}
	}
	table := Table{Name: name}
	for _, c := range cases {
		table.Rows = append(table.Rows, collected.byCase[c.name]...)
	}
	return table
}

// variants are the defaults, and then each other choice alone.
func variants(transport transports.Transport) []transports.DialConfig {
	list := []transports.DialConfig{{}}
	for i, encoding := range transport.Encodings {
		if i > 0 {
			list = append(list, transports.DialConfig{Encoding: encoding})
		}
	}
	for i, protocol := range transport.Protocols {
		if i > 0 {
			list = append(list, transports.DialConfig{Protocol: protocol})
		}
	}
	for i, flow := range transport.Flows {
		if i > 0 {
			config := transports.DialConfig{Flow: flow}
			if flow == "semaphore" {
				config.Window = 16 // it is nothing without one
			}
			list = append(list, config)
		}
	}
	for i, engine := range transport.Engines {
		if i > 0 {
			list = append(list, transports.DialConfig{Engine: engine})
		}
	}
	return list
}

// Compare fails the test where two tables differ in a byte, and says which call of which case it was. Cases that one of them
// has not (because the test was told to run some only) are left out.
func Compare(t testing.TB, tables ...Table) {
	t.Helper()
	for _, other := range tables[min(1, len(tables)):] {
		first := tables[0]
		mine, others := first.byCase(), other.byCase()
		for _, c := range cases {
			a, b := mine[c.name], others[c.name]
			if len(a) == 0 || len(b) == 0 {
				continue
			}
			if len(a) != len(b) {
				t.Errorf("case %q: %s made %d calls, %s %d", c.name, first.Name, len(a), other.Name, len(b))
			}
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Errorf("case %q differs:\n%s\n  %s\n  %s\n%s\n  %s\n  %s", c.name, first.Name, a[i].Call, a[i].Answer, other.Name, b[i].Call, b[i].Answer)
				}
			}
		}
	}
}

func (t Table) byCase() map[string][]Row {
	byCase := make(map[string][]Row)
	for _, row := range t.Rows {
		byCase[row.Case] = append(byCase[row.Case], row)
	}
	return byCase
}

func (r *rows) add(row Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byCase[row.Case] = append(r.byCase[row.Case], row)
}
