package record

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tailgate/loadtest/stats"
)

// Histogram makes a histogram of a distribution, in nanoseconds, with a recorder's own resolution. Requests without an answer, which are infinitely late, stand at
// [MaxValue], the greatest value that there is.
func Histogram(d stats.Distribution) (*hdrhistogram.Histogram, error) {
	return histogram(d.Buckets(), d.Lost())
}

// BlockHistogram makes one of a block of time.
func BlockHistogram(b stats.Block) (*hdrhistogram.Histogram, error) {
	return histogram(b.Buckets, b.Lost)
}

func histogram(buckets []stats.Bucket, lost int64) (*hdrhistogram.Histogram, error) {
	h := hdrhistogram.New(lowestDiscernible, int64(MaxValue), significantFigures)
	for _, b := range buckets {
		if err := h.RecordValues(min(int64(b.Value), int64(MaxValue)), b.Count); err != nil {
			return nil, fmt.Errorf("record: histogram: %w", err)
		}
	}
	if lost > 0 {
		if err := h.RecordValues(int64(MaxValue), lost); err != nil {
			return nil, fmt.Errorf("record: histogram: %w", err)
		}
	}
	return h, nil
}
