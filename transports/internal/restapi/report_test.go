package restapi

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports/internal/fake"
)

// compactJSON is protojson's text without the white space that it varies.
func compactJSON(t interface{ Fatal(args ...any) }, m proto.Message) []byte {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// fill draws every field of m, those of messages too.
func fill(t *rapid.T, m protoreflect.Message, texts *rapid.Generator[string]) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch f.Kind() {
		case protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(texts.Draw(t, string(f.Name()))))
		case protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(rapid.Bool().Draw(t, string(f.Name()))))
		case protoreflect.Uint32Kind:
			m.Set(f, protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, string(f.Name()))))
		case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
			m.Set(f, protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, string(f.Name()))))
		case protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOfInt64(rapid.Int64().Draw(t, string(f.Name()))))
		case protoreflect.EnumKind:
			m.Set(f, protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32Range(-1, 300).Draw(t, string(f.Name())))))
		case protoreflect.MessageKind:
			if rapid.Bool().Draw(t, "with "+string(f.Name())) {
				fill(t, m.Mutable(f).Message(), texts)
			}
		default:
			t.Fatalf("a %v is new to this test", f.Kind())
		}
	}
}

// TestReportIsWhatProtobufSays: the hand-written form has every field of the contract, in protojson's words.
func TestReportIsWhatProtobufSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m pb.ExecutionReport
		fill(t, m.ProtoReflect(), rapid.StringMatching("[A-Za-z0-9_.<>&-]{0,32}"))
		if got, want := appendReport(nil, &m), compactJSON(t, &m); !bytes.Equal(got, want) {
			t.Fatalf("%s\nwant\n%s", got, want)
		}
	})
	rapid.Check(t, func(t *rapid.T) { // any text at all: one line, and the same value
		var m pb.ExecutionReport
		fill(t, m.ProtoReflect(), rapid.String())
		got := appendReport(nil, &m)
		if bytes.ContainsAny(got, "\r\n") {
			t.Fatalf("%q has several lines", got)
		}
		var value, want any
		if err := json.Unmarshal(got, &value); err != nil {
			t.Fatalf("%v in %s", err, got)
		}
		if err := json.Unmarshal(compactJSON(t, &m), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(value, want) {
			t.Fatalf("%v\nwant\n%v", value, want)
		}
	})
}

// BenchmarkEvent is what one event of a stream costs beside the write.
func BenchmarkEvent(b *testing.B) {
	encoded, err := proto.Marshal(fake.Report(1, 5))
	if err != nil {
		b.Fatal(err)
	}
	var m pb.ExecutionReport
	var text []byte
	b.ReportAllocs()
	for b.Loop() {
		if err := proto.Unmarshal(encoded, &m); err != nil {
			b.Fatal(err)
		}
		text = appendReport(text[:0], &m)
	}
	b.SetBytes(int64(len(text)))
}
