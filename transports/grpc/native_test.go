package grpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	ggrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
)

// The server as a stranger's gRPC client sees it: nothing here goes through the package's own client.

func native(t testing.TB, server transports.Server, options ...ggrpc.DialOption) *ggrpc.ClientConn {
	t.Helper()
	conn, err := ggrpc.NewClient("passthrough:///"+server.Addr().String(), append(options, ggrpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// codesOf is the contract's table, written out once more: the one in the package must not change by accident.
var codesOf = map[pb.Reason]codes.Code{
	pb.Reason_REASON_MALFORMED: codes.InvalidArgument, pb.Reason_REASON_UNAUTHENTICATED: codes.Unauthenticated,
	pb.Reason_REASON_PERMISSION_DENIED: codes.PermissionDenied, pb.Reason_REASON_NOT_FOUND: codes.NotFound,
	pb.Reason_REASON_TOO_LARGE: codes.ResourceExhausted, pb.Reason_REASON_THROTTLED: codes.ResourceExhausted,
	pb.Reason_REASON_DRAINING: codes.Unavailable, pb.Reason_REASON_NO_CREDIT: codes.Unavailable,
	pb.Reason_REASON_JOURNAL_UNAVAILABLE: codes.Unavailable, pb.Reason_REASON_OVERLOADED: codes.Unavailable,
	pb.Reason_REASON_UNIMPLEMENTED: codes.Unimplemented, pb.Reason_REASON_DEADLINE_EXCEEDED: codes.DeadlineExceeded,
	pb.Reason_REASON_INTERNAL: codes.Internal, pb.Reason_REASON_ID_TABLE_FULL: codes.Unavailable,
	pb.Reason_REASON_CONNECTION_LOST: codes.Unavailable, pb.Reason_REASON_SESSION_REPLACED: codes.Aborted,
	pb.Reason_REASON_EVENT_STORE_FULL: codes.Unavailable, pb.Reason_REASON_SLOW_READER: codes.Unavailable,
}

func TestEveryReasonHasItsCodeAndComesBackWhole(t *testing.T) {
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
	stub := pb.NewOrderEntryServiceClient(native(t, server))
	client := dial(t, server, transports.DialConfig{})
	for _, fault = range fake.Faults() {
		t.Run(fault.Reason.String(), func(t *testing.T) {
			_, err := stub.SubmitOrder(t.Context(), fake.Order("o", nil))
			s := status.Convert(err)
			want, ok := codesOf[fault.Reason]
			if !ok {
				t.Fatal("the contract has a reason that this table does not")
			}
			if s.Code() != want || s.Message() != fault.Message {
				t.Errorf("status is %v, want %v: %s", s, want, fault.Message)
			}
			var detail *pb.ErrorDetail
			var retry *errdetails.RetryInfo
			for _, d := range s.Details() {
				switch d := d.(type) {
				case *pb.ErrorDetail:
					detail = d
				case *errdetails.RetryInfo:
					retry = d
				}
			}
			if !proto.Equal(detail, fault.Detail()) {
				t.Errorf("detail is %v, want %v", detail, fault.Detail())
			}
			if got := retry.GetRetryDelay().AsDuration(); got != fault.RetryAfter {
				t.Errorf("RetryInfo says %v, want %v", got, fault.RetryAfter)
			}
			err = client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil)))
			got, ok := errors.AsType[*transports.Fault](err)
			if !ok || *got != *fault {
				t.Errorf("the client has %+v, want %+v", got, fault)
			}
		})
	}
}

func TestOtherErrorsAreInternal(t *testing.T) {
	for name, broken := range map[string]error{
		"business reason in a fault": transports.Refuse(pb.Reason_REASON_UNKNOWN_SYMBOL, "not a session reason"),
		"no fault":                   errors.New("something"),
		"text that is not UTF-8":     transports.Refuse(pb.Reason_REASON_INTERNAL, "\xff"),
	} {
		gateway := &fake.Gateway{OnHandle: func(context.Context, *transports.Exchange) error { return broken }}
		stub := pb.NewOrderEntryServiceClient(native(t, listen(t, gateway, transports.ListenConfig{})))
		if _, err := stub.SubmitOrder(t.Context(), fake.Order("o", nil)); status.Code(err) != codes.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBusinessRefusalIsAnAnswer(t *testing.T) {
	gateway := &fake.Gateway{OnHandle: func(_ context.Context, x *transports.Exchange) error {
		r := x.Response.(*pb.CancelOrderResponse)
		r.Status, r.Reason = pb.OrderStatus_ORDER_STATUS_REJECTED, pb.Reason_REASON_UNKNOWN_ORDER
		return nil
	}}
	stub := pb.NewOrderEntryServiceClient(native(t, listen(t, gateway, transports.ListenConfig{})))
	response, err := stub.CancelOrder(t.Context(), &pb.CancelOrderRequest{ClientOrderId: "o"})
	if err != nil || response.GetReason() != pb.Reason_REASON_UNKNOWN_ORDER {
		t.Errorf("%v, %v", response, err)
	}
}

func TestAuthorization(t *testing.T) {
	stub := pb.NewOrderEntryServiceClient(native(t, listen(t, &fake.Gateway{Key: "good"}, transports.ListenConfig{})))
	for _, c := range []struct {
		headers []string
		want    codes.Code
	}{
		{[]string{"Bearer good"}, codes.OK},
		{[]string{"bearer good"}, codes.OK},
		{[]string{"Bearer bad"}, codes.Unauthenticated},
		{[]string{"Basic Z29vZA=="}, codes.Unauthenticated},
		{[]string{"good"}, codes.Unauthenticated},
		{[]string{"Bearer good", "Bearer good"}, codes.Unauthenticated},
		{nil, codes.Unauthenticated},
	} {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{"authorization": c.headers})
		if _, err := stub.ListInstruments(ctx, &pb.ListInstrumentsRequest{}); status.Code(err) != c.want {
			t.Errorf("%q: %v, want %v", c.headers, err, c.want)
		}
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { return proto.Unmarshal(data, v.(proto.Message)) }
func (rawCodec) Name() string                       { return "proto" }

var _ encoding.Codec = rawCodec{}

func TestMalformedBytesAreRefusedByContract(t *testing.T) {
	gateway := &fake.Gateway{}
	conn := native(t, listen(t, gateway, transports.ListenConfig{}))
	for name, b := range map[string][]byte{
		"truncated":         {0x0a, 5, 'a'},
		"bad tag":           {0xff},
		"not UTF-8":         {0x0a, 1, 0xff},
		"endless varint":    bytes.Repeat([]byte{0xff}, 20),
		"unknown wire type": {0x0f},
	} {
		err := conn.Invoke(t.Context(), pb.OrderEntryService_SubmitOrder_FullMethodName, b, &pb.SubmitOrderResponse{}, ggrpc.ForceCodec(rawCodec{}))
		s := status.Convert(err)
		if s.Code() != codes.InvalidArgument || !strings.Contains(s.Message(), "orderentry.v1.SubmitOrderRequest") || strings.Contains(s.Message(), "grpc:") {
			t.Errorf("%s: %v", name, err)
		}
		if len(s.Details()) != 1 {
			t.Errorf("%s: details %v", name, s.Details())
		}
	}
	if seen := gateway.Requests(); len(seen) != 0 {
		t.Errorf("the gateway saw %v", seen)
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
	err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("bad", nil)))
	checkFault(t, err, pb.Reason_REASON_INTERNAL, pb.Outcome_OUTCOME_UNKNOWN)
	if err := client.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("good", nil))); err != nil {
		t.Errorf("the next request: %v", err)
	}
	if open := gateway.Sessions(); open != 0 {
		t.Errorf("%d sessions are still open", open)
	}
}

func TestReflectionShowsTheContract(t *testing.T) {
	client := reflectionpb.NewServerReflectionClient(native(t, listen(t, &fake.Gateway{}, transports.ListenConfig{})))
	stream, err := client.ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(request *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(request); err != nil {
			t.Fatal(err)
		}
		response, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	services := map[string]bool{}
	for _, s := range ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		services[s.GetName()] = true
	}
	if !services["orderentry.v1.OrderEntryService"] || !services["grpc.health.v1.Health"] || services["orderentry.v1.AdminService"] {
		t.Errorf("services are %v", services)
	}
	files := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: "orderentry.v1.OrderEntryService",
	}}).GetFileDescriptorResponse().GetFileDescriptorProto()
	found := false
	for _, b := range files {
		file := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(b, file); err != nil {
			t.Fatal(err)
		}
		for _, s := range file.GetService() {
			found = found || s.GetName() == "OrderEntryService" && len(s.GetMethod()) == len(transports.Operations())+2
		}
	}
	if !found {
		t.Error("no file describes the service with all its methods")
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

func TestHealthFollowsTheServer(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	watch, err := healthpb.NewHealthClient(native(t, server)).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "orderentry.v1.OrderEntryService"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", r, err)
	}
	// An exchange under way keeps the drain waiting, so that the watcher hears of it.
	client := dial(t, server, transports.DialConfig{})
	entered, leave := make(chan struct{}), make(chan struct{})
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		close(entered)
		<-leave
		gateway.Answer(x)
		return nil
	}
	done := make(chan error, 1)
	go func() {
		done <- client.Do(context.Background(), fake.Call(transports.SubmitOrder, fake.Order("o", nil)))
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	}()
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("%v, %v", r, err)
	}
	close(leave)
	if err := <-done; err != nil {
		t.Errorf("the accepted request: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}
