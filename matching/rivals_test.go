package matching

import "slices"

// PriceStructure keeps the price levels of one side, by key, smallest first. It is
// what gateway/adr/0002-price-levels.md compares, and it exists in tests only: the
// engine calls its radix tree without an interface.
type PriceStructure interface {
	// Place returns the level with this key, a new one if there was none.
	Place(key uint64) uint32
	// Remove takes the level with this key, which is there, out.
	Remove(key uint64)
	// First returns the level with the smallest key, or 0.
	First() uint32
	// After returns the level with the smallest key greater than key, or 0.
	After(key uint64) uint32
	// KeyOf returns a level's key.
	KeyOf(level uint32) uint64
}

// PriceStructures are the candidates, each made for at most n levels.
var PriceStructures = []struct {
	Name string
	New  func(n int) PriceStructure
}{
	{"radix", func(n int) PriceStructure { return &radixSide{store: newLevelStore(n)} }},
	{"ladder-4k", func(n int) PriceStructure { return newLadder(n, 1<<12) }},
	{"ladder-256k", func(n int) PriceStructure { return newLadder(n, 1<<18) }},
	{"red-black", func(n int) PriceStructure { return newRedBlack(n) }},
	{"heap", func(n int) PriceStructure { return newLazyHeap(n) }},
	{"sorted", func(n int) PriceStructure { return newSortedSlice(n) }},
}

// PriceKey lets tests outside of the package make keys as the engine does.
func PriceKey(side Side, price int64) uint64 { return keyOf(side, price) }

// radixSide is the engine's own structure with one side in it.
type radixSide struct {
	store levelStore
	root  uint32
}

func (r *radixSide) Place(key uint64) uint32   { return r.store.place(&r.root, key) }
func (r *radixSide) Remove(key uint64)         { r.store.remove(&r.root, key) }
func (r *radixSide) First() uint32             { return r.store.first(r.root) }
func (r *radixSide) After(key uint64) uint32   { return r.store.after(r.root, key) }
func (r *radixSide) KeyOf(level uint32) uint64 { return r.store.levels.at(level).key }

// rivalLevels are the level records of a candidate, as the engine has them.
type rivalLevels struct{ levels pool[level] }

func (l *rivalLevels) KeyOf(level uint32) uint64 { return l.levels.at(level).key }

func (l *rivalLevels) add(key uint64) uint32 {
	index := l.levels.take()
	*l.levels.at(index) = level{key: key}
	return index
}

// sortedSlice keeps the keys in one slice, the best at its end, where most of the
// coming and going is: a search is binary, an insertion moves what is better.
type sortedSlice struct {
	rivalLevels
	entries []sortedEntry
}

type sortedEntry struct {
	key   uint64
	level uint32
}

func newSortedSlice(n int) *sortedSlice {
	return &sortedSlice{rivalLevels{newPool[level](n)}, make([]sortedEntry, 0, n)}
}

// search returns where key stands or would stand.
func (s *sortedSlice) search(key uint64) (int, bool) {
	low, high := 0, len(s.entries)
	for low < high {
		if middle := int(uint(low+high) >> 1); s.entries[middle].key > key {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < len(s.entries) && s.entries[low].key == key
}

func (s *sortedSlice) Place(key uint64) uint32 {
	at, found := s.search(key)
	if !found {
		s.insert(at, sortedEntry{key, s.add(key)})
	}
	return s.entries[at].level
}

func (s *sortedSlice) Remove(key uint64) {
	at, _ := s.search(key)
	s.levels.put(s.entries[at].level)
	s.remove(at)
}

func (s *sortedSlice) insert(at int, entry sortedEntry) {
	s.entries = slices.Insert(s.entries, at, entry)
}

func (s *sortedSlice) remove(at int) { s.entries = slices.Delete(s.entries, at, at+1) }

func (s *sortedSlice) First() uint32 {
	if len(s.entries) == 0 {
		return none
	}
	return s.entries[len(s.entries)-1].level
}

func (s *sortedSlice) After(key uint64) uint32 {
	if at, _ := s.search(key); at > 0 {
		return s.entries[at-1].level
	}
	return none
}

// lazyHeap is a binary heap of keys with a hash table beside it. A level that goes
// leaves its key in the heap until it comes to the top or the dead outnumber the
// living, when the heap is built anew.
type lazyHeap struct {
	rivalLevels
	heap  []uint64
	known map[uint64]uint32 // every key in the heap; none = dead
	dead  int
}

func newLazyHeap(n int) *lazyHeap {
	return &lazyHeap{rivalLevels{newPool[level](n)}, make([]uint64, 0, 2*n+1), make(map[uint64]uint32, 2*n), 0}
}

func (h *lazyHeap) Place(key uint64) uint32 {
	index, inHeap := h.known[key]
	if index != none {
		return index
	}
	index = h.add(key)
	h.known[key] = index
	if inHeap {
		h.dead--
		return index
	}
	h.heap = append(h.heap, key)
	for i := len(h.heap) - 1; i > 0 && h.heap[(i-1)/2] > h.heap[i]; i = (i - 1) / 2 {
		h.heap[i], h.heap[(i-1)/2] = h.heap[(i-1)/2], h.heap[i]
	}
	return index
}

func (h *lazyHeap) Remove(key uint64) {
	h.levels.put(h.known[key])
	h.known[key] = none
	if h.dead++; h.dead <= len(h.heap)/2 {
		return
	}
	living := h.heap[:0]
	for _, key := range h.heap {
		if h.known[key] == none {
			delete(h.known, key)
		} else {
			living = append(living, key)
		}
	}
	slices.Sort(living) // a sorted slice is a heap
	h.heap, h.dead = living, 0
}

func (h *lazyHeap) First() uint32 {
	for len(h.heap) > 0 {
		if index := h.known[h.heap[0]]; index != none {
			return index
		}
		delete(h.known, h.heap[0])
		h.dead--
		last := len(h.heap) - 1
		h.heap[0] = h.heap[last]
		h.heap = h.heap[:last]
		for i := 0; ; {
			least := i
			for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
				if h.heap[child] < h.heap[least] {
					least = child
				}
			}
			if least == i {
				break
			}
			h.heap[i], h.heap[least] = h.heap[least], h.heap[i]
			i = least
		}
	}
	return none
}

// After looks at all of the heap: it has no order below its top.
func (h *lazyHeap) After(key uint64) uint32 {
	found, best := none, uint64(0)
	for _, other := range h.heap {
		if other > key && (found == none || other < best) {
			if index := h.known[other]; index != none {
				found, best = index, other
			}
		}
	}
	return found
}
