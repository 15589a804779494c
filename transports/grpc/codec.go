package grpc

import (
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto" // registers the codec that is wrapped here
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"tailgate/transports"
	"tailgate/transports/internal/outcome"
)

// incoming is a request as the codec leaves it for the handler: with the time when all its bytes were here, and with what is wrong with
// them.
type incoming struct {
	request    proto.Message
	receivedNs int64
	err        error // a *Fault
}

// frame is a message as it came, for those who take it apart themselves. Its bytes are the receiver's, until it frees them.
type frame struct {
	data       mem.Buffer
	receivedNs int64
}

// outgoing is a message that is encoded already. Its bytes are grpc's from then on.
type outgoing struct{ data mem.Buffer }

// codec is grpc's protobuf codec, but for requests of order entry: when a codec fails, grpc itself ends the stream with INTERNAL and no
// details, so for those the failure is handed to the handler, which answers as the contract says.
//
// Unary requests are held to maxRequest here, since a session's are larger by their envelope, and grpc has one bound for both.
type codec struct {
	encoding.CodecV2
	maxRequest int
}

func newCodec(maxRequest int) codec {
	return codec{CodecV2: encoding.GetCodecV2(protocodec.Name), maxRequest: maxRequest}
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if out, ok := v.(*outgoing); ok {
		return mem.BufferSlice{out.data}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch in := v.(type) {
	case *incoming:
		in.receivedNs = transports.Now()
		if size := data.Len(); size > c.maxRequest {
			in.err = outcome.TooLarge(size, c.maxRequest)
		} else if err := c.CodecV2.Unmarshal(data, in.request); err != nil {
			in.err = outcome.NotDecoded(in.request, err)
		}
		return nil
	case *frame:
		in.receivedNs, in.data = transports.Now(), data.MaterializeToBuffer(mem.DefaultBufferPool())
		return nil
	default:
		return c.CodecV2.Unmarshal(data, v)
	}
}
