package admin_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"tailgate/gateway/admin"
	"tailgate/gateway/orders"
	"tailgate/gateway/sequencer"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/proto/gen/orderentry/v1/orderentryv1connect"
	"tailgate/transports"
)

// openLog is a log that promises nothing and keeps nothing.
type openLog struct {
	sequencer.Log
	last uint64
}

func (l *openLog) Append(int64, []byte) (uint64, error)      { l.last++; return l.last, nil }
func (l *openLog) Commit(r transports.Releaser, mark uint64) { r.Release(mark, nil) }
func (l *openLog) Committed() uint64                         { return l.last }
func (l *openLog) Err() error                                { return nil }

// start serves an empty gateway with the account demo; the key is "secret".
func start(t *testing.T) string {
	t.Helper()
	return "http://" + startWith(t, func(b admin.Backend) (*admin.Server, error) {
		return admin.Listen(context.Background(), "127.0.0.1:0", nil, b, nil)
	}).Addr().String()
}

// startWith is start with a listener of the caller's.
func startWith(t *testing.T, listen func(admin.Backend) (*admin.Server, error)) *admin.Server {
	t.Helper()
	replica, err := sequencer.NewReplica(orders.Options{MaxOpenOrders: 1000, MaxLevels: 1000})
	if err != nil {
		t.Fatal(err)
	}
	s := sequencer.New(replica, &openLog{})
	for _, c := range []*orders.Command{
		{Kind: orders.DefineFirm, Name: "north"},
		{Kind: orders.DefineAccount, Name: "demo", Firm: "north"},
	} {
		var answer orders.Answer
		if err := s.Execute(c, &answer); err != nil {
			t.Fatal(err)
		}
	}
	server, err := listen(admin.Backend{
		Sequencer: s, DayEnded: func() {}, Metrics: metrics, Version: "test", JournalSync: "os", Started: time.Now(),
		Authorize: func(key string, _ net.Addr) (string, error) {
			if key != "secret" {
				return "", transports.Refuse(pb.Reason_REASON_UNAUTHENTICATED, "nobody has this key")
			}
			return "ops", nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t)
	})
	return server
}

// metrics are those of a transport that counts.
func metrics() map[string][]transports.Metric {
	return map[string][]transports.Metric{
		"tcp": {{Name: "credit_grants_total", Help: "Grants.", Counter: true, Value: 3}, {Name: "credit_pool_units", Help: "Pool.", Value: 7.5}},
		"abc": {{Name: "first", Value: 1}},
	}
}

// TestJSON is what an operator with curl meets: each row a request and what its answer says.
func TestJSON(t *testing.T) {
	address := start(t)
	for _, row := range []struct {
		method, body, authorization string
		status                      int
		want                        string
	}{
		{"GetStatus", `{}`, "Bearer secret", 200, `"log_sequence":"2"`},
		{"GetStatus", `{}`, "", 401, `nobody has this key`},
		{"GetStatus", `{}`, "Bearer other", 401, `REASON_UNAUTHENTICATED`},
		{"GetStatus", `{}`, "secret", 401, `Bearer KEY`},
		{"GetStatus", `{"no_such": 1}`, "Bearer secret", 400, `no_such`},
		{"GetStatus", `{`, "Bearer secret", 400, `invalid_argument`},
		{"Reload", `{}`, "Bearer secret", 501, `unimplemented`},
		{"GetExposure", `{}`, "Bearer secret", 400, `scope`},
		{"GetExposure", `{"scope": {"account": "nobody"}}`, "Bearer secret", 404, `there is no account \"nobody\"`},
		{"GetExposure", `{"scope": {"firm": "north"}}`, "Bearer secret", 200, `"open_orders":0`},
		{"SetLimits", `{"scope": {"account": "demo"}}`, "Bearer secret", 400, `limits`},
		{"SetLimits", `{"scope": {"account": "demo"}, "limits": {"max_notional": "-1"}}`, "Bearer secret", 400, `limits.max_notional: is -1`},
		{"SetLimits", `{"scope": {"account": "demo"}, "limits": {"restricted_symbols": ["lower"]}}`, "Bearer secret", 400, `limits.restricted_symbols[0]`},
		{"SetLimits", `{"scope": {"account": "demo"}, "limits": {"max_position": "5", "restricted_symbols": ["B","A","B"]}}`, "Bearer secret", 200, `"restricted_symbols":["A","B"]`},
		{"GetLimits", `{"scope": {"account": "demo"}}`, "Bearer secret", 200, `"max_position":"5"`},
		{"SetKillSwitch", `{"scope": {"firm": "north"}, "engaged": true, "text": "` + strings.Repeat("x", 257) + `"}`, "Bearer secret", 400, `text`},
		{"SetKillSwitch", `{"scope": {"firm": "north"}, "engaged": true}`, "Bearer secret", 200, `"canceled_count":0`},
		{"GetExposure", `{"scope": {"firm": "north"}}`, "Bearer secret", 200, `"kill_switch":true`},
		{"EndDay", `{}`, "Bearer secret", 200, `"epoch":2`},
		{"GetCounters", `{}`, "Bearer other", 401, `REASON_UNAUTHENTICATED`},
		{"GetCounters", `{}`, "Bearer secret", 200, `"transport_metrics":[{"transport":"abc","name":"first","help":"","counter":false,"value":1},{"transport":"tcp","name":"credit_grants_total","help":"Grants.","counter":true,"value":3},{"transport":"tcp"`},
		{"GetStatus", strings.Repeat(" ", 65<<10), "Bearer secret", 429, `resource_exhausted`},
	} {
		request, err := http.NewRequest(http.MethodPost, address+"/orderentry.v1.AdminService/"+row.method, strings.NewReader(row.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		if row.authorization != "" {
			request.Header.Set("Authorization", row.authorization)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		// protojson puts spaces in or not, as it likes.
		text := strings.ReplaceAll(string(body), `": `, `":`)
		text = strings.ReplaceAll(text, `, "`, `,"`)
		text = strings.ReplaceAll(text, `}, {`, `},{`)
		if response.StatusCode != row.status || !strings.Contains(text, row.want) {
			t.Errorf("%s %s: status %d, want %d with %s:\n%s", row.method, row.body[:min(80, len(row.body))], response.StatusCode, row.status, row.want, text)
		}
	}
}

// TestCounters: two readings differ by what the process has done between them, on one clock.
func TestCounters(t *testing.T) {
	address := start(t)
	client := orderentryv1connect.NewAdminServiceClient(http.DefaultClient, address)
	read := func() *pb.GetCountersResponse {
		t.Helper()
		request := connect.NewRequest(&pb.GetCountersRequest{})
		request.Header().Set("Authorization", "Bearer secret")
		response, err := client.GetCounters(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return response.Msg
	}
	first := read()
	var keep [][]byte
	for range 100 {
		keep = append(keep, make([]byte, 64<<10))
	}
	runtime.GC()
	last := read()
	runtime.KeepAlive(keep)
	a, b := first.GetProcess(), last.GetProcess()
	if first.GetStartedNs() != last.GetStartedNs() || last.GetUptimeNs() <= first.GetUptimeNs() || int(last.GetGomaxprocs()) != runtime.GOMAXPROCS(0) {
		t.Errorf("started %d and %d, up for %d and %d ns, %d threads", first.GetStartedNs(), last.GetStartedNs(), first.GetUptimeNs(), last.GetUptimeNs(), last.GetGomaxprocs())
	}
	if b.GetAllocatedBytes()-a.GetAllocatedBytes() < 100*64<<10 || b.GetGcCycles() == a.GetGcCycles() || b.GetGcPauseNs() <= a.GetGcPauseNs() || b.GetMutexWaitNs() < a.GetMutexWaitNs() {
		t.Errorf("100 blocks of 64 KiB and a collection:\n%v\n%v", a, b)
	}
	count := func(c *pb.ProcessCounters) (n uint64) {
		for _, bucket := range c.GetSchedulerLatency() {
			if n += bucket.GetCount(); bucket.GetCount() == 0 || bucket.GetUntilNs() <= bucket.GetFromNs() {
				t.Errorf("bucket %v", bucket)
			}
		}
		return n
	}
	if count(b) < count(a) || count(b) == 0 {
		t.Errorf("%d and then %d scheduler latencies", count(a), count(b))
	}
	if runtime.GOOS == "linux" && (b.UserCpuNs == nil || b.GetUserCpuNs()+b.GetSystemCpuNs() <= a.GetUserCpuNs()+a.GetSystemCpuNs() || b.GetPeakResidentBytes() < 1<<20) {
		t.Errorf("what the kernel knows:\n%v\n%v", a, b)
	}
}
