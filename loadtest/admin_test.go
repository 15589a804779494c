package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/transports/all"
)

// Keys of the gateway that production starts.
const tradeKey, operatorKey = "a trader's key", "an operator's key"

// production builds and starts the gateway's own binary, as somebody runs it beside whom the load tester comes, and returns where it listens, by transport.
func production(t *testing.T) map[string]string {
	t.Helper()
	folder := t.TempDir()
	binary := filepath.Join(folder, "gateway")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "tailgate/gateway").CombinedOutput(); err != nil {
		t.Fatalf("build the gateway: %v\n%s", err, out)
	}
	hash := func(key string) string {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:])
	}
	config := filepath.Join(folder, "gateway.yaml")
	text := fmt.Sprintf("accounts: [{name: alpha, key_sha256: [%s]}]\nadmin: {keys: [{name: ops, key_sha256: %s}]}\n", hash(tradeKey), hash(operatorKey))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--config", config, "--data", filepath.Join(folder, "data"), "--listen", "admin=127.0.0.1:0")
	for _, name := range all.Names() {
		address := "off"
		if name == "tcp" || name == "rest" {
			address = "127.0.0.1:0"
		}
		cmd.Args = append(cmd.Args, "--listen", name+"="+address)
	}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended, which is told below
		<-ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("the gateway: %v", err)
		}
	})
	addresses := map[string]string{}
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct{ Msg, Transport, Address string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Errorf("not a JSON log line: %s", lines.Text())
		}
		if line.Msg == "listening" {
			addresses[line.Transport] = line.Address
		}
		if line.Msg == "ready" {
			go func() {
				defer close(ended)
				for lines.Scan() { // so that the gateway never waits for who reads its log
				}
			}()
			return addresses
		}
	}
	close(ended)
	t.Fatal("the gateway ended before it was ready")
	return nil
}

// TestAdmin: the counters of a gateway that runs elsewhere stand in the results as a hosted one's do; where they cannot be had, the cell is measured all the
// same and says why.
func TestAdmin(t *testing.T) {
	addresses := production(t)
	older := httptest.NewServer(http.NotFoundHandler()) // what a gateway answers to a method that it does not have
	defer older.Close()
	measure := func(requests string, args ...string) (*process, report.Cell) {
		t.Helper()
		p := loadtest(t, append([]string{"--target", addresses["tcp"], "--transport", "tcp", "--key", tradeKey, "--clients", "4", "--requests", requests, "--warmup", "10ms"}, args...)...)
		p.want(t, exitOK)
		validate(t, filepath.Join(p.out, report.FileName))
		text, err := os.ReadFile(filepath.Join(p.out, report.FileName))
		if err != nil || bytes.Contains(text, []byte(operatorKey)) || strings.Contains(p.stdout+p.stderr, operatorKey) {
			t.Errorf("an administrator's key stands in the results: %v", err)
		}
		return p, p.run(t).Cells[0]
	}

	p, c := measure("3000", "--admin", addresses["admin"], "--admin-key", operatorKey)
	use := c.ServerUse
	if use == nil {
		t.Fatalf("no counters of the gateway: %v, %s", c.Reasons, p.stderr)
	}
	if use.UserCPUSeconds+use.SystemCPUSeconds <= 0 || use.CPUShare <= 0 || use.CPUShare > 1 || use.PeakRSSBytes < 1<<20 || use.SchedulerLatency.Count == 0 || use.Hardware.NotAvailable == "" || c.Gomaxprocs.Server < 1 {
		t.Errorf("%+v on %d", use, c.Gomaxprocs.Server)
	}
	if !slices.ContainsFunc(c.Metrics, func(m report.Metric) bool { return m.Name == "connections" }) {
		t.Errorf("no metrics of its transport: %+v", c.Metrics)
	}
	if c.TCP.Client.TCPCounts == nil || c.TCP.Server.TCPCounts == nil || c.TCP.Server.Connections != 4 || c.TCP.Client.BytesSent == 0 || c.TCP.Server.BytesReceived == 0 {
		t.Errorf("TCP's figures of both ends, which this machine has: %+v", c.TCP)
	}
	if !strings.Contains(p.stdout, "scheduler latency") || p.stderr != "" || p.run(t).Method.Admin != addresses["admin"] {
		t.Errorf("%s\n%s", p.stdout, p.stderr)
	}

	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"--admin", addresses["admin"]}, "give an administrator's key with --admin-key or in TAILGATE_ADMIN_KEY"},
		{[]string{"--admin", addresses["admin"], "--admin-key", "wrong"}, "check --admin-key and TAILGATE_ADMIN_KEY"},
		{[]string{"--admin", addresses["admin"], "--admin-key=" + tradeKey}, "check --admin-key and TAILGATE_ADMIN_KEY"},
		{[]string{"--admin", "127.0.0.1:1", "--admin-key", operatorKey}, "nobody listens there"},
		{[]string{"--admin", "no.such.host.invalid:9090"}, "check the host in --admin"},
		{[]string{"--admin", addresses["rest"], "--admin-key", operatorKey}, "is this the admin listener (9090 unless told otherwise)"},
		{[]string{"--admin", addresses["tcp"], "--admin-key", operatorKey}, "is this the admin listener (9090 unless told otherwise)"},
		{[]string{"--admin", older.Listener.Addr().String()}, "of a gateway that has GetCounters"},
	} {
		p, c := measure("300", row.args...)
		reasons := strings.Join(c.Reasons, "; ")
		if c.ServerUse != nil || c.Validity == runner.Invalid || c.OK != 300 || !strings.Contains(reasons, row.want) || !strings.Contains(p.stderr, row.want) || !strings.Contains(p.stderr, "going on without them") {
			t.Errorf("%v: %s with %d ok because of %q, want %q; said: %s", row.args[:2], c.Validity, c.OK, reasons, row.want, p.stderr)
		}
	}
}

// TestAdminFlags: what cannot be meant is refused.
func TestAdminFlags(t *testing.T) {
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"--admin", "gw:9090"}, "--admin: needs --target"},
		{[]string{"--target", "gw:7001", "--transport", "tcp", "--admin", "gw"}, `--admin "gw": needed is HOST:PORT`},
		{[]string{"--target", "gw:7001", "--transport", "tcp", "--admin-key", "k"}, "--admin-key: needs --admin"},
	} {
		if p := loadtest(t, row.args...); p.status != exitUsage || !strings.Contains(p.stderr, row.want) {
			t.Errorf("%v: status %d, %s; want %q", row.args, p.status, p.stderr, row.want)
		}
	}
}
