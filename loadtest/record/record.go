package record

import (
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tailgate/loadtest/stats"
)

// Fate is how a request ended.
type Fate uint8

// The fates. offered = the sum of all.
const (
	OK       Fate = iota // acknowledged
	Rejected             // answered with a business or order reason
	Refused              // a fault that says NOT_PROCESSED
	TimedOut             // no answer within the request's time
	Errors               // a fault with outcome UNKNOWN, or an answer that was wrong
	Unsent               // due, but never given to a connection: none was open, or no place in flight came free
	fates
)

// Answered reports whether a request with this fate has a latency.
func (f Fate) Answered() bool { return f <= Rejected }

// Fates lists them in the order of the accounts.
var Fates = [fates]Fate{OK, Rejected, Refused, TimedOut, Errors, Unsent}

// Times are the latencies of one answered request. None is negative.
type Times struct {
	Due        time.Duration // when it was due, from the beginning of the interval
	Response   time.Duration // intended to done
	Service    time.Duration // call to done, less CreditWait
	Lag        time.Duration // intended to call
	CreditWait time.Duration // for the receiver's credit and for a place in flight
	Server     time.Duration // between the gateway's own stamps
	HasServer  bool          // whether Server was stamped
}

// Resolution and range of a recorder. Values are kept to three significant digits, and below 16 µs to 8 ns: the histogram's unit is the
// power of two below lowestDiscernible. The range is the greatest bound of an objective.
const (
	lowestDiscernible  = 10 // nanoseconds
	significantFigures = 3
	MaxValue           = stats.MaxBound
)

// MaxNotes bounds the distinct texts of what went wrong that a shard keeps; further ones are counted as "other".
const MaxNotes = 8

// series is one latency, counted. The exact figures stand beside the histogram, which rounds.
type series struct {
	histogram *hdrhistogram.Histogram
	exact     stats.Exact
}

func newSeries() series {
	h := hdrhistogram.New(lowestDiscernible, int64(MaxValue), significantFigures)
	h.Reset() // writes all of it, so that no page of it is met for the first time during a measurement
	return series{histogram: h}
}

func (s *series) add(d time.Duration) error {
	if d > MaxValue {
		return fmt.Errorf("%v is above %v, the most that is kept", d, MaxValue)
	}
	if err := s.histogram.RecordValue(int64(d)); err != nil {
		return err
	}
	if s.histogram.TotalCount() == 1 || d < s.exact.Min {
		s.exact.Min = d
	}
	s.exact.Max = max(s.exact.Max, d)
	s.exact.Sum += float64(d)
	return nil
}

func (s *series) merge(from *series) error {
	if from.histogram.TotalCount() == 0 {
		return nil
	}
	if s.histogram.TotalCount() == 0 || from.exact.Min < s.exact.Min {
		s.exact.Min = from.exact.Min
	}
	s.exact.Max = max(s.exact.Max, from.exact.Max)
	s.exact.Sum += from.exact.Sum
	if dropped := s.histogram.Merge(from.histogram); dropped > 0 {
		return fmt.Errorf("record: %d samples were lost when shards were merged", dropped)
	}
	return nil
}

func (s *series) distribution(lost int64) (stats.Distribution, error) {
	var buckets []stats.Bucket
	for _, bar := range s.histogram.Distribution() {
		if bar.Count > 0 {
			buckets = append(buckets, stats.Bucket{Value: time.Duration(bar.To), Count: bar.Count})
		}
	}
	return stats.NewDistribution(buckets, s.exact, lost)
}

// shard records for some of the clients.
type shard struct {
	mu       sync.Mutex
	counts   Counts
	busy     time.Duration // sum of intended-to-end over all fates
	response series
	service  series
	lag      series
	credit   series
	server   series
	times    timed // of responses
	lags     timed // none unless it was asked for
	notes    map[string]int64
	err      error // first value that could not be recorded

	wrong      int64
	firstWrong string
}

// timed is a shard's part in a timeline.
type timed struct {
	recent   *window   // its own, nil where there is no timeline
	timeline *timeline // the recorder's
}

func (t *timed) add(due, value time.Duration, answered bool) error {
	return t.recent.add(t.timeline, due, value, answered)
}

// Recorder is the records of one cell.
type Recorder struct {
	shards   []shard
	timeline *timeline // of response times
	lags     *timeline // nil unless it was asked for

	mu      sync.Mutex
	clients []*Client
}

// New returns a recorder for some clients that record into the given number of shards, at least one. Its memory does not depend on how long it records: 4.6 MB, for
// each shard five histograms of about 250 KB and 140 KB, and some kilobytes for each client; all of it is taken here.
func New(clients, shards int) *Recorder {
	r := &Recorder{shards: make([]shard, max(shards, 1)), timeline: newTimeline(leastWidth)}
	for i := range r.shards {
		r.shards[i] = newShard()
		r.shards[i].times = timed{newWindow(leastWidth), r.timeline}
	}
	for range clients {
		r.Add()
	}
	return r
}

// WatchLag makes the recorder keep the lags by time too: another 4.6 MB, and 140 KB for each shard. To be called before anything is recorded, and before Expect.
func (r *Recorder) WatchLag() {
	r.lags = newTimeline(leastWidth)
	for i := range r.shards {
		r.shards[i].lags = timed{newWindow(leastWidth), r.lags}
	}
}

func newShard() shard {
	return shard{
		response: newSeries(), service: newSeries(), lag: newSeries(), credit: newSeries(), server: newSeries(), notes: make(map[string]int64),
	}
}

// Client returns where a client records, 0 to clients-1.
func (r *Recorder) Client(i int) *Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clients[i]
}

// Add returns where one client more records. Safe while others record.
func (r *Recorder) Add() *Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &Client{shard: &r.shards[len(r.clients)%len(r.shards)]}
	r.clients = append(r.clients, c)
	return c
}

// add records one request. The lock is held.
func (s *shard) add(e *entry) {
	s.counts[e.fate]++
	s.busy += e.times.Response
	if e.wrong {
		s.wrong++
		if s.firstWrong == "" {
			s.firstWrong = e.note
		}
	} else if e.note != "" {
		s.note(e.note)
	}
	s.keep(s.times.add(e.times.Due, e.times.Response, e.fate.Answered()), "response time")
	if !e.fate.Answered() {
		return
	}
	if s.lags.recent != nil {
		s.keep(s.lags.add(e.times.Due, e.times.Lag, true), "lag")
	}
	s.keep(s.response.add(e.times.Response), "response time")
	s.keep(s.service.add(e.times.Service), "service time")
	s.keep(s.lag.add(e.times.Lag), "lag")
	s.keep(s.credit.add(e.times.CreditWait), "credit wait")
	if e.times.HasServer {
		s.keep(s.server.add(e.times.Server), "server time")
	}
}

func (s *shard) note(text string) {
	if _, known := s.notes[text]; !known && len(s.notes) >= MaxNotes {
		text = "other"
	}
	s.notes[text]++
}

func (s *shard) keep(err error, what string) {
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("record: %s: %w", what, err)
	}
}

// Counts is the number of requests by fate.
type Counts [fates]int64

// Offered is the number of all requests that were due.
func (c Counts) Offered() int64 {
	var n int64
	for _, v := range c {
		n += v
	}
	return n
}

// Answered is the number of requests with an answer.
func (c Counts) Answered() int64 { return c[OK] + c[Rejected] }

// Lost is the number of requests without one.
func (c Counts) Lost() int64 { return c.Offered() - c.Answered() }

// Result is a whole cell.
type Result struct {
	Counts     Counts
	Busy       time.Duration      // sum of the time from intended to answer, or to the end without one, over all requests
	Response   stats.Distribution // lost requests are infinitely late in it
	Admitted   stats.Distribution // response time of the acknowledged and rejected alone
	Service    stats.Distribution
	Lag        stats.Distribution
	CreditWait stats.Distribution
	Server     stats.Distribution
	Series     stats.Series // of response times, by when their requests were due
	Lags       stats.Series // of the lags of answered requests, the same; none unless WatchLag asked for it
	Notes      map[string]int64

	Wrong      int64  // answers that were wrong; their requests count as Errors
	FirstWrong string // how the first of them was wrong
}

// Result merges the shards. What clients have not flushed is not in it. The error names the first value that was out of range: nothing of
// such a recording can be trusted.
func (r *Recorder) Result() (Result, error) {
	sum, times, lags, err := r.sum()
	if err != nil {
		return Result{}, err
	}
	result := Result{Notes: make(map[string]int64)}
	result.Counts, result.Busy, result.Notes = sum.counts, sum.busy, sum.notes
	result.Wrong, result.FirstWrong = sum.wrong, sum.firstWrong
	result.Series = times.series()
	if lags != nil {
		result.Lags = lags.series()
	}
	for _, part := range []struct {
		series *series
		lost   int64
		to     *stats.Distribution
	}{
		{&sum.response, result.Counts.Lost(), &result.Response},
		{&sum.response, 0, &result.Admitted},
		{&sum.service, 0, &result.Service},
		{&sum.lag, 0, &result.Lag},
		{&sum.credit, 0, &result.CreditWait},
		{&sum.server, 0, &result.Server},
	} {
		d, err := part.series.distribution(part.lost)
		if err != nil {
			return Result{}, err
		}
		*part.to = d
	}
	return result, nil
}

// sum is what all shards have, at one moment.
func (r *Recorder) sum() (_ *shard, times, lags *timeline, _ error) {
	for i := range r.shards {
		r.shards[i].mu.Lock()
	}
	defer func() {
		for i := range r.shards {
			r.shards[i].mu.Unlock()
		}
	}()
	sum, times := newShard(), r.timeline.copy()
	if r.lags != nil {
		lags = r.lags.copy()
	}
	for i := range r.shards {
		s := &r.shards[i]
		if err := sum.take(s); err != nil {
			return nil, nil, nil, err
		}
		if err := s.times.recent.flush(times); err != nil {
			return nil, nil, nil, err
		}
		if lags == nil {
			continue
		}
		if err := s.lags.recent.flush(lags); err != nil {
			return nil, nil, nil, err
		}
	}
	return &sum, times, lags, nil
}

// take adds what another shard has, but for its part of the timeline. The other's lock is held; s belongs to the caller alone.
func (s *shard) take(from *shard) error {
	if from.err != nil {
		return from.err
	}
	for i, n := range from.counts {
		s.counts[i] += n
	}
	s.busy += from.busy
	s.wrong += from.wrong
	if s.firstWrong == "" {
		s.firstWrong = from.firstWrong
	}
	for text, n := range from.notes {
		s.notes[text] += n
	}
	for _, pair := range [][2]*series{
		{&s.response, &from.response},
		{&s.service, &from.service},
		{&s.lag, &from.lag},
		{&s.credit, &from.credit},
		{&s.server, &from.server},
	} {
		if err := pair[0].merge(pair[1]); err != nil {
			return err
		}
	}
	return nil
}

// Expect says how long the measured interval will be, before anything is recorded, so that blocks of time need not be made wider in the midst of it.
func (r *Recorder) Expect(length time.Duration) {
	width := max((length+maxBlocks-1)/maxBlocks, leastWidth)
	r.timeline.width = width
	if r.lags != nil {
		r.lags.width = width
	}
	for i := range r.shards {
		for _, t := range []*timed{&r.shards[i].times, &r.shards[i].lags} {
			if t.recent != nil {
				t.recent.width = width
			}
		}
	}
}

// Peek returns a percentile of the response times recorded so far, but for the last few of every client. Safe while clients record; it
// holds each shard for the merge of one histogram, some tens of microseconds, so it is for a display that is looked at, not for a
// measurement.
func (r *Recorder) Peek(p stats.Percentile) (stats.Value, error) {
	sum := newSeries()
	var lost int64
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		lost += s.counts.Lost()
		err := sum.merge(&s.response)
		s.mu.Unlock()
		if err != nil {
			return stats.Value{}, err
		}
	}
	d, err := sum.distribution(lost)
	return d.At(p), err
}

// Offered is the number of requests recorded so far. Safe while clients record, and nobody waits for it.
func (r *Recorder) Offered() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n int64
	for _, c := range r.clients {
		n += c.offered.Load()
	}
	return n
}
