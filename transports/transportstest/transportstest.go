// Package transportstest is the one behaviour that every transport keeps: a suite that runs against a transport's real sockets
// with a real gateway behind it.
//
// It exists so that "every transport offers the same operations with the same outcome" is a test and not a hope. It speaks only
// the contract: it opens servers and clients through [transports.Transport], and decorates the gateway to hold a commit, to
// fail it, to panic, or to watch what arrives. It must never know a concrete transport's frames, nor how the gateway decides; what
// it expects of an order stands in the contract's own words.
//
// A case that needs ports, TLS or the kernel is skipped, with one line that says so, for a transport without a network.
package transportstest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// GatewayOptions is what a case asks of the gateway behind the transport. Everything else is the gateway's choice, within this:
// it is new and its books are empty, it offers at least two open instruments whose reference price is at least
// 1,000 ticks and whose bounds let 1,000,000 lots at that price pass, and it runs until the end of the test that asked for it.
type GatewayOptions struct {
	// Keys maps API keys to accounts, all of one firm. Empty: no keys are configured, and every loopback peer is one account.
	Keys map[string]string
	// Limits bind every account; a zero field is no bound but the contract's. Nil: none that the other cases could meet.
	// MaxQuantity, MaxNotional and PriceCollarBps are what cases set.
	Limits *pb.Limits
}

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
var cases = []struct {
	name     string
	compared bool
	run      func(t *testing.T, s *suite)
}{
	{"submit rests", true, submitRests},
	{"submit crosses", true, submitCrosses},
	{"immediate or cancel", true, immediateOrCancel},
	{"market", true, market},
	{"replace keeps its place", true, replaceKeepsPlace},
	{"replace loses its place", true, replaceLosesPlace},
	{"replace fills", true, replaceFills},
	{"cancel", true, cancels},
	{"get order", true, getOrder},
	{"list orders", true, listOrders},
	{"get book", true, getBook},
	{"extreme numbers", true, extremeNumbers},
	{"list instruments", true, listInstruments},
	{"refusals", true, refusals},
	{"limits", true, limits},
	{"keys", true, keys},
	{"no keys", true, noKeys},
	{"encoding refused", false, encodingRefused},
	{"unknown operation", false, unknownOperation},
	{"duplicate order", true, duplicateOrder},
	{"duplicate on another connection", true, duplicateElsewhere},
	{"duplicate requests", true, duplicateRequests},
	{"concurrent duplicates", false, concurrentDuplicates},
	{"tag echo", false, tagEcho},
	{"largest request", false, largestRequest},
	{"oversize request", false, oversizeRequest},
	{"large answers", false, largeAnswers},
	{"gated commit", false, gatedCommit},
	{"gated commit delays nobody else", false, gatedDelaysNobody},
	{"canceled call", false, canceledCall},
	{"late answer", false, lateAnswer},
	{"deadline while gated", false, deadlineWhileGated},
	{"call that is over", false, callThatIsOver},
	{"deadline reaches the gateway", false, deadlineReachesGateway},
	{"panic", false, panics},
	{"failing commit", false, failingCommit},
	{"closed client", false, closedClient},
	{"concurrent calls", false, concurrentCalls},
	{"concurrent clients", false, concurrentClients},
	{"more calls than streams", false, moreCallsThanStreams},
	{"lost connection", false, lostConnection},
	{"cut answer", false, cutAnswer},
	{"dial failures", false, dialFailures},
	{"shutdown under load", false, shutdownUnderLoad},
	{"shutdown answers what was accepted", false, shutdownAnswers},
	{"shutdown with a stuck commit", false, shutdownStuck},
	{"after shutdown", false, afterShutdown},
	{"peer", false, peer},
	{"maximum of connections", false, maxConnections},
	{"tls", false, tlsWorks},
	{"tls mismatch", false, tlsMismatch},
	{"busy port", false, busyPort},
	{"congestion control", false, congestionControl},
	{"garbage", false, garbage},
	{"half-open connections", false, halfOpen},
}

// suite is one variant of one transport under test.
type suite struct {
	transport  transports.Transport
	newGateway NewGateway
	variant    transports.DialConfig // Encoding, Flow and Engine of every client
	caseName   string
	rows       *rows // nil where the case is not compared
}

// rows collects what compared cases see; such cases are serial, but run beside each other.
type rows struct {
	mu     sync.Mutex
	byCase map[string][]Row
}

// Run holds the transport to the suite, once with its defaults and once for each other encoding, flow and engine that it
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
	collected := &rows{byCase: make(map[string][]Row)}
	name := strings.Join(strings.Fields(fmt.Sprintln(transport.Name, variant.Encoding, variant.Flow, variant.Engine)), " ")
	t.Run(name, func(t *testing.T) {
		for _, c := range cases {
			s := &suite{transport: transport, newGateway: newGateway, variant: variant, caseName: c.name}
			if c.compared {
				s.rows = collected
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, s)
			})
		}
	})
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
	for i, flow := range transport.Flows {
		if i > 0 {
			list = append(list, transports.DialConfig{Flow: flow})
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
