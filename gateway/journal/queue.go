package journal

import (
	"sync"
	"sync/atomic"
)

// waiting is a Commit that is not released yet.
type waiting struct {
	w    Waiter
	mark uint64
	lsn  uint64 // what must be durable first
}

// waitQueue holds the waiters of SyncAlways in the order of their Commits, and
// puts the background goroutine to sleep and wakes it. Its mutex is a leaf: no
// other lock is taken under it.
type waitQueue struct {
	mu     sync.Mutex
	cond   sync.Cond
	ring   []waiting // length a power of two
	head   int
	n      int
	closed bool // no more are coming: drain and end
	ended  bool // nobody drains any more

	work atomic.Bool // SyncOff: something was committed since the last wake
}

func (q *waitQueue) init() {
	q.cond.L = &q.mu
	q.ring = make([]waiting, 64)
}

// push queues w behind everything appended so far. It reports false when nobody
// will release it any more. lsn is read under the mutex so that the queue is
// ordered by it.
func (q *waitQueue) push(w Waiter, mark uint64, lsn *atomic.Uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return false
	}
	if q.n == len(q.ring) {
		q.expand()
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = waiting{w, mark, lsn.Load()}
	q.n++
	q.cond.Signal()
	return true
}

func (q *waitQueue) expand() {
	ring := make([]waiting, 2*len(q.ring))
	n := copy(ring, q.ring[q.head:])
	copy(ring[n:], q.ring[:q.head])
	q.ring, q.head = ring, 0
}

// wake says that there is something to write (SyncOff).
func (q *waitQueue) wake() {
	if q.work.Load() || q.work.Swap(true) {
		return
	}
	q.mu.Lock()
	q.cond.Signal()
	q.mu.Unlock()
}

// await blocks until there is work and reports true, or false when the queue is
// closed and drained.
func (q *waitQueue) await() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.work.Swap(false) || q.n > 0 {
			return true
		}
		if q.closed {
			q.ended = true
			return false
		}
		q.cond.Wait()
	}
}

// pop appends to due, in order, the waiters whose entries are durable, or all.
func (q *waitQueue) pop(due []waiting, durable uint64, all bool) []waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.n > 0 && (all || q.ring[q.head].lsn <= durable) {
		due = append(due, q.ring[q.head])
		q.ring[q.head] = waiting{}
		q.head = (q.head + 1) & (len(q.ring) - 1)
		q.n--
	}
	return due
}

func (q *waitQueue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n
}

func (q *waitQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.cond.Broadcast()
	q.mu.Unlock()
}
