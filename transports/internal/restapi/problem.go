package restapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// reasonStatus says with which status a request ends, for every reason of the session layer. Business refusals are answers (200).
var reasonStatus = map[pb.Reason]int{
	pb.Reason_REASON_MALFORMED:           http.StatusBadRequest,
	pb.Reason_REASON_UNAUTHENTICATED:     http.StatusUnauthorized,
	pb.Reason_REASON_PERMISSION_DENIED:   http.StatusForbidden,
	pb.Reason_REASON_NOT_FOUND:           http.StatusNotFound,
	pb.Reason_REASON_TOO_LARGE:           http.StatusRequestEntityTooLarge,
	pb.Reason_REASON_THROTTLED:           http.StatusTooManyRequests,
	pb.Reason_REASON_DRAINING:            http.StatusServiceUnavailable,
	pb.Reason_REASON_NO_CREDIT:           http.StatusServiceUnavailable,
	pb.Reason_REASON_JOURNAL_UNAVAILABLE: http.StatusServiceUnavailable,
	pb.Reason_REASON_OVERLOADED:          http.StatusServiceUnavailable,
	pb.Reason_REASON_UNIMPLEMENTED:       http.StatusNotImplemented,
	pb.Reason_REASON_DEADLINE_EXCEEDED:   http.StatusGatewayTimeout,
	pb.Reason_REASON_INTERNAL:            http.StatusInternalServerError,
	pb.Reason_REASON_ID_TABLE_FULL:       http.StatusServiceUnavailable,
	pb.Reason_REASON_CONNECTION_LOST:     http.StatusBadGateway, // said by clients; listed so that no session reason is without a status
	pb.Reason_REASON_SESSION_REPLACED:    http.StatusConflict,   // ends streams; the same
	pb.Reason_REASON_EVENT_STORE_FULL:    http.StatusServiceUnavailable,
	pb.Reason_REASON_SLOW_READER:         http.StatusServiceUnavailable,
}

// StatusOf returns the HTTP status for a reason of the session layer; any other reason has no place in a fault and gives 500.
func StatusOf(reason pb.Reason) int {
	if status, ok := reasonStatus[reason]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// refusal is a fault of HTTP itself, with a status of its own where the contract's reasons are coarser (404, 405, 406, 408, 415).
type refusal struct {
	status int
	allow  []string // methods, for 405
	fault  *transports.Fault
}

// Error implements error.
func (r *refusal) Error() string { return r.fault.Error() }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, fault: transports.Malformed("", format, args...)}
}

// Problem is the body of every error: RFC 9457 with the contract's ErrorDetail as extension members. Its type is the default,
// "about:blank": status and title say what HTTP knows, reason is what a program should look at.
type Problem struct {
	Type         string `json:"type"`
	Title        string `json:"title"`
	Status       int    `json:"status"`
	Detail       string `json:"detail"`
	Reason       string `json:"reason"`
	Outcome      string `json:"outcome"`
	RetryAfterMs uint32 `json:"retry_after_ms,omitempty"`
	Field        string `json:"field,omitempty"`
}

// refuse makes the reply that says err. The connection is closed where it is of no use any more.
func (r *Reply) refuse(err error) {
	var fault *transports.Fault
	if own, ok := errors.AsType[*refusal](err); ok {
		r.Status, fault = own.status, own.fault
		r.Allow = strings.Join(own.allow, ", ")
	} else {
		fault = transports.AsFault(err)
		r.Status = StatusOf(fault.Reason)
	}
	detail := fault.Detail()
	switch r.Status {
	case http.StatusUnauthorized:
		r.Authenticate = `Bearer realm="tailgate"`
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		// Whole seconds (RFC 9110, section 10.2.3), rounded up; retry_after_ms is exact.
		wait := max(time.Second, time.Duration(detail.GetRetryAfterMs())*time.Millisecond)
		r.RetryAfter = strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10)
	}
	if fault.Final || fault.Reason == pb.Reason_REASON_DRAINING || fault.Reason == pb.Reason_REASON_TOO_LARGE {
		// For a body that is too large, since it would have to be read to its end for the next request; a server that closes lingers,
		// so that the peer can read this.
		r.Close = true
	}
	r.ContentType, r.Body = problemHeader, problemOf(fault, r.Status).encode()
}

// Refuse makes the reply of a server that could not read a request, or that its framework cannot answer: this status, in our words.
func Refuse(reply *Reply, status int, fault *transports.Fault) {
	*reply = Reply{}
	reply.refuse(&refusal{status: status, fault: fault})
}

// problemHeader is the value of a Content-Type. Never changed.
var problemHeader = []string{ProblemType}

// problemOf is the fault as a document, with the status that HTTP gives it.
func problemOf(fault *transports.Fault, status int) *Problem {
	detail := fault.Detail()
	return &Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail.GetMessage(),
		Reason: detail.GetReason().String(), Outcome: detail.GetOutcome().String(),
		RetryAfterMs: detail.GetRetryAfterMs(), Field: detail.GetField(),
	}
}

// encode returns the document in one line.
func (p *Problem) encode() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return body
}

// Fault is the inverse, for clients.
func (p *Problem) Fault() *transports.Fault {
	return transports.FaultFromDetail(&pb.ErrorDetail{
		Reason: pb.Reason(pb.Reason_value[p.Reason]), Outcome: pb.Outcome(pb.Outcome_value[p.Outcome]),
		RetryAfterMs: p.RetryAfterMs, Field: p.Field, Message: p.Detail,
	})
}
