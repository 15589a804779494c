//go:build !linux

package telemetry

import pb "tailgate/proto/gen/orderentry/v1"

func readUsage(*pb.ProcessCounters) {}
