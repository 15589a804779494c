package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tailgate/transports/all"
)

// asGateway makes the test binary behave as the gateway, so that tests run a real process without building one.
const asGateway = "TAILGATE_TEST_AS_GATEWAY"

func TestMain(m *testing.M) {
	if os.Getenv(asGateway) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestUsageErrorsSayWhatIsAllowedAndExit2(t *testing.T) {
	dir := t.TempDir()
	badFile := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(badFile, []byte("limits:\n  max_quantty: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--sink", "os"}, "unknown flag --sink"},
		{[]string{"fly"}, "unexpected argument fly"},
		{[]string{"--sync", "sometimes"}, `journal.sync: is "sometimes", allowed are off, os, always`},
		{[]string{"--sync="}, `journal.sync: is "", allowed are off, os, always`},
		{append([]string{"config", "check"}, off(all.Names()...)...), "no transport is enabled"},
		{[]string{"--data="}, "journal.dir: is empty"},
		{[]string{"--listen", "pigeon=127.0.0.1:1"}, "no such listener, allowed are"},
		{[]string{"--listen", "grpc=0.0.0.0:1"}, "insecure: true"},
		{[]string{"--config", filepath.Join(dir, "none.yaml")}, "none.yaml: no such file"},
		{[]string{"--config", badFile}, "line 2: field max_quantty not found"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(c.args, &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("gateway %s: exit %d, stderr %q, want 2 and %q", strings.Join(c.args, " "), status, stderr.String(), c.want)
		}
	}
}

func TestHelpVersionAndConfigExit0(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--help"}, "Usage: gateway"},
		{[]string{"version"}, "tailgate"},
		{[]string{"config", "check"}, "The configuration is right."},
		{[]string{"config", "print", "--sync", "always"}, "sync: always"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(c.args, &stdout, &stderr); status != exitOK || !strings.Contains(stdout.String(), c.want) {
			t.Errorf("gateway %s: exit %d, stdout %q, stderr %q", strings.Join(c.args, " "), status, stdout.String(), stderr.String())
		}
	}
}

func TestBusyPortSaysWhichAndWhatToDo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var stdout, stderr bytes.Buffer
	status := run(append([]string{"--data", t.TempDir(), "--listen", "grpc=" + taken.Addr().String()}, off(append(slices.DeleteFunc(all.Names(), func(name string) bool { return name == "grpc" }), "admin")...)...), &stdout, &stderr)
	for _, want := range []string{"transport grpc", taken.Addr().String(), "address already in use", "--listen grpc=off"} {
		if status != exitFailure || !strings.Contains(stderr.String(), want) {
			t.Errorf("exit %d, stderr %q, want 1 and %q", status, stderr.String(), want)
		}
	}
}

// TestFlagsOverrideEnvironmentOverrideFile runs config print with all three.
func TestFlagsOverrideEnvironmentOverrideFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("journal: {dir: from-file, sync: always}\ngrace: 7s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TAILGATE_DATA", "from-environment")
	t.Setenv("TAILGATE_SYNC", "off")
	var stdout, stderr bytes.Buffer
	if status := run([]string{"config", "print", "--config", file, "--data", "from-flag"}, &stdout, &stderr); status != exitOK {
		t.Fatal(stderr.String())
	}
	for _, want := range []string{"dir: from-flag", `sync: "off"`, "grace: 7s"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}

// TestDamagedJournalIsShownAndCut follows the advice that the error gives.
func TestDamagedJournalIsShownAndCut(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, dir)
	client := dialProcess(t, p, "tcp")
	for i := range 100 {
		if _, err := submit(client, fmt.Sprint("B-", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.logged
	if err := p.command.Wait(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "00000000000000000001.seg")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(text, []byte("B-50"))
	if at < 0 {
		t.Fatal("order B-50 is not in the journal")
	}
	text[at] ^= 1
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	try := func(args ...string) (status int, output string) {
		var out bytes.Buffer
		status = run(append(args, "--data", dir), &out, &out)
		return status, out.String()
	}
	if status, output := try("serve"); status != exitFailure || !strings.Contains(output, file+" at byte") || !strings.Contains(output, "gateway journal verify") {
		t.Errorf("serve: exit %d, %s", status, output)
	}
	status, output := try("journal", "verify")
	_, lsn, ok := strings.Cut(output, "gateway journal cut --data "+dir+" ")
	if status != exitFailure || !ok {
		t.Fatalf("verify: exit %d, %s", status, output)
	}
	lsn, _, _ = strings.Cut(lsn, "'")
	if status, output := try("journal", "cut", lsn); status != exitOK {
		t.Fatalf("cut %s: exit %d, %s", lsn, status, output)
	}
	if status, output := try("journal", "verify"); status != exitOK {
		t.Errorf("verify after the cut: exit %d, %s", status, output)
	}
	p = startProcess(t, dir)
	defer p.kill(t)
	client = dialProcess(t, p, "tcp")
	defer client.Close()
	for id, duplicate := range map[string]bool{"B-49": true, "B-50": false, "B-99": false} {
		if response, err := submit(client, id); err != nil || response.GetDuplicate() != duplicate {
			t.Errorf("order %s after the cut: %v, %v; want duplicate %v", id, response, err, duplicate)
		}
	}
}

// TestSignalStopsInOrder stops a process as an orchestrator does.
func TestSignalStopsInOrder(t *testing.T) {
	p := startProcess(t, t.TempDir())
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	messages := <-p.logged
	if err := p.command.Wait(); err != nil {
		t.Fatalf("exit: %v, log %q", err, messages)
	}
	if want := []string{"stopping", "stopped"}; !slices.Equal(messages, want) {
		t.Errorf("logged %q after ready, want %q", messages, want)
	}
}

// off are the arguments that turn listeners off.
func off(listeners ...string) (args []string) {
	for _, name := range listeners {
		args = append(args, "--listen", name+"=off")
	}
	return args
}
