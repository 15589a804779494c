package restapi

import (
	"mime"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports/internal/hotcodec"
	"tailgate/transports/internal/outcome"
)

// Encoding is one form in which messages travel. It never changes.
type Encoding struct {
	Name         string // as in Transport.Encodings
	ContentType  string
	AppendTo     func(b []byte, m proto.Message) ([]byte, error)
	ReadResponse func(b []byte, m proto.Message) error
	header       []string                              // ContentType as a header value, shared by all answers
	readRequest  func(b []byte, m proto.Message) error // m may point into b afterwards; the error is a *Fault
	// maxBytes is what a message of so many bytes in protobuf has at most.
	maxBytes func(protobufBytes int) int
}

const (
	protobufType = "application/x-protobuf"
	jsonType     = "application/json"
	// ProblemType is that of a [Problem].
	ProblemType = "application/problem+json" // RFC 9457
)

var protobuf = &Encoding{
	Name: "protobuf", ContentType: protobufType, header: []string{protobufType},
	AppendTo: proto.MarshalOptions{}.MarshalAppend,
	readRequest: func(b []byte, m proto.Message) error {
		var err error
		if order, ok := m.(*pb.SubmitOrderRequest); ok { // does not copy the tag
			err = hotcodec.DecodeSubmitOrderRequest(b, order)
		} else {
			err = proto.Unmarshal(b, m)
		}
		if err != nil {
			return outcome.NotDecoded(m, err)
		}
		return nil
	},
	ReadResponse: proto.Unmarshal,
	maxBytes:     func(n int) int { return n },
}

// jsonText is protobuf's JSON mapping with the field names of the contract and zero values written out.
var jsonText = &Encoding{
	Name: "json", ContentType: jsonType, header: []string{jsonType},
	AppendTo:    protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.MarshalAppend,
	readRequest: readJSONRequest,
	// A client takes what a newer gateway adds.
	ReadResponse: protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal,
	maxBytes:     func(n int) int { return 4*((n+2)/3) + jsonFrame },
}

// jsonFrame is the room for everything of a message but its tag, which base64 makes 4/3 as large: the names, numbers and white space of
// the largest request of the contract take less than 1 KiB, four times that is allowed.
const jsonFrame = 4 << 10

// Encodings are all of them, the first is a client's default.
func Encodings() []*Encoding { return []*Encoding{protobuf, jsonText} }

// EncodingNames are their names, as in Transport.Encodings.
func EncodingNames() []string { return []string{protobuf.Name, jsonText.Name} }

// encodings in the order of preference where a caller has none.
var encodings = []*Encoding{jsonText, protobuf}

func readJSONRequest(b []byte, m proto.Message) error {
	err := protojson.Unmarshal(b, m)
	if err == nil {
		return nil
	}
	fault := outcome.NotDecoded(m, jsonError{err})
	fault.Field = jsonField(m.ProtoReflect().Descriptor(), err.Error())
	return fault
}

// jsonError takes away protojson's prefix, whose space it varies at random so that nobody compares its texts.
type jsonError struct{ error }

// Error implements error.
func (e jsonError) Error() string {
	return strings.TrimLeft(strings.TrimPrefix(e.error.Error(), "proto:"), " \u00a0")
}

// jsonFields are the forms in which protojson names the field that is wrong.
var jsonFields = regexp.MustCompile(`(?:(?:unknown|duplicate) field ("(?:[^"\\]|\\.)*")|invalid value for \w+ field (\w+))`)

// jsonField finds the field's name in a text of protojson, empty where it names none. Only an error is worth this.
func jsonField(d protoreflect.MessageDescriptor, text string) string {
	found := jsonFields.FindStringSubmatch(text)
	switch {
	case found == nil:
		return ""
	case found[1] != "": // as the request wrote it
		name, err := strconv.Unquote(found[1])
		if err != nil {
			return ""
		}
		return name
	default: // in lowerCamelCase, whatever the request wrote
		if f := d.Fields().ByJSONName(found[2]); f != nil {
			return string(f.Name())
		}
		return found[2]
	}
}

// encodingOf returns the encoding of a body by its Content-Type, nil for any other type.
func encodingOf(contentType string) *Encoding {
	for _, e := range encodings {
		if contentType == e.ContentType { // as nearly every client writes it
			return e
		}
	}
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil
	}
	if charset, ok := parameters["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return nil
	}
	for _, e := range encodings {
		if mediaType == e.ContentType {
			return e
		}
	}
	return nil
}

// negotiate returns the encoding of the answer: what Accept prefers (RFC 9110, section 12.5.1), the preferred one where it leaves the
// choice, nil where it takes neither.
func negotiate(accept []string, preferred *Encoding) *Encoding {
	if len(accept) == 0 {
		return preferred
	}
	if len(accept) == 1 {
		for _, e := range encodings {
			if accept[0] == e.ContentType {
				return e
			}
		}
	}
	ranges := strings.Split(strings.Join(accept, ","), ",")
	best, quality := (*Encoding)(nil), 0.0
	for _, e := range encodings {
		if q := acceptQuality(ranges, e.ContentType); q > quality || q == quality && q > 0 && e == preferred {
			best, quality = e, q
		}
	}
	return best
}

// acceptQuality is the weight that the most specific matching range gives a type.
func acceptQuality(ranges []string, contentType string) float64 {
	quality, rank := 0.0, 0
	for _, text := range ranges {
		mediaType, parameters, err := mime.ParseMediaType(text)
		if err != nil {
			continue
		}
		matched := 0
		switch mediaType {
		case contentType:
			matched = 3
		case contentType[:strings.IndexByte(contentType, '/')+1] + "*":
			matched = 2
		case "*/*":
			matched = 1
		}
		if matched <= rank {
			continue
		}
		q := 1.0
		if weight, ok := parameters["q"]; ok {
			if q, err = strconv.ParseFloat(weight, 64); err != nil || !(q >= 0 && q <= 1) {
				continue
			}
		}
		quality, rank = q, matched
	}
	return quality
}
