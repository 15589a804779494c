package rest_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/rest"
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

func cases(b *testing.B, run func(b *testing.B, contentType string, size int, body []byte)) {
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
		b.Run(fmt.Sprintf("protobuf/%d", size), func(b *testing.B) { run(b, "application/x-protobuf", size, binary) })
		b.Run(fmt.Sprintf("json/%d", size), func(b *testing.B) { run(b, "application/json", size, text) })
	}
}

// BenchmarkHandler is one order through ServeHTTP: what this package adds to net/http and the gateway.
func BenchmarkHandler(b *testing.B) {
	cases(b, func(b *testing.B, contentType string, _ int, body []byte) {
		handler := rest.NewHandler(fake.Null{}, transports.Limits{})
		w := &null{header: make(http.Header)}
		reader := bytes.NewReader(body)
		request := &http.Request{
			Method: "POST", URL: &url.URL{Path: "/v1/orders"}, Header: http.Header{"Content-Type": {contentType}},
			ContentLength: int64(len(body)), Body: io.NopCloser(reader),
		}
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			reader.Reset(body)
			handler.ServeHTTP(w, request)
		}
		if w.status != 0 || w.bytes == 0 {
			b.Fatalf("status %d, %d bytes", w.status, w.bytes)
		}
	})
}

// BenchmarkRoundTrip is one caller over loopback, client and server in one process: both sides' allocations are counted.
func BenchmarkRoundTrip(b *testing.B) {
	cases(b, func(b *testing.B, contentType string, size int, body []byte) {
		encoding := map[string]string{"application/json": "json"}[contentType]
		client := dial(b, listen(b, fake.Null{}, transports.ListenConfig{}), transports.DialConfig{Encoding: encoding})
		m := fake.Order("abcdefghijkl", nil)
		m.ClientTag = make([]byte, max(1, size-proto.Size(m)-2))
		c := fake.Call(transports.SubmitOrder, m)
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if err := client.Do(b.Context(), c); err != nil {
				b.Fatal(err)
			}
		}
	})
}
