package orders

import (
	"bytes"
	"io"
	"strconv"
	"testing"

	"tailgate/matching"
)

// BenchmarkIDs is the table of ids alone: one new id and one repetition of it, in a table that is a quarter full.
func BenchmarkIDs(b *testing.B) {
	const n = 1 << 20
	x := newIndex(n)
	keys := make([]key, n)
	for i := range keys {
		keys[i] = key{uint32(i % 16), id("order-" + strconv.Itoa(i))}
	}
	for i := range n / 2 {
		x.insert(x.hash(&keys[i]), uint32(i))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		k := &keys[i%(n/2)]
		hash := x.hash(k)
		if _, ok := x.find(hash, func(record uint32) bool { return keys[record] == *k }); !ok {
			b.Fatal("lost an id")
		}
		k = &keys[n/2+i%(n/2)]
		hash = x.hash(k)
		if _, ok := x.find(hash, func(record uint32) bool { return keys[record] == *k }); ok {
			b.Fatal("found an id that is not there")
		}
		i++
	}
}

// BenchmarkOrder is one order decided, encoded for the journal and applied: a buy that rests or a sell that takes it.
func BenchmarkOrder(b *testing.B) {
	const n = 1 << 20
	r := newRig(b, Options{MaxIDs: n, ReserveIDs: n}, "alpha")
	commands := make([]*Command, 0, n)
	for i := range n {
		commands = append(commands, limit(0, "order-"+strconv.Itoa(i), matching.Side(1+i%2), 10, 100))
	}
	buffer := make([]byte, 0, MaxCommandBytes)
	var out Answer
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i == n {
			b.StopTimer()
			r, i = newRig(b, Options{MaxIDs: n, ReserveIDs: n}, "alpha"), 0
			b.StartTimer()
		}
		c := commands[i]
		i++
		if journal, err := r.state.Decide(c, &out); !journal || err != nil {
			b.Fatalf("order %d was not new: %v", i, err)
		}
		buffer = c.Append(buffer[:0])
		if err := r.state.Apply(c, &out); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}

// BenchmarkSnapshot writes and restores a state of 200,000 orders with their events.
func BenchmarkSnapshot(b *testing.B) {
	const n = 200_000
	r := newRig(b, Options{MaxIDs: n, MaxOpenOrders: n}, "alpha")
	for i := range n {
		r.do(limit(0, "order-"+strconv.Itoa(i), matching.Side(1+i%2), 10, 100-int64(i%2)*int64(i%3)))
	}
	text := snapshotOf(b, r.state)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if err := r.state.WriteSnapshot(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(text))/n, "B/order")
	})
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, err := RestoreSnapshot(r.options, bytes.NewReader(text)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
