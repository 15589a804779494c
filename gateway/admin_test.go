package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// TestAdminCommands goes through all of them against a running gateway, as an operator does.
func TestAdminCommands(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, dir)
	client := dialProcess(t, p, "tcp")
	admin := func(want string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		if status := run(append([]string{"admin", "--address", p.addresses["admin"]}, args...), &out, &out); status != exitOK {
			t.Fatalf("%v: exit %d, %s", args, status, out.String())
		}
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("%v: no %q in\n%s", args, want, out.String())
		}
	}
	order := func(id string, quantity uint64) *pb.SubmitOrderResponse {
		t.Helper()
		response, err := do(client, transports.SubmitOrder, &pb.SubmitOrderRequest{
			ClientOrderId: id, Symbol: "ACME", Side: pb.Side_SIDE_BUY, Type: pb.OrderType_ORDER_TYPE_LIMIT,
			TimeInForce: pb.TimeInForce_TIME_IN_FORCE_DAY, Quantity: quantity, Price: 10_000,
		})
		if err != nil {
			t.Fatal(err)
		}
		return response.(*pb.SubmitOrderResponse)
	}

	order("first", 3)
	admin("open orders 1", "status")
	admin("context switches", "counters")
	admin("scheduler p99", "counters")
	admin(`"allocated_objects": "`, "counters", "--json")
	admin("open notional 30000 ticks x lots kill switch off ACME position +0 lots, open to buy 3, open to sell 0", "exposure", "--account", "demo")
	admin("open notional 30000 ticks x lots", "exposure", "--firm", "demo")
	admin("max position no bound", "limits", "--account", "demo")
	admin("max position 5 lots either way", "set-limits", "--account", "demo", "--max-position", "5", "--restricted-symbols", "BOLT,COIL")
	admin("restricted symbols BOLT COIL", "limits", "--account", "demo")
	if r := order("beyond", 3); r.GetReason() != pb.Reason_REASON_MAX_POSITION || !strings.Contains(r.GetText(), "5") {
		t.Errorf("beyond the position limit: %v", r)
	}
	admin("kill switch engaged orders canceled 1", "kill-switch", "--firm", "demo", "--engage", "--text", "test")
	if r := order("blocked", 1); r.GetReason() != pb.Reason_REASON_KILL_SWITCH {
		t.Errorf("with the kill switch on: %v", r)
	}
	admin("kill switch engaged", "exposure", "--account", "demo") // by its firm's
	admin("kill switch lifted orders canceled 0", "kill-switch", "--firm", "demo", "--lift")
	order("last", 2)

	// What was set at run time outlives the process.
	p.kill(t)
	_ = client.Close()
	p = startProcess(t, dir)
	defer p.kill(t)
	client = dialProcess(t, p, "grpc")
	defer client.Close()
	admin(`"max_position": "5"`, "limits", "--account", "demo", "--json")
	admin("orders expired 1 epoch now 2", "end-day", "--yes")
	admin("open orders 0", "status")
	if r := order("last", 2); r.GetDuplicate() || r.GetEpoch() != 2 || r.GetSequence() != 2 {
		t.Errorf("the id of an ended order on the next day: %v, want a new order behind the one that expired", r)
	}
}

// TestSetLimitsTakesBackWhatTheFileGave: an administrator who changes one limit sends the others back as they are, the highest that a file
// may have included.
func TestSetLimitsTakesBackWhatTheFileGave(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "limits: {max_quantity: 1099511627775, max_notional: 9223372036854775807, price_collar_bps: 1000000, max_open_orders: 4294967295,\n" +
		"  max_open_notional: 9223372036854775807, max_position: 9223372036854775807, restricted_symbols: [ZINC, BOLT, ZINC], max_order_rate: 4294967295}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, t.TempDir(), "--config", file)
	defer p.kill(t)
	var out bytes.Buffer
	args := []string{"admin", "--address", p.addresses["admin"], "set-limits", "--account", "demo", "--max-open-orders", "5"}
	if status := run(args, &out, &out); status != exitOK {
		t.Fatalf("exit %d, %s", status, out.String())
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"max quantity 1099511627775 ", "max position 9223372036854775807 ", "max open orders 5 ", "restricted symbols BOLT ZINC"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

// TestAdminSaysWhatIsWrong: whoever asks wrongly is told what to do.
func TestAdminSaysWhatIsWrong(t *testing.T) {
	p := startProcess(t, t.TempDir())
	defer p.kill(t)
	for _, row := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"admin", "exposure", "--address", p.addresses["admin"], "--account", "nobody"}, exitFailure, `there is no account "nobody"`},
		{[]string{"admin", "limits", "--address", p.addresses["admin"], "--firm", "nobody"}, exitFailure, `the firm "nobody"`},
		{[]string{"admin", "limits", "--address", p.addresses["admin"]}, exitUsage, "--firm"},
		{[]string{"admin", "end-day", "--address", p.addresses["admin"]}, exitUsage, "--yes"},
		{[]string{"admin", "kill-switch", "--address", p.addresses["admin"], "--account", "demo"}, exitUsage, "--engage"},
		{[]string{"admin", "status", "--address", p.addresses["admin"], "--key", "some"}, exitFailure, "no keys"},
		{[]string{"admin", "set-limits", "--address", p.addresses["admin"], "--account", "demo", "--max-notional=-1"}, exitFailure, "limits.max_notional"},
		{[]string{"admin", "status", "--address", "127.0.0.1:1"}, exitFailure, "is the gateway running"},
	} {
		var out bytes.Buffer
		if status := run(row.args, &out, &out); status != row.exit || !strings.Contains(out.String(), row.want) {
			t.Errorf("%v: exit %d, want %d with %q:\n%s", row.args, status, row.exit, row.want, out.String())
		}
	}
}
