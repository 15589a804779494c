package twirp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/twirp"
)

// null is a ResponseWriter that costs nothing, so that a benchmark counts the handler alone.
type null struct {
	header http.Header
	status int
	bytes  int
}

func (n *null) Header() http.Header { return n.header }
func (n *null) WriteHeader(s int)   { n.status = s }
func (n *null) Write(p []byte) (int, error) {
	n.bytes += len(p)
	return len(p), nil
}

// bare is the library with its generated handler and nothing behind it: an echo of the tag.
type bare struct{ pb.OrderEntryService }

// SubmitOrder implements pb.OrderEntryService.
func (bare) SubmitOrder(_ context.Context, r *pb.SubmitOrderRequest) (*pb.SubmitOrderResponse, error) {
	return &pb.SubmitOrderResponse{ClientOrderId: r.GetClientOrderId(), ClientTag: r.GetClientTag()}, nil
}

// BenchmarkHandler is one order through ServeHTTP, by this package and by the bare library: the difference is what admission, bounds and the
// exchange with a gateway cost.
func BenchmarkHandler(b *testing.B) {
	library := pb.NewOrderEntryServiceServer(bare{})
	for name, handler := range map[string]http.Handler{"gateway": twirp.NewHandler(fake.Null{}), "bare": library} {
		for _, size := range []int{64, 64 << 10} {
			m := fake.Order("abcdefghijkl", nil)
			m.ClientTag = make([]byte, max(1, size-proto.Size(m)-2))
			binary, err := proto.Marshal(m)
			if err != nil {
				b.Fatal(err)
			}
			text, err := protojson.Marshal(m)
			if err != nil {
				b.Fatal(err)
			}
			for contentType, body := range map[string][]byte{"application/protobuf": binary, "application/json": text} {
				b.Run(fmt.Sprintf("%s/%s/%d", name, contentType[len("application/"):], size), func(b *testing.B) {
					w := &null{header: make(http.Header)}
					reader := bytes.NewReader(body)
					request := &http.Request{
						Method: "POST", URL: &url.URL{Path: "/twirp/orderentry.v1.OrderEntryService/SubmitOrder"}, Header: http.Header{"Content-Type": {contentType}},
						ContentLength: int64(len(body)), ProtoMajor: 1, Host: "x",
					}
					b.ReportAllocs()
					b.SetBytes(int64(len(body)))
					for b.Loop() {
						reader.Reset(body)
						request.Body = io.NopCloser(reader)
						handler.ServeHTTP(w, request)
					}
					if w.status > 200 || w.bytes == 0 {
						b.Fatalf("status %d, %d bytes", w.status, w.bytes)
					}
				})
			}
		}
	}
}

// BenchmarkRoundTrip is one caller over loopback, client and server in one process: both sides' allocations are counted.
func BenchmarkRoundTrip(b *testing.B) {
	for _, encoding := range twirp.Transport().Encodings {
		b.Run(encoding, func(b *testing.B) {
			client := dial(b, listen(b, fake.Null{}, transports.ListenConfig{}), transports.DialConfig{Encoding: encoding})
			c := fake.Call(transports.SubmitOrder, fake.Order("abcdefghijkl", make([]byte, 20)))
			b.ReportAllocs()
			for b.Loop() {
				if err := client.Do(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
