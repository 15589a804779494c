package hotcodec_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports/internal/hotcodec"
)

// known is protobuf-go reading the fields of the contract and dropping others, the oracle of both decoders.
var known = proto.UnmarshalOptions{DiscardUnknown: true}

// checkRequest decodes b with both and compares.
func checkRequest(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, b []byte) {
	t.Helper()
	var want, got pb.SubmitOrderRequest
	got.Symbol, got.ClientTag, got.PostOnly = "left over", []byte("left over"), true // a reused message must not keep anything
	wantErr, gotErr := known.Unmarshal(b, &want), hotcodec.DecodeSubmitOrderRequest(b, &got)
	if (wantErr == nil) != (gotErr == nil) {
		t.Fatalf("%x: protobuf-go says %v, hotcodec %v", b, wantErr, gotErr)
	}
	if gotErr != nil {
		if !errors.Is(gotErr, hotcodec.ErrMalformed) {
			t.Fatalf("%x: %v does not wrap ErrMalformed", b, gotErr)
		}
		return
	}
	if !proto.Equal(&want, &got) {
		t.Fatalf("%x: protobuf-go reads %v, hotcodec %v", b, &want, &got)
	}
	encoded, err := hotcodec.AppendSubmitOrderRequest([]byte("front"), &got)
	if err != nil {
		t.Fatalf("%v cannot be encoded: %v", &got, err)
	}
	oracle, err := proto.Marshal(&want)
	if err != nil {
		t.Fatalf("protobuf-go cannot encode %v: %v", &want, err)
	}
	if !bytes.Equal(encoded[5:], oracle) || hotcodec.SizeSubmitOrderRequest(&got) != len(oracle) {
		t.Fatalf("%v: protobuf-go writes %x, hotcodec %x (size said %d)", &got, oracle, encoded[5:], hotcodec.SizeSubmitOrderRequest(&got))
	}
}

func checkResponse(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, b []byte) {
	t.Helper()
	var want, got pb.SubmitOrderResponse
	got.Text, got.ClientTag, got.Duplicate = "left over", []byte("left over"), true
	wantErr, gotErr := known.Unmarshal(b, &want), hotcodec.DecodeSubmitOrderResponse(b, &got, "id")
	if (wantErr == nil) != (gotErr == nil) {
		t.Fatalf("%x: protobuf-go says %v, hotcodec %v", b, wantErr, gotErr)
	}
	if gotErr != nil {
		if !errors.Is(gotErr, hotcodec.ErrMalformed) {
			t.Fatalf("%x: %v does not wrap ErrMalformed", b, gotErr)
		}
		return
	}
	if !proto.Equal(&want, &got) {
		t.Fatalf("%x: protobuf-go reads %v, hotcodec %v", b, &want, &got)
	}
	encoded, sentNs, err := hotcodec.AppendSubmitOrderResponse([]byte("front"), &got)
	if err != nil {
		t.Fatalf("%v cannot be encoded: %v", &got, err)
	}
	if len(encoded)-5 != hotcodec.SizeSubmitOrderResponse(&got) {
		t.Fatalf("%v: %d bytes, size said %d", &got, len(encoded)-5, hotcodec.SizeSubmitOrderResponse(&got))
	}
	binary.LittleEndian.PutUint64(encoded[5+sentNs:], 77) // what happens when the answer leaves
	want.SentNs = 77
	oracle, err := proto.Marshal(&want)
	if err != nil {
		t.Fatalf("protobuf-go cannot encode %v: %v", &want, err)
	}
	if !bytes.Equal(encoded[5:], oracle) {
		t.Fatalf("%v: protobuf-go writes %x, hotcodec %x", &got, oracle, encoded[5:])
	}
	if len(got.ClientTag) == 0 {
		return
	}
	head, sentNs, err := hotcodec.AppendSubmitOrderResponseHead([]byte("front"), &got)
	if err != nil {
		t.Fatalf("%v cannot be encoded: %v", &got, err)
	}
	binary.LittleEndian.PutUint64(head[5+sentNs:], 77)
	var again pb.SubmitOrderResponse
	if err := proto.Unmarshal(append(head[5:], got.ClientTag...), &again); err != nil || !proto.Equal(&again, &want) {
		t.Fatalf("%v: head and tag read %v, %v", &want, &again, err)
	}
}

// full has every field set.
func fullRequest() *pb.SubmitOrderRequest {
	return &pb.SubmitOrderRequest{
		ClientOrderId: "order-000001", Symbol: "TG.A", Side: pb.Side_SIDE_SELL, Type: pb.OrderType_ORDER_TYPE_LIMIT,
		TimeInForce: pb.TimeInForce_TIME_IN_FORCE_GTC, Quantity: 1<<63 - 1, Price: -5, PostOnly: true, DisplayQuantity: 300,
		MinimumQuantity: 128, SelfTradePrevention: pb.SelfTradePrevention_SELF_TRADE_PREVENTION_CANCEL_BOTH,
		AckDetail: pb.AckDetail_ACK_DETAIL_FULL, ClientTag: []byte{0xff, 0, 1},
	}
}

func fullResponse() *pb.SubmitOrderResponse {
	return &pb.SubmitOrderResponse{
		ClientOrderId: "id", OrderId: 1 << 40, Status: pb.OrderStatus_ORDER_STATUS_PARTIALLY_FILLED, Reason: pb.Reason_REASON_BOOK_FULL,
		Quantity: 7, FilledQuantity: 3, LeavesQuantity: 4, LastPrice: -1, FilledNotional: -3, Sequence: 99, Duplicate: true,
		OrderVersion: 2, ReceivedNs: 1, SentNs: 2, ClientTag: []byte("tag"), Epoch: 5, Text: "because",
	}
}

// wire builds encodings that no encoder writes but every decoder must agree on.
func wire(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func tag(num protowire.Number, typ protowire.Type) []byte { return protowire.AppendTag(nil, num, typ) }

var awkward = map[string][]byte{
	"empty":                     {},
	"tag cut off":               {0x80},
	"field number 0":            {0x00, 0x01},
	"field number too large":    wire(protowire.AppendVarint(nil, uint64(protowire.MaxValidNumber+1)<<3), []byte{1}),
	"largest field number":      wire(protowire.AppendVarint(nil, uint64(protowire.MaxValidNumber)<<3), []byte{1}),
	"overlong tag":              {0x98, 0x80, 0x00, 0x01},
	"varint of 10 bytes":        wire(tag(6, protowire.VarintType), bytes.Repeat([]byte{0xff}, 9), []byte{0x01}),
	"varint of 65 bits":         wire(tag(6, protowire.VarintType), bytes.Repeat([]byte{0xff}, 9), []byte{0x02}),
	"varint of 11 bytes":        wire(tag(6, protowire.VarintType), bytes.Repeat([]byte{0xff}, 11)),
	"varint cut off":            wire(tag(6, protowire.VarintType), []byte{0xff}),
	"enum beyond 32 bits":       wire(tag(3, protowire.VarintType), protowire.AppendVarint(nil, 1<<35|2)),
	"bool 2":                    wire(tag(8, protowire.VarintType), []byte{2}, tag(11, protowire.VarintType), []byte{2}),
	"id twice, last wins":       wire(tag(1, protowire.BytesType), []byte{1, 'a'}, tag(1, protowire.BytesType), []byte{1, 'b'}),
	"tag emptied again":         wire(tag(15, protowire.BytesType), []byte{1, 'a'}, tag(15, protowire.BytesType), []byte{0}),
	"quantity zeroed again":     wire(tag(6, protowire.VarintType), []byte{9}, tag(6, protowire.VarintType), []byte{0}),
	"id not UTF-8":              wire(tag(1, protowire.BytesType), []byte{2, 0xc3, 0x28}),
	"text or symbol not UTF-8":  wire(tag(17, protowire.BytesType), []byte{1, 0xff}, tag(2, protowire.BytesType), []byte{1, 0xff}),
	"text not UTF-8":            wire(tag(17, protowire.BytesType), []byte{1, 0xff}),
	"bytes longer than message": wire(tag(15, protowire.BytesType), []byte{5, 'a'}),
	"bytes of 2^63":             wire(tag(15, protowire.BytesType), protowire.AppendVarint(nil, 1<<63), []byte{'a'}),
	"id as a number":            wire(tag(1, protowire.VarintType), []byte{5}),
	"quantity as bytes":         wire(tag(6, protowire.BytesType), []byte{1, 0xff}),
	"stamp as a number":         wire(tag(13, protowire.VarintType), []byte{5}),
	"stamp":                     wire(tag(13, protowire.Fixed64Type), []byte{1, 2, 3, 4, 5, 6, 7, 8}),
	"stamp cut off":             wire(tag(14, protowire.Fixed64Type), []byte{1, 2, 3, 4, 5, 6, 7}),
	"unknown 32 bits":           wire(tag(99, protowire.Fixed32Type), []byte{1, 2, 3, 4}),
	"unknown 32 bits cut off":   wire(tag(99, protowire.Fixed32Type), []byte{1, 2, 3}),
	"unknown group":             wire(tag(20, protowire.StartGroupType), tag(1, protowire.VarintType), []byte{1}, tag(20, protowire.EndGroupType)),
	"group without end":         wire(tag(20, protowire.StartGroupType), tag(1, protowire.VarintType), []byte{1}),
	"end without group":         tag(20, protowire.EndGroupType),
	"groups crossed":            wire(tag(20, protowire.StartGroupType), tag(21, protowire.EndGroupType)),
	"groups 20,000 deep":        bytes.Repeat(tag(1, protowire.StartGroupType), 20000),
	"wire type 6":               {0x0e, 0x00},
	"wire type 7":               {0x0f, 0x00},
}

func TestAwkwardEncodings(t *testing.T) {
	for name, b := range awkward {
		t.Run(name, func(t *testing.T) {
			checkRequest(t, b)
			checkResponse(t, b)
		})
	}
}

func TestFullMessages(t *testing.T) {
	b, err := proto.Marshal(fullRequest())
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(b) + 1 {
		checkRequest(t, b[:cut])
	}
	if b, err = proto.Marshal(fullResponse()); err != nil {
		t.Fatal(err)
	}
	for cut := range len(b) + 1 {
		checkResponse(t, b[:cut])
	}
}

func TestEncodersRefuseInvalidUTF8(t *testing.T) {
	bad := "a\xffb"
	for field, m := range map[string]*pb.SubmitOrderRequest{"client_order_id": {ClientOrderId: bad}, "symbol": {Symbol: bad}} {
		b, err := hotcodec.AppendSubmitOrderRequest([]byte("x"), m)
		if err == nil || !strings.Contains(err.Error(), field) || string(b) != "x" {
			t.Errorf("%s: got %q, %v; want the buffer unchanged and an error that names the field", field, b, err)
		}
	}
	for field, m := range map[string]*pb.SubmitOrderResponse{"client_order_id": {ClientOrderId: bad}, "text": {Text: bad}} {
		b, _, err := hotcodec.AppendSubmitOrderResponse([]byte("x"), m)
		if err == nil || !strings.Contains(err.Error(), field) || string(b) != "x" {
			t.Errorf("%s: got %q, %v; want the buffer unchanged and an error that names the field", field, b, err)
		}
	}
}

// TestAgreesWithProtobufGo builds messages field by field in any order, with repetitions and unknown fields between.
func TestAgreesWithProtobufGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b []byte
		for range rapid.IntRange(0, 12).Draw(t, "fields") {
			num := protowire.Number(rapid.IntRange(1, 20).Draw(t, "number"))
			switch rapid.IntRange(0, 3).Draw(t, "type") {
			case 0:
				b = protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), rapid.Uint64().Draw(t, "value"))
			case 1:
				b = protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), rapid.String().Draw(t, "text"))
			case 2:
				b = protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "bytes"))
			case 3:
				b = protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), rapid.Uint64().Draw(t, "fixed"))
			}
		}
		checkRequest(t, b)
		checkResponse(t, b)
	})
}

func TestDecodedRequestPointsIntoTheFrame(t *testing.T) {
	b, err := proto.Marshal(&pb.SubmitOrderRequest{ClientOrderId: "aaa", ClientTag: []byte("bbb")})
	if err != nil {
		t.Fatal(err)
	}
	var m pb.SubmitOrderRequest
	if err := hotcodec.DecodeSubmitOrderRequest(b, &m); err != nil {
		t.Fatal(err)
	}
	if cap(m.ClientTag) != len(m.ClientTag) {
		t.Errorf("the tag has room for %d bytes: an append to it would write into the frame", cap(m.ClientTag))
	}
	copy(b[2:], "ccc")
	if m.ClientOrderId != "ccc" {
		t.Errorf("the id reads %q: it is a copy, so the decoder allocates", m.ClientOrderId)
	}
}

func TestDecodedResponseOwnsItsMemory(t *testing.T) {
	b, err := proto.Marshal(fullResponse())
	if err != nil {
		t.Fatal(err)
	}
	var m pb.SubmitOrderResponse
	if err := hotcodec.DecodeSubmitOrderResponse(b, &m, "another id"); err != nil {
		t.Fatal(err)
	}
	clear(b)
	if !proto.Equal(&m, fullResponse()) {
		t.Errorf("after the buffer was cleared the message reads %v", &m)
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	for _, size := range []int{31, 64 << 10} {
		request, response := fullRequest(), fullResponse()
		request.ClientTag, response.ClientTag, response.Text = make([]byte, size), make([]byte, size), ""
		var out pb.SubmitOrderResponse
		var in pb.SubmitOrderRequest
		buffer := make([]byte, 0, 2*size+1024)
		run := func() {
			b, err := hotcodec.AppendSubmitOrderRequest(buffer, request)
			if err != nil {
				t.Fatal(err)
			}
			if err := hotcodec.DecodeSubmitOrderRequest(b, &in); err != nil {
				t.Fatal(err)
			}
			if b, _, err = hotcodec.AppendSubmitOrderResponse(buffer, response); err != nil {
				t.Fatal(err)
			}
			if err := hotcodec.DecodeSubmitOrderResponse(b, &out, response.ClientOrderId); err != nil {
				t.Fatal(err)
			}
		}
		run()
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("tag of %d bytes: %v allocations a round trip, want 0", size, n)
		}
	}
}

func FuzzSubmitOrderRequest(f *testing.F) {
	seed(f, fullRequest())
	f.Fuzz(func(t *testing.T, b []byte) { checkRequest(t, b) })
}

func FuzzSubmitOrderResponse(f *testing.F) {
	seed(f, fullResponse())
	f.Fuzz(func(t *testing.T, b []byte) { checkResponse(t, b) })
}

func seed(f *testing.F, full proto.Message) {
	for _, b := range awkward {
		if len(b) < 1024 {
			f.Add(b)
		}
	}
	b, err := proto.Marshal(full)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
}

// The order of the benchmarks' figures: this package, then protobuf-go on the same message.

func BenchmarkDecodeRequest(b *testing.B) {
	m := fullRequest()
	m.ClientTag = make([]byte, 16)
	encoded, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("hotcodec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := hotcodec.DecodeSubmitOrderRequest(encoded, m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protobuf-go", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(encoded, m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncodeResponse(b *testing.B) {
	m := fullResponse()
	m.Text, m.ClientTag = "", make([]byte, 16)
	buffer := make([]byte, 0, 1024)
	b.Run("hotcodec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := hotcodec.AppendSubmitOrderResponse(buffer, m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protobuf-go", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := (proto.MarshalOptions{}).MarshalAppend(buffer, m); err != nil {
				b.Fatal(err)
			}
		}
	})
}
