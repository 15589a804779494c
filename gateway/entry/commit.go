package entry

import (
	"sync"

	"tailgate/gateway/orders"
	"tailgate/gateway/sequencer"
)

// committer sees to the durability of commands that no peer waits for. In os mode a commit is a write to the disk, so it is made on a
// goroutine of its own: whoever executes such a command may hold locks, or may be a transport that closes a session. At most one
// goroutine and one commit behind the one under way are there, however many commands there were.
type committer struct {
	sequencer *sequencer.Sequencer
	mu        sync.Mutex // a leaf: not held across a commit
	wanted    bool       // something was executed since the last commit began
	running   bool
}

// commit has everything committed that was executed before. It waits for nothing.
func (c *committer) commit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = true
	if !c.running {
		c.running = true
		go c.run()
	}
}

// run commits until nothing is wanted.
func (c *committer) run() {
	for c.again() {
		c.sequencer.Commit(nobody{}, 0)
	}
}

func (c *committer) again() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.wanted = c.wanted, false
	return c.running
}

// execute runs a command that nobody waits for.
func (g *Gateway) execute(c *orders.Command, answer *orders.Answer) error {
	if err := g.sequencer.Execute(c, answer); err != nil {
		return err
	}
	g.committer.commit()
	return nil
}

// nobody is the Releaser of a command that no peer waits for. Should the journal fail, its log says so.
type nobody struct{}

// Release implements transports.Releaser.
func (nobody) Release(uint64, error) {}
