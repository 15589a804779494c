package record

import (
	"fmt"
	"math/bits"
	"time"

	"tailgate/loadtest/stats"
)

// A timeline keeps response times by the time at which their requests were due, in at most maxBlocks blocks of equal width; when they are used up, the
// width doubles. So it takes the same memory however long a cell is. Values are kept to 1/256 (0.4 %), which intervals and trends do not
// need better; figures come from the histograms.
const (
	maxBlocks = 128
	mantissa  = 8 // bits of a value that are kept
	perOctave = 1 << mantissa
	octaves   = 64 - mantissa

	// leastWidth is a block's width where nobody knows how long the cell will be.
	leastWidth = time.Millisecond
)

type timeline struct {
	width  time.Duration
	blocks [maxBlocks]block
}

// block counts values by power of two; what was never met takes no memory.
type block struct {
	lost    int64
	octaves [octaves]*[perOctave]uint32
}

// slot is where a value, which is not negative, is counted.
func slot(d time.Duration) (octave, index int) {
	v := uint64(d)
	if v < perOctave {
		return 0, int(v)
	}
	shift := bits.Len64(v) - 1 - mantissa
	return shift + 1, int(v>>shift) - perOctave
}

// edge is the greatest value of a slot.
func edge(octave, index int) time.Duration {
	if octave == 0 {
		return time.Duration(index)
	}
	return time.Duration((uint64(index)+perOctave+1)<<(octave-1) - 1)
}

// add counts a request that was due at a time of the interval. A time before it counts as its beginning.
func (t *timeline) add(due, response time.Duration, answered bool) {
	at := max(due, 0) / t.width
	for at >= maxBlocks {
		t.double()
		at /= 2
	}
	b := &t.blocks[at]
	if !answered {
		b.lost++
		return
	}
	octave, index := slot(max(response, 0))
	if b.octaves[octave] == nil {
		b.octaves[octave] = new([perOctave]uint32)
	}
	b.octaves[octave][index]++
}

// double makes two blocks one.
func (t *timeline) double() {
	t.width *= 2
	for i := range maxBlocks {
		from := t.blocks[i]
		t.blocks[i] = block{}
		if i%2 == 0 {
			t.blocks[i/2] = from
		} else {
			t.blocks[i/2].take(&from)
		}
	}
}

// take adds what another block has, which is not used any more.
func (b *block) take(from *block) {
	b.lost += from.lost
	for i, counts := range from.octaves {
		switch {
		case counts == nil:
		case b.octaves[i] == nil:
			b.octaves[i] = counts
		default:
			for j, n := range counts {
				b.octaves[i][j] += n
			}
		}
	}
}

// merge adds another timeline, whose width is this one's by a power of two.
func (t *timeline) merge(from *timeline) error {
	for t.width < from.width {
		t.double()
	}
	if t.width%from.width != 0 {
		return fmt.Errorf("record: blocks of %v do not fit into blocks of %v", from.width, t.width)
	}
	factor := int(t.width / from.width)
	for i := range from.blocks {
		copied := from.blocks[i].clone()
		t.blocks[i/factor].take(&copied)
	}
	return nil
}

func (b *block) clone() block {
	c := block{lost: b.lost}
	for i, counts := range b.octaves {
		if counts != nil {
			c.octaves[i] = new(*counts)
		}
	}
	return c
}

// series returns the blocks up to the last one that has a request.
func (t *timeline) series() stats.Series {
	s := stats.Series{Width: t.width}
	used := 0
	for i := range t.blocks {
		var b stats.Block
		b.Lost = t.blocks[i].lost
		for octave, counts := range t.blocks[i].octaves {
			if counts == nil {
				continue
			}
			for index, n := range counts {
				if n > 0 {
					b.Buckets = append(b.Buckets, stats.Bucket{Value: edge(octave, index), Count: int64(n)})
				}
			}
		}
		s.Blocks = append(s.Blocks, b)
		if b.Lost > 0 || len(b.Buckets) > 0 {
			used = len(s.Blocks)
		}
	}
	s.Blocks = s.Blocks[:used]
	return s
}
