package main

import (
	"fmt"
	"time"

	"tailgate/loadtest/pacer"
	"tailgate/loadtest/record"
	"tailgate/loadtest/report"
)

// Sleeps of a calibration: as many as a p99 needs, at the pace of 2,000 requests a second.
const (
	sleeps      = 1000
	sleepLength = 500 * time.Microsecond
)

// checkCalibrate refuses what has no meaning without a gateway.
func (o *options) checkCalibrate() error {
	if o.command != "calibrate" {
		return nil
	}
	for _, name := range []string{"target", "slo", "operation", "cancel-share", "replace-share", "size-mix", "sync", "accounts", "rate"} {
		if o.given[name] {
			return fmt.Errorf("--%s: not with calibrate, which measures transports and an echo without a gateway, in a closed loop", name)
		}
	}
	return nil
}

// lateness measures by how much a sleep of the pacer ends too late when there is nothing else to do: the floor of an open loop's lag.
func lateness() (report.Latency, error) {
	sleeper, err := pacer.NewSleeper()
	if err != nil {
		return report.Latency{}, err
	}
	r := record.New(1, 1)
	for range sleeps {
		begun := time.Now()
		sleeper.Sleep(sleepLength)
		r.Client(0).Answered(record.OK, record.Times{Response: max(time.Since(begun)-sleepLength, 0)}, "")
	}
	r.Client(0).Flush()
	result, err := r.Result()
	if err != nil {
		return report.Latency{}, err
	}
	return report.NewLatency(result.Response), sleeper.Close()
}
