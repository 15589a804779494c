// Package rpccode is the one table of status codes: with which of gRPC's codes a request ends, for every reason of the session layer. gRPC,
// Connect and Twirp share the codes, and so the table. It must never know how a status is written.
package rpccode

import (
	"google.golang.org/grpc/codes"

	pb "tailgate/proto/gen/orderentry/v1"
)

var table = map[pb.Reason]codes.Code{
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

// Of returns the code for a reason of the session layer; any other reason has no place in a fault and gives Internal. Business refusals are
// answers (OK).
func Of(reason pb.Reason) codes.Code {
	if code, ok := table[reason]; ok {
		return code
	}
	return codes.Internal
}
