package orders

import "hash/maphash"

// index finds records by (account, id): open addressing with linear probing over a table of fixed size, at most half
// full, so that there is no rehash in the tail. The hash is seeded at random, because clients choose the ids; it decides
// where an entry stands and never an outcome.
type index struct {
	seed  maphash.Seed
	mask  uint64
	slots []slot
}

// slot holds a record number plus one (0 = empty) and the upper half of the hash, which spares most looks at records.
type slot struct {
	tag    uint32
	record uint32
}

// newIndex makes room for n entries: 16 to 32 bytes each.
func newIndex(n int) index {
	size := uint64(16)
	for size < 2*uint64(n) {
		size *= 2
	}
	return index{seed: maphash.MakeSeed(), mask: size - 1, slots: make([]slot, size)}
}

// key is what an entry is found by.
type key struct {
	account uint32
	id      ID
}

func (x *index) hash(k *key) uint64 {
	return maphash.Bytes(x.seed, k.id.Bytes()) ^ uint64(k.account)*0x9E3779B97F4A7C15
}

// find returns the number of the record for which same says yes.
func (x *index) find(hash uint64, same func(record uint32) bool) (record uint32, ok bool) {
	tag := uint32(hash >> 32)
	for i := hash & x.mask; x.slots[i].record != 0; i = (i + 1) & x.mask {
		if x.slots[i].tag == tag && same(x.slots[i].record-1) {
			return x.slots[i].record - 1, true
		}
	}
	return 0, false
}

// insert adds a record that find did not find. The caller bounds the number of entries to what newIndex was given.
func (x *index) insert(hash uint64, record uint32) {
	i := hash & x.mask
	for x.slots[i].record != 0 {
		i = (i + 1) & x.mask
	}
	x.slots[i] = slot{tag: uint32(hash >> 32), record: record + 1}
}

// slab holds records in chunks that are never moved, numbered from 0 in the order they were added.
type slab[T any] struct {
	chunks [][]T
	length uint32
}

// chunkLength keeps a chunk of records below 32 KiB, Go's threshold for large objects: taking the next one costs a
// few page faults and no trip to the page heap.
const chunkLength = 64

// reserve allocates and touches chunks for n records.
func (s *slab[T]) reserve(n int) {
	for len(s.chunks)*chunkLength < n {
		chunk := make([]T, chunkLength)
		clear(chunk)
		s.chunks = append(s.chunks, chunk)
	}
}

// add returns a new zero record and its number.
func (s *slab[T]) add() (*T, uint32) {
	n := s.length
	if int(n/chunkLength) == len(s.chunks) {
		s.chunks = append(s.chunks, make([]T, chunkLength))
	}
	s.length++
	return s.at(n), n
}

func (s *slab[T]) at(n uint32) *T { return &s.chunks[n/chunkLength][n%chunkLength] }
