package matching_test

import (
	"fmt"
	"slices"
	"testing"

	"tailgate/matching"
)

// FuzzApply reads bytes as commands, twelve a command, and compares the engines.
// The low bits of a byte choose among what is valid, its high bits may spoil it.
func FuzzApply(f *testing.F) {
	const (
		sell10   = "\x00\x01\x01\x01\x00\x05\x0a\x00\x00\x03\x00\x01" // group 1, shows 3
		buy4IOC  = "\x00\x00\x02\x02\x00\x05\x04\x00\x00\x00\x02\x09" // group 1, cancel-maker, minimum 2
		replace1 = "\x02\x00\x01\x01\x00\x04\x06\x00\x00\x00\x00\x00"
	)
	f.Add([]byte{0})
	f.Add([]byte("\x00" + sell10 + buy4IOC + replace1))
	f.Add([]byte("\x01" + sell10 + replace1 + buy4IOC))
	pick := func(b byte, choices byte) byte {
		if b >= 0xf0 {
			return b - 0xf0 // 0 and what lies beyond the last are invalid
		}
		return 1 + b%choices
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		options := small
		options.ModifyIsCancelNew = data[0]&1 == 1
		w, err := newTwins(options, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		sequence := uint64(0)
		for chunk := range slices.Chunk(data[1:], 12) {
			if len(chunk) < 12 || sequence == 1000 { // beyond that the naive engine only costs time
				return
			}
			cmd := matching.Command{
				Kind: matching.CommandKind(pick(chunk[0], 3)), Side: matching.Side(pick(chunk[1], 2)),
				Type: matching.Limit + matching.OrderType(chunk[4]>>3&1), TimeInForce: matching.TimeInForce(pick(chunk[2], 4)),
				Instrument: uint32(chunk[4] & 7 / 3), Sequence: sequence, OrderID: uint64(chunk[3]),
				// The shifts take the values over their whole range and past its ends.
				Price:           int64(int8(chunk[5])) << (chunk[7] & 63),
				Quantity:        uint64(chunk[6]) << (chunk[4] >> 4 * 4),
				DisplayQuantity: uint64(chunk[9]) << (chunk[8] & 7 * 8),
				MinimumQuantity: uint64(chunk[10]) << (chunk[8] >> 3 & 7 * 8),
				PostOnly:        chunk[8] >= 0xc0,
				Group:           uint32(chunk[11] & 3), SelfTradePrevention: matching.SelfTradePrevention(chunk[11] >> 2 & 7),
			}
			if chunk[8]>>6 == 1 { // else a large shown quantity would hardly ever fit its order
				cmd.DisplayQuantity = min(cmd.DisplayQuantity, cmd.Quantity/2)
			}
			if _, err := w.apply(&cmd); err != nil {
				t.Fatal(fmt.Errorf("command %d: %w", sequence, err))
			}
			sequence++
		}
	})
}
