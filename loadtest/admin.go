package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"tailgate/loadtest/hardware"
	"tailgate/loadtest/machine"
	"tailgate/loadtest/runner"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/proto/gen/orderentry/v1/orderentryv1connect"
	"tailgate/transports"
)

const (
	// adminPort is where a gateway's admin listener is unless told otherwise.
	adminPort = 9090
	// maxCounters bounds an answer with counters, in bytes: 1,000 metrics and 1,000 buckets are far below.
	maxCounters = 1 << 20
)

// adminReader reads a running gateway's counters on its admin listener. Safe for concurrent use.
type adminReader struct {
	client    orderentryv1connect.AdminServiceClient
	address   string
	key       string
	tls       bool
	transport string // whose metrics are wanted

	mu      sync.Mutex
	metrics []transports.Metric // of the last reading
	procs   int
}

// prepareAdmin prepares the reading of the target's counters, where it was asked for.
func (p *plan) prepareAdmin() error {
	o := p.options
	if o.Admin == "" {
		return nil
	}
	host, err := hostOf("--admin", o.Admin)
	if err != nil {
		return err
	}
	// No proxy: an administrator's key goes to the gateway and nobody else. A connection for each reading, since there are two a cell and the
	// gateway closes idle ones.
	transport := &http.Transport{DisableKeepAlives: true}
	scheme := "http"
	if o.TLS {
		scheme = "https"
		transport.TLSClientConfig = p.tls.Clone()
		transport.TLSClientConfig.ServerName = host
	}
	p.admin = &adminReader{
		client:  orderentryv1connect.NewAdminServiceClient(&http.Client{Transport: transport}, scheme+"://"+o.Admin, connect.WithReadMaxBytes(maxCounters)),
		address: o.Admin, key: o.AdminKey, tls: o.TLS, transport: p.cells[0].spec.Transport.Name,
	}
	return nil
}

// Counters reads them. The error says what to do.
func (a *adminReader) Counters(ctx context.Context) (runner.Reading, error) {
	request := connect.NewRequest(&pb.GetCountersRequest{})
	if a.key != "" {
		request.Header().Set("Authorization", "Bearer "+a.key)
	}
	response, err := a.client.GetCounters(ctx, request)
	if err != nil {
		return runner.Reading{}, fmt.Errorf("the gateway's counters at %s: %w%s", a.address, err, a.advice(err))
	}
	m := response.Msg
	c := m.GetProcess()
	if c == nil || c.UserCpuNs == nil {
		return runner.Reading{}, fmt.Errorf("the gateway's counters at %s: its system does not tell what a process has used", a.address)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.procs, a.metrics = int(m.GetGomaxprocs()), nil
	for _, metric := range m.GetTransportMetrics() {
		if metric.GetTransport() == a.transport {
			a.metrics = append(a.metrics, transports.Metric{Name: metric.GetName(), Help: metric.GetHelp(), Counter: metric.GetCounter(), Value: metric.GetValue()})
		}
	}
	reading := runner.Reading{
		Process: fmt.Sprint(m.GetStartedNs()), Cores: a.procs,
		Counters: machine.Counters{
			At: time.Duration(m.GetUptimeNs()), UserCPU: time.Duration(c.GetUserCpuNs()), SystemCPU: time.Duration(c.GetSystemCpuNs()),
			VoluntarySwitches: int64(c.GetVoluntarySwitches()), InvoluntarySwitches: int64(c.GetInvoluntarySwitches()),
			MinorFaults: int64(c.GetMinorFaults()), MajorFaults: int64(c.GetMajorFaults()), PeakRSS: int64(c.GetPeakResidentBytes()),
			AllocatedBytes: c.GetAllocatedBytes(), AllocatedObjects: c.GetAllocatedObjects(), GCCycles: int64(c.GetGcCycles()), GCPause: time.Duration(c.GetGcPauseNs()),
			MutexWait: time.Duration(c.GetMutexWaitNs()), Hardware: hardware.Reading{NotAvailable: "a running gateway does not count them"},
		},
	}
	for _, b := range c.GetSchedulerLatency() {
		reading.SchedulerLatency = append(reading.SchedulerLatency, machine.Bucket{From: time.Duration(b.GetFromNs()), Until: time.Duration(b.GetUntilNs()), Count: b.GetCount()})
	}
	return reading, nil
}

// Metrics are the transport's own of the last reading.
func (a *adminReader) Metrics(context.Context) ([]transports.Metric, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.metrics, nil
}

// Gomaxprocs is the gateway's, 0 where nothing was read.
func (a *adminReader) Gomaxprocs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.procs
}

// advice is what to do about an admin listener that does not answer as it should, as the end of a sentence.
func (a *adminReader) advice(err error) string {
	var dns *net.DNSError
	text := err.Error()
	switch code := connect.CodeOf(err); {
	case errors.As(err, &dns):
		return "; check the host in --admin"
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("; nobody listens there: is the admin listener on, and on this port? (%d unless told otherwise)", adminPort)
	case code == connect.CodeUnauthenticated && a.key == "":
		return "; give an administrator's key with --admin-key or in TAILGATE_ADMIN_KEY"
	case code == connect.CodeUnauthenticated || code == connect.CodePermissionDenied:
		return "; check --admin-key and TAILGATE_ADMIN_KEY against admin.keys of the gateway's configuration"
	case strings.Contains(text, "x509: "):
		return "; name the authority with --tls-ca, or take any certificate with --tls-insecure"
	case a.tls:
		return fmt.Sprintf("; is this the admin listener (%d unless told otherwise), of a gateway that has GetCounters and speaks TLS there?", adminPort)
	default:
		return fmt.Sprintf("; is this the admin listener (%d unless told otherwise), of a gateway that has GetCounters and speaks no TLS there (--tls)?", adminPort)
	}
}

// checkAdmin reads the counters once before anything is measured. Where that fails, the cells are measured without them, and each says so.
func (p *plan) checkAdmin(ctx context.Context) error {
	if p.admin == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, runner.DialTimeout)
	defer cancel()
	_, err := p.admin.Counters(ctx)
	return err
}
