package rest_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/rest"
)

// allowed are the statuses with which a request can end while the gateway takes everything.
var allowed = []int{200, 400, 401, 404, 405, 406, 413, 415}

// FuzzRequest sends anything to the handler. It must answer with a documented status and never blame itself; what it takes must reach the
// gateway once, and say the same after a trip back through JSON and the same URL.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/v1/orders", "", "application/json", "", []byte(order))
	f.Add("PUT", "/v1/orders/o", "", "application/json", "*/*", []byte(`{"quantity":1}`))
	f.Add("DELETE", "/v1/orders", "symbol=X&side=buy", "", "application/x-protobuf", []byte{})
	f.Add("GET", "/v1/orders/%2e%2e", "", "", "", []byte{})
	f.Add("GET", "/v1/orders", "state=all&page_size=1&page_token=%00", "", "", []byte{})
	f.Add("GET", "/v1/books/A", "depth=5", "", "", []byte{})
	f.Add("GET", "/v1/executions", "from_sequence=1", "", "", []byte{})
	f.Add("POST", "/v1/orders", "", "application/x-protobuf", "", []byte{0x0a, 1, 'o'})
	f.Add("POST", "/v1/orders", "", "application/json", "", []byte(`{"client_tag":"AA==","price":"-0","quantity":1e2}`))
	gateway := &fake.Gateway{}
	handler := rest.NewHandler(gateway, transports.Limits{MaxRequestBytes: 4096})
	f.Fuzz(func(t *testing.T, method, path, query, contentType, accept string, body []byte) {
		target, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?#") || !token(method) {
			t.Skip("net/http refuses this before a handler sees it")
		}
		target.RawQuery = query
		send := func(body []byte, contentType string) *httptest.ResponseRecorder {
			request := &http.Request{
				Method: method, URL: target, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "x", Header: http.Header{},
				ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
			}
			if contentType != "" {
				request.Header.Set("Content-Type", contentType)
			}
			if accept != "" {
				request.Header.Set("Accept", accept)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, request)
			return w
		}
		gateway.Take()
		w := send(body, contentType)
		seen := gateway.Take()
		if unimplemented := path == "/v1/executions" && w.Code == 501; !slices.Contains(allowed, w.Code) && !unimplemented {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		if w.Code != 200 {
			if len(seen) != 0 {
				t.Fatalf("refused with %d, and the gateway saw %v", w.Code, seen)
			}
			if !strings.Contains(w.Body.String(), "OUTCOME_NOT_PROCESSED") {
				t.Fatalf("status %d without an outcome: %s", w.Code, w.Body)
			}
			return
		}
		if len(seen) == 0 { // instruments or the document: nothing in them to compare
			return
		}
		if len(seen) != 1 {
			t.Fatalf("the gateway saw %v", seen)
		}
		if len(body) == 0 {
			return
		}
		// What was understood, written by protobuf's own encoder, is understood in the same way.
		again, err := protojson.Marshal(seen[0])
		if err != nil {
			t.Fatal(err)
		}
		if w := send(again, "application/json"); w.Code != 200 {
			t.Fatalf("%s: status %d: %s", again, w.Code, w.Body)
		}
		if second := gateway.Take(); len(second) != 1 || !proto.Equal(known(seen[0]), known(second[0])) {
			t.Fatalf("first %v, then %v", seen[0], second)
		}
	})
}

// known is the message without fields that the contract does not have: JSON cannot carry them.
func known(m proto.Message) proto.Message {
	m = proto.Clone(m)
	m.ProtoReflect().SetUnknown(nil)
	return m
}

// token reports whether s can be a method (RFC 9110, section 5.6.2).
func token(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	}) < 0
}
