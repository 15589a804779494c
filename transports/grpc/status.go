package grpc

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/rpccode"
)

// statusOf returns the fault as a status: its message, an ErrorDetail, and a google.rpc.RetryInfo where a next try has a time,
// so that libraries that know only the latter wait as well.
func statusOf(fault *transports.Fault) *status.Status {
	detail := fault.Detail()
	plain := status.New(rpccode.Of(fault.Reason), detail.GetMessage())
	var full *status.Status
	var err error
	if detail.GetRetryAfterMs() > 0 {
		wait := durationpb.New(time.Duration(detail.GetRetryAfterMs()) * time.Millisecond)
		full, err = plain.WithDetails(detail, &errdetails.RetryInfo{RetryDelay: wait})
	} else {
		full, err = plain.WithDetails(detail)
	}
	if err != nil { // only a text that is not UTF-8 can do this; the code still tells
		return plain
	}
	return full
}

// detailOf finds the ErrorDetail among the status details, nil where there is none.
func detailOf(s *status.Status) *pb.ErrorDetail {
	for _, detail := range s.Details() {
		if d, ok := detail.(*pb.ErrorDetail); ok {
			return d
		}
	}
	return nil
}
