package outbox

import "time"

// Debt is what is owed for answers until the kernel has taken them. What it means is its owner's matter.
type Debt struct {
	Cost, Urgent uint32
	Service      time.Duration
}

// debts is a queue of them in the order of their positions. It holds at most one for each batch that is not flushed, and its memory is used again.
type debts struct {
	queue []positioned
	first int
}

type positioned struct {
	end uint64
	Debt
}

func (d *debts) add(at positioned) {
	if d.first == len(d.queue) {
		d.queue, d.first = d.queue[:0], 0
	} else if len(d.queue) == cap(d.queue) && d.first > len(d.queue)/2 {
		d.queue, d.first = d.queue[:copy(d.queue, d.queue[d.first:])], 0
	}
	d.queue = append(d.queue, at)
}

// due reports whether the first is paid when so much is flushed.
func (d *debts) due(flushed uint64) bool {
	return d.first < len(d.queue) && d.queue[d.first].end <= flushed
}

// truncate moves what stands behind end there: its answers never leave, and what leaves instead settles them.
func (d *debts) truncate(end uint64) {
	for i := d.first; i < len(d.queue); i++ {
		d.queue[i].end = min(d.queue[i].end, end)
	}
}

// shift moves what stands behind at by n bytes.
func (d *debts) shift(at uint64, n uint64) {
	for i := len(d.queue) - 1; i >= d.first && d.queue[i].end > at; i-- {
		d.queue[i].end += n
	}
}

// Owe says what is owed for everything that was appended since the last call: OnFlushed gets it back when that is flushed, or never will be.
func (b *Box) Owe(debt Debt) {
	b.mu.Lock()
	b.debts.add(positioned{b.appended, debt})
	if b.dead != nil {
		b.leave()
		return
	}
	b.mu.Unlock()
}

// leave unlocks, and tells of the debts that are settled.
func (b *Box) leave() {
	if !b.debts.due(b.flushed) && (b.dead == nil || b.debts.first == len(b.debts.queue)) {
		b.mu.Unlock()
		return
	}
	var settled [8]Debt
	b.settling++
	for n := len(settled); n == len(settled); {
		for n = 0; n < len(settled) && b.debts.first < len(b.debts.queue) && (b.dead != nil || b.debts.due(b.flushed)); n++ {
			settled[n] = b.debts.queue[b.debts.first].Debt
			b.debts.first++
		}
		b.mu.Unlock()
		for _, d := range settled[:n] {
			b.onFlushed(d)
		}
		b.mu.Lock()
	}
	if b.settling--; b.settling == 0 && b.settlers > 0 {
		b.changed.Broadcast()
	}
	b.mu.Unlock()
}

// WaitSettled waits for a write that is under way, and until OnFlushed has got what it settled: nothing that the peer may have read is owed then. It is asked
// before a peer is called a liar, so it may wait for a system call, and under TLS for WriteTimeout.
func (b *Box) WaitSettled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settlers++
	for b.writing || b.settling > 0 {
		b.changed.Wait()
	}
	b.settlers--
}
