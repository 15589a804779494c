package matching

import "math/bits"

// idTable finds a resting order's record by its id. Open addressing with linear
// probing, at most half full. Its size is fixed; removal moves the followers of
// a hole back instead of leaving a tombstone, so it neither degrades nor needs a
// rehash, however long it lives.
//
// A slot is eight bytes: a tag, which is enough to move the slot and makes a
// look at the record rarely vain, and the record's index. Eight ids that differ
// in their low three bits only share one cache line of slots, so ids handed out
// in sequence touch a new line every eighth time; the lines themselves are
// spread by a hash.
type idTable struct {
	slots  []idSlot // a power of two
	orders []order  // the records, which hold the ids
}

type idSlot struct {
	tag   uint32 // low bits: where the probe begins
	index uint32 // none = free slot
}

// newIDTable makes room for the ids of all records and touches all of it.
func newIDTable(orders []order) idTable {
	width := bits.Len(uint(2*len(orders) - 1)) // smallest power of two >= 2 * len
	t := idTable{slots: make([]idSlot, 1<<width), orders: orders}
	clear(t.slots)
	return t
}

// tagOf hashes all but the low three bits. The 128-bit product folded onto
// itself spreads sequential, strided and composed ids alike (the mixing step of
// wyhash, github.com/wangyi-fudan/wyhash). The constants are two of its odd
// secrets; they are fixed, because nothing here may differ from run to run.
func tagOf(id uint64) uint32 {
	high, low := bits.Mul64(id>>3^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
	return uint32(high^low)&^7 | uint32(id)&7
}

// find returns the record with this id, or none.
func (t *idTable) find(id uint64) uint32 {
	tag, mask := tagOf(id), uint32(len(t.slots)-1)
	for i := tag & mask; ; i = (i + 1) & mask {
		slot := t.slots[i]
		if slot.index == none || slot.tag == tag && t.orders[slot.index].id == id {
			return slot.index
		}
	}
}

// insert adds a record, whose id is not in the table. Records are fewer than
// slots, so there is room.
func (t *idTable) insert(index uint32) {
	tag, mask := tagOf(t.orders[index].id), uint32(len(t.slots)-1)
	i := tag & mask
	for t.slots[i].index != none {
		i = (i + 1) & mask
	}
	t.slots[i] = idSlot{tag: tag, index: index}
}

// remove takes a record, which is in the table, out.
func (t *idTable) remove(index uint32) {
	mask := uint32(len(t.slots) - 1)
	hole := tagOf(t.orders[index].id) & mask
	for t.slots[hole].index != index {
		hole = (hole + 1) & mask
	}
	// A follower may move into the hole unless its home lies after the hole
	// (Knuth, The Art of Computer Programming 3, 6.4, Algorithm R).
	for i := hole; ; {
		i = (i + 1) & mask
		slot := t.slots[i]
		if slot.index == none {
			break
		}
		if (i-slot.tag)&mask >= (i-hole)&mask {
			t.slots[hole] = slot
			hole = i
		}
	}
	t.slots[hole].index = none
}
