package orders

import (
	"fmt"
	"testing"
)

// TestIndexAgainstAMap: after every insert up to many doublings everything inserted is found, and nothing else is.
func TestIndexAgainstAMap(t *testing.T) {
	const n = 400_000 // about 98 a segment, so each has doubled several times
	x := newIndex(0)
	keys := make([]key, 0, n)
	same := func(k *key) func(uint32) bool {
		return func(record uint32) bool { return keys[record] == *k }
	}
	for i := range n {
		k := key{uint32(i % 3), id(fmt.Sprint("o-", i/2))}
		hash := x.hash(&k)
		_, known := x.find(hash, same(&k))
		if known {
			t.Fatalf("key %d is found before it is inserted", i)
		}
		keys = append(keys, k)
		x.insert(hash, uint32(i))
		if i%1000 == 0 || i == n-1 {
			for j := 0; j <= i; j += 1 + i/100 {
				if record, ok := x.find(x.hash(&keys[j]), same(&keys[j])); !ok || record != uint32(j) {
					t.Fatalf("after %d inserts key %d is %d (found %v)", i+1, j, record, ok)
				}
			}
		}
	}
	for i := range x.segments {
		if s := &x.segments[i]; 2*int(s.count) > len(s.slots) || len(s.slots) > 64*leastSlots {
			t.Fatalf("segment %d has %d entries in %d slots", i, s.count, len(s.slots))
		}
	}
}
