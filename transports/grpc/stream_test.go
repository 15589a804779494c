package grpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	ggrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/grpc"
	"tailgate/transports/internal/fake"
)

// Sessions and streams as a stranger's generated client sees them. What a client of this package sees is in session_test.go.

type tradeStream = ggrpc.BidiStreamingClient[pb.TradeRequest, pb.TradeResponse]

// openTrade opens a stream that the end of the test breaks off.
func openTrade(t *testing.T, stub pb.OrderEntryServiceClient) tradeStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := stub.Trade(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func logonRequest(id string) *pb.TradeRequest {
	return &pb.TradeRequest{CorrelationId: 5, Request: &pb.TradeRequest_Logon{Logon: &pb.Logon{SessionId: id}}}
}

func orderRequest(correlation uint64, id string) *pb.TradeRequest {
	return &pb.TradeRequest{CorrelationId: correlation, Request: &pb.TradeRequest_SubmitOrder{SubmitOrder: fake.Order(id, nil)}}
}

func logoutRequest(correlation uint64) *pb.TradeRequest {
	return &pb.TradeRequest{CorrelationId: correlation, Request: &pb.TradeRequest_Logout{Logout: &pb.Logout{Text: "bye"}}}
}

// logOn opens a stream and logs on.
func logOn(t *testing.T, stub pb.OrderEntryServiceClient, id string) tradeStream {
	t.Helper()
	stream := openTrade(t, stub)
	say(t, stream, logonRequest(id))
	if r := hear(t, stream); r.GetCorrelationId() != 5 || r.GetLogonAck() == nil {
		t.Fatalf("the logon is answered with %v", r)
	}
	return stream
}

func say(t *testing.T, stream tradeStream, requests ...*pb.TradeRequest) {
	t.Helper()
	for _, r := range requests {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
}

func hear(t *testing.T, stream tradeStream) *pb.TradeResponse {
	t.Helper()
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkEnd checks the status that a stream ended with.
func checkEnd(t *testing.T, err error, code codes.Code, reason pb.Reason) {
	t.Helper()
	s := status.Convert(err)
	if s.Code() != code || len(s.Details()) == 0 {
		t.Errorf("the stream ended with %v, want %v", err, code)
		return
	}
	if detail, ok := s.Details()[0].(*pb.ErrorDetail); !ok || detail.GetReason() != reason {
		t.Errorf("the stream ended with %v, want %v", s.Details()[0], reason)
	}
}

// checkEndOf is checkEnd with the outcome.
func checkEndOf(t *testing.T, err error, code codes.Code, reason pb.Reason, outcome pb.Outcome) {
	t.Helper()
	checkEnd(t, err, code, reason)
	for _, detail := range status.Convert(err).Details() {
		if detail, ok := detail.(*pb.ErrorDetail); ok && detail.GetOutcome() != outcome {
			t.Errorf("the stream ended with %v, want %v", detail, outcome)
		}
	}
}

func TestTradeByHand(t *testing.T) {
	feed := &fake.Feed{}
	gateway := &fake.Gateway{Feed: feed}
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		if q, ok := x.Request.(*pb.SubmitOrderRequest); ok && q.GetClientOrderId() == "bad" {
			return transports.Refuse(pb.Reason_REASON_THROTTLED, "slow down")
		}
		gateway.Answer(x)
		return nil
	}
	stub := pb.NewOrderEntryServiceClient(native(t, listen(t, gateway, transports.ListenConfig{})))
	stream := logOn(t, stub, "s")
	feed.Publish(1)
	if r := hear(t, stream); r.GetCorrelationId() != 0 || !proto.Equal(r.GetExecution(), fake.Report(1, 1)) {
		t.Errorf("the event came as %v", r)
	}
	say(t, stream, orderRequest(300, "o-1"), orderRequest(1<<63, "o-2"), orderRequest(7, "bad"), logonRequest("s"), &pb.TradeRequest{CorrelationId: 8},
		&pb.TradeRequest{CorrelationId: 9, Request: &pb.TradeRequest_CancelOrder{CancelOrder: &pb.CancelOrderRequest{ClientOrderId: "o-1"}}})
	answers := map[uint64]*pb.TradeResponse{}
	for range 6 {
		r := hear(t, stream)
		answers[r.GetCorrelationId()] = r
	}
	for correlation, id := range map[uint64]string{300: "o-1", 1 << 63: "o-2"} {
		if got := answers[correlation].GetSubmitOrder().GetClientOrderId(); got != id {
			t.Errorf("%d is answered with %v", correlation, answers[correlation])
		}
	}
	for correlation, reason := range map[uint64]pb.Reason{7: pb.Reason_REASON_THROTTLED, 5: pb.Reason_REASON_MALFORMED, 8: pb.Reason_REASON_MALFORMED} {
		if got := answers[correlation].GetError(); got.GetReason() != reason || got.GetOutcome() != pb.Outcome_OUTCOME_NOT_PROCESSED {
			t.Errorf("%d is answered with %v, want %v", correlation, answers[correlation], reason)
		}
	}
	if got := answers[9].GetCancelOrder(); got.GetStatus() != pb.OrderStatus_ORDER_STATUS_CANCELED || got.GetSentNs() < got.GetReceivedNs() || got.GetReceivedNs() == 0 {
		t.Errorf("the cancel is answered with %v", answers[9])
	}
	say(t, stream, logoutRequest(10))
	if r := hear(t, stream); r.GetCorrelationId() != 10 || r.GetLogout().GetText() != "bye" {
		t.Errorf("the logout is answered with %v", r)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	if lost := gateway.Lost(); len(lost) != 0 {
		t.Errorf("lost are %v", lost)
	}
}

func TestFirstMessageHasToBeALogon(t *testing.T) {
	gateway := &fake.Gateway{Feed: &fake.Feed{}}
	stub := pb.NewOrderEntryServiceClient(native(t, listen(t, gateway, transports.ListenConfig{Limits: transports.Limits{HandshakeTimeout: 300 * time.Millisecond}})))
	for name, begin := range map[string]func(tradeStream){
		"order":   func(s tradeStream) { say(t, s, orderRequest(1, "o")) },
		"nothing": func(s tradeStream) { say(t, s, &pb.TradeRequest{}) },
		"silence": func(tradeStream) {},
		"end": func(s tradeStream) {
			if err := s.CloseSend(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			stream := openTrade(t, stub)
			begin(stream)
			_, err := stream.Recv()
			checkEnd(t, err, codes.InvalidArgument, pb.Reason_REASON_MALFORMED)
		})
	}
	if seen := gateway.Requests(); len(seen) != 0 {
		t.Errorf("the gateway saw %v", seen)
	}
}

// TestHalfCloseAnswersAndLosesTheSession: who says nothing more without a Logout gets what is owed.
func TestHalfCloseAnswersAndLosesTheSession(t *testing.T) {
	gateway := &fake.Gateway{Feed: &fake.Feed{}}
	stub := pb.NewOrderEntryServiceClient(native(t, listen(t, gateway, transports.ListenConfig{})))
	stream := logOn(t, stub, "s")
	say(t, stream, orderRequest(1, "o"))
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if r := hear(t, stream); r.GetSubmitOrder().GetClientOrderId() != "o" {
		t.Errorf("the order is answered with %v", r)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	if lost := gateway.Lost(); len(lost) != 1 {
		t.Errorf("lost are %v", lost)
	}
}

func TestEndsThatTheGatewayMakes(t *testing.T) {
	feed := &fake.Feed{}
	gateway := &fake.Gateway{Feed: feed}
	server := listen(t, gateway, transports.ListenConfig{})
	stub := pb.NewOrderEntryServiceClient(native(t, server))
	checkGoodbye := func(stream tradeStream, code codes.Code, reason pb.Reason) {
		t.Helper()
		if r := hear(t, stream); r.GetLogout().GetText() == "" || r.GetCorrelationId() != 0 {
			t.Errorf("before the end came %v", r)
		}
		_, err := stream.Recv()
		checkEnd(t, err, code, reason)
	}
	older := logOn(t, stub, "s")
	newer := logOn(t, stub, "s")
	checkGoodbye(older, codes.Aborted, pb.Reason_REASON_SESSION_REPLACED)
	executions, err := stub.StreamExecutions(t.Context(), &pb.StreamExecutionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := executions.Header(); err != nil { // it stands
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(context.Background()) }()
	_, err = executions.Recv()
	checkEnd(t, err, codes.Unavailable, pb.Reason_REASON_DRAINING)
	checkGoodbye(newer, codes.Unavailable, pb.Reason_REASON_DRAINING)
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// bare is a codec that shows the bytes.
type bare struct{ encoding.CodecV2 }

func (b bare) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(*[]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(*raw)}, nil
	}
	return b.CodecV2.Marshal(v)
}

func (b bare) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// TestEventsAreTheSameBytesForEveryReader looks at what a session, a stream, and a later one are sent.
func TestEventsAreTheSameBytesForEveryReader(t *testing.T) {
	feed := &fake.Feed{}
	feed.Publish(3)
	conn := native(t, listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{}))
	codec := ggrpc.ForceCodecV2(bare{encoding.GetCodecV2("proto")})
	read := func(index int, method string, first proto.Message, skip int, field protowire.Number) [][]byte {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := conn.NewStream(ctx, &pb.OrderEntryService_ServiceDesc.Streams[index], method, codec)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(first); err != nil {
			t.Fatal(err)
		}
		var events [][]byte
		for i := range skip + 3 {
			var b []byte
			if err := stream.RecvMsg(&b); err != nil {
				t.Fatal(err)
			}
			if i < skip {
				continue
			}
			num, _, n := protowire.ConsumeTag(b)
			inner, rest := protowire.ConsumeBytes(b[n:])
			if num != field || n+rest != len(b) {
				t.Fatalf("%x is not field %d alone", b, field)
			}
			events = append(events, inner)
		}
		return events
	}
	for name, events := range map[string][][]byte{
		"session": read(0, pb.OrderEntryService_Trade_FullMethodName, logonRequest("s"), 1, 7),
		"stream":  read(1, pb.OrderEntryService_StreamExecutions_FullMethodName, &pb.StreamExecutionsRequest{}, 0, 1),
		"later":   read(1, pb.OrderEntryService_StreamExecutions_FullMethodName, &pb.StreamExecutionsRequest{Epoch: 1, FromSequence: 1}, 0, 1),
	} {
		for i, got := range events {
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(fake.Report(1, uint64(i)+1))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: event %d is %x, want %x (%v)", name, i, got, want, err)
			}
		}
	}
}

func TestWhatIsNoTradeRequestEndsTheSession(t *testing.T) {
	gateway := &fake.Gateway{Feed: &fake.Feed{}}
	conn := native(t, listen(t, gateway, transports.ListenConfig{}))
	stream, err := conn.NewStream(t.Context(), &pb.OrderEntryService_ServiceDesc.Streams[0], pb.OrderEntryService_Trade_FullMethodName, ggrpc.ForceCodecV2(bare{encoding.GetCodecV2("proto")}))
	if err != nil {
		t.Fatal(err)
	}
	raw := func(m *pb.TradeRequest) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	// The payload of an order is broken: its request is refused. Then the envelope itself is.
	broken := protowire.AppendBytes(protowire.AppendTag([]byte{8, 2}, 3, protowire.BytesType), []byte{0x80})
	for _, b := range [][]byte{raw(logonRequest("s")), raw(orderRequest(1, "o")), broken, {0x80}, raw(orderRequest(3, "p"))} {
		if err := stream.SendMsg(&b); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	var kinds []string
	for {
		var b []byte
		if err = stream.RecvMsg(&b); err != nil {
			break
		}
		var r pb.TradeResponse
		if err := proto.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, fmt.Sprintf("%d %s", r.GetCorrelationId(), strings.TrimPrefix(fmt.Sprintf("%T", r.GetResponse()), "*orderentryv1.TradeResponse_")))
	}
	checkEnd(t, err, codes.InvalidArgument, pb.Reason_REASON_MALFORMED)
	if got := fmt.Sprint(kinds); got != "[5 LogonAck 1 SubmitOrder 2 Error 0 Logout]" && got != "[5 LogonAck 2 Error 1 SubmitOrder 0 Logout]" {
		t.Errorf("what came was %v", kinds)
	}
	if seen := gateway.Requests(); len(seen) != 2 {
		t.Errorf("the gateway saw %v, want the logon and one order", seen)
	}
}

// TestUnansweredRequestsAreBounded: with as many unanswered as MaxStreams the server reads no more, and one more for each answer.
func TestUnansweredRequestsAreBounded(t *testing.T) {
	const bound, all = 4, 40
	gateway := &fake.Gateway{Feed: &fake.Feed{}}
	server := listen(t, gateway, transports.ListenConfig{Limits: transports.Limits{MaxStreams: bound}})
	stream := logOn(t, pb.NewOrderEntryServiceClient(native(t, server)), "s")
	gateway.Take()
	var mu sync.Mutex
	var releases []func(error)
	committed := make(chan struct{}, all)
	gateway.OnCommit = func(release func(error)) {
		mu.Lock()
		releases = append(releases, release)
		mu.Unlock()
		committed <- struct{}{}
	}
	go func() {
		for i := range uint64(all) {
			if err := stream.Send(orderRequest(i+1, "o")); err != nil {
				t.Error(err)
			}
		}
	}()
	for answered := 0; answered < all; {
		<-committed // a batch was handled
		if seen := len(gateway.Requests()); seen > answered+bound {
			t.Fatalf("%d requests were handled, %d answered", seen, answered)
		}
		mu.Lock()
		ready, seen := releases, len(gateway.Requests())
		releases = nil
		mu.Unlock()
		for _, release := range ready {
			release(nil)
		}
		if len(ready) == 0 {
			continue
		}
		for ; answered < seen; answered++ {
			if r := hear(t, stream); r.GetCorrelationId() != uint64(answered)+1 {
				t.Fatalf("answer %d is %v", answered, r)
			}
		}
	}
}

// TestRequestsThatAreThereAreCommittedAsOne has requests wait behind one that is being handled.
func TestRequestsThatAreThereAreCommittedAsOne(t *testing.T) {
	const more = 50
	gateway := &fake.Gateway{Feed: &fake.Feed{}}
	conn := native(t, listen(t, gateway, transports.ListenConfig{}))
	stub := pb.NewOrderEntryServiceClient(conn)
	stream := logOn(t, stub, "s")
	entered, leave := make(chan struct{}), make(chan struct{})
	gateway.OnHandle = func(_ context.Context, x *transports.Exchange) error {
		if q, ok := x.Request.(*pb.SubmitOrderRequest); ok && q.GetClientOrderId() == "first" {
			close(entered)
			<-leave
		}
		gateway.Answer(x)
		return nil
	}
	say(t, stream, orderRequest(1, "first"))
	<-entered
	for i := range uint64(more) {
		say(t, stream, orderRequest(i+2, "o"))
	}
	// Behind them on the same connection: they are there when this is answered.
	if _, err := stub.ListInstruments(t.Context(), &pb.ListInstrumentsRequest{}); err != nil {
		t.Fatal(err)
	}
	commits := make(chan struct{}, 2*more)
	gateway.OnCommit = func(release func(error)) {
		commits <- struct{}{}
		release(nil)
	}
	close(leave)
	for i := range more + 1 {
		if r := hear(t, stream); r.GetCorrelationId() != uint64(i)+1 {
			t.Fatalf("answer %d is %v", i, r)
		}
	}
	if got := len(commits); got > more/2 {
		t.Errorf("%d requests took %d commits", more+1, got)
	}
}

// TestSlowStreamHurtsNobodyOnItsConnection: a stream that is not read is ended with a reason, and its neighbours on the same connection go
// on. A peer that never reads that end does not hold up a shutdown.
func TestSlowStreamHurtsNobodyOnItsConnection(t *testing.T) {
	feed := &fake.Feed{}
	gateway := &fake.Gateway{Feed: feed}
	var log fake.Log
	server := listen(t, gateway, transports.ListenConfig{Logger: log.Logger(), Limits: transports.Limits{WriteTimeout: 300 * time.Millisecond}})
	stub := pb.NewOrderEntryServiceClient(native(t, server, ggrpc.WithInitialWindowSize(64<<10), ggrpc.WithInitialConnWindowSize(1<<20)))
	late, err := stub.StreamExecutions(t.Context(), &pb.StreamExecutionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	never, err := stub.StreamExecutions(t.Context(), &pb.StreamExecutionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	deaf := logOn(t, stub, "s")
	deadline := time.Now().Add(patience)
	feed.Publish(5000) // several times what windows and quotas hold
	for i := uint64(0); feed.Readers() > 0 || gateway.Sessions() > 0; i++ {
		if time.Now().After(deadline) {
			t.Fatalf("%d slow readers are still there", feed.Readers())
		}
		if _, err := stub.SubmitOrder(t.Context(), fake.Order("o", nil)); err != nil {
			t.Fatalf("a neighbour on the same connection: %v", err)
		}
	}
	for want := uint64(1); ; want++ { // who reads on finds every event, and then the reason
		r, err := late.Recv()
		if err != nil {
			checkEnd(t, err, codes.Unavailable, pb.Reason_REASON_SLOW_READER)
			break
		}
		if got := r.GetExecution().GetSequence(); got != want {
			t.Fatalf("event %d came where %d was due", got, want)
		}
	}
	if lost := gateway.Lost(); len(lost) != 1 {
		t.Errorf("lost are %v", lost)
	}
	if text := log.String(); strings.Count(text, "SLOW_READER") != 3 || !strings.Contains(text, "127.0.0.1:") {
		t.Errorf("the log has %s, want three slow readers with their address", text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for err = nil; err == nil; _, err = never.Recv() {
	}
	for err = nil; err == nil; _, err = deaf.Recv() {
	}
}

func TestKilledConnectionClosesTheSession(t *testing.T) {
	gateway := &fake.Gateway{Feed: &fake.Feed{}}
	server := listen(t, gateway, transports.ListenConfig{})
	sockets := make(chan net.Conn, 8)
	stub := pb.NewOrderEntryServiceClient(native(t, server, ggrpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			sockets <- conn
		}
		return conn, err
	})))
	stream := logOn(t, stub, "s")
	held := make(chan func(error), 1)
	gateway.OnCommit = func(release func(error)) { held <- release }
	say(t, stream, orderRequest(1, "o"))
	release := <-held
	socket := (<-sockets).(*net.TCPConn)
	if err := errors.Join(socket.SetLinger(0), socket.Close()); err != nil { // with a reset, as by a kill
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for gateway.Sessions() > 0 || gateway.Feed.Readers() > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the session is still open")
		}
		runtime.Gosched() // polls what only the gateway sees
	}
	if lost := gateway.Lost(); len(lost) != 1 {
		t.Errorf("lost are %v", lost)
	}
	release(nil)
}

// TestRequestOfASessionIsHeldToTheSameLimit: its envelope does not count, and one byte more of the request is refused.
func TestRequestOfASessionIsHeldToTheSameLimit(t *testing.T) {
	const limit = 10_000
	gateway := &fake.Gateway{Feed: &fake.Feed{}}
	server := listen(t, gateway, transports.ListenConfig{Limits: transports.Limits{MaxRequestBytes: limit}})
	stub := pb.NewOrderEntryServiceClient(native(t, server))
	stream := logOn(t, stub, "s")
	order := fake.Order("o", nil)
	order.ClientTag = make([]byte, limit-proto.Size(order)-3)
	if got := proto.Size(order); got != limit {
		t.Fatalf("the order has %d bytes", got)
	}
	say(t, stream, &pb.TradeRequest{CorrelationId: 1 << 63, Request: &pb.TradeRequest_SubmitOrder{SubmitOrder: order}})
	if r := hear(t, stream); len(r.GetSubmitOrder().GetClientTag()) != len(order.GetClientTag()) {
		t.Errorf("%d bytes: %v", limit, r.GetError())
	}
	order.ClientTag = append(order.ClientTag, 0)
	say(t, stream, &pb.TradeRequest{CorrelationId: 2, Request: &pb.TradeRequest_SubmitOrder{SubmitOrder: order}})
	if r := hear(t, stream); r.GetError().GetReason() != pb.Reason_REASON_TOO_LARGE {
		t.Errorf("%d bytes: %v", limit+1, r)
	}
	_, err := stub.SubmitOrder(t.Context(), order)
	checkEnd(t, err, codes.ResourceExhausted, pb.Reason_REASON_TOO_LARGE)
	// Far beyond, grpc itself ends the stream.
	order.ClientTag = make([]byte, 2*limit)
	say(t, stream, &pb.TradeRequest{CorrelationId: 3, Request: &pb.TradeRequest_SubmitOrder{SubmitOrder: order}})
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%d bytes: %v", 2*limit, err)
	}
}

func TestStreamsOfAGatewayWithoutThem(t *testing.T) {
	stub := pb.NewOrderEntryServiceClient(native(t, listen(t, &fake.Gateway{}, transports.ListenConfig{})))
	trade := openTrade(t, stub)
	say(t, trade, logonRequest("s"))
	_, err := trade.Recv()
	checkEndOf(t, err, codes.Unimplemented, pb.Reason_REASON_UNIMPLEMENTED, pb.Outcome_OUTCOME_UNKNOWN) // the Logon took effect
	executions, err := stub.StreamExecutions(t.Context(), &pb.StreamExecutionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = executions.Recv()
	checkEnd(t, err, codes.Unimplemented, pb.Reason_REASON_UNIMPLEMENTED)
	if errors.Is(err, io.EOF) {
		t.Error("it ended as if it were complete")
	}
}

func TestStreamsOverTLSWithAKey(t *testing.T) {
	serverTLS, clientTLS := fake.Certificate(t)
	feed := &fake.Feed{}
	feed.Publish(1)
	server := listen(t, &fake.Gateway{Feed: feed, Key: "good"}, transports.ListenConfig{TLS: serverTLS})
	config := transports.DialConfig{Address: server.Addr().String(), TLS: clientTLS, Key: "good"}
	events := make(chan *pb.ExecutionReport, 1)
	trader, err := grpc.Transport().Trade(t.Context(), config, &pb.Logon{SessionId: "s"}, func(e *pb.ExecutionReport) { events <- e })
	if err != nil {
		t.Fatal(err)
	}
	<-events
	if err := trader.Do(t.Context(), fake.Call(transports.SubmitOrder, fake.Order("o", nil))); err != nil {
		t.Error(err)
	}
	if err := trader.Logout(t.Context(), ""); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = grpc.Transport().Executions(ctx, config, &pb.StreamExecutionsRequest{}, func(*pb.ExecutionReport) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
