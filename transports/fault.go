package transports

import (
	"errors"
	"fmt"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
)

// Fault is how a request ends without an answer: a refusal by the session layer, or a failure. It carries the same on every
// transport. It is immutable once made, so that one value may serve many requests.
type Fault struct {
	Reason     pb.Reason     // session layer, 1 to 99
	Outcome    pb.Outcome    // NOT_PROCESSED, or UNKNOWN where the request may have been entered
	RetryAfter time.Duration // when a next try makes sense, rounded up to milliseconds on the wire; 0 = not said
	Field      string        // path of the field that is wrong, or empty
	Message    string        // what is wrong and what to do, at most MaxFaultMessage bytes
	Err        error         // cause, for logs and errors.Is; never sent

	// Final says that the session is over with this fault: a transport whose connection is the session closes it once the fault has
	// been said. It is for the server's side and not sent.
	Final bool
}

// MaxFaultMessage bounds the message and the field of a fault on the wire, in bytes each.
const MaxFaultMessage = 1024

// Refuse returns a fault whose request changed nothing.
func Refuse(reason pb.Reason, format string, args ...any) *Fault {
	return &Fault{Reason: reason, Outcome: pb.Outcome_OUTCOME_NOT_PROCESSED, Message: fmt.Sprintf(format, args...)}
}

// Malformed returns a refusal that names the field.
func Malformed(field, format string, args ...any) *Fault {
	f := Refuse(pb.Reason_REASON_MALFORMED, format, args...)
	f.Field = field
	return f
}

// InDoubt returns a fault whose request may have been entered; sending the same id again is safe and tells.
func InDoubt(reason pb.Reason, cause error, format string, args ...any) *Fault {
	return &Fault{Reason: reason, Outcome: pb.Outcome_OUTCOME_UNKNOWN, Message: fmt.Sprintf(format, args...), Err: cause}
}

// Error names the reason, the field, the message and the cause.
func (f *Fault) Error() string {
	text := f.Reason.String()
	if f.Field != "" {
		text += ": " + f.Field
	}
	if f.Message != "" {
		text += ": " + f.Message
	}
	if f.Err != nil {
		text += ": " + f.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// AsFault finds the fault in err's chain; any other error becomes an INTERNAL one with outcome UNKNOWN, so that a
// transport always has something true to say.
func AsFault(err error) *Fault {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	return InDoubt(pb.Reason_REASON_INTERNAL, err, "internal error; the request may have been entered, the same id again tells")
}

// Detail returns the fault as the contract's message, texts cut to MaxFaultMessage bytes.
func (f *Fault) Detail() *pb.ErrorDetail {
	return &pb.ErrorDetail{
		Reason: f.Reason, Outcome: f.Outcome, Field: cut(f.Field), Message: cut(f.Message),
		RetryAfterMs: uint32(min((f.RetryAfter+time.Millisecond-1)/time.Millisecond, 1<<31)),
	}
}

// FaultFromDetail is the inverse of Detail, for clients.
func FaultFromDetail(d *pb.ErrorDetail) *Fault {
	return &Fault{
		Reason: d.GetReason(), Outcome: d.GetOutcome(), Field: d.GetField(), Message: d.GetMessage(),
		RetryAfter: time.Duration(d.GetRetryAfterMs()) * time.Millisecond,
	}
}

// cut shortens s to MaxFaultMessage bytes without splitting a UTF-8 sequence.
func cut(s string) string {
	if len(s) <= MaxFaultMessage {
		return s
	}
	end := MaxFaultMessage
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end]
}
