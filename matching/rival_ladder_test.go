package matching

import (
	"math/bits"
	"slices"
)

// ladder is an array with a slot for each tick of a window near the best price, and
// a sorted slice for what lies farther away. The window moves when a better price
// than it covers comes, or when it has run empty. Bitmaps over the slots, over the
// words of these bitmaps and so on find the next slot in use.
type ladder struct {
	rivalLevels
	base    uint64 // the key of slot 0
	slots   []uint32
	maps    [][]uint64    // maps[0]: bit set = slot in use; maps[i+1]: bit set = word of maps[i] not zero
	far     *sortedSlice  // keys above the window; it owns no level records
	leaving []sortedEntry // what a move carries; kept so that it allocates once
}

// newLadder makes a window of width ticks, a power of 64.
func newLadder(n, width int) *ladder {
	l := &ladder{
		rivalLevels: rivalLevels{newPool[level](n)}, slots: make([]uint32, width),
		far: &sortedSlice{entries: make([]sortedEntry, 0, n)},
	}
	for words := width / 64; words > 0; words /= 64 {
		l.maps = append(l.maps, make([]uint64, words))
	}
	return l
}

func (l *ladder) width() uint64 { return uint64(len(l.slots)) }

func (l *ladder) covers(key uint64) bool { return key-l.base < l.width() } // below base it wraps

func (l *ladder) empty() bool { return l.maps[len(l.maps)-1][0] == 0 }

func (l *ladder) set(at uint64, index uint32) {
	l.slots[at] = index
	for _, words := range l.maps {
		old := words[at/64]
		words[at/64] |= 1 << (at % 64)
		if old != 0 {
			return
		}
		at /= 64
	}
}

func (l *ladder) unset(at uint64) {
	l.slots[at] = none
	for _, words := range l.maps {
		if words[at/64] &^= 1 << (at % 64); words[at/64] != 0 {
			return
		}
		at /= 64
	}
}

// from returns the first slot in use at or after at; ok is false without one.
func (l *ladder) from(at uint64) (uint64, bool) {
	for i := 0; i < len(l.maps) && at/64 < uint64(len(l.maps[i])); i++ {
		rest := l.maps[i][at/64] >> (at % 64)
		if rest == 0 {
			at = at/64 + 1 // look for the next word that is not zero
			continue
		}
		at += uint64(bits.TrailingZeros64(rest))
		for ; i > 0; i-- {
			at = at*64 + uint64(bits.TrailingZeros64(l.maps[i-1][at]))
		}
		return at, true
	}
	return 0, false
}

func (l *ladder) Place(key uint64) uint32 {
	if l.empty() && len(l.far.entries) == 0 {
		l.base = l.windowFor(key)
	} else if key < l.base {
		l.move(l.windowFor(key))
	}
	if l.covers(key) {
		at := key - l.base
		if l.slots[at] == none {
			l.set(at, l.add(key))
		}
		return l.slots[at]
	}
	at, found := l.far.search(key)
	if !found {
		l.far.insert(at, sortedEntry{key, l.add(key)})
	}
	return l.far.entries[at].level
}

// windowFor leaves a quarter of the window for better prices than key.
func (l *ladder) windowFor(key uint64) uint64 { return max(key, l.width()/4) - l.width()/4 }

// move makes base the window's beginning: what leaves it goes to the far keys, what
// it covers of them comes in.
func (l *ladder) move(base uint64) {
	out := l.leaving[:0] // best first
	for at, ok := l.from(0); ok; at, ok = l.from(at + 1) {
		out = append(out, sortedEntry{l.base + at, l.slots[at]})
		l.unset(at)
	}
	l.base, l.leaving = base, out
	for _, entry := range slices.Backward(out) { // all better than every far key
		l.far.entries = append(l.far.entries, entry)
	}
	for last := len(l.far.entries) - 1; last >= 0 && l.covers(l.far.entries[last].key); last-- {
		l.set(l.far.entries[last].key-l.base, l.far.entries[last].level)
		l.far.entries = l.far.entries[:last]
	}
}

func (l *ladder) Remove(key uint64) {
	if !l.covers(key) {
		at, _ := l.far.search(key)
		l.levels.put(l.far.entries[at].level)
		l.far.remove(at)
		return
	}
	l.levels.put(l.slots[key-l.base])
	l.unset(key - l.base)
	if last := len(l.far.entries) - 1; l.empty() && last >= 0 {
		l.move(l.windowFor(l.far.entries[last].key))
	}
}

func (l *ladder) First() uint32 {
	if at, ok := l.from(0); ok {
		return l.slots[at]
	}
	return none // the far keys come in when the window runs empty
}

func (l *ladder) After(key uint64) uint32 {
	at := uint64(0)
	if key >= l.base {
		at = min(key-l.base, l.width()-1) + 1
	}
	if at, ok := l.from(at); ok {
		return l.slots[at]
	}
	return l.far.After(key)
}
