// Package admin serves AdminService: kill switches, limits, exposure, the end of the day, status.
//
// It has a listener of its own, so that an operator gets through when the order path is flooded, and is reached by gRPC, gRPC-Web,
// Connect, or plain JSON:
//
//	curl -H 'Content-Type: application/json' -d '{}' http://127.0.0.1:9090/orderentry.v1.AdminService/GetStatus
//
// What changes an outcome is a command in the journal like any order, and is answered when the journal's promise is kept. The room
// must never know how orders travel, nor decide what an order is worth: it translates, and asks the sequencer.
package admin

import (
	"context"
	"errors"
	"maps"
	"net"
	"runtime"
	"slices"
	"time"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"tailgate/gateway/orders"
	"tailgate/gateway/sequencer"
	"tailgate/gateway/telemetry"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/proto/gen/orderentry/v1/orderentryv1connect"
	"tailgate/transports"
)

// Backend is what administration needs of the gateway. All fields are set.
type Backend struct {
	Sequencer *sequencer.Sequencer
	// Authorize says which administrator a peer is, by name, for the log; its error is a *transports.Fault.
	Authorize func(key string, remote net.Addr) (name string, err error)
	// DayEnded is called after the day has ended, when the state is at its smallest.
	DayEnded func()
	// Metrics are what the transports that count something count at present, by the transport's name.
	Metrics func() map[string][]transports.Metric
	// Version of the binary, JournalSync its journal's mode, Started when it started.
	Version, JournalSync string
	Started              time.Time
}

// service implements AdminService. Safe for concurrent use.
type service struct {
	orderentryv1connect.UnimplementedAdminServiceHandler
	backend Backend
}

// execute runs one command and waits for the journal's promise. The error is a *transports.Fault.
func (s *service) execute(ctx context.Context, c *orders.Command) (answer orders.Answer, err error) {
	c.ReceivedNs = transports.Now()
	if err := s.backend.Sequencer.Execute(c, &answer); err != nil {
		return answer, err
	}
	return answer, s.backend.Sequencer.Wait(ctx)
}

// check holds a message to the contract.
func check(m proto.Message) error {
	err := protovalidate.Validate(m)
	if err == nil {
		return nil
	}
	if invalid, ok := errors.AsType[*protovalidate.ValidationError](err); ok && len(invalid.Violations) > 0 {
		v := invalid.Violations[0].Proto
		return transports.Malformed(protovalidate.FieldPathString(v.GetField()), "%s", v.GetMessage())
	}
	return transports.AsFault(err)
}

// scope finds whom a request means.
func (s *service) scope(scope *pb.Scope) (orders.Scope, error) {
	var number uint32
	var ok bool
	firm := scope.GetFirm()
	s.backend.Sequencer.Read(func(state *orders.State, _ uint64) {
		if firm != "" {
			number, ok = state.Firm(firm)
		} else {
			number, ok = state.Account(scope.GetAccount())
		}
	})
	switch {
	case ok:
		return orders.Scope{Firm: firm != "", Number: number}, nil
	case firm != "":
		return orders.Scope{}, notFound("scope.firm", "no account belongs to the firm %q", firm)
	default:
		return orders.Scope{}, notFound("scope.account", "there is no account %q", scope.GetAccount())
	}
}

func notFound(field, format string, args ...any) error {
	f := transports.Refuse(pb.Reason_REASON_NOT_FOUND, format, args...)
	f.Field = field
	return f
}

// SetKillSwitch implements AdminService.
func (s *service) SetKillSwitch(ctx context.Context, r *connect.Request[pb.SetKillSwitchRequest]) (*connect.Response[pb.SetKillSwitchResponse], error) {
	if err := check(r.Msg); err != nil {
		return nil, err
	}
	scope, err := s.scope(r.Msg.GetScope())
	if err != nil {
		return nil, err
	}
	answer, err := s.execute(ctx, &orders.Command{
		Kind: orders.SetKillSwitch, Scope: scope, Engaged: r.Msg.GetEngaged(), Text: r.Msg.GetText(),
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.SetKillSwitchResponse{CanceledCount: answer.Count}), nil
}

// SetLimits implements AdminService.
func (s *service) SetLimits(ctx context.Context, r *connect.Request[pb.SetLimitsRequest]) (*connect.Response[pb.SetLimitsResponse], error) {
	if err := check(r.Msg); err != nil {
		return nil, err
	}
	scope, err := s.scope(r.Msg.GetScope())
	if err != nil {
		return nil, err
	}
	limits, err := limitsOf(r.Msg.GetLimits())
	if err != nil {
		return nil, err
	}
	if _, err := s.execute(ctx, &orders.Command{Kind: orders.SetLimits, Scope: scope, Limits: &limits}); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.SetLimitsResponse{Limits: s.limits(scope)}), nil
}

// GetLimits implements AdminService.
func (s *service) GetLimits(_ context.Context, r *connect.Request[pb.GetLimitsRequest]) (*connect.Response[pb.GetLimitsResponse], error) {
	if err := check(r.Msg); err != nil {
		return nil, err
	}
	scope, err := s.scope(r.Msg.GetScope())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.GetLimitsResponse{Limits: s.limits(scope)}), nil
}

// limits reads the limits of a scope.
func (s *service) limits(scope orders.Scope) *pb.Limits {
	var l orders.Limits
	s.backend.Sequencer.Read(func(state *orders.State, _ uint64) {
		l = state.Limits(scope)
		l.Restricted = slices.Clone(l.Restricted)
	})
	m := &pb.Limits{
		MaxQuantity: l.MaxQuantity, MaxNotional: l.MaxNotional, PriceCollarBps: l.PriceCollarBps,
		MaxOpenOrders: l.MaxOpenOrders, MaxOpenNotional: l.MaxOpenNotional, MaxPosition: l.MaxPosition, MaxOrderRate: l.MaxOrderRate,
	}
	for _, symbol := range l.Restricted {
		m.RestrictedSymbols = append(m.RestrictedSymbols, symbol.String())
	}
	return m
}

// limitsOf turns a message into limits as the state keeps them. The error names the first field that is wrong.
func limitsOf(m *pb.Limits) (orders.Limits, error) {
	l := orders.Limits{
		MaxQuantity: m.GetMaxQuantity(), MaxNotional: m.GetMaxNotional(), PriceCollarBps: m.GetPriceCollarBps(),
		MaxOpenOrders: m.GetMaxOpenOrders(), MaxOpenNotional: m.GetMaxOpenNotional(), MaxPosition: m.GetMaxPosition(), MaxOrderRate: m.GetMaxOrderRate(),
	}
	if problems := append(l.Restrict(m.GetRestrictedSymbols()), l.Problems()...); len(problems) > 0 {
		return orders.Limits{}, transports.Malformed("limits."+problems[0].Field, "%s", problems[0].Problem)
	}
	return l, nil
}

// GetExposure implements AdminService.
func (s *service) GetExposure(_ context.Context, r *connect.Request[pb.GetExposureRequest]) (*connect.Response[pb.GetExposureResponse], error) {
	if err := check(r.Msg); err != nil {
		return nil, err
	}
	scope, err := s.scope(r.Msg.GetScope())
	if err != nil {
		return nil, err
	}
	var e orders.Exposure
	m := &pb.GetExposureResponse{}
	s.backend.Sequencer.Read(func(state *orders.State, _ uint64) {
		e = state.Exposure(scope)
		m.KillSwitch = state.KillSwitch(scope)
		if firm, ok := state.FirmOf(scope.Number); ok && !scope.Firm {
			m.KillSwitch = m.KillSwitch || state.KillSwitch(orders.Scope{Firm: true, Number: firm})
		}
	})
	m.OpenOrders, m.OpenNotional = e.OpenOrders, e.OpenNotional
	for _, p := range e.Positions {
		m.Positions = append(m.Positions, &pb.Position{
			Symbol: p.Symbol.String(), NetQuantity: p.Net, OpenBuyQuantity: p.OpenBuy, OpenSellQuantity: p.OpenSell,
		})
	}
	return connect.NewResponse(m), nil
}

// EndDay implements AdminService.
func (s *service) EndDay(ctx context.Context, _ *connect.Request[pb.EndDayRequest]) (*connect.Response[pb.EndDayResponse], error) {
	answer, err := s.execute(ctx, &orders.Command{Kind: orders.EndDay})
	if err != nil {
		return nil, err
	}
	s.backend.DayEnded()
	return connect.NewResponse(&pb.EndDayResponse{ExpiredCount: answer.Count, Epoch: answer.Epoch}), nil
}

// GetStatus implements AdminService.
func (s *service) GetStatus(context.Context, *connect.Request[pb.GetStatusRequest]) (*connect.Response[pb.GetStatusResponse], error) {
	m := &pb.GetStatusResponse{
		Version: s.backend.Version, StartedNs: uint64(s.backend.Started.UnixNano()), JournalSync: s.backend.JournalSync,
		CommittedSequence: s.backend.Sequencer.Committed(),
	}
	s.backend.Sequencer.Read(func(state *orders.State, last uint64) {
		usage := state.Usage()
		m.LogSequence, m.OpenOrders = last, uint64(usage.OpenOrders)
		m.IdsUsed, m.IdsCapacity = uint64(usage.OrderIDs), uint64(usage.MaxIDs)
	})
	return connect.NewResponse(m), nil
}

// maxMetrics bounds what one answer says of the transports.
const maxMetrics = 1000

// GetCounters implements AdminService.
func (s *service) GetCounters(context.Context, *connect.Request[pb.GetCountersRequest]) (*connect.Response[pb.GetCountersResponse], error) {
	m := &pb.GetCountersResponse{
		StartedNs: uint64(s.backend.Started.UnixNano()), UptimeNs: uint64(time.Since(s.backend.Started)), Gomaxprocs: uint32(runtime.GOMAXPROCS(0)),
		Process: telemetry.ReadProcess(),
	}
	all := s.backend.Metrics()
	for _, transport := range slices.Sorted(maps.Keys(all)) {
		for _, metric := range all[transport] {
			if len(m.TransportMetrics) < maxMetrics {
				m.TransportMetrics = append(m.TransportMetrics, &pb.TransportMetric{
					Transport: transport, Name: metric.Name, Help: metric.Help, Counter: metric.Counter, Value: metric.Value,
				})
			}
		}
	}
	return connect.NewResponse(m), nil
}
