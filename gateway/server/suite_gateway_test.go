package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"tailgate/gateway/admin"
	"tailgate/gateway/config"
	"tailgate/gateway/journal/journaltest"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/proto/gen/orderentry/v1/orderentryv1connect"
	"tailgate/transports"
	"tailgate/transports/transportstest"
)

// suiteGateway is the real order path for the suite, with its administration and the disk under its journal.
type suiteGateway struct {
	transports.Gateway
	admin orderentryv1connect.AdminServiceClient
	disk  *suiteDisk // nil where the case did not ask for one
}

var (
	_ transportstest.Administration = (*suiteGateway)(nil)
	_ transportstest.Disk           = (*suiteGateway)(nil)
)

// adminKey is the key of the suite's administrator.
const adminKey = "key-of-the-administrator-0123456789abcdef"

// newGateway makes one.
func newGateway(t *testing.T, o transportstest.GatewayOptions) transports.Gateway {
	t.Helper()
	c := suiteConfig(t, &o)
	g := &suiteGateway{}
	var s *Server
	var err error
	if o.Disk {
		g.disk = &suiteDisk{Disk: journaltest.NewDisk()}
		g.disk.Intercept(g.disk.before)
		c.Journal.Dir, c.Journal.Sync, c.Journal.SegmentBytes = "journal", "always", 128<<10
		s, err = openOver(context.Background(), c, nil, g.disk.Disk)
	} else {
		s, err = Open(context.Background(), c, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil && !g.disk.isBroken() {
			t.Errorf("shutdown: %v", err)
		}
	})
	_, handler := admin.Handler(s.administration(), s.logger)
	client := &http.Client{Transport: inProcess{handler}}
	g.Gateway, g.admin = s.Gateway(), orderentryv1connect.NewAdminServiceClient(client, "http://admin")
	return g
}

// suiteConfig is what the suite's options mean for the configuration.
func suiteConfig(t *testing.T, o *transportstest.GatewayOptions) Config {
	c := quiet(t)
	byAccount := make(map[string]int)
	for key, name := range o.Keys {
		i, ok := byAccount[name]
		if !ok {
			i = len(c.Accounts)
			byAccount[name] = i
			c.Accounts = append(c.Accounts, Account{Name: name, Firm: o.Accounts[name].Firm, Group: o.Accounts[name].Group})
		}
		c.Accounts[i].KeySHA256 = append(c.Accounts[i].KeySHA256, HashKey(key))
	}
	for key, accounts := range o.DropCopies {
		c.DropCopies = append(c.DropCopies, DropCopy{Name: "reader", KeySHA256: []string{HashKey(key)}, Accounts: accounts})
	}
	if len(o.Keys) > 0 {
		c.Admin.Keys = []Key{{Name: "suite", KeySHA256: HashKey(adminKey)}}
	}
	c.Limits.MaxQuantity, c.Limits.MaxNotional, c.Limits.PriceCollarBps = 0, 0, 0
	if l := o.Limits; l != nil {
		c.Limits.MaxQuantity, c.Limits.MaxNotional, c.Limits.PriceCollarBps = l.GetMaxQuantity(), l.GetMaxNotional(), l.GetPriceCollarBps()
	}
	c.Instruments = append(c.Instruments,
		Instrument{Symbol: "HALT", TickNanos: 1, LotSize: 1, Currency: "USD", State: "halted", ReferencePrice: 10_000},
		Instrument{Symbol: "DEAR", TickNanos: 1, LotSize: 1, Currency: "USD", State: "open", ReferencePrice: 10_000, MinNotional: 50_000})
	set := func(field *int, value int) {
		if value > 0 {
			*field = value
		}
	}
	set(&c.IDs.Max, o.MaxIDs)
	set(&c.Events.Max, o.MaxEvents)
	set(&c.Events.Readers, o.MaxReaders)
	set(&c.Sessions.Max, o.MaxSessions)
	set(&c.Book.MaxOrders, o.MaxBookOrders)
	set(&c.Book.MaxLevels, o.MaxBookOrders)
	if o.Penalty > 0 {
		c.Throttle.Penalty = config.Duration(o.Penalty)
	}
	return c
}

// call makes one call of the administrator.
func call[Q, R any](do func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), message *Q) (*R, error) {
	request := connect.NewRequest(message)
	request.Header().Set("Authorization", "Bearer "+adminKey)
	response, err := do(context.Background(), request)
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

// SetLimits implements transportstest.Administration.
func (g *suiteGateway) SetLimits(whose *pb.Scope, limits *pb.Limits) error {
	_, err := call(g.admin.SetLimits, &pb.SetLimitsRequest{Scope: whose, Limits: limits})
	return err
}

// SetKillSwitch implements transportstest.Administration.
func (g *suiteGateway) SetKillSwitch(whose *pb.Scope, engaged bool) (canceled uint32, err error) {
	response, err := call(g.admin.SetKillSwitch, &pb.SetKillSwitchRequest{Scope: whose, Engaged: engaged, Text: "the suite"})
	return response.GetCanceledCount(), err
}

// Exposure implements transportstest.Administration.
func (g *suiteGateway) Exposure(whose *pb.Scope) (*pb.GetExposureResponse, error) {
	return call(g.admin.GetExposure, &pb.GetExposureRequest{Scope: whose})
}

// EndDay implements transportstest.Administration.
func (g *suiteGateway) EndDay() (expired, epoch uint32, err error) {
	response, err := call(g.admin.EndDay, &pb.EndDayRequest{})
	return response.GetExpiredCount(), response.GetEpoch(), err
}

// HoldDisk implements transportstest.Disk.
func (g *suiteGateway) HoldDisk() (release func()) { return g.disk.hold() }

// BreakDisk implements transportstest.Disk.
func (g *suiteGateway) BreakDisk() { g.disk.breakDown() }

// inProcess is an http.RoundTripper that needs no network.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (i inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	served := r.Clone(r.Context())
	served.RemoteAddr = "127.0.0.1:1"
	i.handler.ServeHTTP(recorder, served)
	return recorder.Result(), nil
}

// suiteDisk is a disk whose syncs can be held, and that can break.
type suiteDisk struct {
	*journaltest.Disk
	mu     sync.Mutex
	gate   chan struct{} // syncs wait until it is closed; nil = they do not
	broken bool
}

var errBroken = errors.New("the disk of this test is broken")

func (d *suiteDisk) before(c journaltest.Call) *journaltest.Fault {
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	if gate != nil && c.Op == journaltest.Sync {
		<-gate
	}
	if d.isBroken() && c.Op != journaltest.Close {
		return &journaltest.Fault{Err: errBroken}
	}
	return nil
}

func (d *suiteDisk) hold() (release func()) {
	gate := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gate = gate
	return sync.OnceFunc(func() {
		d.mu.Lock()
		d.gate = nil
		d.mu.Unlock()
		close(gate)
	})
}

func (d *suiteDisk) breakDown() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = true
}

// isBroken may be asked of no disk.
func (d *suiteDisk) isBroken() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.broken
}
