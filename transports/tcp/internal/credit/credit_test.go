package credit

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

type silent struct{}

func (silent) Granted()       {}
func (silent) Reclaim(uint32) {}
func (silent) Violated(error) {}

const ms = int64(time.Millisecond)

func demand(t *testing.T, s *Share, now int64, released, queued, next uint32) {
	t.Helper()
	if err := s.Demand(now, released, queued, next); err != nil {
		t.Fatal(err)
	}
}

func request(t *testing.T, s *Share, now int64, released, cost uint32) {
	t.Helper()
	if err := s.Request(now, released, cost, 0, 0); err != nil {
		t.Fatal(err)
	}
}

func TestFloorIsRenewedWithTheAnswer(t *testing.T) {
	p := New(Config{})
	start := uint32(0xfffffff0)
	s := p.Open("a", start, silent{})
	g := s.Granted()
	if g != start+DefaultFloor {
		t.Fatal(g)
	}
	for i := range int64(10) {
		request(t, s, i, 0, 18)
		granted, standing := s.Answer(i, 18)
		if granted != g+18 || standing != 0 {
			t.Fatal(granted, standing)
		}
		g = granted
		s.Completed(i, 18, 0)
	}
	if s := p.Stats(); s.Granted != DefaultFloor || s.Used != 0 || s.Renewals != 10 || s.Grants != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestFloorIsRenewedWhileThePoolIsShort(t *testing.T) {
	p := New(Config{Capacity: 4096, Largest: 1000})
	s := p.Open("a", 0, silent{})
	shorten(t, p)
	request(t, s, 0, 0, 18)
	if granted, _ := s.Answer(0, 18); granted != DefaultFloor+18 {
		t.Errorf("Granted %d with the answer, the floor is %d", granted, DefaultFloor)
	}
	s.Completed(0, 18, 0)
	if err := p.Stats(); err.Refusals != 0 {
		t.Errorf("%+v", err)
	}
}

// shorten makes somebody wait for what another has in service.
func shorten(t *testing.T, p *Pool) (busy, waiting *Share) {
	t.Helper()
	busy, waiting = p.Open("busy", 0, silent{}), p.Open("waiting", 0, silent{})
	p.controller.completions, p.controller.float = frozen, p.ceiling()
	demand(t, busy, 0, 0, 1000, 1000)
	request(t, busy, 0, 0, 1000)
	p.controller.float = p.lent
	demand(t, waiting, 0, 0, 500, 500)
	if s := p.Stats(); s.Queue != 1 || !p.Hungry() {
		t.Fatalf("nobody waits: %+v", s)
	}
	return busy, waiting
}

func TestPastTheGrant(t *testing.T) {
	p := New(Config{})
	s := p.Open("a", 0xffffffff, silent{})
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"request":  {s.Request(0, 0, 25, 0, 0), "25 units with 21 left of what was granted: 4 too many"},
		"released": {s.Demand(0, 22, 0, 0), "22 units given back of 21 unspent: 1 too many"},
		"both":     {s.Request(0, 10, 18, 0, 0), "18 units with 11 left of what was granted: 7 too many"},
		"next":     {s.Demand(0, 0, 40000, 40000), "40000 units for one message: at most 32768 will ever be covered"},
		"urgent":   {s.Urgent(19), "19 units with 18 left of the reserve of 18: 1 too many"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: %v, not %q", name, c.err, c.says)
		}
	}
	if got := p.Stats(); got.Violations != 5 || got.Granted != DefaultFloor || s.Granted() != 20 {
		t.Errorf("an error has changed something: %+v", got)
	}
}

func TestUrgentIsPaidFromTheReserve(t *testing.T) {
	p := New(Config{Capacity: 4096, Largest: 1000})
	s := p.Open("a", 0, silent{})
	request(t, s, 0, 0, 21)
	shorten(t, p)
	if err := s.Urgent(18); err != nil {
		t.Error("with all credit in use and others waiting:", err)
	}
	if err := s.Urgent(18); err == nil {
		t.Error("twice the reserve")
	}
	s.UrgentDone(18)
	if err := s.Urgent(18); err != nil {
		t.Error(err)
	}
}

func TestCloseReturnsWhatIsUnusedAtOnce(t *testing.T) {
	p := New(Config{Capacity: 4096, Largest: 1000})
	busy, waiting := shorten(t, p)
	before := waiting.Granted()
	idle := p.Open("idle", 0, silent{})
	idle.Close(0)
	busy.Close(0)
	busy.Close(0)
	if waiting.Granted() != before {
		t.Error("credit in service was granted again")
	}
	busy.Completed(0, 1000, 0)
	if got := waiting.Granted(); got != 500 {
		t.Errorf("Granted %d after the completion", got)
	}
	waiting.Close(0)
	if s := p.Stats(); s.Granted != 0 || s.Floors != 0 || s.Demand != 0 || s.Queue != 0 || len(p.accounts) != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

func TestConnectionsBeyondTheFloorsSayDemand(t *testing.T) {
	p := New(Config{Capacity: 1000, Largest: 100})
	var last *Share
	held := 0
	for range 40 {
		last = p.Open("", 7, silent{})
		held += int(last.Floor())
	}
	if s := p.Stats(); last.Floor() != 0 || last.Granted() != 7 || s.Floors > 500 || int(s.Granted) != held {
		t.Fatalf("floor %d, granted %d, %+v", last.Floor(), last.Granted(), s)
	}
	demand(t, last, 0, 0, 18, 18)
	request(t, last, 0, 0, 18)
	if granted, _ := last.Answer(0, 18); granted != 7+36 {
		t.Errorf("Granted %d: the next message of the same size is covered", granted)
	}
	if err := last.Urgent(18); err != nil {
		t.Error("no reserve without a floor:", err)
	}
}

// A client that used its grant at once stands in the queue again without asking, and only such a one.
func TestStanding(t *testing.T) {
	for _, c := range []struct {
		after    time.Duration
		standing uint32
	}{{3 * time.Millisecond, 200}, {5 * time.Millisecond, 0}} {
		p := New(Config{Capacity: 4096, Largest: 1000})
		s := p.Open("a", 0, silent{})
		demand(t, s, 0, 0, 200, 200)
		busy, waiting := shorten(t, p)
		now := int64(c.after)
		request(t, s, now, 0, 200)
		granted, standing := s.Answer(now, 200)
		s.Completed(now, 200, 0)
		if granted != 200 || standing != c.standing || s.Standing() != c.standing {
			t.Fatalf("used after %v: Granted %d, standing for %d", c.after, granted, standing)
		}
		busy.Completed(now, 1000, 0)
		if waiting.Granted() != 500 {
			t.Fatal("the first in the queue was passed over")
		}
		if covered := s.Granted() == 400; covered != (c.standing > 0) {
			t.Errorf("used after %v: Granted %d when its turn has come", c.after, s.Granted())
		}
	}
}

func TestRepeatedFramesChangeNothing(t *testing.T) {
	p := New(Config{})
	start := uint32(0xfffffffe)
	s := p.Open("a", start, silent{})
	for range 3 {
		demand(t, s, 0, 5, 100, 100)
		if got := p.Stats(); s.Granted() != start+100+5 || got.Granted != 100 || got.Grants != 1 {
			t.Fatalf("Granted %d, %+v", s.Granted(), got)
		}
	}
}

func TestReclaim(t *testing.T) {
	p := New(Config{Capacity: 4096, Largest: 1000})
	var hoarder, liar heard
	h, l := p.Open("h", 0, &hoarder), p.Open("l", 0, &liar)
	for _, s := range []*Share{h, l} { // each keeps a grant of its last size
		demand(t, s, 0, 0, 300, 300)
		request(t, s, 0, 0, 300)
		s.Answer(0, 300)
		s.Completed(0, 300, 0)
	}
	busy, _ := shorten(t, p)
	now := int64(0)
	for range 4 {
		if now += ms; !p.Tick(now) {
			t.Fatal("somebody waits and there is nothing to tick for")
		}
	}
	if hoarder.what != 0 {
		t.Fatalf("asked after %v: %+v", time.Duration(now), hoarder)
	}
	now += ms
	p.Tick(now)
	if hoarder.what != noticeReclaim || hoarder.units != 300-DefaultFloor || liar.what != noticeReclaim {
		t.Fatalf("after %v: %+v, %+v", time.Duration(now), hoarder, liar)
	}
	demand(t, h, now, hoarder.units, 0, 0)
	for range 999 {
		now += ms
		p.Tick(now)
		demand(t, l, now, 0, 0, 0) // an answer, but without giving back
	}
	if liar.what&noticeViolated != 0 {
		t.Fatal("too early")
	}
	now += int64(time.Hour) // the server stands still, and nobody could have answered
	p.Tick(now)
	now += ms
	p.Tick(now)
	if liar.what&noticeViolated == 0 || !strings.Contains(liar.err.Error(), "a RECLAIM of 279 units") || hoarder.what&noticeViolated != 0 {
		t.Fatalf("%+v, %+v", liar, hoarder)
	}
	l.Close(now)
	busy.Completed(now, 1000, 0)
	if p.Tick(now); p.Hungry() {
		t.Errorf("%+v", p.Stats())
	}
}

// Clients that ask for credit and let it lie take nothing from one that uses it, but the time until that shows.
func TestHoardersDoNotKeepOthersWaiting(t *testing.T) {
	p := New(Config{Largest: 1400})
	const hoarders = 499
	for i := range hoarders {
		demand(t, p.Open(fmt.Sprint(i), 0, silent{}), 0, 0, 81, 81)
	}
	worker := p.Open("worker", 0, silent{})
	demand(t, worker, 0, 0, 81, 81)
	now := int64(0)
	for worker.unspent() < 81 {
		if now += ms; !p.Tick(now) && worker.unspent() < 81 {
			t.Fatal("the worker waits and there is nothing to tick for")
		}
	}
	if time.Duration(now) > 20*time.Millisecond {
		t.Errorf("behind %d hoarders, the worker waits %v", hoarders, time.Duration(now))
	}
	turns := 0
	for range 1000 { // for a second, until the hoarders are closed
		for worker.unspent() >= 81 {
			request(t, worker, now, 0, 81)
			worker.Answer(now, 81)
			worker.Completed(now, 81, 0)
			turns++
			if turns%10 == 0 {
				break
			}
		}
		now += ms
		p.Tick(now)
	}
	if s := p.Stats(); turns < 9000 || s.Hoarded+s.Floors > s.Capacity || s.Hoarded == 0 {
		t.Errorf("%d turns, %+v", turns, s)
	}
}

// What a server slept through is not held against its clients: they are asked for nothing, and nobody gets what is theirs.
func TestTheServerSleeps(t *testing.T) {
	p := New(Config{Capacity: 4096, Largest: 1000})
	var h heard
	s := p.Open("s", 0, &h)
	demand(t, s, 0, 0, 300, 300)
	_, waiting := shorten(t, p)
	now := ms
	p.Tick(now)
	for range 10 {
		now += 200 * ms
		p.Tick(now)
		now += ms
		p.Tick(now)
	}
	if h.what != 0 || waiting.Granted() != DefaultFloor || p.Stats().Hoarded != 0 {
		t.Errorf("told %03b, another has %d; %+v", h.what, waiting.Granted(), p.Stats())
	}
	for range 10 { // but when it is awake
		now += ms
		p.Tick(now)
	}
	if p.Stats().Hoarded != 300-DefaultFloor {
		t.Errorf("%+v", p.Stats())
	}
}

// A client that takes none of its answers has about half of the float in them at most, whatever it asks for, and others go on.
func TestAnswersThatNobodyTakes(t *testing.T) {
	p := New(Config{MinFloat: 2000})
	s, other := p.Open("a", 0, silent{}), p.Open("b", 0, silent{})
	answers := 0
	for demand(t, s, 0, 0, 65535, 100); s.unspent() >= 100; answers++ {
		if err := s.Request(0, 0, 100, 65535, 100); err != nil {
			t.Fatal(err)
		}
		s.Answer(0, 100)
	}
	if answers < 10 || answers > 11 {
		t.Errorf("%d answers of 100 units that nobody takes, with a float of 2000", answers)
	}
	demand(t, other, 0, 0, 600, 100)
	if got := other.Granted(); got != 600 {
		t.Errorf("Granted %d to another, who wants 600", got)
	}
	s.Completed(0, 100, 0)
	s.Completed(0, 100, 0)
	if s.unspent() < 100 {
		t.Error("when answers are taken, it does not go on")
	}
}

func TestHold(t *testing.T) {
	p := New(Config{Capacity: 4096, Largest: 1000})
	var h heard
	s := p.Open("a", 0, &h)
	s.Hold(0, true)
	demand(t, s, 0, 0, 100, 100)
	if s.Granted() != DefaultFloor || p.Stats().Queue != 0 {
		t.Error("a share on hold was granted credit")
	}
	s.Hold(0, false)
	if s.Granted() != 100 || h.what != noticeGranted {
		t.Errorf("Granted %d after the hold, told %03b", s.Granted(), h.what)
	}
}

// caller is a client on a goroutine of its own that hears by notices only.
type caller struct {
	share *Share
	wake  chan struct{}
}

func (c *caller) Granted() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *caller) Reclaim(uint32) { c.Granted() }
func (c *caller) Violated(error) { panic("violated") }

// TestNoNoticeIsLost has goroutines whose next request comes only when they are told that they may.
func TestNoNoticeIsLost(t *testing.T) {
	p := New(Config{Capacity: 2048, Largest: 300})
	clock := time.Now()
	now := func() int64 { return int64(time.Since(clock)) }
	stop, ticked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ticked)
		for {
			select {
			case <-stop:
				return
			case <-time.After(TickEvery):
				p.Tick(now())
			}
		}
	}()
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			c := &caller{wake: make(chan struct{}, 1)}
			c.share = p.Open(fmt.Sprint(i%4), uint32(-i), c)
			used, released := uint32(-i), uint32(0)
			for n := range uint32(500) {
				cost := 18 + (n*uint32(i+1))%250
				for c.share.Granted()-released-used < cost {
					if err := c.share.Demand(now(), released, cost, cost); err != nil {
						t.Error(err)
						return
					}
					if c.share.Granted()-released-used < cost {
						<-c.wake
					}
				}
				if err := c.share.Request(now(), released, cost, 0, 0); err != nil {
					t.Error(err)
					return
				}
				used += cost
				c.share.Answer(now(), cost)
				c.share.Completed(now(), cost, 0)
				// What is left is given back, so that nobody has to ask for it.
				if left := c.share.Granted() - released - used; left > DefaultFloor {
					released += left - DefaultFloor
					if err := c.share.Demand(now(), released, 0, 0); err != nil {
						t.Error(err)
						return
					}
				}
			}
			c.share.Close(now())
		})
	}
	group.Wait()
	close(stop)
	<-ticked
	if s := p.Stats(); s.Granted != 0 || s.Floors != 0 || s.Queue != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

func TestPathAllocatesNothing(t *testing.T) {
	p := New(Config{})
	s := p.Open("a", 0, silent{})
	if n := testing.AllocsPerRun(1000, func() {
		_ = s.Request(0, 0, 18, 0, 0)
		s.Answer(0, 18)
		s.Completed(0, 18, 0)
	}); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

// BenchmarkPath is what one request costs: alone, and when it takes its turn among 500 that wait.
func BenchmarkPath(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		p := New(Config{})
		s := p.Open("a", 0, silent{})
		b.ReportAllocs()
		now := int64(0)
		for b.Loop() {
			now += 1000
			if err := s.Request(now, 0, 18, 0, 0); err != nil {
				b.Fatal(err)
			}
			s.Answer(now, 18)
			s.Completed(now, 18, 100)
		}
	})
	b.Run("queue=500", func(b *testing.B) {
		p := New(Config{Largest: 1400})
		ready := make([]*Share, 0, 500)
		for i := range 500 {
			s := p.Open(fmt.Sprint(i%50), 0, silent{})
			if err := s.Demand(0, 0, 81, 81); err != nil {
				b.Fatal(err)
			}
			ready = append(ready, s)
		}
		b.ReportAllocs()
		now, i := int64(0), 0
		for b.Loop() {
			now += 1000
			for ready[i].unspent() < 81 { // its turn has not come
				i = (i + 1) % len(ready)
			}
			s := ready[i]
			if err := s.Request(now, 0, 81, 0, 0); err != nil {
				b.Fatal(err)
			}
			s.Answer(now, 81)
			s.Completed(now, 81, 100)
		}
		if p.Stats().Queue < 400 {
			b.Errorf("%+v", p.Stats())
		}
	})
	b.Run("parallel", func(b *testing.B) {
		p := New(Config{})
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			s := p.Open("", 0, silent{})
			for pb.Next() {
				if err := s.Request(0, 0, 18, 0, 0); err != nil {
					b.Fatal(err)
				}
				s.Answer(0, 18)
				s.Completed(0, 18, 100)
			}
		})
	})
}
