package main

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"tailgate/loadtest/report"
	"tailgate/loadtest/stats"
	"tailgate/loadtest/workload"
	"tailgate/transports"
	"tailgate/transports/all"
)

// options is the command line. All flags stand at the top, so that one help shows them.
type options struct {
	Transport string     `group:"What to measure" placeholder:"SPEC" help:"One transport with its choices: ${specs}. Without it, all transports are measured."`
	Size      []byteSize `group:"What to measure" placeholder:"BYTES" help:"Encoded size of every new order, exactly: 64, 1KB, 64KB (KB = 1,024). With one transport the default is 64."`
	Clients   []int      `group:"What to measure" placeholder:"N" help:"Clients, each with one request at a time, but for an open loop. With one transport the default is 50."`
	Flow      string     `group:"What to measure" placeholder:"MODE" help:"Flow control, the same as SPEC:MODE: ${flows}."`
	Engine    string     `group:"What to measure" placeholder:"NAME" help:"I/O engine of server and clients, the same as SPEC:NAME: ${engines}."`
	Protocol  string     `group:"What to measure" placeholder:"NAME" help:"Protocol of the clients, the same as SPEC:NAME (where the transport has several): ${protocols}."`
	Encoding  string     `group:"What to measure" placeholder:"NAME" help:"Encoding of the messages, the same as SPEC:NAME: protobuf or json (where the transport has it)."`
	Operation string     `group:"What to measure" default:"submit-order" placeholder:"NAME" enum:"${operations}" help:"What every request is: submit-order, with cancels and replaces by their shares; get-book, ${levels} levels a side of the first instrument's book, which has no size. (${default})"`
	Ack       string     `group:"What to measure" default:"full" placeholder:"DETAIL" enum:"full,minimal" help:"full: the answer repeats the order's tag, so it is as large; minimal: a small answer to every order. (${default})"`

	InFlight    int     `group:"What to measure" name:"inflight" placeholder:"N" help:"Most requests in flight over all clients; the wait for a place counts into the response time. (no cap; in an open loop 16384, fewer above 16KB)"`
	Connections int     `group:"What to measure" placeholder:"N" help:"Connections that the clients share. (one each; grpc: one for all)"`
	Accounts    int     `group:"What to measure" default:"16" placeholder:"N" help:"Accounts of the hosted gateway that the connections are spread over. (${default})"`
	CancelShare float64 `group:"What to measure" placeholder:"SHARE" help:"Share of cancels, 0 to 1. (0)"`
	ReplShare   float64 `group:"What to measure" name:"replace-share" placeholder:"SHARE" help:"Share of replaces, 0 to 1. (0)"`

	SizeMix   string `group:"What to measure" placeholder:"SIZE:WEIGHT,..." help:"Several sizes in one flow, drawn for each order: 64:80,4KB:15,64KB:5."`
	ClientMix string `group:"What to measure" placeholder:"SIZE:WEIGHT,..." help:"Several sizes, each client with one: 64:50,64KB:50. How equally the clients of a size are served is told as Jain's index."`

	Rate       float64       `group:"Open loop" placeholder:"R" help:"Send this many requests a second, whatever becomes of them, dealt to the clients in turn; the response time counts from the scheduled time. Without it each client waits for its answer (closed loop)."`
	Arrivals   string        `group:"Open loop" default:"poisson" placeholder:"KIND" enum:"poisson,constant" help:"poisson: independent of each other; constant: equal gaps. (${default})"`
	Step       []string      `group:"Open loop" placeholder:"TIME:RATE" help:"Another rate from this time of the measured interval on, repeatable: 5s:2000."`
	MaxWait    time.Duration `group:"Open loop" placeholder:"TIME" help:"How late a request may be sent; then it counts as unsent. (as --timeout)"`
	Generators int           `group:"Open loop" placeholder:"N" help:"Senders that share the schedule. (the clients' cores but one, at least one)"`

	Duration time.Duration `group:"How long" xor:"length" placeholder:"TIME" help:"Measured time of a cell. (10s; up to 2s each when all transports are measured)"`
	Requests int64         `group:"How long" xor:"length" placeholder:"N" help:"Measure this many requests instead."`
	Warmup   time.Duration `group:"How long" default:"500ms" placeholder:"TIME" help:"Same load before, not recorded: at least this long, and until every client has had an answer. (${default})"`
	Timeout  time.Duration `group:"How long" default:"10s" placeholder:"TIME" help:"Time of one request; without an answer by then it is timed out. (${default})"`
	Seed     uint64        `group:"How long" default:"1" placeholder:"N" help:"Seed of the flow and of the order of the cells. (${default})"`

	Repeat int           `group:"How long" default:"1" placeholder:"N" help:"Runs of every cell, interleaved, each with a gateway of its own: what compare needs, ${runs} at least. (${default})"`
	Budget time.Duration `group:"How long" xor:"length" placeholder:"TIME" help:"Time of the run, starts and warm-ups included, shared out equally. It is kept: cells become shorter, and what no time is left for is not measured, which is said."`
	Resume bool          `group:"How long" help:"Keep the cells that a run with the same flags has already measured into --out, and measure the others. Only --budget, --admin, the keys and what is printed may differ, and --repeat may grow."`

	SLO []string `group:"Judgement" name:"slo" placeholder:"EXPR" sep:"none" help:"Objective on the response time, repeatable: 'p99<10ms', 'p99.9<=50ms', 'max<1s', 'mean<200us'. When one is missed the exit status is 99. The default, ${slo}, only informs."`

	Target      string   `group:"Where" placeholder:"HOST:PORT" help:"Drive a gateway that is running. Without it, one is hosted, fresh for every cell, on a core of its own."`
	Key         []string `group:"Where" placeholder:"KEY" env:"TAILGATE_KEY" help:"API key for --target; repeat it for several accounts."`
	TLS         bool     `group:"Where" name:"tls" help:"Speak TLS to --target."`
	TLSCA       string   `group:"Where" name:"tls-ca" placeholder:"FILE" help:"PEM file of the authority that signed its certificate. (the system's)"`
	TLSInsecure bool     `group:"Where" name:"tls-insecure" help:"Take any certificate."`
	Admin       string   `group:"Where" placeholder:"HOST:PORT" help:"Admin listener of --target: the gateway's counters (CPU, memory, scheduler, its transport's own) then stand beside the clients'. (not read)"`
	AdminKey    string   `group:"Where" name:"admin-key" placeholder:"KEY" env:"TAILGATE_ADMIN_KEY" help:"Administrator's key for --admin."`
	Congestion  string   `group:"Where" placeholder:"NAME" help:"TCP congestion control on both sides, e.g. cubic. (the system's)"`
	Sync        string   `group:"Where" default:"os" placeholder:"MODE" enum:"off,os,always" help:"When the hosted gateway acknowledges: off, os (outlives the process), always (outlives a power cut). (${default})"`
	ServerCores int      `group:"Where" default:"1" placeholder:"N" help:"Cores of the hosted gateway; the clients have the others. (${default})"`

	Out    string `group:"Output" default:"out" placeholder:"DIR" help:"Folder for ${file} with its schema, one .hgrm and .hlog a cell (HdrHistogram), metrics.prom (OpenMetrics). (${default})"`
	Format string `group:"Output" default:"table" placeholder:"FORMAT" enum:"table,json,markdown,csv" help:"What is printed: table, json, markdown, csv. (${default})"`
	JSON   bool   `group:"Output" name:"json" help:"The same as --format json."`

	Explain bool `group:"In a later release" help:"Profile both sides and say what drives the tail."`

	Run       struct{}        `cmd:"" default:"1" help:"Measure one transport, or all; the word may be left out."`
	Matrix    matrixOptions   `cmd:"" help:"Measure transports x sizes x clients; by default all transports x 64, 256, 1KB, 4KB, 64KB x 1, 10, 50, 100, 500 clients, 10s each."`
	Version   struct{}        `cmd:"" help:"Print the version."`
	Compare   compareOptions  `cmd:"" help:"Compare the runs of two files, or the transports of one: what differs, by how much, and what is noise (~)."`
	Capacity  capacityOptions `cmd:"" help:"The highest rate at which each SLO is kept (RFC 9971), for one transport or all; several SLOs share their trials."`
	Calibrate struct{}        `cmd:"" help:"What client library and machine cost by themselves: every transport against a server that answers at once, bare echoes, and the timer."`
	Report    later           `cmd:"" help:"Later release: run.json as one HTML file."`
	Cost      later           `cmd:"" help:"Later release: US dollars for a million orders."`
	Advise    later           `cmd:"" help:"Later release: a ranked choice for a described workload."`

	command string
	given   map[string]bool // flags on the command line by name: a zero that was written is no default
}

type compareOptions struct {
	A string `arg:"" help:"run.json of what was before."`
	B string `arg:"" optional:"" help:"run.json of what is held against it. Without it the transports of A are held against its first."`
}

type matrixOptions struct {
	Transports []string   `placeholder:"SPEC,..." sep:"none" help:"Transports with their choices, repeatable or separated by commas: tcp,tcp:none,grpc. (all)"`
	Sizes      []byteSize `placeholder:"BYTES" help:"Encoded sizes of a new order, as --size takes them. (64,256,1KB,4KB,64KB)"`
}

// later is a command that is announced and not there yet. Whatever follows it is taken, so that the answer is the same.
type later struct {
	Arguments []string `arg:"" optional:"" passthrough:"" hidden:""`
}

// byteSize is a size as --size takes it.
type byteSize int

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *byteSize) UnmarshalText(text []byte) error {
	number, factor := strings.TrimSpace(string(text)), 1
	for _, unit := range []struct {
		suffix string
		factor int
	}{{"KB", 1 << 10}, {"MB", 1 << 20}, {"B", 1}} {
		if before, ok := strings.CutSuffix(strings.ToUpper(number), unit.suffix); ok {
			number, factor = strings.TrimSpace(before), unit.factor
			break
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > workload.MaxSize/factor {
		return fmt.Errorf("%q is no size: write bytes as 64, 1KB or 64KB (KB = 1,024), at most %d", text, workload.MaxSize)
	}
	*b = byteSize(n * factor)
	return nil
}

// defaultSLO is held against every cell unless --slo is given.
const defaultSLO = "p99<10ms"

const description = `Measures order-entry transports by their tail.

Without arguments: all transports, a small matrix of sizes and clients, under two minutes; a table, who keeps the SLO, and ${file}.

One cell of 64 B, 50 clients and 10 s:

	loadtest --transport tcp --inflight 50

Exit status 99 when the SLO is missed:

	loadtest --transport grpc --slo 'p99<10ms'

An open loop, which shows every stall to every request that was due meanwhile:

	loadtest --transport tcp --rate 5000 --arrivals poisson

Two builds against each other, by the runs of each:

	loadtest --transport tcp --repeat ${runs} --out before
	loadtest compare before/run.json after/run.json

A matrix, and a gateway that is already running:

	loadtest matrix --transports tcp,rest --sizes 64,64KB --clients 1,50
	loadtest --target 10.0.0.7:7001 --transport tcp --key KEY

Response time runs from the moment a client became free, or with --rate from the time for which the request was scheduled, to its answer in hand. Requests without an answer count as infinitely late. A figure that the samples cannot carry reads "too few". Every measurement is VALID, SUSPECT or INVALID, with reasons.

Exit status, the first that holds: 2, the command line is wrong; 1, a cell could not be measured because of an error, the results could not be written, or the run was interrupted; 99, an SLO given by --slo was missed; 3, a measurement is INVALID, or its samples are too few for a verdict on an SLO given by --slo; 0, none of these. SUSPECT, and the default SLO, change nothing.`

// newParser makes what fills in the options. Where the help is asked for, it calls exit.
func newParser(o *options, stdout, stderr io.Writer, exit func(code int)) (*kong.Kong, error) {
	vars := kong.Vars{
		"specs": strings.Join(specs(), ", "), "slo": defaultSLO, "file": report.FileName, "runs": strconv.Itoa(report.RunsToCompare),
		"flows": choices(func(t transports.Transport) []string { return t.Flows }), "engines": choices(func(t transports.Transport) []string { return t.Engines }),
		"protocols":  choices(func(t transports.Transport) []string { return t.Protocols }),
		"operations": strings.Join(workload.OperationNames(), ","), "levels": strconv.Itoa(workload.BookDepth),
	}
	return kong.New(o, kong.Name("loadtest"), kong.Description(expand(description, vars)), vars,
		kong.Writers(stdout, stderr), kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: report.Width}),
	)
}

// parse reads the command line. Without options the returned status is the process's.
func parse(args []string, stdout, stderr io.Writer) (*options, int) {
	var o options
	status := -1
	parser, err := newParser(&o, stdout, stderr, func(code int) { status = code })
	if err != nil {
		fmt.Fprintln(stderr, "loadtest: the command line is not well defined:", err)
		return nil, exitFailure
	}
	context, err := parser.Parse(args)
	switch {
	case status >= 0: // the help was asked for
		return nil, status
	case err != nil:
		return nil, usage(stderr, errors.New(strings.TrimPrefix(err.Error(), "loadtest: ")))
	}
	o.command, _, _ = strings.Cut(context.Command(), " ")
	if err := o.notYet(); err != nil {
		return nil, usage(stderr, err)
	}
	if err := o.take(context); err != nil {
		return nil, usage(stderr, err)
	}
	return &o, exitOK
}

// take notes which flags were given, and refuses empty values: left alone, they would become defaults without a word.
func (o *options) take(context *kong.Context) error {
	o.given = map[string]bool{}
	for _, part := range context.Path {
		if part.Flag == nil {
			continue
		}
		o.given[part.Flag.Name] = true
		value := part.Flag.Target
		empty := value.Kind() == reflect.String && value.Len() == 0
		if value.Kind() == reflect.Slice {
			empty = value.Len() == 0
			for i := range value.Len() {
				empty = empty || value.Index(i).Kind() == reflect.String && value.Index(i).Len() == 0
			}
		}
		if empty {
			return fmt.Errorf("--%s: an empty value is not allowed. %s", part.Flag.Name, part.Flag.Help)
		}
	}
	if o.JSON {
		if o.given["format"] && o.Format != "json" {
			return fmt.Errorf("--json and --format %s: what is printed is either; leave one out", o.Format)
		}
		o.Format = "json"
	}
	return nil
}

func expand(text string, vars kong.Vars) string {
	return strings.NewReplacer("${file}", vars["file"], "${runs}", vars["runs"]).Replace(text)
}

// specs are examples of what --transport takes: every transport, and its choices beside the default.
func specs() []string {
	var list []string
	for _, t := range all.All() {
		list = append(list, t.Name)
		for _, choices := range [][]string{t.Flows, t.Engines, t.Protocols, t.Encodings} {
			for i, choice := range choices {
				if i > 0 {
					list = append(list, t.Name+":"+choice+limit(choice))
				}
			}
		}
	}
	return list
}

// choices lists what transports offer of a kind.
func choices(of func(transports.Transport) []string) string {
	var parts []string
	for _, t := range all.All() {
		list := slices.Clone(of(t))
		for i, choice := range list {
			list[i] = choice + limit(choice)
		}
		if len(list) > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", strings.Join(list, ", "), t.Name))
		}
	}
	return strings.Join(parts, "; ")
}

// limit is what has to follow a choice.
func limit(choice string) string {
	if choice == all.Semaphore {
		return "=N"
	}
	return ""
}

// notYet refuses what is announced for a later release, by its name.
func (o *options) notYet() error {
	if o.Explain {
		return errors.New("not yet: --explain comes with a later release")
	}
	if slices.Contains([]string{"report", "cost", "advise"}, o.command) {
		return fmt.Errorf("not yet: %s comes with a later release", o.command)
	}
	return nil
}

// objectives parses --slo, or the default.
func (o *options) objectives() ([]stats.SLO, error) {
	texts := o.SLO
	if len(texts) == 0 {
		texts = []string{defaultSLO}
	}
	var list []stats.SLO
	for _, text := range texts {
		slo, err := stats.ParseSLO(text)
		if err != nil {
			return nil, fmt.Errorf("--slo: %w", err)
		}
		list = append(list, slo)
	}
	return list, nil
}

// check holds the values to their bounds, those that need no other part of the program.
func (o *options) check() error {
	matrix := o.command == "matrix"
	for _, c := range []struct {
		wrong bool
		say   string
	}{
		{matrix && o.Transport != "", "--transport: with matrix, use --transports"},
		{matrix && len(o.Size) > 0, "--size: with matrix, use --sizes"},
		{!matrix && o.Transport != "" && (len(o.Size) > 1 || len(o.Clients) > 1), "--transport runs one cell: for several sizes or clients use loadtest matrix --transports"},
		{o.Duration < 0 || o.given["duration"] && o.Duration == 0 || o.Duration > 24*time.Hour, fmt.Sprintf("--duration %v: above 0 and at most 24h are allowed", o.Duration)},
		{o.Requests < 0 || o.given["requests"] && o.Requests == 0 || o.Requests > workload.MaxNumber/2, fmt.Sprintf("--requests %d: 1 to %d are allowed", o.Requests, int64(workload.MaxNumber/2))},
		{o.given["budget"] && (o.Budget <= 0 || o.Budget > 7*24*time.Hour), fmt.Sprintf("--budget %v: above 0 and at most 168h are allowed", o.Budget)},
		{o.Repeat < 1 || o.Repeat > 1000, fmt.Sprintf("--repeat %d: 1 to 1000 are allowed", o.Repeat)},
		{o.Warmup < 0 || o.Warmup > time.Hour, fmt.Sprintf("--warmup %v: 0s to 1h are allowed", o.Warmup)},
		{o.Timeout < 10*time.Millisecond || o.Timeout > stats.MaxBound/2, fmt.Sprintf("--timeout %v: 10ms to %v are allowed", o.Timeout, stats.MaxBound/2)},
		{matrix && len(o.Matrix.Sizes) > 0 && o.SizeMix != "" || len(o.Size) > 0 && o.SizeMix != "", "--size-mix: takes the place of --size and --sizes"},
		{o.ClientMix != "" && (len(o.Matrix.Sizes) > 0 || len(o.Size) > 0 || o.SizeMix != ""), "--client-mix: takes the place of --size, --sizes and --size-mix"},
		{o.ClientMix != "" && (o.given["rate"] || o.command == "capacity"), "--client-mix: is about a closed loop; in an open loop requests are dealt to the clients in turn, so use --size-mix"},
		{o.InFlight > workload.MaxClients/2, fmt.Sprintf("--inflight %d: at most %d are allowed", o.InFlight, workload.MaxClients/2)},
		{o.InFlight < 0 || o.given["inflight"] && o.InFlight == 0, fmt.Sprintf("--inflight %d: 1 and more are allowed; for no cap leave it out", o.InFlight)},
		{o.Connections < 0 || o.given["connections"] && o.Connections == 0, fmt.Sprintf("--connections %d: 1 to the number of clients are allowed; for the transport's own way leave it out", o.Connections)},
		{o.Accounts < 1 || o.Accounts > 1000, fmt.Sprintf("--accounts %d: 1 to 1000 are allowed", o.Accounts)},
		{o.ServerCores < 1, fmt.Sprintf("--server-cores %d: 1 and more are allowed", o.ServerCores)},
		{!(o.CancelShare >= 0 && o.ReplShare >= 0 && o.CancelShare+o.ReplShare <= 1), fmt.Sprintf("--cancel-share %v and --replace-share %v: each from 0, together at most 1, are allowed", o.CancelShare, o.ReplShare)},
		{o.Target != "" && o.given["sync"], "--sync: not with --target; the gateway that runs there has its own configuration"},
		{o.Target != "" && o.given["accounts"], "--accounts: not with --target; the accounts there are those whose keys are given by --key"},
		{o.Target != "" && o.given["server-cores"], "--server-cores: not with --target; the cores of the gateway that runs there are not ours to choose"},
		{o.Target == "" && o.given["key"], "--key: needs --target; a hosted gateway gets keys of its own"},
		{o.Target == "" && o.Admin != "", "--admin: needs --target; a hosted gateway's counters are read anyway"},
		{o.Admin == "" && o.given["admin-key"], "--admin-key: needs --admin"},
		{o.Target == "" && o.TLS, "--tls: needs --target"},
		{!o.TLS && (o.TLSCA != "" || o.TLSInsecure), "--tls-ca, --tls-insecure: need --tls"},
		{o.TLSCA != "" && o.TLSInsecure, "--tls-ca and --tls-insecure exclude each other"},
	} {
		if c.wrong {
			return errors.New(c.say)
		}
	}
	if err := o.checkOperation(); err != nil {
		return err
	}
	if err := o.checkOpen(); err != nil {
		return err
	}
	if err := o.checkCapacity(); err != nil {
		return err
	}
	if err := o.checkCalibrate(); err != nil {
		return err
	}
	for _, n := range o.Clients {
		if n < 1 || n > workload.MaxClients {
			return fmt.Errorf("--clients %d: 1 to %d are allowed", n, workload.MaxClients)
		}
	}
	return nil
}

// checkOperation refuses what says something about orders where none are sent.
func (o *options) checkOperation() error {
	if !o.reads() {
		return nil
	}
	for _, name := range []string{"size", "sizes", "size-mix", "client-mix", "ack", "cancel-share", "replace-share"} {
		if o.given[name] {
			return fmt.Errorf("--%s: not with --operation %s, whose requests are all the same %d levels a side of one book: it is about orders", name, o.Operation, workload.BookDepth)
		}
	}
	return nil
}

// reads tells a load without orders.
func (o *options) reads() bool { return o.Operation == "get-book" }
