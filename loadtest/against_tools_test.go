package main

import (
	"bufio"
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"tailgate/loadtest/machine"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// load is what a tool is asked to do.
type load struct {
	transport        string  // rest or grpc; another one for loadtest alone
	orders           bool    // SubmitOrder rather than GetBook
	rate             float64 // constant, a second; 0 = closed loop
	clients          int     // requests in flight at most; over rest as many connections
	warmup, duration time.Duration
	address, key     string
	folder           string // for the tool's files, of this run alone
	cores            []int  // of the tool
}

// sample is what a tool says of one run. Times are microseconds; a p99 of fewer samples than loadtest takes for one is not a number.
type sample struct {
	throughput, p50, p99 float64
	busy                 float64 // CPU time of the tool by the time it ran, its start included
	invalid              string  // why the run counts for nothing: loadtest's own reasons for INVALID, or too few answers
}

// point is one answer.
type point struct {
	at      time.Time // when it was asked, or answered: as the tool writes it
	latency time.Duration
}

// size is the encoded size of an order, in bytes.
const size = 64

// tool drives a load tester.
type tool struct {
	name    string
	version []string                                                  // arguments that make it print it; none = it is in the build information, as of programs in Go
	run     func(t *testing.T, l load) (s sample, used time.Duration) // used is CPU time, of all that it ran
}

// The tools, by the name of their program. None of them is run beside another.
var (
	ours   = tool{"loadtest", nil, runLoadtest}
	ghz    = tool{"ghz", nil, runGhz}
	vegeta = tool{"vegeta", nil, runVegeta}
	fortio = tool{"fortio", nil, runFortio()}
	wrk    = tool{"wrk", []string{"-v"}, runWrk}
	h2load = tool{"h2load", []string{"--version"}, runH2load}

	// fortioStd is fortio with the client library that loadtest's rest and vegeta have too, net/http: what is left between them is not the library's.
	fortioStd = tool{"fortio -stdclient", nil, runFortio("-stdclient")}
)

var theirs = []tool{ghz, vegeta, fortio, wrk, h2load}

// versionText is a version in the output of a program, whatever else it says there.
var versionText = regexp.MustCompile(`\d+\.\d+[-.\w+]*`)

func (u tool) versionText(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath(u.name)
	if err != nil {
		t.Fatal(err)
	}
	if u.version != nil {
		out, _ := exec.Command(path, u.version...).CombinedOutput() // wrk's status is 1 then
		return string(versionText.Find(out))
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(info.Main.Version, "v")
}

// exec runs a program on the tool's cores to its end and returns its standard output and the CPU time that it used.
func (l load) exec(t *testing.T, name string, args ...string) ([]byte, time.Duration) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = l.folder, &stdout, &stderr
	if err := l.wait(cmd); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, stderr.String())
	}
	return stdout.Bytes(), used(cmd)
}

func (l load) wait(cmd *exec.Cmd) error {
	if err := machine.StartOn(l.cores, cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

func used(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

func (l load) path(name string) string { return filepath.Join(l.folder, name) }

func (l load) write(t *testing.T, name string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(l.path(name), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return l.path(name)
}

// url is where a book is read over HTTP.
func (l load) url() string {
	return fmt.Sprintf("http://%s/v1/books/%s?depth=%d", l.address, symbol, workload.BookDepth)
}

// Headers of every request over HTTP: messages are protobuf, as they are to loadtest, so that nobody measures a JSON library.
func (l load) headers() []string {
	return []string{"Authorization: Bearer " + l.key, "Accept: application/x-protobuf"}
}

// requests are the encoded bodies of a run: loadtest's own flow, or the one book.
func (l load) requests(t *testing.T) [][]byte {
	t.Helper()
	config := workload.Config{Seed: 1, Prefix: workload.RandomPrefix(), Clients: 1, Instruments: []workload.Instrument{{Symbol: symbol, ReferencePrice: referencePrice}}, Operation: transports.GetBook}
	n := 1
	if l.orders {
		config.Operation, config.Size = transports.SubmitOrder, size
		n = int(l.rate*(l.warmup+l.duration+time.Second).Seconds()) + 1
	}
	flow, err := workload.New(config)
	if err != nil {
		t.Fatal(err)
	}
	source, bodies := flow.Source(0), make([][]byte, n)
	var call transports.Call
	for i := range bodies {
		source.Next(&call)
		if bodies[i], err = proto.Marshal(call.Request); err != nil {
			t.Fatal(err)
		}
	}
	return bodies
}

// summarize makes a sample of the points behind the warm-up.
func (l load) summarize(t *testing.T, points []point) sample {
	t.Helper()
	if len(points) == 0 {
		t.Fatal("the tool made no request")
	}
	from := slices.MinFunc(points, func(a, b point) int { return a.at.Compare(b.at) }).at.Add(l.warmup)
	until := from.Add(l.duration)
	var latencies []time.Duration
	for _, p := range points {
		if !p.at.Before(from) && p.at.Before(until) {
			latencies = append(latencies, p.latency)
		}
	}
	if len(latencies) < 100 {
		return sample{invalid: fmt.Sprintf("%d of %d requests lie in the measured interval: a median of fewer than 100 says nothing", len(latencies), len(points))}
	}
	slices.Sort(latencies)
	at := func(q int) float64 { // nearest rank
		return float64(latencies[(len(latencies)*q+99)/100-1].Nanoseconds()) / 1e3
	}
	s := sample{throughput: float64(len(latencies)) / l.duration.Seconds(), p50: at(50), p99: math.NaN()}
	if int64(len(latencies)) >= stats.P99.MinSamples() {
		s.p99 = at(99)
	}
	return s
}

func runLoadtest(t *testing.T, l load) (sample, time.Duration) {
	args := []string{
		"--target", l.address, "--key", l.key, "--transport", l.transport, "--clients", strconv.Itoa(l.clients),
		"--duration", l.duration.String(), "--warmup", l.warmup.String(),
	}
	if l.orders {
		args = append(args, "--size", strconv.Itoa(size))
	} else {
		args = append(args, "--operation", "get-book")
	}
	if l.rate > 0 {
		args = append(args, "--rate", strconv.FormatFloat(l.rate, 'f', -1, 64), "--arrivals", "constant", "--inflight", strconv.Itoa(l.clients))
	}
	if l.transport == "rest" && l.rate > 0 {
		args = append(args, "--connections", strconv.Itoa(l.clients))
	}
	cmd, p, _, stderr := command(t, args...)
	err := l.wait(cmd)
	if code := cmd.ProcessState.ExitCode(); err != nil && code != exitInvalid {
		t.Fatalf("%s: %v: %s", cmd, err, stderr.String())
	}
	r := p.run(t)
	c := r.Cells[0]
	if c.Requests != c.OK+c.Rejected {
		t.Errorf("loadtest: %d requests, %d ok: %v", c.Requests, c.OK, c.Notes)
	}
	s := sample{throughput: c.Throughput, p50: c.Service.Values["p50"], p99: math.NaN()}
	if v, known := c.Service.Values["p99"]; known {
		s.p99 = v
	}
	if c.Validity == runner.Invalid {
		s.invalid = strings.Join(c.Reasons, "; ")
	}
	return s, used(cmd)
}

// runGhz gives it loadtest's own bodies, so its templates are not needed. Its latency is the RPC's from begin to end by grpc-go's statistics.
func runGhz(t *testing.T, l load) (sample, time.Duration) {
	var bodies []byte
	for _, b := range l.requests(t) {
		bodies = append(binary.AppendUvarint(bodies, uint64(len(b))), b...)
	}
	method := "GetBook"
	if l.orders {
		method = "SubmitOrder"
	}
	args := []string{
		"--insecure", "--protoset", l.write(t, "orderentry.protoset", protoset(t)), "--call", "orderentry.v1.OrderEntryService/" + method,
		"--binary-file", l.write(t, "requests.bin", bodies), "--metadata", fmt.Sprintf(`{"authorization":"Bearer %s"}`, l.key),
		"--connections", "1", "--concurrency", strconv.Itoa(l.clients), "--duration", (l.warmup + l.duration).String(), "--duration-stop", "wait",
		"--format", "json", "--output", l.path("ghz.json"),
	}
	if l.rate > 0 {
		args = append(args, "--rps", strconv.Itoa(int(l.rate)))
	}
	_, cpu := l.exec(t, "ghz", append(args, l.address)...)
	text, err := os.ReadFile(l.path("ghz.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Statuses map[string]int `json:"statusCodeDistribution"`
		Details  []struct {
			Timestamp time.Time     `json:"timestamp"`
			Latency   time.Duration `json:"latency"`
			Status    string        `json:"status"`
		} `json:"details"`
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Statuses) != 1 || out.Statuses["OK"] == 0 {
		t.Errorf("ghz: %v", out.Statuses)
	}
	points := make([]point, len(out.Details))
	for i, d := range out.Details {
		points[i] = point{d.Timestamp, d.Latency}
	}
	return l.summarize(t, points), cpu
}

// protoset is the contract as a set of descriptors, what it imports included.
func protoset(t *testing.T) []byte {
	t.Helper()
	var set descriptorpb.FileDescriptorSet
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(pb.File_orderentry_v1_order_entry_proto)
	text, err := proto.Marshal(&set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// runVegeta reads its targets while it runs. Its latency is a hit's: from the call of net/http to the end of the body.
func runVegeta(t *testing.T, l load) (sample, time.Duration) {
	var targets bytes.Buffer
	encoder := json.NewEncoder(&targets)
	for _, body := range l.requests(t) {
		target := map[string]any{"method": http.MethodGet, "url": l.url(), "header": header(l.headers())}
		if l.orders {
			target["method"], target["url"] = http.MethodPost, "http://"+l.address+"/v1/orders"
			target["header"] = header(append(l.headers(), "Content-Type: application/x-protobuf"))
			target["body"] = base64.StdEncoding.EncodeToString(body)
		}
		if err := encoder.Encode(target); err != nil {
			t.Fatal(err)
		}
	}
	n := strconv.Itoa(l.clients)
	args := []string{
		"attack", "-format", "json", "-targets", l.write(t, "targets.json", targets.Bytes()), "-rate", strconv.Itoa(int(l.rate)) + "/1s", "-duration", (l.warmup + l.duration).String(),
		"-workers", n, "-max-workers", n, "-connections", n, "-max-connections", n, "-output", l.path("vegeta.bin"),
	}
	if l.orders {
		args = append(args, "-lazy") // once through the file, not round and round: ids are used once
	}
	_, cpu := l.exec(t, "vegeta", args...)
	text, more := l.exec(t, "vegeta", "encode", "--to", "csv", l.path("vegeta.bin"))
	var points []point
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(line, ",")
		at, err := strconv.ParseInt(fields[0], 10, 64)
		latency, err2 := strconv.ParseInt(fields[2], 10, 64)
		if err != nil || err2 != nil || fields[1] != "200" {
			t.Fatalf("vegeta: %q", line)
		}
		points = append(points, point{time.Unix(0, at), time.Duration(latency)})
	}
	return l.summarize(t, points), cpu + more
}

func header(lines []string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Set(name, value)
	}
	return h
}

// withHeaders adds the headers as most programs take them.
func (l load) withHeaders(args []string) []string {
	for _, h := range l.headers() {
		args = append(args, "-H", h)
	}
	return args
}

// runFortio reads the log of its requests, since its histogram has steps of a tenth. Its latency is a call's of its own HTTP client.
func runFortio(more ...string) func(t *testing.T, l load) (sample, time.Duration) {
	return func(t *testing.T, l load) (sample, time.Duration) { return l.fortio(t, more) }
}

func (l load) fortio(t *testing.T, more []string) (sample, time.Duration) {
	t.Helper()
	args := l.withHeaders(append([]string{
		"load", "-quiet", "-qps", strconv.FormatFloat(l.rate, 'f', -1, 64), "-t", (l.warmup + l.duration).String(), "-c", strconv.Itoa(l.clients), "-uniform",
		"-access-log-file", l.path("fortio.log"),
	}, more...))
	_, cpu := l.exec(t, "fortio", append(args, l.url())...)
	var points []point
	for line := range l.lines(t, "fortio.log") {
		var entry struct {
			Latency   float64 `json:"latency"` // seconds
			Timestamp int64   `json:"timestamp"`
			OK        bool    `json:"ok"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || !entry.OK {
			t.Fatalf("fortio: %q: %v", line, err)
		}
		points = append(points, point{time.Unix(0, entry.Timestamp), time.Duration(entry.Latency * 1e9)})
	}
	return l.summarize(t, points), cpu
}

// lines are those of a file of the run.
func (l load) lines(t *testing.T, name string) func(yield func(string) bool) {
	t.Helper()
	file, err := os.Open(l.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(string) bool) {
		defer file.Close()
		scanner := bufio.NewScanner(file)
		for scanner.Scan() {
			if !yield(scanner.Text()) {
				return
			}
		}
	}
}

// wrkFigure is a figure of wrk's with its unit.
var wrkFigure = regexp.MustCompile(`(?m)^ +(50|99)% +([\d.]+)(us|ms|s)$`)

// runWrk warms up by a run of its own, since it has no other way.
func runWrk(t *testing.T, l load) (sample, time.Duration) {
	args := func(d time.Duration) []string {
		return append(l.withHeaders([]string{"-t", "1", "-c", strconv.Itoa(l.clients), "-d", wholeSeconds(d), "--latency"}), l.url())
	}
	_, before := l.exec(t, "wrk", args(l.warmup)...)
	out, cpu := l.exec(t, "wrk", args(l.duration)...)
	s := sample{throughput: figure(t, out, regexp.MustCompile(`Requests/sec: +([\d.]+)`))}
	for _, m := range wrkFigure.FindAllSubmatch(out, -1) {
		v, err := time.ParseDuration(string(m[2]) + string(m[3]))
		if err != nil {
			t.Fatal(err)
		}
		switch us := float64(v) / 1e3; string(m[1]) {
		case "50":
			s.p50 = us
		case "99":
			s.p99 = us
		}
	}
	if bytes.Contains(out, []byte("Non-2xx")) || bytes.Contains(out, []byte("Socket errors")) || s.p50 == 0 || s.p99 == 0 {
		t.Fatalf("wrk: %s", out)
	}
	return s, before + cpu
}

// wholeSeconds is a duration as wrk and h2load take it: at least one.
func wholeSeconds(d time.Duration) string {
	return strconv.Itoa(max(int(d.Round(time.Second)/time.Second), 1))
}

func figure(t *testing.T, text []byte, pattern *regexp.Regexp) float64 {
	t.Helper()
	m := pattern.FindSubmatch(text)
	if m == nil {
		t.Fatalf("nothing like %s in %s", pattern, text)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// runH2load speaks HTTP/1.1. Its log has every request behind the warm-up: beginning, status, microseconds to the end of the answer.
func runH2load(t *testing.T, l load) (sample, time.Duration) {
	d, w := wholeSeconds(l.duration), wholeSeconds(l.warmup)
	args := l.withHeaders([]string{"--h1", "-t", "1", "-c", strconv.Itoa(l.clients), "-D", d, "--warm-up-time", w, "--log-file", l.path("h2load.log")})
	_, cpu := l.exec(t, "h2load", append(args, l.url())...)
	var points []point
	for line := range l.lines(t, "h2load.log") {
		fields := strings.Split(line, "\t")
		at, err := strconv.ParseInt(fields[0], 10, 64)
		if len(fields) != 3 || err != nil || fields[1] != "200" {
			t.Fatalf("h2load: %q", line)
		}
		us, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		points = append(points, point{time.UnixMicro(at), time.Duration(us) * time.Microsecond})
	}
	l.warmup = 0 // the log begins behind it
	return l.summarize(t, points), cpu
}

// missing names the programs that are not in PATH.
func missing() []string {
	var names []string
	for _, u := range theirs {
		if _, err := exec.LookPath(u.name); errors.Is(err, exec.ErrNotFound) {
			names = append(names, u.name)
		}
	}
	return names
}
