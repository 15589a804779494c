package restapi

import (
	"mime"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports/internal/contractjson"
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

// jsonText is the contract as JSON, the same as over every transport.
var jsonText = &Encoding{
	Name: "json", ContentType: jsonType, header: []string{jsonType},
	AppendTo: contractjson.Append, readRequest: contractjson.ReadRequest, ReadResponse: contractjson.ReadResponse, maxBytes: contractjson.MaxBytes,
}

// Encodings are all of them, the first is a client's default.
func Encodings() []*Encoding { return []*Encoding{protobuf, jsonText} }

// EncodingNames are their names, as in Transport.Encodings.
func EncodingNames() []string { return []string{protobuf.Name, jsonText.Name} }

// encodings in the order of preference where a caller has none.
var encodings = []*Encoding{jsonText, protobuf}

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
