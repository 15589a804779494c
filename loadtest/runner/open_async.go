package runner

import "time"

// walkAsync is the life of a generator whose requests need no goroutine: it waits for the due time of each and sends it itself.
func (o *open) walkAsync(g *generator) {
	defer o.pending.Done()
	r := o.run
	for {
		number, next := g.walk.Next()
		due := r.start + next
		c := o.take(int(number % int64(len(r.links))))
		c.source.Next(&c.call) // before it is due, so that drawing it is no lag
		if !o.await(g, due) {
			o.release(c)
			return // the schedule's end, or the run's
		}
		if !c.place(o, g, due) {
			c.unsent(g, due)
			o.release(c)
			continue
		}
		if g.streak++; g.streak%breathEvery == 0 {
			g.sleeper.Sleep(breath)
		}
		s, measured := c.dueNow(due, g.blocked)
		c.renew(s.sent)
		c.flight = flight{stamps: s, measured: measured}
		o.pending.Add(1)
		if c.transmit() {
			c.settleOpen()
		}
	}
}

// settleOpen frees the place in flight of a request that has ended, records it, and gives its worker back.
func (c *client) settleOpen() {
	o := c.async.open
	<-c.run.slots
	c.close()
	o.release(c)
	o.pending.Done()
}

// dueNow stamps a request of an open loop that is sent now; blocked is until when its generator last waited for a place in flight.
func (c *client) dueNow(due, blocked time.Duration) (s stamps, measured bool) {
	r := c.run
	measured = r.measured(due)
	sent := r.now()
	owed := max(due, blocked)
	if measured && owed < r.end() && sent >= r.end() {
		c.behind++
	}
	return stamps{intended: due, lag: sent - owed, wait: owed - due, sent: sent}, measured
}
