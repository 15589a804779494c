package journal_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

// TestModel plays random scripts against a list: append, commit, close, die, lose
// the power, open again under another mode.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mode := rapid.SampledFrom(modes).Draw(rt, "mode")
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{
			"append", "append", "append", "append", "commit", "commit", "settle", "snapshot", "snapshot", "close", "kill", "power",
		}), 1, 60).Draw(rt, "steps")
		size := rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, journal.MaxPayloadBytes))
		var sizes []int
		for range steps {
			sizes = append(sizes, size.Draw(rt, "size"))
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		next := func() journal.SyncMode { return modes[rng.IntN(len(modes))] }
		synctest.Test(t, func(*testing.T) {
			if err := model(mode, steps, sizes, rng, next); err != nil {
				rt.Error(err)
			}
		})
	})
}

func model(mode journal.SyncMode, steps []string, sizes []int, rng *rand.Rand, next func() journal.SyncMode) error {
	fs, h := journaltest.NewDisk(), newHistory()
	var term uint64
	j, _, _, err := collect(memOptions(fs, mode))
	if err != nil {
		return err
	}
	// promised is how many entries a crash of the given kind must leave.
	promised := func(power bool) uint64 {
		_, acked := h.snapshot()
		if mode == journal.SyncOff || power && mode != journal.SyncAlways {
			acked = 0
		}
		return max(acked, j.Stats().DurableLSN)
	}
	reopen := func(least uint64, all bool) error {
		mode = next()
		term++
		opts := memOptions(fs, mode)
		opts.Term = term
		var got []journal.Entry
		var err error
		j, got, _, err = collect(opts)
		if damage := (*journal.DamageError)(nil); errors.As(err, &damage) && !all && damage.LSN > least {
			// A power cut where nothing was promised: the operator gives up the rest.
			if _, err := journal.Cut(opts.Dir, fs, damage.LSN); err != nil {
				return err
			}
			j, got, _, err = collect(opts)
		}
		if err != nil {
			return err
		}
		if all {
			least = uint64(len(h.entries))
		}
		if uint64(len(got)) < least {
			return errors.Join(errors.New("entries are missing"), equal(got, h.entries), j.Close())
		}
		if err := equal(got, h.entries[:min(len(got), len(h.entries))]); err != nil {
			return errors.Join(err, j.Close())
		}
		*h = history{entries: got, acked: uint64(len(got)), pending: map[uint64]int{}}
		return nil
	}
	for i, step := range steps {
		switch step {
		case "append":
			_, err := h.append(j, term, sizes[i])
			if err != nil && !errors.Is(err, journal.ErrBacklog) {
				return errors.Join(err, j.Close())
			}
		case "commit":
			h.commit(j)
		case "settle":
			synctest.Wait()
		case "snapshot":
			if err := h.keep(j); err != nil {
				return errors.Join(err, j.Close())
			}
		case "close":
			if err := errors.Join(j.Close(), h.settled(), reopen(0, true)); err != nil {
				return err
			}
		case "kill", "power":
			power := step == "power"
			// What the process is told after this moment does not count any more,
			// and what it was told before does.
			least := promised(power)
			image := fs.Killed(nil, 0)
			if power {
				image = fs.PowerCut(rng)
			}
			if err := errors.Join(j.Close(), h.settled()); err != nil {
				return err
			}
			fs = image
			if err := reopen(least, false); err != nil {
				return err
			}
		}
	}
	return errors.Join(j.Close(), h.settled(), reopen(0, true), j.Close())
}
