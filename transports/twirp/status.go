package twirp

import (
	"net/http"
	"strconv"

	"github.com/twitchtv/twirp"
	"google.golang.org/grpc/codes"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/rpccode"
)

// names are Twirp's for the codes that a fault can have.
var names = map[codes.Code]twirp.ErrorCode{
	codes.InvalidArgument: twirp.InvalidArgument, codes.Unauthenticated: twirp.Unauthenticated, codes.PermissionDenied: twirp.PermissionDenied,
	codes.NotFound: twirp.NotFound, codes.ResourceExhausted: twirp.ResourceExhausted, codes.Unavailable: twirp.Unavailable,
	codes.Unimplemented: twirp.Unimplemented, codes.DeadlineExceeded: twirp.DeadlineExceeded, codes.Internal: twirp.Internal, codes.Aborted: twirp.Aborted,
}

// The members of the contract's ErrorDetail in an error's meta, which in Twirp are texts.
const (
	metaReason     = "reason"
	metaOutcome    = "outcome"
	metaField      = "field"
	metaRetryAfter = "retry_after_ms"
)

// errorOf returns what a request ends with.
func errorOf(err error) twirp.Error {
	fault := transports.AsFault(err)
	detail := fault.Detail()
	e := twirp.NewError(names[rpccode.Of(fault.Reason)], detail.GetMessage()).
		WithMeta(metaReason, detail.GetReason().String()).WithMeta(metaOutcome, detail.GetOutcome().String())
	if detail.GetField() != "" {
		e = e.WithMeta(metaField, detail.GetField())
	}
	if ms := detail.GetRetryAfterMs(); ms > 0 {
		e = e.WithMeta(metaRetryAfter, strconv.FormatUint(uint64(ms), 10))
	}
	return e
}

// detailOf is the inverse of errorOf, nil for an error that no gateway has written.
func detailOf(e twirp.Error) *transports.Fault {
	reason, ok := pb.Reason_value[e.Meta(metaReason)]
	if !ok {
		return nil
	}
	ms, _ := strconv.ParseUint(e.Meta(metaRetryAfter), 10, 32) // 0 where there is none
	return transports.FaultFromDetail(&pb.ErrorDetail{
		Reason: pb.Reason(reason), Outcome: pb.Outcome(pb.Outcome_value[e.Meta(metaOutcome)]),
		Field: e.Meta(metaField), Message: e.Msg(), RetryAfterMs: uint32(ms),
	})
}

// write answers with an error, in JSON as Twirp has it for both encodings.
func write(w http.ResponseWriter, err error) {
	twirp.WriteError(w, errorOf(err)) //nolint:errcheck // a peer that left needs no answer
}
