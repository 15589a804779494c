package matching

// none is the index that names nothing. Pools hand out indices from 1 on.
const none uint32 = 0

// pool is a fixed number of records addressed by index, with a stack of the
// free ones. The last record put back is the first handed out again, while it
// is still in cache. Records hold no pointers, so the garbage collector does
// not scan them, and they never move, so a pointer to one stays good.
type pool[T any] struct {
	items []T // items[0] is never used
	free  []uint32
}

// newPool reserves n records and writes to all of them: the page faults of the
// first touch happen here and not under an order.
func newPool[T any](n int) pool[T] {
	p := pool[T]{items: make([]T, n+1), free: make([]uint32, n)}
	clear(p.items)
	for i := range p.free {
		p.free[i] = uint32(n - i)
	}
	return p
}

// take hands out a record with whatever its last user left in it. The caller
// has made sure that one is free.
func (p *pool[T]) take() uint32 {
	last := len(p.free) - 1
	index := p.free[last]
	p.free = p.free[:last]
	return index
}

// put gives a record back. It must have been taken, and once only.
func (p *pool[T]) put(index uint32) { p.free = append(p.free, index) }

func (p *pool[T]) at(index uint32) *T { return &p.items[index] }

func (p *pool[T]) full() bool { return len(p.free) == 0 }

func (p *pool[T]) used() int { return len(p.items) - 1 - len(p.free) }
