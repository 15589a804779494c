package connect

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/contractjson"
	"tailgate/transports/internal/envelope"
	"tailgate/transports/internal/outcome"
)

// The encodings, as in Transport.Encodings.
const (
	protobufName = "protobuf"
	jsonName     = "json"
)

// incoming is a request as the codec leaves it for the handler: with the time when all its bytes were here, and with what is wrong with them.
// When a codec fails, the library itself answers, without an ErrorDetail; so for requests the failure is handed to the handler.
type incoming struct {
	message    proto.Message // made before the bytes are read
	receivedNs int64         // 0 where a protocol has no bytes for an empty message
	err        error         // a *Fault
}

// outgoing is a message to be encoded: an answer at the server, a request at the client.
type outgoing struct{ message proto.Message }

// event is an answer of StreamExecutions around a report that is encoded already.
type event struct{ report []byte }

// reply is an answer as it came, for a client that decodes it into its caller's message. An empty one is an empty message.
type reply struct{ data []byte }

// codec implements connect.Codec for the types of this package, and for the library's own messages, which are in protobuf whatever the codec. Safe for concurrent use.
type codec struct {
	name       string // of the content type
	maxRequest int    // in protobuf, of requests that are read
	appendTo   func(b []byte, m proto.Message) ([]byte, error)
	read       func(b []byte, m proto.Message) error // the error is a *Fault
}

func protobufCodec(maxRequest int) *codec {
	return &codec{name: "proto", maxRequest: maxRequest, appendTo: proto.MarshalOptions{}.MarshalAppend, read: func(b []byte, m proto.Message) error {
		if len(b) > maxRequest {
			return outcome.TooLarge(len(b), maxRequest)
		}
		if err := proto.Unmarshal(b, m); err != nil {
			return outcome.NotDecoded(m, err)
		}
		return nil
	}}
}

func jsonCodec(name string, maxRequest int) *codec {
	return &codec{name: name, maxRequest: maxRequest, appendTo: contractjson.Append, read: func(b []byte, m proto.Message) error {
		if err := contractjson.ReadRequest(b, m); err != nil {
			return err
		}
		if size := proto.Size(m); size > maxRequest { // the limit is on the message, whatever its form
			return outcome.TooLarge(size, maxRequest)
		}
		return nil
	}}
}

// Name implements connect.Codec.
func (c *codec) Name() string { return c.name }

// Marshal implements connect.Codec.
func (c *codec) Marshal(v any) ([]byte, error) { return c.MarshalAppend(nil, v) }

// MarshalAppend is what the library looks for before Marshal, to use its buffers again.
func (c *codec) MarshalAppend(b []byte, v any) ([]byte, error) {
	switch out := v.(type) {
	case *outgoing:
		return c.appendTo(b, out.message)
	case *event:
		if c.name == "proto" {
			return append(envelope.AppendHead(b, 0, executionMember, len(out.report)), out.report...), nil
		}
		report := new(pb.ExecutionReport)
		if err := proto.Unmarshal(out.report, report); err != nil {
			return b, err
		}
		return c.appendTo(b, &pb.StreamExecutionsResponse{Execution: report})
	case proto.Message: // the library's own: the status of gRPC
		return proto.MarshalOptions{}.MarshalAppend(b, out)
	default:
		return b, fmt.Errorf("a %T is not for this codec", v)
	}
}

// executionMember is the field of a StreamExecutionsResponse that has the event.
const executionMember envelope.Member = 1

// Unmarshal implements connect.Codec. The bytes are the library's again afterwards.
func (c *codec) Unmarshal(b []byte, v any) error {
	switch in := v.(type) {
	case *incoming:
		in.receivedNs = transports.Now()
		in.err = c.read(b, in.message)
	case *reply:
		in.data = append([]byte(nil), b...)
	case proto.Message:
		return proto.Unmarshal(b, in)
	default:
		return fmt.Errorf("a %T is not for this codec", v)
	}
	return nil
}

var _ connect.Codec = (*codec)(nil)
