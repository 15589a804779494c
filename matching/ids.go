package matching

import "math/bits"

// idTable finds a resting order's index by its id. Open addressing with linear
// probing, at most half full, so a probe usually stays within one cache line.
// Its size is fixed; removal moves the followers of a hole back instead of
// leaving a tombstone, so it neither degrades nor needs a rehash, however long
// it lives.
type idTable struct {
	slots []idSlot // a power of two
	shift uint8    // 64 - log2(len(slots))
}

type idSlot struct {
	id    uint64
	index uint32 // none = free slot
}

// newIDTable makes room for n ids and touches all of it.
func newIDTable(n int) idTable {
	width := bits.Len(uint(2*n - 1)) // smallest power of two >= 2n
	t := idTable{slots: make([]idSlot, 1<<width), shift: uint8(64 - width)}
	clear(t.slots)
	return t
}

// home is where id's probe begins. The 128-bit product folded onto itself
// spreads sequential, strided and composed ids alike (the mixing step of wyhash,
// github.com/wangyi-fudan/wyhash). The constants are two of its odd secrets;
// they are fixed, because a replay must find the same table.
func (t *idTable) home(id uint64) uint64 {
	high, low := bits.Mul64(id^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
	return (high ^ low) >> t.shift
}

// find returns the index stored under id, or none.
func (t *idTable) find(id uint64) uint32 {
	mask := uint64(len(t.slots) - 1)
	for i := t.home(id); ; i = (i + 1) & mask {
		slot := &t.slots[i&mask]
		if slot.index == none || slot.id == id {
			return slot.index
		}
	}
}

// insert stores index under id, which is not in the table. The caller has made
// sure that there is room.
func (t *idTable) insert(id uint64, index uint32) {
	mask := uint64(len(t.slots) - 1)
	i := t.home(id) & mask
	for t.slots[i].index != none {
		i = (i + 1) & mask
	}
	t.slots[i] = idSlot{id: id, index: index}
}

// remove takes id, which is in the table, out.
func (t *idTable) remove(id uint64) {
	mask := uint64(len(t.slots) - 1)
	hole := t.home(id) & mask
	for t.slots[hole].id != id || t.slots[hole].index == none {
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
		if (i-t.home(slot.id))&mask >= (i-hole)&mask {
			t.slots[hole] = slot
			hole = i
		}
	}
	t.slots[hole].index = none
}
