package credit

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// jain is Jain's index of fairness: 1 where all have the same, 1/n where one has everything.
func jain(of []int) float64 {
	var sum, squares float64
	for _, n := range of {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(of)) * squares)
}

// spread is the largest less the smallest.
func spread(of []int) int {
	low, high := of[0], of[0]
	for _, n := range of {
		low, high = min(low, n), max(high, n)
	}
	return high - low
}

// backlogged is a client that always has more queued than it is granted, in messages of one cost.
type backlogged struct {
	silent
	share   *Share
	account int
	cost    uint32
	queued  uint32
	turns   int
	seen    uint32
}

// TestTurnsAreEqual gives random clients with random queues all they can wish for: the turns of accounts never differ by more than one, nor do those of the
// connections of one account.
func TestTurnsAreEqual(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := New(Config{Capacity: 8192, Largest: 4000, Floor: 1, Reserve: 1})
		p.controller.completions = frozen
		p.controller.float = uint32(500 + r.IntN(3000))
		var clients []*backlogged
		accounts := 4 + r.IntN(20)
		for account := range accounts {
			for range 1 + r.IntN(20) {
				c := &backlogged{account: account, cost: 18 + r.Uint32N(100)}
				c.queued = c.cost * (300 + r.Uint32N(300))
				c.share = p.Open(fmt.Sprint(account), -r.Uint32N(5000), c)
				c.seen = c.share.Granted()
				clients = append(clients, c)
			}
		}
		// Somebody else has all of the float until everybody waits, so that nobody is ahead.
		first := p.Open("first", 0, silent{})
		if err := first.Demand(0, 0, p.controller.float, p.controller.float); err != nil {
			t.Fatal(err)
		}
		for _, i := range r.Perm(len(clients)) {
			c := clients[i]
			if err := c.share.Demand(0, 0, c.queued, c.cost); err != nil {
				t.Fatal(err)
			}
		}
		if s := p.Stats(); s.Queue != len(clients) {
			t.Fatalf("%d of %d clients wait", s.Queue, len(clients))
		}
		first.Close(0)
		byAccount, last := make([]int, accounts), make([]int, accounts)
		for step := range 5_000 {
			for _, c := range clients {
				if now := c.share.Granted(); now != c.seen {
					// A turn is one message; the first is less by the floor.
					n := int(now-c.seen+c.cost-1) / int(c.cost)
					c.turns += n
					byAccount[c.account] += n
					last[c.account] = step
					c.seen = now
				}
			}
			if d := spread(byAccount); d > 1 {
				t.Fatalf("seed %d, step %d: turns of accounts differ by %d: %v", seed, step, d, byAccount)
			}
			// Any of those that have credit uses it, and still has as much queued.
			c := clients[r.IntN(len(clients))]
			for _, other := range clients { // not one that lets credit lie: past half of the float it would miss turns
				if other.share.unspent() > 3*c.share.unspent() {
					c = other
				}
			}
			if c.share.unspent() < c.cost {
				continue
			}
			if err := c.share.Request(0, 0, c.cost, c.queued, c.cost); err != nil {
				t.Fatal(err)
			}
			c.share.Answer(0, c.cost)
			c.share.Completed(0, c.cost, 0)
		}
		for account := range accounts {
			var turns []int
			for _, c := range clients {
				if c.account == account {
					turns = append(turns, c.turns)
				}
			}
			if d := spread(turns); d > 1 {
				t.Errorf("seed %d: turns of the connections of one account differ by %d: %v", seed, d, turns)
			}
		}
		if j := jain(byAccount); j < 0.999 && spread(byAccount) > 1 {
			t.Errorf("seed %d: Jain's index of the accounts' turns is %.4f", seed, j)
		}
		if p.Stats().Grants < 200 {
			t.Errorf("seed %d: only %d turns", seed, p.Stats().Grants)
		}
	}
}

// TestNobodyWaitsLongerThanARound lets clients come and go at random: between a client's demand and its turn, nobody has two turns.
func TestNobodyWaitsLongerThanARound(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	p := New(Config{Capacity: 4096, Largest: 1000, Floor: 1, Reserve: 1})
	p.controller.completions = frozen
	p.controller.float = 600
	const n = 50
	type client struct {
		silent
		share *Share
		since [n]int // turns of the others since its demand
	}
	clients := make([]*client, n)
	seen := make([]uint32, n)
	waits := make([]bool, n)
	for i := range clients {
		clients[i] = &client{}
		clients[i].share = p.Open("", uint32(i), clients[i])
		seen[i] = clients[i].share.Granted()
	}
	turns := 0
	for range 50_000 {
		i := r.IntN(n)
		s := clients[i].share
		switch {
		case s.unspent() >= 50:
			if err := s.Request(0, 0, s.unspent(), 0, 0); err != nil {
				t.Fatal(err)
			}
			cost := s.used - s.completed
			s.Answer(0, cost)
			s.Completed(0, cost, 0)
		case !waits[i]:
			waits[i], clients[i].since = true, [n]int{}
			next := 50 + r.Uint32N(150)
			if err := s.Demand(0, 0, next, next); err != nil {
				t.Fatal(err)
			}
		}
		// Who has had a turn, in the order in which this can be seen: all at once, so each of the others counts at most one for it.
		for j, c := range clients {
			if now := c.share.Granted(); now != seen[j] {
				if c.share.unspent() >= 50 {
					turns++
					for k, other := range clients {
						if waits[k] && k != j {
							if other.since[j]++; other.since[j] > 2 {
								t.Fatalf("%d had %d turns while %d waited", j, other.since[j], k)
							}
						}
					}
					waits[j] = false
				}
				seen[j] = now
			}
		}
	}
	if turns < 2000 {
		t.Errorf("only %d turns", turns)
	}
}
