// Package outcome says, on a client's side, what is known of a request that got no answer. The transports share it, so that the
// same loss reads the same everywhere. It must never guess: what may have been sent is UNKNOWN.
package outcome

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Closed is the answer of a client that was closed before the call.
func Closed() *transports.Fault {
	return transports.Refuse(pb.Reason_REASON_CONNECTION_LOST, "this client is closed")
}

// Over is the answer to a call that comes when the gateway has ended the session, or the connection, with why: the same reason, and nothing of
// the call was entered. The field stays behind, since it is one of another request.
func Over(why *transports.Fault) *transports.Fault {
	return &transports.Fault{Reason: why.Reason, Outcome: pb.Outcome_OUTCOME_NOT_PROCESSED, RetryAfter: why.RetryAfter, Message: why.Message, Err: why.Err}
}

// NotSent is the fault of a request of which no byte left. The reason is DEADLINE_EXCEEDED when ctx is over, else CONNECTION_LOST.
func NotSent(ctx context.Context, cause error) *transports.Fault {
	fault := transports.Refuse(pb.Reason_REASON_CONNECTION_LOST, "there is no connection to the gateway; nothing was sent")
	if ctx.Err() != nil {
		fault = transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "the request was over before it was sent")
	}
	fault.Err = withContext(ctx, cause)
	return fault
}

// Unanswered is the fault of a request that was sent, in part at least, and whose answer did not come. The reason is
// DEADLINE_EXCEEDED when ctx is over, else CONNECTION_LOST.
func Unanswered(ctx context.Context, cause error) *transports.Fault {
	if ctx.Err() != nil {
		return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, withContext(ctx, cause), "the deadline passed before the answer came; the same id again tells")
	}
	return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, cause, "the connection was closed before the answer came; the same id again tells")
}

// withContext is the cause in such a form that errors.Is finds the context's error, whatever the library made of it.
func withContext(ctx context.Context, cause error) error {
	if over := ctx.Err(); over != nil && !errors.Is(cause, over) {
		return fmt.Errorf("%w (%w)", over, cause)
	}
	return cause
}

// TooLarge is the refusal of a request of size bytes in protobuf where limit are taken, on either side.
func TooLarge(size, limit int) *transports.Fault {
	return transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the request has %d bytes, at most %d are taken", size, limit)
}

// NoEvents is how a session ends, on a server's side, whose Logon took effect and whose events are refused with err. The client must not
// take it for a refused Logon: another connection may have lost the session to it.
func NoEvents(err error) *transports.Fault {
	fault := *transports.AsFault(err)
	fault.Outcome, fault.Final = pb.Outcome_OUTCOME_UNKNOWN, true
	return &fault
}

// NotDecoded is the refusal of bytes that are not the message they should be, on a server's side.
func NotDecoded(request proto.Message, err error) *transports.Fault {
	return transports.Malformed("", "not a %s: %v", request.ProtoReflect().Descriptor().FullName(), err)
}
