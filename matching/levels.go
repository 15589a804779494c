package matching

import "math/bits"

// level is the queue of all orders at one price of one side.
type level struct {
	key   uint64 // see keyOf
	shown uint64 // sum of what the orders show
	head  uint32 // the order that trades first
	tail  uint32
	count uint32
}

// keyOf maps a price to a key that sorts best first: ascending price for sells,
// descending for buys. Everything below is written once for both sides.
func keyOf(side Side, price int64) uint64 {
	key := uint64(price) ^ 1<<63 // two's complement order to unsigned order
	if side == Buy {
		return ^key
	}
	return key
}

// priceOf is the inverse of keyOf.
func priceOf(side Side, key uint64) int64 {
	if side == Buy {
		key = ^key
	}
	return int64(key ^ 1<<63)
}

// levelStore keeps the price levels of every side of every book, each side a
// tree of its own that is named by its root reference.
//
// The tree is a radix tree over the key with 64-way nodes, path-compressed: a
// node exists only where keys part, so n levels need fewer than n nodes
// whatever the prices are, and a search takes at most 11 steps (64 bits in
// groups of 6); prices within 4096 ticks of one another take two. Neighbours
// are found by bit scans. Nothing is rebalanced, moved or rehashed, so the
// worst case of one operation is close to its usual case, which is what the
// tail needs. The order of insertion leaves no trace in its shape.
type levelStore struct {
	levels pool[level]
	nodes  pool[node]

	// hidden is what the orders of each level hide, beside the levels because few
	// commands ask for it. It is 0 for a level that is free.
	hidden []uint64
}

// node parts the keys that agree above its six bits.
type node struct {
	prefix   uint64 // the bits its keys share, zeros below
	occupied uint64 // bit i set: child[i] is in use
	shift    uint8  // position of the six bits: 0, 6, ..., 60
	child    [64]uint32
}

// A reference names a level when this bit is set, else a node; none names
// nothing.
const levelBit uint32 = 1 << 31

func newLevelStore(n int) levelStore {
	s := levelStore{levels: newPool[level](n), nodes: newPool[node](n), hidden: make([]uint64, n+1)}
	clear(s.hidden)
	return s
}

// holds reports whether key belongs below n.
func (n *node) holds(key uint64) bool { return (key^n.prefix)>>n.shift < 64 }

// digit is the six bits of key that n parts by.
func (n *node) digit(key uint64) uint64 { return key >> n.shift & 63 }

// find returns the level with this key, or none.
func (s *levelStore) find(root uint32, key uint64) uint32 {
	for ref := root; ref != none; {
		if ref&levelBit != 0 {
			if index := ref &^ levelBit; s.levels.at(index).key == key {
				return index
			}
			return none
		}
		n := s.nodes.at(ref)
		if !n.holds(key) || n.occupied>>n.digit(key)&1 == 0 {
			return none
		}
		ref = n.child[n.digit(key)]
	}
	return none
}

// place returns the level with this key, a new and empty one if there was none.
// The caller has made sure that a level is free.
func (s *levelStore) place(root *uint32, key uint64) uint32 {
	slot := root
	for *slot != none {
		var other uint64
		if ref := *slot; ref&levelBit != 0 {
			index := ref &^ levelBit
			if other = s.levels.at(index).key; other == key {
				return index
			}
		} else {
			n := s.nodes.at(ref)
			if n.holds(key) {
				digit := n.digit(key)
				slot = &n.child[digit]
				if n.occupied>>digit&1 == 0 {
					n.occupied |= 1 << digit
					break
				}
				continue
			}
			other = n.prefix
		}
		slot = s.part(slot, other, key)
		break
	}
	index := s.levels.take()
	*s.levels.at(index) = level{key: key}
	*slot = index | levelBit
	return index
}

// part puts a node where the keys of what slot refers to and key part, and
// returns the child slot that key is to fill.
func (s *levelStore) part(slot *uint32, other, key uint64) *uint32 {
	shift := uint8(63-bits.LeadingZeros64(other^key)) / 6 * 6
	ref := s.nodes.take()
	n := s.nodes.at(ref)
	n.shift = shift
	n.prefix = key >> shift >> 6 << 6 << shift // two shifts: at 60, one by 66 is what is meant
	n.occupied = 1<<n.digit(other) | 1<<n.digit(key)
	n.child[n.digit(other)] = *slot
	*slot = ref
	return &n.child[n.digit(key)]
}

// remove takes the level with this key, which is in the tree, out and frees it.
func (s *levelStore) remove(root *uint32, key uint64) {
	slot, above := root, (*uint32)(nil) // above: the slot that holds slot's node
	for *slot&levelBit == 0 {
		n := s.nodes.at(*slot)
		above, slot = slot, &n.child[n.digit(key)]
	}
	s.levels.put(*slot &^ levelBit)
	if above == nil {
		*root = none
		return
	}
	ref := *above
	n := s.nodes.at(ref)
	n.occupied &^= 1 << n.digit(key)
	if n.occupied&(n.occupied-1) == 0 { // one child left: the node parts nothing
		*above = n.child[bits.TrailingZeros64(n.occupied)]
		s.nodes.put(ref)
	}
}

// first returns the best level below ref, or none.
func (s *levelStore) first(ref uint32) uint32 {
	if ref == none {
		return none
	}
	for ref&levelBit == 0 {
		n := s.nodes.at(ref)
		ref = n.child[bits.TrailingZeros64(n.occupied)&63]
	}
	return ref &^ levelBit
}

// after returns the best level whose key is greater than key, or none.
func (s *levelStore) after(root uint32, key uint64) uint32 {
	greater := none // the nearest subtree passed on the way whose keys are greater
	for ref := root; ref != none; {
		if ref&levelBit != 0 {
			if s.levels.at(ref&^levelBit).key > key {
				return ref &^ levelBit
			}
			break
		}
		n := s.nodes.at(ref)
		if !n.holds(key) {
			if n.prefix > key {
				return s.first(ref)
			}
			break
		}
		digit := n.digit(key)
		if right := n.occupied &^ (2<<digit - 1); right != 0 {
			greater = n.child[bits.TrailingZeros64(right)]
		}
		if n.occupied>>digit&1 == 0 {
			break
		}
		ref = n.child[digit]
	}
	return s.first(greater)
}
