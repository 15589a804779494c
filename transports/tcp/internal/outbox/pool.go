package outbox

import "sync"

// Buffer is memory on loan from a Pool. Who got it owns it until it is put back.
type Buffer struct {
	B     []byte // len(B) is all of it
	class int    // index into classSizes, or unowned

	// The fields below are the out-buffer's: B[flushed:written] is still to be sent, and boundary <= flushed is where the first frame starts that
	// the kernel has not taken whole.
	written, flushed, boundary int
	next                       *Buffer
}

// Pool is a set of bounded free lists in size classes. Last in, first out, so that what is used next is still in the cache: connections that
// are idle hold no buffer, and 500 busy ones share the few that are warm. Safe for concurrent use.
//
// It keeps at most 1,024 buffers of each class up to 66 KiB and 64 of each larger one, 151 MiB in all; what comes back beyond that is the garbage
// collector's. A buffer that is on loan is not the pool's and is bounded by who borrowed it.
type Pool struct {
	lists [len(classSizes)]freeList
}

// classSizes are the sizes in bytes. From 64 KiB on each has room for an overhead of 2 KiB beside the payload (a header of 24 bytes, and what an
// answer adds to its request), so that a message of a round size fits its own class.
var classSizes = [...]int{4 << 10, 16 << 10, 64<<10 + 2<<10, 256<<10 + 2<<10, 1<<20 + 2<<10}

// unowned is the class of a buffer that no list takes: of a size that none holds, or whose memory another buffer owns.
const unowned = -1

const (
	keptSmall = 1024
	keptLarge = 64
)

type freeList struct {
	mu   sync.Mutex
	head *Buffer
	n    int
	_    [64 - 24]byte // a cache line each, so that lists do not disturb one another
}

// Get returns a buffer of at least n bytes with whatever was in it before.
func (p *Pool) Get(n int) *Buffer {
	for class, size := range classSizes {
		if n > size {
			continue
		}
		l := &p.lists[class]
		l.mu.Lock()
		b := l.head
		if b != nil {
			l.head, b.next = b.next, nil
			l.n--
		}
		l.mu.Unlock()
		if b == nil {
			b = &Buffer{B: make([]byte, size), class: class}
		}
		return b
	}
	return &Buffer{B: make([]byte, n), class: unowned}
}

// Put takes a buffer back. The caller must not touch it, or anything that points into it, again.
func (p *Pool) Put(b *Buffer) {
	if b.class < 0 {
		return
	}
	b.written, b.flushed, b.boundary = 0, 0, 0
	kept := keptSmall
	if classSizes[b.class] > 66<<10 {
		kept = keptLarge
	}
	l := &p.lists[b.class]
	l.mu.Lock()
	if l.n < kept {
		b.next, l.head = l.head, b
		l.n++
	}
	l.mu.Unlock()
}
