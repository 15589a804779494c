package matching

// redBlack is a red-black tree with parent links, after Cormen, Leiserson, Rivest
// and Stein, Introduction to Algorithms, chapter 13. A node is the level record's
// neighbour under the same index; index 0 is the sentinel, which is black.
type redBlack struct {
	rivalLevels
	nodes []redBlackNode
	root  uint32
}

type redBlackNode struct {
	child  [2]uint32 // smaller, greater
	parent uint32
	red    bool
}

func newRedBlack(n int) *redBlack {
	return &redBlack{rivalLevels{newPool[level](n)}, make([]redBlackNode, n+1), none}
}

// side says which child of its parent x is.
func (t *redBlack) side(x uint32) int {
	if t.nodes[t.nodes[x].parent].child[1] == x {
		return 1
	}
	return 0
}

// transplant puts y where x hangs.
func (t *redBlack) transplant(x, y uint32) {
	if parent := t.nodes[x].parent; parent == none {
		t.root = y
	} else {
		t.nodes[parent].child[t.side(x)] = y
	}
	t.nodes[y].parent = t.nodes[x].parent
}

// rotate moves x down to its side d; its other child comes up.
func (t *redBlack) rotate(x uint32, d int) {
	y := t.nodes[x].child[1-d]
	t.nodes[x].child[1-d] = t.nodes[y].child[d]
	if inner := t.nodes[y].child[d]; inner != none {
		t.nodes[inner].parent = x
	}
	t.transplant(x, y)
	t.nodes[y].child[d] = x
	t.nodes[x].parent = y
}

func (t *redBlack) Place(key uint64) uint32 {
	parent, d := none, 0
	for x := t.root; x != none; x = t.nodes[x].child[d] {
		other := t.KeyOf(x)
		if other == key {
			return x
		}
		parent, d = x, 0
		if key > other {
			d = 1
		}
	}
	index := t.add(key)
	t.nodes[index] = redBlackNode{parent: parent, red: true}
	if parent == none {
		t.root = index
	} else {
		t.nodes[parent].child[d] = index
	}
	t.balanceInsertion(index)
	return index
}

func (t *redBlack) balanceInsertion(x uint32) {
	for t.nodes[t.nodes[x].parent].red {
		parent := t.nodes[x].parent
		grandparent, d := t.nodes[parent].parent, t.side(parent)
		if uncle := t.nodes[grandparent].child[1-d]; t.nodes[uncle].red {
			t.nodes[parent].red, t.nodes[uncle].red, t.nodes[grandparent].red = false, false, true
			x = grandparent
			continue
		}
		if t.side(x) != d {
			x = parent
			t.rotate(x, d)
			parent = t.nodes[x].parent
		}
		t.nodes[parent].red, t.nodes[grandparent].red = false, true
		t.rotate(grandparent, 1-d)
	}
	t.nodes[t.root].red = false
}

func (t *redBlack) find(key uint64) uint32 {
	x := t.root
	for x != none && t.KeyOf(x) != key {
		d := 0
		if key > t.KeyOf(x) {
			d = 1
		}
		x = t.nodes[x].child[d]
	}
	return x
}

func (t *redBlack) least(x uint32) uint32 {
	for x != none && t.nodes[x].child[0] != none {
		x = t.nodes[x].child[0]
	}
	return x
}

func (t *redBlack) Remove(key uint64) {
	z := t.find(key)
	removedRed := t.nodes[z].red
	var x uint32
	switch {
	case t.nodes[z].child[0] == none:
		x = t.nodes[z].child[1]
		t.transplant(z, x)
	case t.nodes[z].child[1] == none:
		x = t.nodes[z].child[0]
		t.transplant(z, x)
	default:
		y := t.least(t.nodes[z].child[1])
		removedRed, x = t.nodes[y].red, t.nodes[y].child[1]
		if t.nodes[y].parent == z {
			t.nodes[x].parent = y
		} else {
			t.transplant(y, x)
			t.nodes[y].child[1] = t.nodes[z].child[1]
			t.nodes[t.nodes[y].child[1]].parent = y
		}
		t.transplant(z, y)
		t.nodes[y].child[0], t.nodes[y].red = t.nodes[z].child[0], t.nodes[z].red
		t.nodes[t.nodes[y].child[0]].parent = y
	}
	if !removedRed {
		t.balanceRemoval(x)
	}
	t.levels.put(z)
}

func (t *redBlack) balanceRemoval(x uint32) {
	for x != t.root && !t.nodes[x].red {
		parent := t.nodes[x].parent
		d := 0
		if t.nodes[parent].child[0] != x {
			d = 1
		}
		sibling := t.nodes[parent].child[1-d]
		if t.nodes[sibling].red {
			t.nodes[sibling].red, t.nodes[parent].red = false, true
			t.rotate(parent, d)
			sibling = t.nodes[parent].child[1-d]
		}
		near, far := t.nodes[sibling].child[d], t.nodes[sibling].child[1-d]
		if !t.nodes[near].red && !t.nodes[far].red {
			t.nodes[sibling].red = true
			x = parent
			continue
		}
		if !t.nodes[far].red {
			t.nodes[near].red, t.nodes[sibling].red = false, true
			t.rotate(sibling, 1-d)
			sibling = t.nodes[parent].child[1-d]
			far = t.nodes[sibling].child[1-d]
		}
		t.nodes[sibling].red = t.nodes[parent].red
		t.nodes[parent].red, t.nodes[far].red = false, false
		t.rotate(parent, d)
		x = t.root
	}
	t.nodes[x].red = false
}

func (t *redBlack) First() uint32 { return t.least(t.root) }

func (t *redBlack) After(key uint64) uint32 {
	found := none
	for x := t.root; x != none; {
		if t.KeyOf(x) > key {
			found, x = x, t.nodes[x].child[0]
		} else {
			x = t.nodes[x].child[1]
		}
	}
	return found
}
