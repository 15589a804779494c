package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"tailgate/loadtest/floor"
	"tailgate/loadtest/machine"
	"tailgate/loadtest/record"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
)

// Schema names the format of run.json. Fields may be added under the same name; none changes its meaning.
const Schema = "tailgate.loadtest/v1"

// FileName is the name of the results in the output folder.
const FileName = "run.json"

// Run is a whole run.
type Run struct {
	Schema      string              `json:"schema"`
	Started     time.Time           `json:"started"`
	Finished    time.Time           `json:"finished"`
	Interrupted bool                `json:"interrupted"` // stopped early: the cells are those that had begun
	Planned     int                 `json:"planned"`     // cells of the whole run, every run of each; 0 of a capacity search, whose trials are not known beforehand
	Resumed     int                 `json:"resumed"`     // cells that an earlier process with the same flags had measured
	Command     []string            `json:"command"`     // arguments, keys redacted
	Environment machine.Environment `json:"environment"`
	Method      Method              `json:"method"`
	Cells       []Cell              `json:"cells"`
	Timer       *Latency            `json:"timer_us,omitempty"` // of a calibration: by how much a sleep of 500 µs ends too late
	Capacity    []Capacity          `json:"capacity"`           // of the capacity search, whose trials are the cells; empty otherwise
}

// Method is how the cells were measured, where it is the same for all.
type Method struct {
	Loop           string   `json:"loop"` // "closed" or "open"
	Seed           uint64   `json:"seed"` // of the flow and of the order of the cells
	WarmupSeconds  float64  `json:"warmup_seconds"`
	TimeoutSeconds float64  `json:"timeout_seconds"`  // of one request
	MaxWaitSeconds float64  `json:"max_wait_seconds"` // open loop: how late a request may be sent
	Target         string   `json:"target"`           // address of the gateway; empty where it was hosted, fresh for every cell
	Admin          string   `json:"admin"`            // its admin listener, whose counters were read; empty where none was named
	Accounts       int      `json:"accounts"`         // that the connections are spread over
	Journal        string   `json:"journal"`          // mode of the hosted gateway's journal
	Pinned         bool     `json:"pinned"`
	ServerCores    []int    `json:"server_cores"`
	ClientCores    []int    `json:"client_cores"`
	PinningNote    string   `json:"pinning_note"` // what could not be had
	Congestion     string   `json:"congestion_control"`
	CancelShare    float64  `json:"cancel_share"`
	ReplaceShare   float64  `json:"replace_share"`
	SLO            []string `json:"slo"`
	Repeat         int      `json:"repeat"`     // runs of every cell
	MinBeyond      int      `json:"min_beyond"` // samples beyond a percentile below which it is "too few"
}

// Cell is one cell. Field names are those of the schema.
type Cell struct {
	Transport string `json:"transport"`
	Spec      string `json:"spec"` // as --transport takes it: what differs from the transport's defaults is told
	Flow      string `json:"flow"`
	Window    int    `json:"window"` // most requests in flight of all clients in the flow "semaphore"; 0 with any other
	Engine    string `json:"engine"`
	Encoding  string `json:"encoding"`
	Operation string `json:"operation"` // as --operation takes it; empty in files of the time when there was one alone, see Orders
	Ack       string `json:"ack"`       // empty where there are no orders

	Size        int       `json:"size"` // 0 where it is mixed, or where there are no orders
	SizeMix     []Share   `json:"size_mix,omitempty"`
	MixBy       string    `json:"mix_by,omitempty"` // order: each draws its size; client: all orders of a client have one
	Clients     int       `json:"clients"`
	InFlight    int       `json:"inflight"`           // as it was asked for; 0 = no cap, or the default in an open loop
	Mode        string    `json:"mode"`               // "closed" or "open"
	OfferedRate *float64  `json:"offered_rate"`       // that was asked for, before the first step; null in a closed loop
	Arrivals    string    `json:"arrivals,omitempty"` // "poisson" or "constant"
	Steps       []Step    `json:"steps,omitempty"`
	Schedule    *Schedule `json:"schedule,omitempty"` // what became of it; open loop
	Peer        string    `json:"peer"`               // gateway; null: the transport's server and nothing behind it; echo, echo-spin, echo-turn: no transport at all
	Run         int       `json:"run"`
	Order       int       `json:"order"` // which cell of the run it was, from 1
	Gomaxprocs  struct {
		Client int `json:"client"`
		Server int `json:"server"` // 0 where unknown
	} `json:"gomaxprocs"`

	Started     time.Time        `json:"started"`
	IDPrefix    string           `json:"id_prefix"` // of the ids of all its requests, those of the warm-up too
	Warmup      float64          `json:"warmup_seconds"`
	WarmupFates Fates            `json:"warmup_requests"`
	Seconds     float64          `json:"seconds"`
	Fates                        // of the measured requests
	Good        int64            `json:"good"`
	Throughput  float64          `json:"throughput"`      // answers a second: of requests due in the interval; in an open loop, that came within it
	Silence     float64          `json:"silence_seconds"` // from the last answer within the interval to its end
	Wrong       int64            `json:"wrong_answers"`
	Notes       map[string]int64 `json:"notes"`
	Connections struct {
		Asked   int   `json:"asked"`
		Open    *int  `json:"open"` // null where unknown
		Redials int64 `json:"redials"`
	} `json:"connections"`

	Response   Latency `json:"response_us"`
	Admitted   Latency `json:"admitted_us"`
	Service    Latency `json:"service_us"`
	Lag        Latency `json:"lag_us"`
	CreditWait Latency `json:"credit_wait_us"`
	Server     Latency `json:"server_us"`

	Amplification *float64            `json:"amplification"`  // P99/P50 of the response time
	FloorMultiple *float64            `json:"floor_multiple"` // p50 by the bare echo's, where the same size and clients were run
	Intervals     map[string]Interval `json:"intervals"`      // 95 %, of the response time, by percentile and p99/p50
	Trends        []Trend             `json:"trends"`
	SLO           []Objective         `json:"slo"`

	Speed    *Speed     `json:"speed"`              // of the cores; null where nobody looked
	Fairness []Fairness `json:"fairness,omitempty"` // closed loop
	Metrics  []Metric   `json:"flow_metrics,omitempty"`

	Interrupted bool           `json:"interrupted"`
	BoundBy     string         `json:"bound_by"` // client, server, both, neither; empty where unknown
	Validity    runner.Verdict `json:"validity"`
	Reasons     []string       `json:"reasons"`
	Client      *Use           `json:"client"`
	TCP         *TCP           `json:"tcp"` // null where nothing was measured
	ServerUse   *Use           `json:"server"`
	ServerLog   string         `json:"server_log,omitempty"` // last warnings of the hosted gateway, where requests were lost
}

// Speed is how fast the cores ran, and what was measured while none of them was slow.
type Speed struct {
	SlowShare     float64  `json:"slow_share"`    // of the time that a core was slow, the one with the most
	Slowest       float64  `json:"slowest"`       // the worst multiple of what the same arithmetic takes at full speed
	KeptShare     float64  `json:"kept_share"`    // of the interval at full speed, with what it touches left out; 0 where too little is left
	Response      *Latency `json:"response_us"`   // of requests that were due then; null where KeptShare is 0
	Lag           *Latency `json:"lag_us"`        // the same; open loop, null in a closed one
	Throughput    *float64 `json:"throughput"`    // answers a second then
	Amplification *float64 `json:"amplification"` // P99/P50 then
}

func newSpeed(s *runner.Speed) *Speed {
	if s == nil {
		return nil
	}
	out := &Speed{SlowShare: s.Share, Slowest: s.Worst, KeptShare: s.Kept}
	if s.Kept > 0 {
		l := NewLatency(s.Response)
		out.Response, out.Throughput, out.Amplification = &l, &s.Throughput, l.amplification()
		if s.Lag.Count() > 0 {
			lag := NewLatency(s.Lag)
			out.Lag = &lag
		}
	}
	return out
}

// amplification is P99/P50, nil where one of them is not known.
func (l *Latency) amplification() *float64 {
	p50, p99 := l.Values["p50"], l.Values["p99"]
	if p50 <= 0 || p99 <= 0 {
		return nil
	}
	ratio := p99 / p50
	return &ratio
}

// Interval is low and high end, in microseconds, or a ratio; null where infinite.
type Interval [2]*float64

func finite(v float64) *float64 {
	if math.IsInf(v, 1) {
		return nil
	}
	return &v
}

func newInterval(i stats.Interval) Interval {
	end := func(v stats.Value) *float64 {
		if v.State != stats.Known {
			return nil
		}
		us := microseconds(v.Duration)
		return &us
	}
	return Interval{end(i.Low), end(i.High)}
}

// Trend is how a percentile of the response time moved over the interval.
type Trend struct {
	Percentile string  `json:"percentile"`
	Windows    int     `json:"windows"`
	Z          float64 `json:"z"`      // of Mann and Kendall's test
	Change     float64 `json:"change"` // from the first window to the last, as a share of the median
}

// What is at the other end of a cell.
const (
	PeerGateway = "gateway"
	PeerNull    = "null"
	PeerEcho    = "echo"
	PeerSpin    = "echo-spin"
	PeerTurn    = "echo-turn"
)

// Share is one size of a mix.
type Share struct {
	Size   int     `json:"size"`
	Weight float64 `json:"weight"`
}

// Step is a change of the rate.
type Step struct {
	Seconds float64 `json:"seconds"` // from the beginning of the measured interval
	Rate    float64 `json:"rate"`
}

// Schedule is how an open loop kept to its schedule.
type Schedule struct {
	Due         int64   `json:"due"`       // in the measured interval
	Behind      int64   `json:"behind"`    // of those, not sent by its end, or not in their time, by the tester's own fault
	SentRate    float64 `json:"sent_rate"` // due less behind, a second
	Workers     int     `json:"workers"`   // most requests under way
	InFlightCap int     `json:"inflight_cap"`
}

// Fates is the accounts: how requests ended.
type Fates struct {
	Requests int64 `json:"requests"` // offered = the sum of the six
	OK       int64 `json:"ok"`
	Rejected int64 `json:"rejected"`
	Refused  int64 `json:"refused"`
	TimedOut int64 `json:"timed_out"`
	Errors   int64 `json:"errors"`
	Unsent   int64 `json:"unsent"`
}

func newFates(counts record.Counts) Fates {
	f := Fates{Requests: counts.Offered()}
	for i, field := range [...]*int64{&f.OK, &f.Rejected, &f.Refused, &f.TimedOut, &f.Errors, &f.Unsent} {
		*field = counts[record.Fates[i]]
	}
	return f
}

// Objective is an SLO held against the cell.
type Objective struct {
	Expr       string   `json:"expr"`
	ObservedUS *float64 `json:"observed_us"` // null where infinite or not known
	Met        *bool    `json:"met"`         // null where the samples carry no verdict, and for the floor
}

// Latency is a distribution in microseconds. A figure is null where it is infinite (so many requests got no answer) or where the samples are
// too few; the two lists say which.
type Latency struct {
	Count    int64              `json:"count"`
	Values   map[string]float64 `json:"-"`
	Infinite []string           `json:"infinite"`
	TooFew   []string           `json:"too_few"`
}

// figures are the members of a latency in their order.
var figures = []string{"mean", "min", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"}

// NewLatency reads the figures of a distribution.
func NewLatency(d stats.Distribution) Latency {
	l := Latency{Count: d.Count(), Values: map[string]float64{}, Infinite: []string{}, TooFew: []string{}}
	for _, name := range figures {
		var v stats.Value
		switch name {
		case "mean":
			v = d.Mean()
		case "min":
			v = d.Min()
		case "max":
			v = d.Max()
		}
		for _, p := range stats.Percentiles {
			if p.String() == name {
				v = d.At(p)
			}
		}
		switch v.State {
		case stats.Known:
			l.Values[name] = microseconds(v.Duration)
		case stats.Infinite:
			l.Infinite = append(l.Infinite, name)
		case stats.TooFew:
			l.TooFew = append(l.TooFew, name)
		}
	}
	return l
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// MarshalJSON writes every figure, null where it is not known.
func (l Latency) MarshalJSON() ([]byte, error) {
	type plain Latency
	rest, err := json.Marshal(plain(l))
	if err != nil {
		return nil, err
	}
	out := []byte{'{'}
	for _, name := range figures {
		value := []byte("null")
		if v, ok := l.Values[name]; ok {
			if value, err = json.Marshal(v); err != nil {
				return nil, err
			}
		}
		out = fmt.Appendf(out, "%q:%s,", name, value)
	}
	return append(out, rest[1:]...), nil
}

// UnmarshalJSON is the inverse.
func (l *Latency) UnmarshalJSON(text []byte) error {
	type plain Latency
	if err := json.Unmarshal(text, (*plain)(l)); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	l.Values = map[string]float64{}
	for _, name := range figures {
		var v *float64
		if err := json.Unmarshal(all[name], &v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if v != nil {
			l.Values[name] = *v
		}
	}
	return nil
}

// Fill writes an outcome into the cell: everything but what describes the cell itself.
func (c *Cell) Fill(out runner.Outcome, validity runner.Validity, slos []stats.SLO) {
	c.Warmup = out.Warmup.Seconds()
	c.Started, c.Seconds, c.Throughput, c.Interrupted = out.Started, out.Seconds, out.Throughput, out.Interrupted
	c.Fates, c.WarmupFates, c.IDPrefix = newFates(out.Counts), newFates(out.WarmupFates), out.IDPrefix
	c.Silence = out.Silence.Seconds()
	if c.Mode == "open" {
		c.Schedule = &Schedule{Due: out.Scheduled, Behind: out.Behind, Workers: out.Workers, InFlightCap: out.InFlightCap}
		if out.Seconds > 0 {
			c.Schedule.SentRate = float64(out.Scheduled-out.Behind) / out.Seconds
		}
	}
	c.Wrong, c.Notes = out.Wrong, out.Notes
	c.Connections.Asked, c.Connections.Redials = out.Connections.Asked, out.Connections.Redials
	if open := out.Connections.Open; open >= 0 {
		c.Connections.Open = &open
	}
	c.Response, c.Admitted, c.Service = NewLatency(out.Response), NewLatency(out.Admitted), NewLatency(out.Service)
	c.Lag, c.CreditWait, c.Server = NewLatency(out.Lag), NewLatency(out.CreditWait), NewLatency(out.Server)
	c.Amplification, c.Speed = c.Response.amplification(), newSpeed(out.Speed)
	// The seed is the cell's place in the run, so that the same cell has the same intervals whenever they are drawn.
	intervals, ratio := out.Series.Intervals([]stats.Percentile{stats.P50, stats.P99, stats.P999}, uint64(c.Order))
	c.Intervals = map[string]Interval{}
	for p, i := range intervals {
		c.Intervals[p.String()] = newInterval(i)
	}
	if ratio != nil {
		c.Intervals["p99/p50"] = Interval{finite(ratio.Low), finite(ratio.High)}
	}
	c.Metrics = newMetrics(out.Metrics, c.Requests)
	for _, f := range out.Fairness {
		c.Fairness = append(c.Fairness, Fairness{f.Size, f.Clients, f.Jain, f.Min, f.Mean, f.Max})
	}
	for _, t := range out.Trends {
		c.Trends = append(c.Trends, Trend{t.Percentile.String(), t.Windows, t.Z, t.Change})
	}
	c.Good = stats.Good(slos, out.Response)
	for _, slo := range slos {
		verdict := slo.Judge(out.Response)
		if c.IsFloor() || c.Peer == PeerNull {
			verdict.Outcome = stats.Undecided // no order was entered, so no objective was kept
		}
		c.SLO = append(c.SLO, newObjective(verdict))
	}
	// Appended to a list that is there, so that no reason is written as an empty list and not as null.
	c.Validity, c.Reasons, c.BoundBy = validity.Verdict, append([]string{}, validity.Reasons...), runner.Bound(out)
	rate := 0.0
	if out.Seconds > 0 {
		rate = float64(c.Requests) / out.Seconds
	}
	c.Client = newUse(out.ClientUse, rate)
	requests := rate * out.ClientUse.At.Seconds()
	c.TCP = &TCP{Client: newTCPEnd(out.ClientTCP, requests), Server: newTCPEnd(out.ServerTCP, requests)}
	if out.ServerUse != nil {
		c.ServerUse = newUse(*out.ServerUse, rate)
	}
}

func newObjective(v stats.Verdict) Objective {
	o := Objective{Expr: v.SLO.String()}
	if v.Observed.State == stats.Known {
		us := microseconds(v.Observed.Duration)
		o.ObservedUS = &us
	}
	if v.Outcome != stats.Undecided {
		met := v.Outcome == stats.Met
		o.Met = &met
	}
	return o
}

// Fail marks a cell that could not be measured.
func (c *Cell) Fail(err error) {
	empty := NewLatency(stats.Distribution{})
	c.Response, c.Admitted, c.Service, c.Lag, c.CreditWait, c.Server = empty, empty, empty, empty, empty, empty
	c.Validity, c.Reasons = runner.Invalid, []string{"not measured: " + err.Error()}
}

// Finish fills in what needs more than one cell: each cell's multiple of the floor.
func (r *Run) Finish() {
	for i := range r.Cells {
		c := &r.Cells[i]
		for _, f := range r.Cells {
			if floor := f.Response.Values["p50"]; f.isEcho() && f.Run == c.Run && f.Size == c.Size && f.Clients == c.Clients && floor > 0 && c.Response.Values["p50"] > 0 {
				multiple := c.Response.Values["p50"] / floor
				c.FloorMultiple = &multiple
			}
		}
	}
}

// Orders tells whether the requests are orders, so that they have sizes, acknowledgements and ids.
func (c *Cell) Orders() bool { return c.Operation == "" || c.Operation == "submit-order" }

// isEcho tells the plain echo, of which others are multiples, from those that spin or take turns.
func (c *Cell) isEcho() bool { return c.IsFloor() && c.Peer != PeerSpin && c.Peer != PeerTurn }

// IsFloor tells a bare echo from a transport.
func (c *Cell) IsFloor() bool { return c.Transport == floor.Name }

// Probe creates the folder where it is missing and finds out whether run.json can be written there, so that a run ends before it has measured
// anything rather than after. What an earlier run left in the folder stays as it is.
func Probe(folder string) error {
	path := filepath.Join(folder, FileName)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return fmt.Errorf("output folder: %w", err)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("output folder: %s is no regular file, so the results cannot take its place", path)
	}
	file, err := os.CreateTemp(folder, FileName+".*")
	if err != nil {
		return fmt.Errorf("output folder: %w", err)
	}
	if err := errors.Join(file.Close(), os.Remove(file.Name())); err != nil {
		return fmt.Errorf("output folder: %w", err)
	}
	return nil
}

// Write puts run.json into the folder, whole or not at all, and returns its path.
func (r *Run) Write(folder string) (string, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", fmt.Errorf("report: results cannot be written as JSON: %w", err)
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return "", fmt.Errorf("report: output folder: %w", err)
	}
	path := filepath.Join(folder, FileName)
	if err := WriteFile(path, append(text, '\n')); err != nil {
		return "", fmt.Errorf("report: %w", err)
	}
	return path, nil
}

// WriteFile writes a file of the output folder whole or not at all: what was there stays until all of the new one is there, and where there is no room
// for it, none is taken from other files.
func WriteFile(path string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, writeErr := file.Write(text)
	err = errors.Join(writeErr, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", path, err), os.Remove(file.Name()))
	}
	return nil
}

// maxFile bounds what is read as a run.json: a matrix of 75 cells run 1,000 times each, the most that may be asked for, has about 900 MB.
const maxFile = 1 << 30

// Read reads a run.json.
func Read(path string) (Run, error) {
	file, err := os.Open(filepath.Clean(path))
	if err != nil {
		return Run{}, err
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return Run{}, err
	}
	if len(text) > maxFile {
		return Run{}, fmt.Errorf("%s is no %s: it has more than %d bytes", path, FileName, maxFile)
	}
	var r Run
	if err := json.Unmarshal(text, &r); err != nil {
		return Run{}, fmt.Errorf("%s is no %s: %w", path, FileName, err)
	}
	if r.Schema != Schema {
		return Run{}, fmt.Errorf("%s has the schema %q; needed is a %s with %q", path, r.Schema, FileName, Schema)
	}
	for i, c := range r.Cells {
		if err := c.check(); err != nil {
			return Run{}, fmt.Errorf("%s: cell %d of %d: %w: the file is damaged", path, i+1, len(r.Cells), err)
		}
	}
	return r, nil
}

// check finds what no run writes: figures of such a cell would be printed, compared and added to as if they had been measured.
func (c *Cell) check() error {
	fates := []int64{c.OK, c.Rejected, c.Refused, c.TimedOut, c.Errors, c.Unsent}
	sum := int64(0)
	for _, n := range fates {
		sum += n
	}
	name := c.Transport + c.Spec + c.Flow + c.Engine + c.Encoding + c.Operation + c.Ack + c.Arrivals + c.Peer
	switch {
	case !slices.Contains([]runner.Verdict{runner.Valid, runner.Suspect, runner.Invalid}, c.Validity):
		return fmt.Errorf("validity %q", c.Validity)
	case sum != c.Requests || slices.Min(fates) < 0:
		return fmt.Errorf("%d requests, of which %d are accounted for", c.Requests, sum)
	case c.Clients < 1 || c.Size < 0 || c.Run < 1 || c.Seconds < 0:
		return fmt.Errorf("%d clients, size %d, run %d, %v s", c.Clients, c.Size, c.Run, c.Seconds)
	case strings.ContainsFunc(name, unicode.IsControl): // they would reach a terminal
		return fmt.Errorf("%q has control characters", name)
	}
	return nil
}

// round keeps a figure to three significant digits, for people.
func round(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}
