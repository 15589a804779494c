package record

import (
	"errors"
	"math"
	"math/bits"
	"sync"
	"time"

	"tailgate/loadtest/stats"
)

// A timeline keeps response times by the time at which their requests were due, in at most maxBlocks blocks of equal width; when they are used up, the
// width doubles. So it takes the same memory however long a cell is: all of it is there from the beginning, and no page of it is met for the first time during a
// measurement. Values are kept to 1/256 (0.4 %), which intervals and trends do not need better; figures come from the histograms.
const (
	maxBlocks = 128
	mantissa  = 8 // bits of a value that are kept
	perOctave = 1 << mantissa
	octaves   = 35 // of values to MaxValue, an hour in nanoseconds: 42 bits less the mantissa's, and the first one
	slots     = octaves * perOctave

	// leastWidth is a block's width where nobody knows how long the cell will be.
	leastWidth = time.Millisecond

	// recent is how many blocks a shard keeps to itself before it hands them over to the recorder's timeline. Requests end about in the order in which they were
	// due, so few are enough; a late one brings an old block back, which is correct and some microseconds slower.
	recent = 4

	// pageWords are the counts that share a page of memory.
	pageWords = 4096 / 4
)

// block counts the values of a stretch of time.
type block struct {
	lost  int64
	used  uint64   // bit by octave: those that hold anything
	slots []uint32 // counts by value
}

// slot is where a value is counted. One out of range, which fails the whole recording elsewhere, is counted at the end that it is beyond.
func slot(d time.Duration) (octave, index int) {
	v := uint64(min(max(d, 0), MaxValue))
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

// errFull: a count would not fit any more. It takes six million requests a second for a day, all of one value.
var errFull = errors.New("record: a block of time has met more than 4294967295 requests of one response time")

// take adds what another block has.
func (b *block) take(from *block) error {
	b.lost += from.lost
	b.used |= from.used
	for used := from.used; used != 0; used &= used - 1 {
		at := bits.TrailingZeros64(used) * perOctave
		to, counts := b.slots[at:at+perOctave], from.slots[at:at+perOctave]
		for i, n := range counts {
			if n > math.MaxUint32-to[i] {
				return errFull
			}
			to[i] += n
		}
	}
	return nil
}

func (b *block) empty() bool { return b.used == 0 && b.lost == 0 }

// clear makes it empty again.
func (b *block) clear() {
	for ; b.used != 0; b.used &= b.used - 1 {
		at := bits.TrailingZeros64(b.used) * perOctave
		clear(b.slots[at : at+perOctave])
	}
	b.lost = 0
}

// newBlocks makes blocks whose memory is there, and not only promised.
func newBlocks(blocks []block) {
	all := make([]uint32, len(blocks)*slots)
	for i := 0; i < len(all); i += pageWords {
		all[i] = 0
	}
	for i := range blocks {
		blocks[i].slots = all[i*slots : (i+1)*slots : (i+1)*slots]
	}
}

// timeline is a recorder's, shared by its shards. Its lock is taken while a shard's is held, never the other way round.
type timeline struct {
	mu     sync.Mutex
	width  time.Duration
	blocks [maxBlocks]block
}

func newTimeline(width time.Duration) *timeline {
	t := &timeline{width: width}
	newBlocks(t.blocks[:])
	return t
}

// take adds a block that begins at a time, and returns the width that blocks have since then. The block's own width is the timeline's, or an earlier one of it.
func (t *timeline) take(begin time.Duration, from *block) (time.Duration, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for begin/t.width >= maxBlocks {
		if err := t.double(); err != nil {
			return t.width, err
		}
	}
	return t.width, t.blocks[begin/t.width].take(from)
}

// double makes two blocks one. The lock is held.
func (t *timeline) double() error {
	t.width *= 2
	for i := 1; i < maxBlocks; i++ {
		from := &t.blocks[i]
		if err := t.blocks[i/2].take(from); err != nil {
			return err
		}
		from.clear()
	}
	return nil
}

// copy returns another with the same content.
func (t *timeline) copy() *timeline {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := newTimeline(t.width)
	for i := range t.blocks {
		_ = c.blocks[i].take(&t.blocks[i]) // an empty one has room
	}
	return c
}

// series returns the blocks up to the last one that has a request.
func (t *timeline) series() stats.Series {
	s := stats.Series{Width: t.width}
	length := 0
	for i := range t.blocks {
		from := &t.blocks[i]
		b := stats.Block{Lost: from.lost}
		for used := from.used; used != 0; used &= used - 1 {
			octave := bits.TrailingZeros64(used)
			for index, n := range from.slots[octave*perOctave : (octave+1)*perOctave] {
				if n > 0 {
					b.Buckets = append(b.Buckets, stats.Bucket{Value: edge(octave, index), Count: int64(n)})
				}
			}
		}
		s.Blocks = append(s.Blocks, b)
		if b.Lost > 0 || len(b.Buckets) > 0 {
			length = len(s.Blocks)
		}
	}
	s.Blocks = s.Blocks[:length]
	return s
}

// nowhere is the beginning of a block that has none.
const nowhere = -1 << 62

// window is a shard's own, recent part of the timeline.
type window struct {
	width  time.Duration
	begins [recent]time.Duration // of each block, a multiple of the width
	blocks [recent]block
	latest int // the one that was used last, which most requests belong to: that saves them a division
}

func newWindow(width time.Duration) *window {
	w := &window{width: width}
	newBlocks(w.blocks[:])
	return w
}

// add counts a request that was due at a time of the interval. A time before it counts as its beginning.
func (w *window) add(to *timeline, due, response time.Duration, answered bool) error {
	due = max(due, 0)
	var b *block
	if since := due - w.begins[w.latest]; since >= 0 && since < w.width {
		b = &w.blocks[w.latest]
	}
	for b == nil {
		begin := due - due%w.width
		switch i := due / w.width % recent; {
		case w.begins[i] == begin:
			b, w.latest = &w.blocks[i], int(i)
		case w.blocks[i].empty():
			w.begins[i] = begin
		default:
			// It may make the blocks wider, so all is looked at again.
			if err := w.handOver(to, int(i)); err != nil {
				return err
			}
		}
	}
	if !answered {
		b.lost++
		return nil
	}
	octave, index := slot(response)
	b.used |= 1 << octave
	n := &b.slots[octave*perOctave+index]
	if *n == math.MaxUint32 {
		return errFull
	}
	*n++
	return nil
}

// handOver gives a block to the timeline, and when blocks have become wider there, the others too.
func (w *window) handOver(to *timeline, i int) error {
	width, err := to.take(w.begins[i], &w.blocks[i])
	w.blocks[i].clear()
	if err != nil || width == w.width {
		return err
	}
	err = w.flush(to)
	for i := range w.blocks {
		w.blocks[i].clear()
		w.begins[i] = nowhere // what it was need not be a multiple of the new width
	}
	w.width = width // where it has become wider still, the next block that is handed over will tell
	return err
}

// flush adds what the shard holds to a timeline, and keeps it.
func (w *window) flush(to *timeline) error {
	for i := range w.blocks {
		if w.blocks[i].empty() {
			continue
		}
		if _, err := to.take(w.begins[i], &w.blocks[i]); err != nil {
			return err
		}
	}
	return nil
}
