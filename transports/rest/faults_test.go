package rest_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
)

// statuses is the contract's table, written out once more: the one in the package must not change by accident.
var statuses = map[pb.Reason]int{
	pb.Reason_REASON_MALFORMED: 400, pb.Reason_REASON_UNAUTHENTICATED: 401, pb.Reason_REASON_PERMISSION_DENIED: 403,
	pb.Reason_REASON_NOT_FOUND: 404, pb.Reason_REASON_TOO_LARGE: 413, pb.Reason_REASON_THROTTLED: 429,
	pb.Reason_REASON_DRAINING: 503, pb.Reason_REASON_NO_CREDIT: 503, pb.Reason_REASON_JOURNAL_UNAVAILABLE: 503,
	pb.Reason_REASON_OVERLOADED: 503, pb.Reason_REASON_UNIMPLEMENTED: 501, pb.Reason_REASON_DEADLINE_EXCEEDED: 504,
	pb.Reason_REASON_INTERNAL: 500, pb.Reason_REASON_ID_TABLE_FULL: 503, pb.Reason_REASON_CONNECTION_LOST: 502,
	pb.Reason_REASON_SESSION_REPLACED: 409, pb.Reason_REASON_EVENT_STORE_FULL: 503, pb.Reason_REASON_SLOW_READER: 503,
}

func TestEveryReasonHasItsStatusAndComesBackWhole(t *testing.T) {
	var fault *transports.Fault
	gateway := &fake.Gateway{}
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		if x.Operation == transports.SubmitOrder {
			return fault
		}
		gateway.Answer(x)
		return nil
	}
	server := listen(t, gateway, transports.ListenConfig{})
	client := dial(t, server, transports.DialConfig{})
	for _, fault = range fake.Faults() {
		t.Run(fault.Reason.String(), func(t *testing.T) {
			a := ask(t, server, "POST", "/v1/orders", order)
			want, ok := statuses[fault.Reason]
			if !ok {
				t.Fatal("the contract has a reason that this table does not")
			}
			if a.StatusCode != want || a.body["title"] != http.StatusText(want) || a.body["reason"] != fault.Reason.String() {
				t.Errorf("status %d, %s", a.StatusCode, a.raw)
			}
			retry := a.Header.Get("Retry-After")
			if (want == 429 || want == 503) != (retry != "") {
				t.Errorf("status %d with Retry-After %q", want, retry)
			}
			if fault.RetryAfter > 0 && retry != "" && retry != "2" { // 1.5 s in whole seconds
				t.Errorf("Retry-After is %q", retry)
			}
			err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil)))
			got, ok := errors.AsType[*transports.Fault](err)
			if !ok || *got != *fault {
				t.Errorf("the client has %+v, want %+v", got, fault)
			}
		})
	}
}

func TestOtherErrorsAreInternalAndInDoubt(t *testing.T) {
	for name, broken := range map[string]error{
		"business reason in a fault": transports.Refuse(pb.Reason_REASON_UNKNOWN_SYMBOL, "not a session reason"),
		"no fault":                   errors.New("something"),
	} {
		gateway := &fake.Gateway{OnHandle: func(context.Context, *transports.Exchange) error { return broken }}
		if a := ask(t, listen(t, gateway, transports.ListenConfig{}), "POST", "/v1/orders", order); a.StatusCode != 500 {
			t.Errorf("%s: status %d", name, a.StatusCode)
		}
	}
}

func TestBusinessRefusalIsAnAnswer(t *testing.T) {
	gateway := &fake.Gateway{OnHandle: func(_ context.Context, x *transports.Exchange) error {
		r := x.Response.(*pb.SubmitOrderResponse)
		r.Status, r.Reason = pb.OrderStatus_ORDER_STATUS_REJECTED, pb.Reason_REASON_PRICE_COLLAR
		return nil
	}}
	a := ask(t, listen(t, gateway, transports.ListenConfig{}), "POST", "/v1/orders", order)
	if a.StatusCode != 200 || a.body["status"] != "ORDER_STATUS_REJECTED" || a.body["reason"] != "REASON_PRICE_COLLAR" {
		t.Errorf("status %d, %s", a.StatusCode, a.raw)
	}
}

func TestPanicCostsOneRequest(t *testing.T) {
	gateway := &fake.Gateway{}
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		if q, ok := x.Request.(*pb.SubmitOrderRequest); ok && q.GetClientOrderId() == "bad" {
			panic("as told")
		}
		gateway.Answer(x)
		return nil
	}
	client := dial(t, listen(t, gateway, transports.ListenConfig{}), transports.DialConfig{})
	fault, ok := errors.AsType[*transports.Fault](client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("bad", nil))))
	if !ok || fault.Reason != pb.Reason_REASON_INTERNAL || fault.Outcome != pb.Outcome_OUTCOME_UNKNOWN {
		t.Errorf("fault is %+v, want INTERNAL, UNKNOWN", fault)
	}
	if err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("good", nil))); err != nil {
		t.Errorf("the next request: %v", err)
	}
	if open := gateway.Sessions(); open != 0 {
		t.Errorf("%d sessions are still open", open)
	}
}

func TestFailedCommitIsInDoubt(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	client := dial(t, server, transports.DialConfig{})
	gateway.OnCommit = func(release func(error)) { release(errors.New("disk full")) }
	fault, ok := errors.AsType[*transports.Fault](client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))))
	if !ok || fault.Reason != pb.Reason_REASON_JOURNAL_UNAVAILABLE || fault.Outcome != pb.Outcome_OUTCOME_UNKNOWN {
		t.Errorf("fault is %+v", fault)
	}
}

// TestLeavingEndsTheGatewaysContext shows that a peer that hangs up is not waited for.
func TestLeavingEndsTheGatewaysContext(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	client := dial(t, server, transports.DialConfig{})
	entered, ended := make(chan struct{}), make(chan struct{})
	gateway.OnHandle = func(ctx context.Context, _ *transports.Exchange) error {
		close(entered)
		select {
		case <-ctx.Done():
			close(ended)
		case <-time.After(patience):
		}
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	fault, ok := errors.AsType[*transports.Fault](client.Do(ctx, fake.Call(transports.SubmitOrder, fake.Order("o", nil))))
	if !ok || fault.Reason != pb.Reason_REASON_DEADLINE_EXCEEDED || fault.Outcome != pb.Outcome_OUTCOME_UNKNOWN {
		t.Errorf("fault is %+v", fault)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the gateway's context did not end")
	}
}
