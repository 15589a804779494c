package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/floor"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/transports"
	"tailgate/transports/all"
)

// asMain in the environment makes the test binary the load tester, hosted gateway included.
const asMain = "LOADTEST_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	if os.Getenv("GORACE") == "" { // the race detector's own default is that every process waits for a second at its end
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	os.Exit(m.Run())
}

// process is a finished load tester.
type process struct {
	status         int
	stdout, stderr string
	out, tmp       string // its output folder and temporary folder
}

// command prepares a load tester as a process of its own, with folders of its own.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, p *process, stdout, stderr *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p = &process{out: filepath.Join(t.TempDir(), "out"), tmp: t.TempDir()}
	if !slices.Contains(args, "--out") {
		args = append(slices.Clone(args), "--out", p.out)
	}
	cmd = exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asMain+"=1", "TMPDIR="+p.tmp)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	t.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil { // a test that failed meanwhile
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, p, stdout, stderr
}

func (p *process) finish(t *testing.T, cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	p.status, p.stdout, p.stderr = cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	if left, err := os.ReadDir(p.tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind in the temporary folder: %v, %v", left, err)
	}
}

func loadtest(t *testing.T, args ...string) *process {
	t.Helper()
	cmd, p, stdout, stderr := command(t, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.finish(t, cmd, stdout, stderr)
	return p
}

func (p *process) run(t *testing.T) report.Run {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.out, report.FileName))
	if err != nil {
		t.Fatalf("%v; it said: %s", err, p.stderr)
	}
	var r report.Run
	if err := json.Unmarshal(text, &r); err != nil || r.Schema != report.Schema {
		t.Fatalf("schema %q: %v", r.Schema, err)
	}
	return r
}

// want checks the exit status and, whatever the measurement is worth, the accounts of every cell. A machine whose cores are taken, by the
// hypervisor or a neighbour, makes a measurement INVALID, which is no fault of what is tested: then the status alone is not held
// against it, want says so and returns false, and the test goes on with what does not depend on timing.
func (p *process) want(t *testing.T, status int) (judged bool) {
	t.Helper()
	spoiled := false
	for _, c := range p.run(t).Cells {
		sum := c.OK + c.Rejected + c.Refused + c.TimedOut + c.Errors + c.Unsent
		if sum != c.Requests || c.Response.Count != sum || c.Admitted.Count != c.OK+c.Rejected || c.Good > c.OK+c.Rejected || c.Requests == 0 {
			t.Errorf("%s, %d x %d: %d requests, %d by fate, %d in the response times; %d admitted, %d good: %v", c.Spec, c.Size, c.Clients, c.Requests, sum, c.Response.Count, c.Admitted.Count, c.Good, c.Notes)
		}
		if c.Validity != runner.Valid && len(c.Reasons) == 0 {
			t.Errorf("%s, %d x %d: %s without a reason", c.Spec, c.Size, c.Clients, c.Validity)
		}
		// The reasons for INVALID stand first and these two last among them, so where one of them leads there is none that is our fault.
		if c.Validity == runner.Invalid {
			spoiled = spoiled || strings.HasPrefix(c.Reasons[0], "the hypervisor") || strings.HasPrefix(c.Reasons[0], "the tester's own lag")
		}
	}
	if p.status == status {
		return true
	}
	if p.status == exitInvalid && spoiled {
		t.Log("this machine's cores are taken: the exit status is not looked at, all else is")
		return false
	}
	t.Fatalf("exit status %d, want %d\n%s%s", p.status, status, p.stdout, p.stderr)
	return false
}

// name is a transport that every version of the list has.
func name() string { return all.Names()[0] }

// kinds are transports that stand for the others where only the kind of their client matters: without goroutines of its own (raw TCP), HTTP/1.1, HTTP/2.
func kinds() []string {
	return slices.DeleteFunc([]string{"tcp", "rest", "grpc"}, func(name string) bool { return !slices.Contains(all.Names(), name) })
}

// TestUsage: what is wrong with a command line is told with the flag, the value and what is allowed, and the status is 2.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"--transport pigeon", `unknown transport "pigeon": allowed are ` + strings.Join(all.Names(), ", ")},
		{"--transport " + name() + ":upside-down", `unknown choice "upside-down"`},
		{"--transport " + name() + " --encoding xml", `unknown choice "xml"`},
		{"--size 31", "--size: size 31: the smallest order has 32 bytes"},
		{"matrix --sizes 64,20,1KB", "--sizes: size 20: the smallest order has 32 bytes"},
		{"--transport " + name() + " --size 33 --ack minimal", "the smallest order has 34 bytes"},
		{"--size 0", `"0" is no size`},
		{"--size 2MB", `"2MB" is no size: write bytes as 64, 1KB or 64KB (KB = 1,024), at most 1048576`},
		{"--size big", `"big" is no size`},
		{"--clients 0", "--clients 0: 1 to 65536 are allowed"},
		{"--clients 5 --connections 6", "--connections 6: at most one for each of the 5 clients"},
		{"--transport " + name() + " --connections 51", "--connections 51: at most one for each of the 50 clients"},
		{"matrix --clients 2,1,2", "--clients: 2 stands twice"},
		{"matrix --sizes 64,1KB,1024", "--sizes: 1 KB stands twice"},
		{"--size 64,64", "--size: 64 B stands twice"},
		{"--transport " + name() + " --target h:", `--target "h:": the port is a number`},
		{"--transport " + name() + " --target h:0", `--target "h:0": the port is a number`},
		{"--transport " + name() + " --target h:65536", `--target "h:65536": the port is a number`},
		{"--transport " + name() + " --target h:1 --admin h:65536", `--admin "h:65536": the port is a number`},
		{"--inflight=-1", "--inflight -1"},
		{"--inflight 0", "--inflight 0: 1 and more are allowed; for no cap leave it out"},
		{"--connections 0", "--connections 0: 1 to the number of clients are allowed"},
		{"--connections=-1", "--connections -1: 1 to the number of clients are allowed"},
		{"--duration 0s", "--duration 0s: above 0 and at most 24h are allowed"},
		{"--requests 0", "--requests 0: 1 to"},
		{"--transport=", "--transport: an empty value is not allowed. One transport with its choices: " + name()},
		{"--size=", "--size: an empty value is not allowed. Encoded size"},
		{"--clients=", "--clients: an empty value"},
		{"--flow=", "--flow: an empty value is not allowed. Flow control"},
		{"--engine=", "--engine: an empty value"},
		{"--encoding=", "--encoding: an empty value"},
		{"--slo=", "--slo: an empty value"},
		{"--target=", "--target: an empty value"},
		{"--target h:1 --key=", "--key: an empty value"},
		{"--tls-ca=", "--tls-ca: an empty value"},
		{"--congestion=", "--congestion: an empty value"},
		{"matrix --sizes=", "--sizes: an empty value is not allowed. Encoded sizes"},
		{"matrix --sizes 64,,128", `"" is no size`},
		{"matrix --transports=", "--transports: an empty value is not allowed. Transports"},
		{"--target h:1 --transport " + name() + " --sync os", "--sync: not with --target"},
		{"--target h:1 --transport " + name() + " --accounts 16", "--accounts: not with --target"},
		{"--target h:1 --transport " + name() + " --server-cores 1", "--server-cores: not with --target"},
		{"--duration=-1s", "--duration -1s: above 0 and at most 24h are allowed"},
		{"--duration 10", "--duration"},
		{"--duration 1s --requests 5", "--duration and --requests can't be used together"},
		{"--requests=-5", "--requests -5: 1 to"},
		{"--timeout 1ms", "--timeout 1ms: 10ms to 30m0s are allowed"},
		{"--warmup=-1s", "--warmup -1s"},
		{"--slo p99", `--slo: objective "p99": no < or <=`},
		{"--slo p97<1ms", `unknown statistic "p97"; allowed are p50`},
		{"--ack some", `--ack must be one of "full","minimal" but got "some"`},
		{"--format html", `--format must be one of "table","json","markdown","csv" but got "html"`},
		{"--sync maybe", `--sync must be one of "off","os","always"`},
		{"--accounts 0", "--accounts 0: 1 to 1000 are allowed"},
		{"--server-cores 0", "--server-cores 0"},
		{"--cancel-share 0.7 --replace-share 0.5", "together at most 1"},
		{"--transport " + name() + " --clients 1,2", "for several sizes or clients use loadtest matrix --transports"},
		{"--key x", "--key: needs --target"},
		{"--tls", "--tls: needs --target"},
		{"--tls-insecure", "--tls-ca, --tls-insecure: need --tls"},
		{"--target localhost --transport " + name(), `--target "localhost": needed is HOST:PORT`},
		{"--target h:1", "an address speaks one transport; name it with --transport"},
		{"--target h:1 --tls --tls-ca /does/not/exist --transport " + name(), "--tls-ca: open /does/not/exist"},
		{"--nonsense", "unknown flag --nonsense"},
		{"nonsense", "unexpected argument nonsense"},
		{"matrix --transport " + name(), "with matrix, use --transports"},
		{"matrix --size 64", "with matrix, use --sizes"},
		{"matrix --transports " + name() + "," + name(), "stands twice"},

		{"--rate 0", "--rate 0: 0.1 to 10000000 requests a second are allowed"},
		{"--rate=-5", "--rate -5: 0.1 to"},
		{"--rate 1e12", "--rate 1e+12: 0.1 to"},
		{"--rate NaN", "--rate NaN: 0.1 to"},
		{"--rate Inf", "--rate +Inf: 0.1 to"},
		{"--rate=-Inf", "--rate -Inf: 0.1 to"},
		{"--rate 0.05", "--rate 0.05: 0.1 to"},
		{"--rate fast", "--rate: expected a float"},
		{"--rate 0.1 --duration 1s --transport " + name(), "not one request would be due"},
		{"--rate 100 --arrivals sometimes", `--arrivals must be one of "poisson","constant"`},
		{"--arrivals constant", "--arrivals: belongs to an open loop, so it needs --rate"},
		{"--step 1s:5", "--step: belongs to an open loop"},
		{"--max-wait 1s", "--max-wait: belongs to an open loop"},
		{"--rate 100 --max-wait 0s", "--max-wait 0s: above 0"},
		{"--rate 100 --generators 0", "--generators 0: 1 to 64"},
		{"--rate 100 --step 1s", `--step "1s": write a time`},
		{"--rate 100 --step 1s:0", "--step: step 1: rate 0"},
		{"--rate 100 --step 1s:NaN", "--step: step 1: rate NaN"},
		{"--rate 100 --step 1s:-Inf", "--step: step 1: rate -Inf"},
		{"--rate 100 --step 1s:5:6", `--step "1s:5:6": write a time`},
		{"--rate 100 --step 5", `--step "5": write a time of the measured interval and the rate from then on, as 5s:2000`},
		{"--rate 100 --step=-1s:5", "--step: step 1 at -1s: above 0"},
		{"--cancel-share NaN", "together at most 1"},
		{"--size-mix 64:NaN", `--size-mix "64:NaN"`},
		{"capacity --min-rate NaN", "--min-rate NaN and --max-rate"},
		{"capacity --max-rate Inf", "--max-rate +Inf"},
		{"capacity --width NaN", "--width NaN: 0.005 to 1"},
		{"capacity --exceed NaN", "--exceed NaN: 0 to below 1"},
		{"--json --format csv", "--json and --format csv: what is printed is either"},
		{"version --format csv", "--format csv: version prints table or json"},
		{"--rate 100 --step 1s:5 --step 1s:6", "--step: step 2 at 1s: above 0, later"},
		{"--rate 100 --duration 1s --step 1s:5", "--step at 1s: the measured interval lasts 1s"},
		{"--rate 0.1 --requests 1000000000 --transport " + name(), "at most 24 are allowed"},
		{"--inflight 40000", "--inflight 40000: at most 32768"},
		{"--size-mix 64", `--size-mix "64": write sizes with their weights`},
		{"--size-mix 64:0", `--size-mix "64:0"`},
		{"--size-mix 64:1,64:2", "--size-mix: size 64 B stands twice"},
		{"--size-mix x:1", `--size-mix: "x" is no size`},
		{"--size-mix 64:1,20:2", "--size-mix: size 20: the smallest order has 32 bytes"},
		{"--size 64 --size-mix 64:1", "--size-mix: takes the place of --size"},
		{"--step=", "--step: an empty value"},
		{"calibrate --target h:1", "--target: not with calibrate"},
		{"calibrate --slo p99<1s", "--slo: not with calibrate"},
		{"capacity --rate 5", "--rate: not with capacity"},
		{"capacity --slo mean<1ms", "--slo mean<1ms: capacity needs an objective that is a share"},
		{"capacity --sum 100ms", "--sum 100ms: from the 1s of one trial"},
		{"capacity --exceed 1", "--exceed 1: 0 to below 1"},
		{"capacity --width 0", "--width 0: 0.005 to 1"},
		{"capacity --min-rate 5 --max-rate 5", "--min-rate 5 and --max-rate 5"},
		{"capacity --max-trials 0", "--max-trials 0: 1 to 100000"},
		{"capacity --clients 1,2", "capacity takes one of each"},
		{"--repeat 0", "--repeat 0: 1 to 1000 are allowed"},
		{"--budget 0s", "--budget 0s: above 0"},
		{"--budget 5s", "of 500ms at least and with their starts and warm-ups, take"},
		{"--budget 5m --duration 1s", "can't be used together"},
		{"compare", "<a>"},
		{"compare a.json b.json --format csv", "--format csv: compare prints table or json"},
		{"--explain", "not yet: --explain"},
		{"report run.json", "not yet: report"},
		{"cost run.json --prices p.yaml", "not yet: cost"},
		{"advise --workload w.yaml", "not yet: advise"},
	} {
		var stdout, stderr strings.Builder
		args := append(strings.Fields(c.args), "--out", t.TempDir())
		if status := run(args, nil, &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), c.want) || !strings.Contains(stderr.String(), "loadtest --help") {
			t.Errorf("%s: status %d, %q; want 2 and %q", c.args, status, stderr.String(), c.want)
		}
		if stdout.Len() > 0 {
			t.Errorf("%s: a usage error on the standard output: %q", c.args, stdout.String())
		}
	}
	if slices.Contains(all.Names(), "tcp") {
		for args, want := range map[string]string{
			"--transport tcp:semaphore":             `"semaphore" needs its limit`,
			"--transport tcp --flow semaphore=0":    "only semaphore=N with N from 1",
			"--transport tcp --engine steam":        `unknown choice "steam": allowed for tcp are credit, `,
			"--transport tcp:none --flow credit":    `both "none" and "credit" are given`,
			"matrix --transports tcp,tcp:none,none": `both "none" and "none" are given`,
		} {
			var stderr strings.Builder
			if status := run(append(strings.Fields(args), "--out", t.TempDir()), nil, &stderr, &stderr); status != exitUsage || !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: status %d, %q; want 2 and %q", args, status, stderr.String(), want)
			}
		}
	}
}

// TestHelp names every transport, and every flag has a text.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"matrix", "--help"}} {
		var stdout, stderr strings.Builder
		if status := run(args, nil, &stdout, &stderr); status != exitOK || stderr.Len() > 0 {
			t.Errorf("%v: status %d, %q", args, status, stderr.String())
		}
		for _, want := range append(all.Names(), "--slo", "--inflight", "--target", "later release", "matrix") {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("%v: the help does not speak of %s", args, want)
			}
		}
	}
}

// TestHelpReadsWell: it keeps to its width, names a default once, and says what each exit status means.
func TestHelpReadsWell(t *testing.T) {
	var stdout, stderr strings.Builder
	if status := run([]string{"--help"}, nil, &stdout, &stderr); status != exitOK {
		t.Fatalf("status %d, %q", status, stderr.String())
	}
	help := stdout.String()
	for line := range strings.Lines(help) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > report.Width {
			t.Errorf("%d columns, want at most %d: %s", n, report.Width, line)
		}
		for _, wrong := range []string{"${", ",...,...", `="`} {
			if strings.Contains(line, wrong) {
				t.Errorf("%q in %s", wrong, line)
			}
		}
	}
	words := strings.Join(strings.Fields(help), " ")
	for _, want := range []string{
		"2, the command line is wrong; 1, a cell could not be measured because of an error", "99, an SLO given by --slo was missed",
		"3, a measurement is INVALID, or its samples are too few for a verdict", " run Measure one transport", " version Print the version.",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("the help does not say %q:\n%s", want, help)
		}
	}
	if strings.Contains(help, childCommand) {
		t.Errorf("the help speaks of %s", childCommand)
	}
}

func TestVersion(t *testing.T) {
	var stdout, stderr strings.Builder
	if status := run([]string{"version"}, nil, &stdout, &stderr); status != exitOK || stderr.Len() > 0 || !strings.HasPrefix(stdout.String(), "tailgate loadtest ") || !strings.Contains(stdout.String(), runtime.Version()) {
		t.Errorf("status %d, %q, %q", status, stdout.String(), stderr.String())
	}
	for _, args := range [][]string{{"version", "--json"}, {"version", "--format", "json"}, {"--json", "version"}} {
		stdout.Reset()
		var got build
		if status := run(args, nil, &stdout, &stderr); status != exitOK || json.Unmarshal([]byte(stdout.String()), &got) != nil || got.GoVersion != runtime.Version() || got.OS == "" {
			t.Errorf("%v: status %d, %q", args, status, stdout.String())
		}
	}
}

// TestPlan lays out runs and looks at their cells.
func TestPlan(t *testing.T) {
	type want struct {
		cells, floors int
		duration      time.Duration // 0 = not looked at
	}
	transportsCount, withManyCount := len(all.All()), 0
	for _, s := range withMany {
		if slices.Contains(all.Names(), s) {
			withManyCount++
		}
	}
	for args, w := range map[string]want{
		"":                          {cells: transportsCount*3*2 + withManyCount*3, floors: 1},
		"--size 64":                 {cells: transportsCount*2 + withManyCount, floors: 1},
		"--clients 7 --size 64,1KB": {cells: transportsCount * 2, floors: 1},
		"--transport " + name():     {cells: 1, duration: 10 * time.Second},
		"--transport " + name() + " --duration 3s": {cells: 1, duration: 3 * time.Second},
		"matrix": {cells: transportsCount * 25, floors: 1, duration: 10 * time.Second},
		"matrix --transports " + name() + " --sizes 64,128 --clients 1,2,3": {cells: 6, floors: 1},
		"matrix --sizes 1KB,4KB --clients 50,10":                            {cells: transportsCount * 4, floors: 1},
		"matrix --cancel-share 0.1 --sizes 64 --clients 1":                  {cells: transportsCount}, // a bare echo takes new orders only
		"--target h:1 --transport " + name():                                {cells: 1},
		"--repeat 4 --size 64 --transport " + name():                        {cells: 4, duration: 10 * time.Second},
		"--budget 20s --repeat 4 --transport " + name():                     {cells: 4, duration: 4150 * time.Millisecond},
		"calibrate":   {cells: transportsCount, floors: 2, duration: 2 * time.Second},
		"--rate 1000": {cells: transportsCount * 3, floors: 1},
		"--rate 1000 --transport " + name() + " --size-mix 64:1,1KB:1": {cells: 1, duration: 10 * time.Second},
	} {
		o, status := parse(strings.Fields(args), os.Stderr, os.Stderr)
		if o == nil {
			t.Fatalf("%q: status %d", args, status)
		}
		p, err := o.plan()
		if err != nil {
			t.Errorf("%q: %v", args, err)
			continue
		}
		floors := 0
		for _, c := range p.cells {
			if c.floor {
				floors++
				if !slices.ContainsFunc(p.cells, func(o cell) bool { return !o.floor && o.size == c.size && o.clients == c.clients }) {
					t.Errorf("%q: nothing can be compared with a floor of %d x %d", args, c.size, c.clients)
				}
			}
		}
		if len(p.cells)-floors != w.cells || floors != w.floors || w.duration > 0 && p.duration != w.duration {
			t.Errorf("%q: %d cells and %d floors of %v, want %+v", args, len(p.cells)-floors, floors, p.duration, w)
		}
		if order := slices.Sorted(slices.Values(p.order)); len(order) != len(p.cells) || order[0] != 0 || order[len(order)-1] != len(p.cells)-1 {
			t.Errorf("%q: the order %v is not one of %d cells", args, p.order, len(p.cells))
		}
		if args == "" {
			if total := p.estimate(0); total > 90*time.Second {
				t.Errorf("the default run takes about %v, want two minutes with a reserve for building and for cells that go on", total)
			}
		}
	}
}

// TestJoinChoices: commas separate transports and their choices.
func TestJoinChoices(t *testing.T) {
	a := name()
	for text, want := range map[string][]string{
		a:                           {a},
		a + ":x,y," + a + ":z":      {a + ":x,y", a + ":z"},
		a + "," + a + ":x":          {a, a + ":x"},
		"pigeon," + a:               {"pigeon", a},
		a + ":x=1,y," + a + "," + a: {a + ":x=1,y", a, a},
	} {
		if got := joinChoices(strings.Split(text, ",")); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestEveryTransport measures a small cell of each, hosted, and checks the accounts in run.json.
func TestEveryTransport(t *testing.T) {
	p := loadtest(t, "matrix", "--sizes", "64", "--clients", "1,3", "--requests", "300", "--warmup", "10ms", "--json")
	p.want(t, exitOK)
	r := p.run(t)
	var printed report.Run
	if err := json.Unmarshal([]byte(p.stdout), &printed); err != nil || len(printed.Cells) != len(r.Cells) {
		t.Errorf("--json prints %d cells, %v; the file has %d", len(printed.Cells), err, len(r.Cells))
	}
	if len(r.Cells) != 2*len(all.All())+1 || r.Interrupted || len(r.Environment.AllowedCores) == 0 {
		t.Errorf("%d cells, interrupted: %t, environment %+v", len(r.Cells), r.Interrupted, r.Environment)
	}
	orders := map[int]bool{}
	for _, c := range r.Cells {
		orders[c.Order] = true
		if sum := c.OK + c.Rejected + c.Refused + c.TimedOut + c.Errors + c.Unsent; c.Requests != 300 || sum != 300 || c.OK != 300 || c.Good > c.OK || c.Response.Count != 300 {
			t.Errorf("%s x %d: %d requests, %d by fate, %d ok, %d in the response times: %v", c.Spec, c.Clients, c.Requests, sum, c.OK, c.Response.Count, c.Notes)
		}
		if c.ServerUse == nil || c.ServerUse.UserCPUSeconds+c.ServerUse.SystemCPUSeconds <= 0 || c.Client == nil || c.Client.UserCPUSeconds+c.Client.SystemCPUSeconds <= 0 {
			t.Errorf("%s x %d: counters %+v and %+v", c.Spec, c.Clients, c.Client, c.ServerUse)
		}
		if r.Method.Pinned && c.Gomaxprocs.Server != len(r.Method.ServerCores) {
			t.Errorf("%s x %d: GOMAXPROCS %d of a server on %v", c.Spec, c.Clients, c.Gomaxprocs.Server, r.Method.ServerCores)
		}
		if c.Transport != floor.Name && c.Server.Count != 300 {
			t.Errorf("%s x %d: %d server times", c.Spec, c.Clients, c.Server.Count)
		}
		if c.Clients == 1 && c.FloorMultiple == nil {
			t.Errorf("%s x 1: no multiple of the floor", c.Spec)
		}
	}
	if len(orders) != len(r.Cells) {
		t.Errorf("the order of the cells is %v", orders)
	}
}

// TestSLOStatus: an objective that was given decides the exit status, the default one only informs.
func TestSLOStatus(t *testing.T) {
	cell := func(requests string, slos ...string) *process {
		args := []string{"--transport", name(), "--clients", "2", "--requests", requests, "--warmup", "10ms"}
		for _, slo := range slos {
			args = append(args, "--slo", slo)
		}
		return loadtest(t, args...)
	}
	yes, no := new(true), new(false)
	for _, c := range []struct {
		name     string
		requests string
		slos     []string
		want     int
		say      string
		met      []*bool // by objective; nil = no verdict
	}{
		{"met", "1000", []string{"p99<9s", "max<=10s"}, exitOK, "", []*bool{yes, yes}},
		{"missed", "1000", []string{"p99<9s", "p50<1ns"}, exitMissed, "missed 1 times", []*bool{yes, no}},
		{"too few", "100", []string{"p99<9s"}, exitInvalid, "too few samples for 1 verdicts", []*bool{nil}},
		{"default", "9", nil, exitOK, "", []*bool{nil}}, // with fewer than ten, however slow this machine is
	} {
		t.Run(c.name, func(t *testing.T) {
			p := cell(c.requests, c.slos...)
			judged := p.want(t, c.want)
			var met []*bool
			run := p.run(t)
			for _, o := range run.Cells[0].SLO {
				met = append(met, o.Met)
			}
			if !reflect.DeepEqual(met, c.met) {
				t.Errorf("objectives %+v", run.Cells[0].SLO)
			}
			if !strings.Contains(p.stdout, "Results: "+p.out) {
				t.Errorf("the table does not say where the results are:\n%s", p.stdout)
			}
			if judged = judged && run.Cells[0].Validity != runner.Invalid; !judged {
				return // what it says is about the machine then
			}
			if !strings.Contains(p.stderr, c.say) || c.say == "" && p.stderr != "" {
				t.Errorf("it said %q, want %q", p.stderr, c.say)
			}
		})
	}
}

// TestHiddenCommand: the child's command is not for people.
func TestHiddenCommand(t *testing.T) {
	// In a process of its own, since it ignores signals.
	cmd, p, stdout, stderr := command(t)
	cmd.Args = []string{cmd.Path, childCommand}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if p.finish(t, cmd, stdout, stderr); p.status != exitFailure || !strings.Contains(p.stderr, "own use") {
		t.Errorf("status %d, %q", p.status, p.stderr)
	}
}

func TestRedact(t *testing.T) {
	got := redact([]string{"--key", "secret", "--key=secret", "--size", "64"})
	if want := []string{"--key", "***", "--key=***", "--size", "64"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProgressLine: without a terminal there is none, so that nothing of it is paid for.
func TestProgressLine(t *testing.T) {
	if newProgress(&bytes.Buffer{}).cell(&plan{}, 0, cell{}) != nil {
		t.Error("a live line without a terminal")
	}
	var out bytes.Buffer
	p := &plan{options: &options{}, cells: make([]cell, 2), duration: 2 * time.Second}
	l := progress{terminal: &out}
	show := l.cell(p, 0, cell{spec: all.Spec{Transport: transports.Transport{Name: "tcp"}}, size: 64, clients: 5})
	show(runner.Progress{Elapsed: time.Second, Total: 2 * time.Second, Done: 1234})
	l.clear()
	for _, want := range []string{"[1/2] tcp, 64 B x 5", "1234 done, 1234/s", "s left"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the live line %q does not say %q", out.String(), want)
		}
	}
}
