package grpc

import (
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto" // registers the codec that is wrapped here
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"tailgate/transports"
)

// incoming is a request as the codec leaves it for the handler: with the time when all its bytes were here, and with what is wrong with
// them.
type incoming struct {
	request    proto.Message
	receivedNs int64
	err        error
}

// codec is grpc's protobuf codec, but for requests of order entry: when a codec fails, grpc itself ends the stream with INTERNAL and no
// details, so for those the failure is handed to the handler, which answers as the contract says.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	in.receivedNs = transports.Now()
	in.err = c.CodecV2.Unmarshal(data, in.request)
	return nil
}
