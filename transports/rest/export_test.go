package rest

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"tailgate/transports"
	"tailgate/transports/internal/httpserver"
)

// NewHandler is the server without sockets, for benchmarks and fuzzing.
func NewHandler(gateway transports.Gateway, limits transports.Limits) http.Handler {
	return newHandler(gateway, limits.WithDefaults(), nil)
}

// Grace is what a server's Shutdown allows by default.
const Grace = httpserver.Grace

// SetGrace changes it for one server, before its Shutdown.
func SetGrace(s transports.Server, d time.Duration) { s.(*httpserver.Server).Grace = d }

// Serve is Listen with a listener of the caller's.
func Serve(inner net.Listener, gateway transports.Gateway, config transports.ListenConfig) transports.Server {
	return serve(inner, gateway, config)
}

// CheckURLRoundTrip fills the fields that each route has in its URL, writes the URL as the client does, and reads it as the server does.
func CheckURLRoundTrip(text string, number uint32, enum int32) error {
	if !utf8.ValidString(text) {
		return nil // no message of the contract holds it
	}
	for _, r := range routes.routes {
		request := r.operation.NewRequest()
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
		path, escaped, query := r.location(request)
		written := (&url.URL{Scheme: "http", Host: "x", Path: path, RawPath: escaped, RawQuery: query}).String()
		parsed, err := url.ParseRequestURI(written)
		if err != nil {
			return fmt.Errorf("%s: %w", written, err)
		}
		found, value, _ := routes.match(r.method, parsed)
		if found != r {
			return fmt.Errorf("%s %s leads to another route", r.method, written)
		}
		back := r.operation.NewRequest()
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

// AppendReport is the JSON of an event's data.
var AppendReport = appendReport

// ReadEvents reads a stream as the client does, as pairs of name and data.
func ReadEvents(text string) (events [][2]string, err error) {
	r := newEventReader(strings.NewReader(text))
	for {
		name, data, err := r.next()
		if err != nil {
			return events, err
		}
		events = append(events, [2]string{name, string(data)})
	}
}
