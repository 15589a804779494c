package grpc

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// reasonCodes says with which gRPC status a request ends, for every reason of the session layer. Business refusals are answers (OK).
var reasonCodes = map[pb.Reason]codes.Code{
	pb.Reason_REASON_MALFORMED:           codes.InvalidArgument,
	pb.Reason_REASON_UNAUTHENTICATED:     codes.Unauthenticated,
	pb.Reason_REASON_PERMISSION_DENIED:   codes.PermissionDenied,
	pb.Reason_REASON_NOT_FOUND:           codes.NotFound,
	pb.Reason_REASON_TOO_LARGE:           codes.ResourceExhausted, // as grpc itself answers an oversize message
	pb.Reason_REASON_THROTTLED:           codes.ResourceExhausted,
	pb.Reason_REASON_DRAINING:            codes.Unavailable,
	pb.Reason_REASON_NO_CREDIT:           codes.Unavailable,
	pb.Reason_REASON_JOURNAL_UNAVAILABLE: codes.Unavailable,
	pb.Reason_REASON_OVERLOADED:          codes.Unavailable,
	pb.Reason_REASON_UNIMPLEMENTED:       codes.Unimplemented,
	pb.Reason_REASON_DEADLINE_EXCEEDED:   codes.DeadlineExceeded,
	pb.Reason_REASON_INTERNAL:            codes.Internal,
	pb.Reason_REASON_ID_TABLE_FULL:       codes.Unavailable,
	pb.Reason_REASON_CONNECTION_LOST:     codes.Unavailable, // said by clients; listed so that no session reason is without a code
	pb.Reason_REASON_SESSION_REPLACED:    codes.Aborted,
	pb.Reason_REASON_EVENT_STORE_FULL:    codes.Unavailable,
	pb.Reason_REASON_SLOW_READER:         codes.Unavailable,
}

// CodeOf returns the status code for a reason of the session layer; any other reason has no place in a fault and gives Internal.
func CodeOf(reason pb.Reason) codes.Code {
	if code, ok := reasonCodes[reason]; ok {
		return code
	}
	return codes.Internal
}

// statusOf returns the fault as a status: its message, an ErrorDetail, and a google.rpc.RetryInfo where a next try has a time,
// so that libraries that know only the latter wait as well.
func statusOf(fault *transports.Fault) *status.Status {
	detail := fault.Detail()
	plain := status.New(CodeOf(fault.Reason), detail.GetMessage())
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
