package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"tailgate/gateway/config"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/proto/gen/orderentry/v1/orderentryv1connect"
)

// adminTimeout bounds one request to a gateway. The end of a day with millions of open orders takes seconds.
const adminTimeout = time.Minute

// adminCmd asks a running gateway.
type adminCmd struct {
	Address string `help:"Where the gateway's admin listener is (default: the configuration's)." env:"TAILGATE_ADMIN_ADDRESS" placeholder:"HOST:PORT"`
	Key     string `help:"Administrator's key; none is needed on loopback when the gateway has no accounts." env:"TAILGATE_ADMIN_KEY" placeholder:"KEY"`
	JSON    bool   `help:"Print the answer as JSON."`
	TLS     bool   `help:"Speak TLS (default: as the configuration has it)."`

	Status   struct{}      `cmd:"" help:"Show how the gateway is doing."`
	Counters struct{}      `cmd:"" help:"Show what the process has used since it started, and what its transports count."`
	Exposure scopeFlags    `cmd:"" help:"Show what a firm or an account has open and holds."`
	Limits   scopeFlags    `cmd:"" help:"Show the limits of a firm or an account."`
	Set      setLimitsCmd  `cmd:"" name:"set-limits" help:"Change limits of a firm or an account; those not given stay as they are."`
	Kill     killSwitchCmd `cmd:"" name:"kill-switch" help:"Block a firm's or an account's entry and cancel what it has open, or lift the block."`
	EndDay   endDayCmd     `cmd:"" name:"end-day" help:"End the day: DAY orders expire, ids and events of ended orders are let go, the epoch moves on."`
}

// scopeFlags say whom a request means.
type scopeFlags struct {
	Firm    string `help:"A firm with all its accounts." xor:"scope" required:"" placeholder:"NAME"`
	Account string `help:"One account." xor:"scope" required:"" placeholder:"NAME"`
}

func (f *scopeFlags) message() *pb.Scope {
	if f.Firm != "" {
		return &pb.Scope{Scope: &pb.Scope_Firm{Firm: f.Firm}}
	}
	return &pb.Scope{Scope: &pb.Scope_Account{Account: f.Account}}
}

type setLimitsCmd struct {
	scopeFlags

	MaxQuantity       *uint64   `help:"Lots of one order; 0 = no bound, here and below." placeholder:"LOTS"`
	MaxNotional       *int64    `help:"Ticks x lots of one order." placeholder:"N"`
	PriceCollarBps    *uint32   `help:"Distance from the last trade, in 1/10,000 of it." placeholder:"BPS"`
	MaxOpenOrders     *uint32   `help:"Open orders." placeholder:"N"`
	MaxOpenNotional   *int64    `help:"Ticks x lots of all open orders." placeholder:"N"`
	MaxPosition       *uint64   `help:"Lots either way in each instrument." placeholder:"LOTS"`
	RestrictedSymbols *[]string `help:"Symbols that may not be traded, separated by commas; \"\" = none." placeholder:"SYMBOL,..." sep:"none"`
	MaxOrderRate      *uint32   `help:"Orders and replaces in a second." placeholder:"N"`
}

type killSwitchCmd struct {
	scopeFlags

	Engage bool   `help:"Block and cancel." xor:"switch" required:""`
	Lift   bool   `help:"Lift the block." xor:"switch" required:""`
	Text   string `help:"Why, for the record; at most 256 bytes." placeholder:"TEXT"`
}

type endDayCmd struct {
	Yes bool `help:"Needed, because it cannot be taken back." required:""`
}

// run carries out the command of that name against the gateway of the configuration.
func (a *adminCmd) run(command string, conf config.Config, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	answer, err := a.ask(ctx, a.client(conf), command)
	if err != nil {
		fmt.Fprintf(stderr, "gateway: %s: %v\n", command, explain(err, a.address(conf)))
		return exitFailure
	}
	if a.JSON {
		text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true, Multiline: true}.Marshal(answer)
		if err != nil {
			fmt.Fprintln(stderr, "gateway: error:", err)
			return exitFailure
		}
		fmt.Fprintln(stdout, string(text))
		return exitOK
	}
	a.writeAnswer(stdout, answer)
	return exitOK
}

func (a *adminCmd) address(conf config.Config) string {
	if a.Address != "" {
		return a.Address
	}
	return conf.Admin.Address
}

func (a *adminCmd) client(conf config.Config) orderentryv1connect.AdminServiceClient {
	scheme := "http"
	if a.TLS || conf.TLS.Certificate != "" && a.Address == "" {
		scheme = "https"
	}
	// No proxy: an administrator's key goes to the gateway and nobody else.
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	return orderentryv1connect.NewAdminServiceClient(&http.Client{Transport: transport}, scheme+"://"+a.address(conf),
		connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
				if a.Key != "" {
					r.Header().Set("Authorization", "Bearer "+a.Key)
				}
				return next(ctx, r)
			}
		})))
}

// ask sends what the command asks for.
func (a *adminCmd) ask(ctx context.Context, client orderentryv1connect.AdminServiceClient, command string) (proto.Message, error) {
	switch command {
	case "admin status":
		return message(client.GetStatus(ctx, connect.NewRequest(&pb.GetStatusRequest{})))
	case "admin counters":
		return message(client.GetCounters(ctx, connect.NewRequest(&pb.GetCountersRequest{})))
	case "admin exposure":
		return message(client.GetExposure(ctx, connect.NewRequest(&pb.GetExposureRequest{Scope: a.Exposure.message()})))
	case "admin limits":
		return message(client.GetLimits(ctx, connect.NewRequest(&pb.GetLimitsRequest{Scope: a.Limits.message()})))
	case "admin set-limits":
		return a.Set.ask(ctx, client)
	case "admin kill-switch":
		return message(client.SetKillSwitch(ctx, connect.NewRequest(&pb.SetKillSwitchRequest{
			Scope: a.Kill.message(), Engaged: a.Kill.Engage, Text: a.Kill.Text,
		})))
	case "admin end-day":
		return message(client.EndDay(ctx, connect.NewRequest(&pb.EndDayRequest{})))
	default:
		return nil, fmt.Errorf("the command %q has no code", command)
	}
}

// ask reads the limits, changes those that were given, and sets them. Two administrators at the same moment may undo each other's
// change; the answer shows what stands.
func (s *setLimitsCmd) ask(ctx context.Context, client orderentryv1connect.AdminServiceClient) (proto.Message, error) {
	now, err := client.GetLimits(ctx, connect.NewRequest(&pb.GetLimitsRequest{Scope: s.message()}))
	if err != nil {
		return nil, err
	}
	limits := now.Msg.GetLimits()
	change(&limits.MaxQuantity, s.MaxQuantity)
	change(&limits.MaxNotional, s.MaxNotional)
	change(&limits.PriceCollarBps, s.PriceCollarBps)
	change(&limits.MaxOpenOrders, s.MaxOpenOrders)
	change(&limits.MaxOpenNotional, s.MaxOpenNotional)
	change(&limits.MaxPosition, s.MaxPosition)
	change(&limits.MaxOrderRate, s.MaxOrderRate)
	if s.RestrictedSymbols != nil {
		limits.RestrictedSymbols = nil
		for _, text := range *s.RestrictedSymbols {
			for symbol := range strings.SplitSeq(text, ",") {
				if symbol != "" {
					limits.RestrictedSymbols = append(limits.RestrictedSymbols, symbol)
				}
			}
		}
	}
	return message(client.SetLimits(ctx, connect.NewRequest(&pb.SetLimitsRequest{Scope: s.message(), Limits: limits})))
}

func change[T any](value *T, given *T) {
	if given != nil {
		*value = *given
	}
}

func message[T any, M interface {
	*T
	proto.Message
}](r *connect.Response[T], err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	return M(r.Msg), nil
}

// explain adds what to do, as far as it is known.
func explain(err error, address string) error {
	if connect.CodeOf(err) == connect.CodeUnavailable && errors.Is(err, os.ErrDeadlineExceeded) || connect.CodeOf(err) == connect.CodeUnavailable && !connect.IsWireError(err) {
		return fmt.Errorf("nobody answers at %s: %w; is the gateway running, and is its admin listener there? (--address HOST:PORT)", address, err)
	}
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		return fmt.Errorf("what answers at %s is no admin listener: %w (--address HOST:PORT)", address, err)
	}
	if connect.CodeOf(err) == connect.CodeUnauthenticated {
		return fmt.Errorf("%w (--key KEY or TAILGATE_ADMIN_KEY)", err)
	}
	return err
}

// writeAnswer writes an answer as lines of names and values.
func (a *adminCmd) writeAnswer(w io.Writer, answer proto.Message) {
	row := func(name string, value any) { fmt.Fprintf(w, "%-18s %v\n", name, value) }
	switch m := answer.(type) {
	case *pb.GetStatusResponse:
		row("version", m.GetVersion())
		row("started", time.Unix(0, int64(m.GetStartedNs())).UTC().Format(time.RFC3339))
		row("journal", fmt.Sprintf("sync %s, %d commands, %d committed", m.GetJournalSync(), m.GetLogSequence(), m.GetCommittedSequence()))
		row("open orders", m.GetOpenOrders())
		row("ids", fmt.Sprintf("%d of %d", m.GetIdsUsed(), m.GetIdsCapacity()))
	case *pb.GetCountersResponse:
		writeCounters(w, row, m)
	case *pb.GetExposureResponse:
		row("open orders", m.GetOpenOrders())
		row("open notional", fmt.Sprintf("%d ticks x lots", m.GetOpenNotional()))
		row("kill switch", map[bool]string{true: "engaged", false: "off"}[m.GetKillSwitch()])
		for _, p := range m.GetPositions() {
			row(p.GetSymbol(), fmt.Sprintf("position %+d lots, open to buy %d, open to sell %d", p.GetNetQuantity(), p.GetOpenBuyQuantity(), p.GetOpenSellQuantity()))
		}
	case *pb.GetLimitsResponse:
		writeLimits(row, m.GetLimits())
	case *pb.SetLimitsResponse:
		writeLimits(row, m.GetLimits())
	case *pb.SetKillSwitchResponse:
		row("kill switch", map[bool]string{true: "engaged", false: "lifted"}[a.Kill.Engage])
		row("orders canceled", m.GetCanceledCount())
	case *pb.EndDayResponse:
		row("orders expired", m.GetExpiredCount())
		row("epoch now", m.GetEpoch())
	}
}

func writeLimits(row func(string, any), l *pb.Limits) {
	bound := func(name string, value uint64, unit string) {
		if value == 0 {
			row(name, "no bound")
			return
		}
		row(name, fmt.Sprint(value, " ", unit))
	}
	bound("max quantity", l.GetMaxQuantity(), "lots of one order")
	bound("max notional", uint64(l.GetMaxNotional()), "ticks x lots of one order")
	bound("price collar", uint64(l.GetPriceCollarBps()), "basis points")
	bound("max open orders", uint64(l.GetMaxOpenOrders()), "orders")
	bound("max open notional", uint64(l.GetMaxOpenNotional()), "ticks x lots")
	bound("max position", l.GetMaxPosition(), "lots either way")
	bound("max order rate", uint64(l.GetMaxOrderRate()), "orders and replaces a second")
	symbols := "none"
	if len(l.GetRestrictedSymbols()) > 0 {
		symbols = strings.Join(l.GetRestrictedSymbols(), " ")
	}
	row("restricted symbols", symbols)
}

// writeCounters leaves out what the gateway's system does not tell.
func writeCounters(w io.Writer, row func(string, any), m *pb.GetCountersResponse) {
	p := m.GetProcess()
	ns := func(n uint64) time.Duration { return time.Duration(n).Round(time.Microsecond) }
	row("up", ns(m.GetUptimeNs()).Round(time.Second))
	row("gomaxprocs", m.GetGomaxprocs())
	if p.UserCpuNs != nil {
		row("cpu time", fmt.Sprintf("%v user, %v system", ns(p.GetUserCpuNs()), ns(p.GetSystemCpuNs())))
		row("context switches", fmt.Sprintf("%d voluntary, %d involuntary", p.GetVoluntarySwitches(), p.GetInvoluntarySwitches()))
		row("page faults", fmt.Sprintf("%d minor, %d major", p.GetMinorFaults(), p.GetMajorFaults()))
		row("peak memory", fmt.Sprintf("%d MiB resident", p.GetPeakResidentBytes()>>20))
	}
	row("allocated", fmt.Sprintf("%d bytes, %d objects", p.GetAllocatedBytes(), p.GetAllocatedObjects()))
	row("collector", fmt.Sprintf("%d cycles, %v stopped", p.GetGcCycles(), ns(p.GetGcPauseNs())))
	row("mutex wait", ns(p.GetMutexWaitNs()))
	for _, q := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		row("scheduler "+q.name, latencyAtMost(p.GetSchedulerLatency(), q.share))
	}
	for _, metric := range m.GetTransportMetrics() {
		fmt.Fprintf(w, "%-18s %v  %s\n", metric.GetTransport()+" "+metric.GetName(), metric.GetValue(), metric.GetHelp())
	}
}

// latencyAtMost is the end of the range in which the percentile lies.
func latencyAtMost(buckets []*pb.LatencyBucket, share float64) string {
	var total, n uint64
	for _, b := range buckets {
		total += b.GetCount()
	}
	for _, b := range buckets {
		if n += b.GetCount(); float64(n) >= share*float64(total) {
			if b.GetUntilNs() == math.MaxInt64 {
				return fmt.Sprintf("above %v", time.Duration(b.GetFromNs()))
			}
			return fmt.Sprintf("at most %v", time.Duration(b.GetUntilNs()))
		}
	}
	return "not known"
}
