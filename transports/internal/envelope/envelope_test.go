package envelope_test

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/envelope"
	"tailgate/transports/internal/fake"
)

// TestMembersAreTheContracts compares the numbers with the descriptors: whatever a oneof carries is known here under its number, and
// nothing else is.
func TestMembersAreTheContracts(t *testing.T) {
	var ops []transports.Operation
	for op := range transports.Operation(100) {
		ops = append(ops, op)
	}
	requests := (*pb.TradeRequest)(nil).ProtoReflect().Descriptor().Oneofs().ByName("request").Fields()
	found := 0
	for _, op := range ops {
		m := envelope.Request(op)
		if m == 0 {
			continue
		}
		found++
		f := requests.ByNumber(protoreflect.FieldNumber(m))
		if f == nil || f.Message() != op.NewRequest().ProtoReflect().Descriptor() || m.Operation() != op {
			t.Errorf("the request of %v is member %d, which carries %v and leads back to %v", op, m, f, m.Operation())
		}
	}
	if found != requests.Len() {
		t.Errorf("%d requests are known, the contract has %d", found, requests.Len())
	}
	responses := (*pb.TradeResponse)(nil).ProtoReflect().Descriptor().Oneofs().ByName("response").Fields()
	carried := map[envelope.Member]proto.Message{envelope.Execution: &pb.ExecutionReport{}, envelope.Error: &pb.ErrorDetail{}}
	for _, op := range ops {
		if m := envelope.Answer(op); m != 0 {
			carried[m] = op.NewResponse()
		}
	}
	if carried[envelope.Goodbye] == nil || len(carried) != responses.Len() {
		t.Errorf("%d responses are known, the contract has %d", len(carried), responses.Len())
	}
	for m, message := range carried {
		if f := responses.ByNumber(protoreflect.FieldNumber(m)); f == nil || f.Message() != message.ProtoReflect().Descriptor() {
			t.Errorf("member %d is said to carry a %T, and carries %v", m, message, f)
		}
	}
	for _, m := range []envelope.Member{-1, 0, 1, 8, 1 << 28} {
		if op := m.Operation(); op != 0 {
			t.Errorf("member %d leads to %v", m, op)
		}
	}
}

// checkSplit holds Split to protobuf-go: what that takes is taken, with the same parts. What that refuses inside of a payload is none of
// Split's business.
func checkSplit(t *testing.T, b []byte) {
	t.Helper()
	var request pb.TradeRequest
	parts, err := envelope.SplitRequest(b)
	if proto.Unmarshal(b, &request) == nil {
		if err != nil {
			t.Fatalf("%x: protobuf-go reads %v, Split says %v", b, &request, err)
		}
		checkParts(t, b, parts, &request, request.GetCorrelationId())
	}
	var response pb.TradeResponse
	parts, err = envelope.SplitResponse(b)
	if proto.Unmarshal(b, &response) == nil {
		if err != nil {
			t.Fatalf("%x: protobuf-go reads %v, Split says %v", b, &response, err)
		}
		checkParts(t, b, parts, &response, response.GetCorrelationId())
	}
}

func checkParts(t *testing.T, b []byte, parts envelope.Parts, message proto.Message, correlation uint64) {
	t.Helper()
	m := message.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().Get(0))
	switch {
	case parts.Correlation != correlation:
		t.Fatalf("%x: correlation %d, protobuf-go reads %d", b, parts.Correlation, correlation)
	case f == nil:
		if parts.Member != 0 {
			t.Fatalf("%x: member %d, protobuf-go reads none", b, parts.Member)
		}
	default:
		inner := m.Get(f).Message().New().Interface()
		if err := proto.Unmarshal(parts.Payload, inner); err != nil || parts.Member != envelope.Member(f.Number()) || !proto.Equal(inner, m.Get(f).Message().Interface()) {
			t.Fatalf("%x: member %d with %v (%v), protobuf-go reads %v", b, parts.Member, inner, err, message)
		}
	}
}

func samples(t testing.TB) [][]byte {
	order := &pb.TradeRequest{CorrelationId: 300, Request: &pb.TradeRequest_SubmitOrder{SubmitOrder: fake.Order("o", []byte{1})}}
	cancel := &pb.TradeRequest{Request: &pb.TradeRequest_CancelOrder{CancelOrder: &pb.CancelOrderRequest{ClientOrderId: "o"}}}
	event := &pb.TradeResponse{Response: &pb.TradeResponse_Execution{Execution: fake.Report(2, 3)}}
	var list [][]byte
	for _, m := range []proto.Message{order, cancel, event, &pb.TradeRequest{}, &pb.TradeRequest{CorrelationId: 1 << 63}} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	return append(list,
		bytes.Join([][]byte{list[0], list[0]}, nil),          // merged
		bytes.Join([][]byte{list[0], list[1], list[0]}, nil), // the last one wins
		protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 5),
		protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "of a later version"),
		protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "x"),
	)
}

func TestSplitReadsWhatProtobufReads(t *testing.T) {
	for _, b := range samples(t) {
		for cut := range len(b) + 1 {
			checkSplit(t, b[:cut])
		}
	}
}

func TestWhatIsNoProtobufIsRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"tag cut off": {0x80}, "correlation cut off": {0x08, 0x80}, "payload cut off": {0x1a, 5, 1}, "unknown cut off": {0x52, 5, 1}, "field 0": {0x00, 1},
	} {
		if parts, err := envelope.SplitRequest(b); err == nil {
			t.Errorf("%s: %+v", name, parts)
		}
	}
}

func TestHeadAndPayloadAreTheMessage(t *testing.T) {
	report, err := proto.Marshal(fake.Report(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	for _, correlation := range []uint64{0, 1, 127, 128, 1 << 40, 1<<64 - 1} {
		want, err := proto.Marshal(&pb.TradeResponse{CorrelationId: correlation, Response: &pb.TradeResponse_Execution{Execution: fake.Report(1, 2)}})
		if err != nil {
			t.Fatal(err)
		}
		head := envelope.AppendHead([]byte("x"), correlation, envelope.Execution, len(report))
		if got := slices.Concat(head[1:], report); !bytes.Equal(got, want) {
			t.Errorf("correlation %d: %x, want %x", correlation, got, want)
		}
		if size := envelope.HeadSize(correlation, len(report)); size != len(head)-1 || size > envelope.MaxHead {
			t.Errorf("correlation %d: HeadSize is %d, the head has %d", correlation, size, len(head)-1)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, b := range samples(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkSplit(t, b) })
}
