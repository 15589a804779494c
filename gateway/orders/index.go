package orders

import "hash/maphash"

// index finds records by (account, id). It is cut into segments by the hash's upper bits; each is an open-addressing table with
// linear probing, at most half full, that doubles on its own. So memory follows the number of ids, and the longest stall is the
// doubling of one segment, which moves 1/4,096 of the entries: about 1,000 of 4 million, some ten microseconds. (One table for the
// greatest number of ids would never stall, but while it is sparse every new id touches a new page of it.) The hash is seeded at random,
// because clients choose the ids; it decides where an entry stands and never an outcome.
type index struct {
	seed     maphash.Seed
	segments []segment
}

type segment struct {
	slots []slot // a power of two
	count uint32
}

// slot holds a record number plus one (0 = empty) and the lower half of the hash, which places it and spares most looks at records.
type slot struct {
	tag    uint32
	record uint32
}

const (
	segmentBits = 12
	leastSlots  = 16 // of a segment: 512 KiB over all of them
)

// newIndex returns an index with room for n entries, taken and touched, before a segment has to double.
func newIndex(n int) index {
	x := index{seed: maphash.MakeSeed(), segments: make([]segment, 1<<segmentBits)}
	// Entries spread over segments like a Poisson process; twice the mean leaves most of them room.
	slots := leastSlots
	for slots < 4*(n>>segmentBits) {
		slots *= 2
	}
	for i := range x.segments {
		x.segments[i].slots = make([]slot, slots)
		clear(x.segments[i].slots)
	}
	return x
}

// key is what an entry is found by.
type key struct {
	account uint32
	id      ID
}

func (x *index) hash(k *key) uint64 {
	// The account is mixed into all bits: both the upper ones (segment) and the lower ones (place) must differ.
	return maphash.Bytes(x.seed, k.id.Bytes()) ^ (uint64(k.account)+1)*0x9E3779B97F4A7C15
}

// find returns the number of the record for which same says yes.
func (x *index) find(hash uint64, same func(record uint32) bool) (record uint32, ok bool) {
	slots := x.segments[hash>>(64-segmentBits)].slots
	mask := uint32(len(slots) - 1)
	tag := uint32(hash)
	for i := tag & mask; slots[i].record != 0; i = (i + 1) & mask {
		if slots[i].tag == tag && same(slots[i].record-1) {
			return slots[i].record - 1, true
		}
	}
	return 0, false
}

// insert adds a record that find did not find.
func (x *index) insert(hash uint64, record uint32) {
	s := &x.segments[hash>>(64-segmentBits)]
	if 2*int(s.count+1) > len(s.slots) {
		old := s.slots
		s.slots = make([]slot, 2*len(old))
		for _, e := range old {
			if e.record != 0 {
				s.place(e)
			}
		}
	}
	s.place(slot{tag: uint32(hash), record: record + 1})
	s.count++
}

func (s *segment) place(e slot) {
	mask := uint32(len(s.slots) - 1)
	i := e.tag & mask
	for s.slots[i].record != 0 {
		i = (i + 1) & mask
	}
	s.slots[i] = e
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

// add returns the next record and its number. What it holds is of no meaning: a slab may be made of another one's chunks.
func (s *slab[T]) add() (*T, uint32) {
	n := s.length
	if int(n/chunkLength) == len(s.chunks) {
		s.chunks = append(s.chunks, make([]T, chunkLength))
	}
	s.length++
	return s.at(n), n
}

func (s *slab[T]) at(n uint32) *T { return &s.chunks[n/chunkLength][n%chunkLength] }
