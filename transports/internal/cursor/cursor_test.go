package cursor_test

import (
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports/internal/cursor"
)

func TestOnlyWhatFollowsIsTaken(t *testing.T) {
	at := cursor.At(2, 7)
	for _, step := range []struct {
		epoch    uint32
		sequence uint64
		taken    bool
	}{
		{2, 6, false}, {2, 8, false}, {1, 7, false}, {3, 7, false}, {2, 7, true}, {2, 7, false}, {2, 8, true}, {1, 1, false},
		{3, 2, false}, {3, 1, true}, {2, 9, false}, {3, 2, true}, {9, 1, true},
	} {
		if err := at.Take(&pb.ExecutionReport{Epoch: step.epoch, Sequence: step.sequence}); (err == nil) != step.taken {
			t.Errorf("%d of epoch %d: %v, want taken: %t", step.sequence, step.epoch, err, step.taken)
		}
	}
	var fresh cursor.Cursor
	if err := fresh.Take(&pb.ExecutionReport{Epoch: 5, Sequence: 9}); err != nil {
		t.Errorf("the first of a fresh one: %v", err)
	}
	if err := fresh.Take(&pb.ExecutionReport{Epoch: 5, Sequence: 11}); err == nil {
		t.Error("a gap is taken")
	}
}
