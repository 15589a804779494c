package server

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tailgate/gateway/journal"
	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// digest is what two states are compared by.
func digest(s *Server) (d [32]byte) {
	s.sequencer.Read(func(state *orders.State, _ uint64) { d = state.Digest() })
	return d
}

func trade(t *testing.T, s *Server, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		ask[*pb.SubmitOrderResponse](t, s, transports.SubmitOrder, limitOrder(fmt.Sprint("o", i), pb.Side(1+i%2), 1, 10_000+int64(i%7)))
	}
}

// TestStartsFromSnapshots: a start from a snapshot that was made beside the running gateway, at the end of the day or at a stop gives the state
// that a replay of everything gives.
func TestStartsFromSnapshots(t *testing.T) {
	snapshotsIn := func(c Config) []string {
		names, err := filepath.Glob(filepath.Join(c.Journal.Dir, "*.snap"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	c := quiet(t)
	c.Journal.SnapshotEvery, c.Journal.KeepSegments = 10_000, true
	s := open(t, c)

	trade(t, s, 0, 10_500) // more than snapshot_every: one is made beside it
	deadline := time.Now().Add(30 * time.Second)
	for len(snapshotsIn(c)) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("no snapshot beside the running gateway")
		}
		trade(t, s, 10_500, 10_501) // repeated: a look at the gateway and no new command
	}
	beside := snapshotsIn(c)
	trade(t, s, 10_501, 12_000) // a tenth of snapshot_every and more: one is made at the stop
	want := digest(s)
	stop(t, s)
	atStop := snapshotsIn(c)
	if len(atStop) != len(beside)+1 {
		t.Fatalf("snapshots %q, and after the stop %q", beside, atStop)
	}

	s = open(t, c) // from the newest
	if digest(s) != want {
		t.Fatal("another state after a start from a snapshot")
	}
	if usage := lastUsage(s); usage.OrderIDs != 12_000 {
		t.Fatalf("%d orders", usage.OrderIDs)
	}
	if err := s.execute(&orders.Command{Kind: orders.EndDay}); err != nil {
		t.Fatal(err)
	}
	trade(t, s, 20_000, 20_001) // its commit takes the end of the day along
	s.snapshots.Now()           // as the admin listener does
	for slices.Equal(snapshotsIn(c), atStop) {
		if time.Now().After(deadline) {
			t.Fatal("no snapshot after the end of the day")
		}
		trade(t, s, 20_000, 20_001)
	}
	want = digest(s)
	stop(t, s)

	// Everything from the first record on, without any snapshot.
	state, err := orders.New(stateOptions(&c))
	if err != nil {
		t.Fatal(err)
	}
	for entry, err := range journal.Entries(c.Journal.Dir, nil, 1) {
		var command orders.Command
		if err == nil {
			err = command.Decode(entry.Payload)
		}
		if err == nil {
			err = state.Apply(&command, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if state.Digest() != want {
		t.Error("a replay of everything gives another state than the gateway had")
	}
}

func lastUsage(s *Server) (u orders.Usage) {
	s.sequencer.Read(func(state *orders.State, _ uint64) { u = state.Usage() })
	return u
}
