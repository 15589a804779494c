package matching

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// The parts of the engine against the standard library's, on inputs that the
// engine's own tests would need luck to make.

// Keys that share long prefixes, and keys from anywhere.
func anyKey() *rapid.Generator[uint64] {
	return rapid.Custom(func(t *rapid.T) uint64 {
		key := rapid.Uint64Range(0, 3).Draw(t, "low")
		for range rapid.IntRange(0, 3).Draw(t, "digits") {
			key ^= rapid.Uint64Range(1, 63).Draw(t, "digit") << rapid.SampledFrom([]int{0, 6, 12, 30, 54, 60}).Draw(t, "shift")
		}
		return key
	})
}

func TestLevelStoreIsASortedMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 24
		s := newLevelStore(size)
		root := none
		model := map[uint64]uint32{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			key := anyKey().Draw(t, "key")
			index, present := model[key]
			if got := s.find(root, key); got != index {
				t.Fatalf("find(%#x) is %d, want %d", key, got, index)
			}
			switch {
			case present && rapid.Bool().Draw(t, "remove"):
				s.remove(&root, key)
				delete(model, key)
			case present || len(model) < size:
				got := s.place(&root, key)
				if present && got != index || s.levels.at(got).key != key {
					t.Fatalf("place(%#x) gave level %d with key %#x, had %d", key, got, s.levels.at(got).key, index)
				}
				model[key] = got
			}
			keys := slices.Sorted(maps.Keys(model))
			if s.levels.used() != len(keys) || s.nodes.used() >= max(1, len(keys)) {
				t.Fatalf("%d keys take %d levels and %d nodes", len(keys), s.levels.used(), s.nodes.used())
			}
			want := none
			if len(keys) > 0 {
				want = model[keys[0]]
			}
			if got := s.first(root); got != want {
				t.Fatalf("first is level %d, want %d", got, want)
			}
			probe := anyKey().Draw(t, "probe")
			want = none
			if i, found := slices.BinarySearch(keys, probe); found && i+1 < len(keys) {
				want = model[keys[i+1]]
			} else if !found && i < len(keys) {
				want = model[keys[i]]
			}
			if got := s.after(root, probe); got != want {
				t.Fatalf("after(%#x) is level %d, want %d; keys %#x", probe, got, want, keys)
			}
		}
	})
}

// The candidates of the comparison do the same, also where a ladder's window moves.
func TestPriceStructuresAreSortedMaps(t *testing.T) {
	anyNear := rapid.Custom(func(t *rapid.T) uint64 {
		offset := rapid.Int64Range(0, 40).Draw(t, "near")
		offset += rapid.SampledFrom([]int64{0, 0, 0, 3_000, 1 << 12, 1 << 20, -3_000, -1 << 20}).Draw(t, "far")
		return 1<<63 + uint64(offset)
	})
	for _, candidate := range PriceStructures {
		t.Run(candidate.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				const size = 24
				s, model := candidate.New(size), map[uint64]uint32{}
				keys := rapid.OneOf(anyNear, anyNear, anyKey())
				for range rapid.IntRange(1, 200).Draw(t, "steps") {
					key := keys.Draw(t, "key")
					index, present := model[key]
					switch {
					case present && rapid.Bool().Draw(t, "remove"):
						s.Remove(key)
						delete(model, key)
					case present || len(model) < size:
						got := s.Place(key)
						if present && got != index || s.KeyOf(got) != key {
							t.Fatalf("Place(%#x) gave level %d with key %#x, had %d", key, got, s.KeyOf(got), index)
						}
						model[key] = got
					}
					sorted := slices.Sorted(maps.Keys(model))
					first := s.First()
					walked := []uint64{}
					for level := first; level != none; level = s.After(s.KeyOf(level)) {
						walked = append(walked, s.KeyOf(level))
						if model[s.KeyOf(level)] != level || len(walked) > len(sorted) {
							t.Fatalf("the walk %#x reaches level %d, the keys are %#x", walked, level, sorted)
						}
					}
					if !slices.Equal(walked, sorted) {
						t.Fatalf("the walk is %#x, the keys are %#x", walked, sorted)
					}
					probe := keys.Draw(t, "probe")
					want := none
					if i, found := slices.BinarySearch(sorted, probe); found && i+1 < len(sorted) {
						want = model[sorted[i+1]]
					} else if !found && i < len(sorted) {
						want = model[sorted[i]]
					}
					if got := s.After(probe); got != want {
						t.Fatalf("After(%#x) is level %d, want %d; keys %#x", probe, got, want, sorted)
					}
				}
			})
		})
	}
}

func TestKeysSortBestFirst(t *testing.T) {
	prices := []int64{MinPrice, -65, -64, -1, 0, 1, 63, 64, MaxPrice}
	for i, a := range prices {
		for j, b := range prices {
			if got, want := cmp.Compare(keyOf(Sell, a), keyOf(Sell, b)), cmp.Compare(i, j); got != want {
				t.Errorf("sells at %d and %d compare as %d", a, b, got)
			}
			if got, want := cmp.Compare(keyOf(Buy, a), keyOf(Buy, b)), cmp.Compare(j, i); got != want {
				t.Errorf("buys at %d and %d compare as %d", a, b, got)
			}
		}
		for _, side := range []Side{Buy, Sell} {
			if got := priceOf(side, keyOf(side, a)); got != a {
				t.Errorf("%v at %d comes back as %d", side, a, got)
			}
		}
	}
}

// A table of 16 slots in which ids crowd and wrap around the end.
func TestIDTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 8
		orders := newPool[order](size)
		table := newIDTable(orders.items[:size]) // 16 slots for 8 records: index 0 is never used
		model := map[uint64]uint32{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			id := rapid.Uint64Range(0, 30).Draw(t, "id")
			if index, present := model[id]; present {
				table.remove(index)
				orders.put(index)
				delete(model, id)
			} else if len(model) < size-1 {
				index := orders.take()
				orders.at(index).id = id
				table.insert(index)
				model[id] = index
			}
			for id := range uint64(32) {
				if got := table.find(id); got != model[id] {
					t.Fatalf("find(%d) is %d, want %d", id, got, model[id])
				}
			}
		}
	})
}

// Ids as gateways make them must not crowd: at half load a search ends soon.
func TestIDTableSpreads(t *testing.T) {
	const size = 1 << 14
	for name, id := range map[string]func(i uint64) uint64{
		"sequential":         func(i uint64) uint64 { return i },
		"from a high base":   func(i uint64) uint64 { return 1<<63 + i },
		"strided":            func(i uint64) uint64 { return i << 16 },
		"shard in high bits": func(i uint64) uint64 { return i%16<<56 | i/16 },
		"high bits only":     func(i uint64) uint64 { return i << 49 },
	} {
		t.Run(name, func(t *testing.T) {
			orders := newPool[order](size)
			table := newIDTable(orders.items[:size])
			for i := range uint64(size - 1) {
				index := orders.take()
				orders.at(index).id = id(i)
				table.insert(index)
			}
			// An unsuccessful search reads to the end of the run it begins in.
			longest, run, reads := 0, 0, 0
			for _, slot := range table.slots {
				if run++; slot.index == none {
					run = 0
				}
				longest = max(longest, run)
				reads += run
			}
			mean := float64(reads)/float64(len(table.slots)) + 1
			t.Logf("%d slots, the longest run is %d, a vain search reads %.1f on average", len(table.slots), longest, mean)
			// With eight to a line and half the lines full, Knuth's 6.4 gives 2.5 lines
			// for a vain search; a hash that crowds gives thousands of slots.
			if mean > 40 || longest > 1000 {
				t.Errorf("the longest run is %d slots, a vain search reads %.1f on average", longest, mean)
			}
		})
	}
}

func TestRecordsFitTheirCacheLines(t *testing.T) {
	if size := unsafe.Sizeof(Event{}); size != 64 {
		t.Errorf("an event takes %d bytes, its comment says one line of 64", size)
	}
	if size := unsafe.Sizeof(order{}); size != 64 {
		t.Errorf("an order takes %d bytes, its comment says one line of 64", size)
	}
	if size := unsafe.Sizeof(level{}); size != 32 {
		t.Errorf("a level takes %d bytes, two should share a line of 64", size)
	}
}
