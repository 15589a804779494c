package credit

import "time"

// DefaultTarget is the queueing delay that the float is steered by.
const DefaultTarget = time.Millisecond

// controller sizes the float. It belongs to the pool's lock.
type controller struct {
	float uint32
	lag   int64
	delay int64
}

func (c *controller) init(config Config) {
	c.float = min(max(config.Largest, config.MinFloat), config.Capacity)
}

func (c *controller) largest(uint32) {}
func (c *controller) sample(int64)   {}

func (p *Pool) completed(int64, uint32) {}
func (p *Pool) control(int64)           {}
