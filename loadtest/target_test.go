package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tailgate/loadtest/host"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
)

// gateway starts one that is no part of a run, with one transport.
func gateway(t *testing.T, transport string) *host.Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := host.Start(t.Context(), host.Options{
		Command: []string{"env", asMain + "=1", self, childCommand},
		Task:    host.Task{Transport: transport, Keys: host.NewKeys(2), Sync: "os", MaxConnections: 32},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// ordersWith asks a gateway how many orders of an account have ids that begin with the prefix.
func ordersWith(t *testing.T, prefix, address, key string) (n int64) {
	t.Helper()
	spec, err := all.Parse(name())
	if err != nil {
		t.Fatal(err)
	}
	client, err := spec.Transport.Dial(t.Context(), transports.DialConfig{Address: address, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	request := &pb.ListOrdersRequest{State: pb.ListOrdersState_LIST_ORDERS_STATE_ALL, PageSize: 1000}
	for {
		var response pb.ListOrdersResponse
		if err := client.Do(t.Context(), &transports.Call{Operation: transports.ListOrders, Request: request, Response: &response}); err != nil {
			t.Fatal(err)
		}
		for _, o := range response.Orders {
			if strings.HasPrefix(o.ClientOrderId, prefix) {
				n++
			}
		}
		if request.PageToken = response.NextPageToken; request.PageToken == "" {
			return n
		}
	}
}

// TestTarget drives a gateway that is not the run's own, by its address and by a name. It shares this machine, so it is SUSPECT, with that
// reason, and the connections that are really open are counted for a name too.
func TestTarget(t *testing.T) {
	gateway := gateway(t, name())
	address := gateway.Address(name())
	_, port, _ := strings.Cut(address, ":")
	for _, target := range []string{address, address, "localhost:" + port} { // a later run's ids must not be an earlier one's again
		p := loadtest(t, "--target", target, "--transport", name(), "--clients", "4", "--requests", "200", "--warmup", "10ms", "--key", gateway.Keys()[0], "--key="+gateway.Keys()[1])
		p.want(t, exitOK)
		r := p.run(t)
		c := r.Cells[0]
		if len(r.Cells) != 1 || c.OK != 200 || c.ServerUse != nil || r.Method.Target != target || r.Method.Accounts != 2 || r.Method.Pinned {
			t.Errorf("%+v with %v", c, c.Notes)
		}
		if reasons := strings.Join(c.Reasons, "; "); c.Validity == runner.Valid || !strings.Contains(reasons, "not pinned: the gateway at "+target+" runs on this machine") || !strings.Contains(strings.Join(strings.Fields(p.stdout), " "), "gateway at "+target+"; not pinned.") {
			t.Errorf("%s is %s because of %q:\n%s", target, c.Validity, reasons, p.stdout)
		}
		if open := c.Connections.Open; open == nil && !strings.Contains(strings.Join(c.Reasons, "; "), "could not be checked") || open != nil && *open != 4 {
			t.Errorf("%s: connections %+v because of %v", target, c.Connections, c.Reasons)
		}
		// Whatever the gateway says it knows of this run is what the run says was answered.
		known := int64(0)
		for _, key := range gateway.Keys() {
			known += ordersWith(t, c.IDPrefix, address, key)
		}
		if answered := c.OK + c.Rejected + c.WarmupFates.OK + c.WarmupFates.Rejected; known != answered || c.WarmupFates.Requests == 0 {
			t.Errorf("%s: the gateway has %d orders with ids from %q, the run %d: %+v and %+v", target, known, c.IDPrefix, answered, c.Fates, c.WarmupFates)
		}
		text, err := os.ReadFile(filepath.Join(p.out, report.FileName))
		for _, key := range gateway.Keys() {
			if err != nil || bytes.Contains(text, []byte(key)) || strings.Contains(p.stdout+p.stderr, key) {
				t.Errorf("a key stands in the results: %v", err)
			}
		}
	}
	// A size that this gateway's instruments do not allow ends the run before anything is measured.
	p := loadtest(t, "matrix", "--target", address, "--key", gateway.Keys()[0], "--transports", name(), "--sizes", "64,20", "--clients", "1")
	if _, err := os.Stat(p.out); p.status != exitUsage || !strings.Contains(p.stderr, "--sizes: size 20: the smallest order has 32 bytes") || err == nil {
		t.Errorf("status %d, %q, results: %v; want 2, the size and no results", p.status, p.stderr, err)
	}
}

// TestWrongTargets: a target that is not what was asked for is told with where, what and what to do, once, and nothing is measured. Every transport's client meets
// a server of every other kind.
func TestWrongTargets(t *testing.T) {
	t.Parallel()
	addresses, keys := map[string]string{}, map[string]string{}
	for _, transport := range all.Names() {
		p := gateway(t, transport)
		addresses[transport], keys[transport] = p.Address(transport), p.Keys()[0]
	}
	type attempt struct {
		address string
		args    []string
		say     []string
	}
	attempts := []attempt{
		{"127.0.0.1:1", []string{"--transports", name()}, []string{"refused", "nobody listens there", "--target", name() + " "}},
		{"no.such.host.invalid:7001", []string{"--transports", name()}, []string{"no.such.host.invalid", "check the host in --target"}},
	}
	for _, transport := range all.Names() {
		attempts = append(attempts,
			attempt{addresses[transport], []string{"--transports", transport}, []string{"UNAUTHENTICATED", "give an account's key with --key"}},
			attempt{addresses[transport], []string{"--transports", transport, "--key", "wrong"}, []string{"UNAUTHENTICATED", "check --key"}},
			attempt{addresses[transport], []string{"--transports", transport, "--key", keys[transport], "--tls", "--tls-insecure"}, []string{"does this port speak TLS?", "leave out --tls"}},
		)
		for _, other := range kinds() {
			// What serves the API of rest answers every client of it.
			if other != transport && !(other == "rest" && slices.Contains([]string{"fasthttp", "fiber", "echo"}, transport)) {
				attempts = append(attempts, attempt{addresses[other], []string{"--transports", transport, "--key", keys[other]}, []string{"does this port speak " + transport + "?", other + " ", "--tls"}})
			}
		}
	}
	for _, a := range attempts {
		t.Run(strings.Join(append(a.args[1:2:2], a.say[0]), " "), func(t *testing.T) {
			t.Parallel()
			p := loadtest(t, append([]string{"matrix", "--target", a.address, "--sizes", "64", "--clients", "1,2"}, a.args...)...)
			for _, want := range append(a.say, a.address) {
				if p.status != exitFailure || !strings.Contains(p.stderr, want) {
					t.Errorf("%s %v: status %d, %q; want 1 and %q", a.address, a.args, p.status, p.stderr, want)
				}
			}
			if n := strings.Count(p.stderr, "loadtest: "); n != 2 { // why, and what it comes to
				t.Errorf("%s %v: said %d times: %s", a.address, a.args, n, p.stderr)
			}
			r := p.run(t)
			if len(r.Cells) != 2 {
				t.Errorf("%s %v: %d cells, want both as not measured", a.address, a.args, len(r.Cells))
			}
			for _, c := range r.Cells {
				if c.Validity != runner.Invalid || c.Client != nil || !strings.HasPrefix(strings.Join(c.Reasons, ""), "not measured: ") {
					t.Errorf("%s %v: %s %v", a.address, a.args, c.Validity, c.Reasons)
				}
			}
		})
	}
}
