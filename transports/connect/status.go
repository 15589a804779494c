package connect

import (
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/rpccode"
)

// errorOf returns what a call ends with as the library writes it in each protocol: code, message, an ErrorDetail, and a google.rpc.RetryInfo
// where a next try has a time, so that libraries that know only the latter wait as well.
func errorOf(err error) *connect.Error {
	fault := transports.AsFault(err)
	detail := fault.Detail()
	e := connect.NewError(connect.Code(rpccode.Of(fault.Reason)), errors.New(detail.GetMessage()))
	details := []proto.Message{detail}
	if detail.GetRetryAfterMs() > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(detail.GetRetryAfterMs()) * time.Millisecond)})
	}
	for _, m := range details {
		if d, err := connect.NewErrorDetail(m); err == nil { // only a text that is not UTF-8 can fail here; the code still tells
			e.AddDetail(d)
		}
	}
	return e
}

// detailOf finds the ErrorDetail among the error's details, nil where there is none.
func detailOf(e *connect.Error) *pb.ErrorDetail {
	for _, d := range e.Details() {
		if m, err := d.Value(); err == nil {
			if detail, ok := m.(*pb.ErrorDetail); ok {
				return detail
			}
		}
	}
	return nil
}
