package runner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"tailgate/loadtest/machine"
	"tailgate/loadtest/record"
	"tailgate/loadtest/speed"
	"tailgate/loadtest/stats"
)

// Verdict is the judgement on a measurement, not on what was measured.
type Verdict string

// The verdicts.
const (
	Valid   Verdict = "VALID"
	Suspect Verdict = "SUSPECT" // the figures are shown, with what speaks against them
	Invalid Verdict = "INVALID" // the figures are not shown as results
)

// SuspectSlow is the share of the time from which slow cores make a measurement SUSPECT: one that is slow without having been taken does the same to a percentile as
// one that is taken, and 1 % of the time can decide a p99. In the study (below) cores were slow for 12 % of the time in the median run, and of all that the verdict looks at this has the
// closest tie to the p99: a rank correlation of 0.73; the quarter of the runs with most of it had a p99 41 % above the median.
const SuspectSlow = 0.01

// Thresholds of the verdict. "The study" is loadtest/testdata/study, of 2026-12-01 on two cores of a virtual machine: 240 runs of 1.05 s of tcp, rest and grpc, 64 B by one client, whose gateways
// were left alone; LOADTEST_STUDY_EVALUATE=testdata/study go test -run '^TestStudy$' -v prints what is said of it here. What it did not reach is reasoned.
const (
	// A hypervisor that takes cores away adds its own pauses to every percentile beyond the share that it takes: 1 % of stolen time can
	// decide a p99. From a half on, more of the time is the hypervisor's than the pair's that is measured. Reasoned: the
	// study's runs had none. One tick of 10 ms alone is no evidence.
	suspectSteal, invalidSteal = 0.01, 0.5
	leastSteal                 = 20 * time.Millisecond
	// The same holds for other processes on the measured cores, but they are scheduled in small slices, and the kernel's own threads always
	// take a little: 3.2 % at most in nine of ten runs of the study. The ten beyond 5 % had a p50 higher by 8 % and a p99 by 63 %.
	suspectForeign = 0.05
	// The tester's own work before a request is part of its response time. Above a tenth of the p99 it shows in the second digit; above a
	// half the figure tells of the tester. Below lagFloor it is too small to matter to anybody's objective: p99 at half load is
	// wanted below this by design. Reasoned: above 100 µs in no run of the study.
	suspectLag, invalidLag = 0.1, 0.5
	lagFloor               = 100 * time.Microsecond
	// Little's law: clients = throughput x mean response time, where every client always has a request under way. What is missing was
	// not measured: clients that started late, paused or stood still. Reasoned: at most 0.8 % in the study, without cost.
	suspectLittle, invalidLittle = 0.05, 0.25
	// Requests that were due and that the tester had not sent by the end of the interval, by its own fault: what was asked for is not
	// what was offered. A hundredth is a stall of the tester as long as a hundredth of the interval at its very end.
	suspectBehind, invalidBehind = 0.01, 0.05
	// A percentile that moves by a half over the interval, and surely so (Mann and Kendall's z beyond 2.58: one in a hundred where windows do not depend on each
	// other), has no single value that would stand for it. In the study 5 % of the runs moved by a half, with figures that do not surely differ from
	// those of the others.
	suspectDrift, sureDrift = 0.5, 2.58
	// An interval of fewer mean responses than this sees each client finish too few requests for an average to settle.
	longInterval = 10
	// A closed loop offers nothing while it waits, so a gateway that dies in mid-run costs each client one request, however long it stays
	// dead, and every percentile is that of the time before. An end without an answer is therefore held against the interval: a tenth of
	// it, and so long by the response times that came before that it is no gap between two answers.
	invalidSilence  = 0.1
	silentResponses = 10
	// So many requests without an answer, one after the other, are no chance.
	leastLeftAlone = 100
	// A collector pause in the tester delays every answer that arrives meanwhile, so a share of 1 % of the time can decide a p99. Reasoned: at most
	// 0.06 % in the study.
	suspectGC = 0.01
	// /proc/stat counts in ticks of 10 ms (USER_HZ = 100), so below this a share cannot be told to about a hundredth. The kernel's count of an interval of a
	// second is off by some ticks either way: of the study's runs of 1.05 s, 7 % were too short for this.
	leastCoreTime = 900 * time.Millisecond
	// An order that is rejected costs the gateway less than one that is matched, so with too many of them it is another load.
	suspectRejected = 0.01
)

// Validity is a verdict with its reasons, the worst first.
type Validity struct {
	Verdict Verdict
	Reasons []string
}

type judge struct {
	validity Validity
	invalid  []string
	suspect  []string
}

func (j *judge) say(list *[]string, format string, args ...any) {
	*list = append(*list, fmt.Sprintf(format, args...))
}

// between adds a reason where a share has reached a threshold.
func (j *judge) between(share, suspect, invalid float64, format string, args ...any) {
	switch {
	case share >= invalid:
		j.say(&j.invalid, format, args...)
	case share >= suspect:
		j.say(&j.suspect, format, args...)
	}
}

// Judge says what speaks against the outcome of a cell.
func Judge(cell Cell, out Outcome) Validity {
	var j judge
	j.connections(out)
	j.end(out)
	j.load(cell, out)
	j.machine(cell, out)
	j.tester(out)
	j.steady(cell, out)
	switch {
	case len(j.invalid) > 0:
		j.validity.Verdict = Invalid
	case len(j.suspect) > 0:
		j.validity.Verdict = Suspect
	default:
		j.validity.Verdict = Valid
	}
	j.validity.Reasons = slices.Concat(j.invalid, j.suspect)
	return j.validity
}

// load: was it the load that was asked for, and was it answered rightly?
func (j *judge) load(cell Cell, out Outcome) {
	offered := out.Counts.Offered()
	if offered == 0 {
		j.say(&j.invalid, "no request was measured")
		return
	}
	if offered != out.Response.Count() {
		j.say(&j.invalid, "%d requests offered, %d accounted for", offered, out.Response.Count())
	}
	if cell.Requests > 0 && offered != cell.Requests && !out.Interrupted {
		j.say(&j.invalid, "%d requests asked for, %d offered", cell.Requests, offered)
	}
	if out.Wrong > 0 {
		j.say(&j.invalid, "%d answers were wrong: %s", out.Wrong, out.FirstWrong)
	}
	if out.Interrupted {
		j.say(&j.suspect, "interrupted after %.1f s", out.Seconds)
	}
	rejected := float64(out.Counts[record.Rejected]) / float64(offered)
	if cell.Flow.CancelShare+cell.Flow.ReplaceShare > 0 {
		rejected = 0 // a cancel that comes too late is part of that flow
	}
	j.between(rejected, suspectRejected, math.Inf(1), "%.1f %% of the orders were rejected, so the load is lighter than it looks", 100*rejected)
	if cell.Open != nil {
		j.schedule(out)
		return
	}
	if cell.Requests == 0 && out.Seconds > 0 {
		residual := littleResidual(cell, out)
		hint := ""
		if mean := out.Busy.Seconds() / float64(offered); mean > out.Seconds/longInterval {
			hint = fmt.Sprintf("; with a mean response of %.2g s the interval of %.2g s is too short: measure longer", mean, out.Seconds)
		}
		j.between(math.Abs(residual), suspectLittle, invalidLittle,
			"Little's law: %.1f requests were under way on average, not %d (residual %.0f %%)%s", out.Busy.Seconds()/out.Seconds, cell.Clients, 100*residual, hint)
	}
}

// schedule: was everything offered that was due, and by a generator that kept up?
func (j *judge) schedule(out Outcome) {
	offered := out.Counts.Offered()
	if offered != out.Scheduled && !out.Interrupted {
		j.say(&j.invalid, "%d requests were due by the schedule, %d offered", out.Scheduled, offered)
	}
	if out.Scheduled == 0 || out.Seconds == 0 {
		return
	}
	if out.Counts[record.Unsent] == offered && offered > 0 && !CouldNotOffer(out) {
		j.say(&j.invalid, "not one of %d requests that were due was sent: those before them, of the warm-up, were not answered in time", offered)
	}
	behind := float64(out.Behind) / float64(out.Scheduled)
	asked := float64(out.Scheduled) / out.Seconds
	j.between(behind, suspectBehind, invalidBehind, "the generator cannot keep up: %.0f/s were due, it sent %.0f/s", asked, asked*(1-behind))
}

// end: was it answered until the end?
func (j *judge) end(out Outcome) {
	interval := time.Duration(out.Seconds * float64(time.Second))
	limit := time.Duration(invalidSilence * float64(interval))
	// Of those that were answered, since what is lost is no response time. What is too few for a p99 has a lower percentile, or a maximum.
	usual := out.Admitted.Max()
	for _, p := range []stats.Percentile{stats.P50, stats.P90, stats.P95, stats.P99} {
		if v := out.Admitted.At(p); v.State == stats.Known {
			usual = v
		}
	}
	if usual.State == stats.Known {
		limit = max(limit, silentResponses*usual.Duration)
	}
	switch {
	case out.Counts.Offered() == 0:
	case out.Counts.Answered() == 0 && out.Silence >= interval:
		j.say(&j.invalid, "no answer came in the whole interval of %.2g s", out.Seconds)
	case out.Silence > limit, out.Silence > time.Duration(invalidSilence*float64(interval)) && leftAlone(out):
		j.say(&j.invalid, "no answer came in the last %.2g s of %.2g s", out.Silence.Seconds(), out.Seconds)
	case out.Deserted && out.Scheduled == 0: // workers of an open loop may have been idle since they were last needed
		j.say(&j.invalid, "every client's last request ended without an answer")
	}
}

// leftAlone says whether what an open loop sent since the last answer has got none. Slow answers before make a long silence usual, but not that.
func leftAlone(out Outcome) bool {
	if out.Scheduled == 0 || out.Seconds == 0 {
		return false
	}
	due := float64(out.Scheduled) * out.Silence.Seconds() / out.Seconds
	lost := out.Counts[record.TimedOut] + out.Counts[record.Errors] + out.Counts[record.Unsent]
	return due >= leastLeftAlone && float64(lost) >= due/2 // rates may have changed by steps
}

func (j *judge) connections(out Outcome) {
	c := out.Connections
	switch {
	case c.Open < 0:
		j.say(&j.suspect, "how many of %d connections were open at the end could not be checked: %s", c.Asked, c.Unknown)
	case c.Open == 0:
		j.say(&j.invalid, "none of %d connections was open at the end: the gateway has ended or closed them, see its log", c.Asked)
	case c.Open < c.Asked:
		j.say(&j.invalid, "%d of %d connections were open at the end", c.Open, c.Asked)
	}
	if c.Redials > 0 {
		j.say(&j.suspect, "%d times a connection was lost and opened again", c.Redials)
	}
}

// machine: did somebody else take the cores?
func (j *judge) machine(cell Cell, out Outcome) {
	plan := cell.Plan
	if !plan.Pinned {
		j.say(&j.suspect, "%s", cmp.Or(plan.Note, "not pinned: server and clients may share cores"))
	}
	if s := out.Speed; s != nil {
		j.between(s.Share, SuspectSlow, math.Inf(1), "the cores ran below %.0f %% of their speed for %.1f %% of the time, at worst at %.0f %%", 100/speed.SlowFactor, 100*s.Share, 100/s.Worst)
	}
	steal, foreign, ok := taken(plan, out)
	if !ok {
		j.say(&j.suspect, "too short to tell what else ran on the cores: the kernel counts their time in steps of 10 ms")
		return
	}
	among := ""
	if plan.Beside {
		among = ", the gateway under test among them"
	}
	j.between(steal.most, suspectSteal, invalidSteal, "the hypervisor took %s of the cores", steal.text)
	j.between(foreign.most, suspectForeign, math.Inf(1), "other processes used %s of the cores%s", foreign.text, among)
}

// taken is what the hypervisor and other processes had of the cores; not ok where the interval is too short to tell.
func taken(plan machine.Plan, out Outcome) (steal, foreign shares, ok bool) {
	for _, side := range sides(plan, out) {
		total := side.cores.Total()
		if total > 0 && total < leastCoreTime {
			return shares{}, shares{}, false
		}
		if total > 0 {
			stolen := side.cores.Steal
			if stolen < leastSteal {
				stolen = 0
			}
			steal.add(side.name, float64(stolen)/float64(total))
			foreign.add(side.name, max(float64(side.cores.Busy-side.own), 0)/float64(total)) // ticks may count less than the process itself knows of
		}
	}
	return steal, foreign, true
}

// side is a set of cores, what was done on them and what of it was the measured pair's own work.
type side struct {
	name  string
	cores machine.CoreTimes
	own   time.Duration
}

// sides are the sets of cores whose times are known. A server of ours that is not pinned has the same cores as the clients, so both are one.
func sides(plan machine.Plan, out Outcome) []side {
	var list []side
	client, server := out.ClientUse, out.ServerUse
	cpu := func(u *Use) time.Duration { return u.UserCPU + u.SystemCPU }
	if client.CoresKnown {
		list = append(list, side{"client", client.Cores, cpu(&client)})
	}
	switch {
	case server == nil || !server.CoresKnown:
	case plan.Pinned:
		list = append(list, side{"server", server.Cores, cpu(server)})
	case len(list) > 0:
		list[0].name, list[0].own = "shared", list[0].own+cpu(server)
	}
	return list
}

// shares collects one figure of both sides.
type shares struct {
	most float64
	text string
}

func (s *shares) add(name string, share float64) {
	s.most = max(s.most, share)
	if s.text != "" {
		s.text += " and "
	}
	s.text += fmt.Sprintf("%.1f %% (%s)", 100*share, name)
}

// tester: is it the tester that was measured?
func (j *judge) tester(out Outcome) {
	if share := lagShare(out); out.Lag.At(stats.P99).Duration > lagFloor {
		j.between(share, suspectLag, invalidLag, "the tester's own lag has a p99 of %v, %.0f %% of the response time's", out.Lag.At(stats.P99).Duration.Round(time.Microsecond), 100*share)
	}
	gc := gcShare(out)
	j.between(gc, suspectGC, math.Inf(1), "the tester's garbage collector stopped it for %.1f %% of the time", 100*gc)
}

// steady: did the response times stay where they were?
func (j *judge) steady(cell Cell, out Outcome) {
	if cell.Open != nil && len(cell.Open.Pace.Steps) > 0 {
		return // they are not meant to
	}
	for _, t := range out.Trends {
		if math.Abs(t.Z) < sureDrift || math.Abs(t.Change) < suspectDrift {
			continue
		}
		way := "rose"
		if t.Change < 0 {
			way = "fell"
		}
		j.say(&j.suspect, "not steady: %s %s by %.0f %% over the interval (z = %.1f)", t.Percentile, way, 100*math.Abs(t.Change), t.Z)
	}
}

// CouldNotOffer says whether the tester did not offer what an open loop asked of it, by the threshold of INVALID.
func CouldNotOffer(out Outcome) bool {
	return out.Scheduled > 0 && float64(out.Behind) >= invalidBehind*float64(out.Scheduled)
}

// Lagged says whether the response times tell of the tester rather than of the server, by the threshold of INVALID. They are an upper bound all the same: the
// lag is part of them.
func Lagged(out Outcome) bool {
	return out.Lag.At(stats.P99).Duration > lagFloor && lagShare(out) >= invalidLag
}

// Checks are the quantities that the verdict holds against its thresholds, as shares; 0 where a cell does not have one, or it cannot be told.
type Checks struct {
	Lag     float64 `json:"lag"`     // p99 of the tester's own lag by the p99 of the response time, also where the lag is too small to count
	Steal   float64 `json:"steal"`   // of the time of a side's cores, the greater one
	Foreign float64 `json:"foreign"` // other processes, the same
	GC      float64 `json:"gc"`      // of the interval that the tester's collector stopped it for
	Little  float64 `json:"little"`  // residual of Little's law, with its sign; closed loop
	Drift   float64 `json:"drift"`   // greatest sure change of p50 or p99 over the interval, with its sign
}

// Check returns them.
func Check(cell Cell, out Outcome) Checks {
	c := Checks{Lag: lagShare(out), GC: gcShare(out)}
	if steal, foreign, ok := taken(cell.Plan, out); ok {
		c.Steal, c.Foreign = steal.most, foreign.most
	}
	if cell.Open == nil && out.Seconds > 0 {
		c.Little = littleResidual(cell, out)
	}
	for _, t := range out.Trends {
		if math.Abs(t.Z) >= sureDrift && math.Abs(t.Change) > math.Abs(c.Drift) {
			c.Drift = t.Change
		}
	}
	return c
}

func lagShare(out Outcome) float64 {
	lag, response := out.Lag.At(stats.P99), out.Response.At(stats.P99)
	if lag.State != stats.Known || response.State != stats.Known || response.Duration == 0 {
		return 0
	}
	return float64(lag.Duration) / float64(response.Duration)
}

func gcShare(out Outcome) float64 {
	if out.ClientUse.At <= 0 {
		return 0
	}
	return float64(out.ClientUse.GCPause) / float64(out.ClientUse.At)
}

// littleResidual is the share of the clients that, on average, had no request under way.
func littleResidual(cell Cell, out Outcome) float64 {
	return 1 - out.Busy.Seconds()/out.Seconds/float64(cell.Clients)
}

// saturated is the share of its cores from which a side counts as bound by them: what is left is about what the kernel's own work and the
// granularity of the counters take.
const saturated = 0.9

// Bound says whose cores were used up: in a closed loop that is no fault of the measurement, but the figure then belongs to the pair. Empty
// where it cannot be told.
func Bound(out Outcome) string {
	if out.ServerUse == nil || out.ClientUse.Share == 0 {
		return ""
	}
	client, server := out.ClientUse.Share >= saturated, out.ServerUse.Share >= saturated
	switch {
	case client && server:
		return "both"
	case client:
		return "client"
	case server:
		return "server"
	default:
		return "neither"
	}
}
