package export

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tailgate/loadtest/record"
	"tailgate/loadtest/report"
	"tailgate/loadtest/stats"
)

const (
	// ticksPerHalf is how many lines a percentile file has for each halving of what lies beyond: HdrHistogram's own default.
	ticksPerHalf = 5
	// nsPerUS is the scale of percentile files: values are microseconds, as everywhere.
	nsPerUS = 1000
)

// FileName is the name of a cell's files without their ending: what was measured, in letters that every file system takes.
func FileName(c report.Cell) string {
	text := strings.ReplaceAll(fmt.Sprintf("%s-%s-x%d", c.Name(), strings.ReplaceAll(c.SizeName(), " ", ""), c.Clients), "<=", "cap")
	if c.OfferedRate != nil {
		text += fmt.Sprintf("-%gps-%s", *c.OfferedRate, c.Arrivals)
	}
	text += fmt.Sprintf("-run%d", c.Run)
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r == '+' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, text)
}

// Histograms writes NAME.hgrm, the percentiles of the response time, and NAME.hlog, the response times by when their requests were due, into the folder.
// HdrHistogram's plotter and log tools read them. Lost requests stand at one hour, the greatest value.
func Histograms(folder string, c report.Cell, result record.Result) error {
	name := filepath.Join(folder, FileName(c))
	percentiles, err := Percentiles(result.Response)
	if err != nil {
		return err
	}
	log, err := Log(c, result.Series)
	if err != nil {
		return err
	}
	return errors.Join(report.WriteFile(name+".hgrm", percentiles), report.WriteFile(name+".hlog", log))
}

// Percentiles is the text of a percentile file, in microseconds.
func Percentiles(d stats.Distribution) ([]byte, error) {
	h, err := record.Histogram(d)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if _, err := h.PercentilesPrint(&out, ticksPerHalf, nsPerUS); err != nil {
		return nil, fmt.Errorf("export: percentiles: %w", err)
	}
	return out.Bytes(), nil
}

// Log is the text of a log file: one histogram for each block of time, in nanoseconds, tagged with the cell's name.
func Log(c report.Cell, series stats.Series) ([]byte, error) {
	var out bytes.Buffer
	w := hdrhistogram.NewHistogramLogWriter(&out)
	start := c.Started.Add(time.Duration(c.Warmup * float64(time.Second)))
	base := start.Truncate(time.Second).UnixMilli() // the file keeps whole seconds
	w.SetBaseTime(base)
	err := errors.Join(
		w.OutputComment("[tailgate loadtest: response time of "+c.Key()+", values in ns, Interval_Max in ms]"),
		w.OutputLogFormatVersion(), w.OutputBaseTime(base), w.OutputStartTime(base), w.OutputLegend(),
	)
	options := hdrhistogram.DefaultHistogramLogOptions()
	for i, b := range series.Blocks {
		h, blockErr := record.BlockHistogram(b)
		if blockErr != nil {
			return nil, blockErr
		}
		at := start.Add(time.Duration(i) * series.Width)
		h.SetStartTimeMs(at.UnixMilli())
		h.SetEndTimeMs(at.Add(series.Width).UnixMilli())
		err = errors.Join(err, w.OutputIntervalHistogramWithLogOptions(h, options))
	}
	if err != nil {
		return nil, fmt.Errorf("export: log: %w", err)
	}
	return out.Bytes(), nil
}
