package restapi

import (
	"fmt"
	"net/url"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// checkURLRoundTrip fills the fields that each route has in its URL, writes the URL as the client does, and reads it as the server does.
func checkURLRoundTrip(text string, number uint32, enum int32) error {
	if !utf8.ValidString(text) {
		return nil // no message of the contract holds it
	}
	for _, r := range routes.routes {
		request := r.Operation.NewRequest()
		m := request.ProtoReflect()
		fill := append([]protoreflect.FieldDescriptor(nil), r.query...)
		if r.variable != nil {
			fill = append(fill, r.variable)
		}
		for _, f := range fill {
			switch f.Kind() {
			case protoreflect.StringKind:
				m.Set(f, protoreflect.ValueOfString(text))
			case protoreflect.Uint32Kind:
				m.Set(f, protoreflect.ValueOfUint32(number))
			case protoreflect.Uint64Kind:
				m.Set(f, protoreflect.ValueOfUint64(uint64(number)<<32|uint64(number)))
			case protoreflect.EnumKind:
				m.Set(f, protoreflect.ValueOfEnum(protoreflect.EnumNumber(enum)))
			}
		}
		path, escaped, query := r.Location(request)
		written := (&url.URL{Scheme: "http", Host: "x", Path: path, RawPath: escaped, RawQuery: query}).String()
		parsed, err := url.ParseRequestURI(written)
		if err != nil {
			return fmt.Errorf("%s: %w", written, err)
		}
		found, err := routes.find(r.Method, parsed.EscapedPath())
		if err != nil || found != r {
			return fmt.Errorf("%s %s leads to another route", r.Method, written)
		}
		value, err := r.value(parsed.EscapedPath())
		if err != nil {
			return fmt.Errorf("%s: %w", written, err)
		}
		back := r.Operation.NewRequest()
		if err := r.readQuery(parsed.RawQuery, back); err != nil {
			return fmt.Errorf("%s: %w", written, err)
		}
		if err := r.readPath(value, back); err != nil {
			return fmt.Errorf("%s: %w", written, err)
		}
		if !proto.Equal(back, request) {
			return fmt.Errorf("%s: wrote %v, read %v", written, request, back)
		}
	}
	return nil
}

// FuzzURL turns arbitrary texts into the fields of a request and back through the URL that the client writes.
func FuzzURL(f *testing.F) {
	f.Add("o-1", uint32(0), int32(1))
	f.Add("a/b?c#d%41 +&=", uint32(1<<32-1), int32(-5))
	f.Add("", uint32(1), int32(77))
	f.Fuzz(func(t *testing.T, text string, number uint32, enum int32) {
		if err := checkURLRoundTrip(text, number, enum); err != nil {
			t.Error(err)
		}
	})
}
