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

// NotDecoded is the refusal of bytes that are not the message they should be, on a server's side.
func NotDecoded(request proto.Message, err error) *transports.Fault {
	return transports.Malformed("", "not a %s: %v", request.ProtoReflect().Descriptor().FullName(), err)
}
