// Package export writes results in the formats of other tools: HdrHistogram's percentile and log files, OpenMetrics, CSV, Markdown. The schema of
// run.json stands beside the code.
//
// It must never measure or judge: every number is one that was recorded or reported.
package export
