package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
	"tailgate/transports/internal/resttest"
	"tailgate/transports/rest"
)

// The server as a stranger's HTTP client sees it: nothing here goes through the package's own client.

const order = `{"client_order_id":"o-1","symbol":"DEMO","side":"SIDE_BUY","type":"ORDER_TYPE_LIMIT","time_in_force":"TIME_IN_FORCE_GTC","quantity":"5","price":-7}`

// answer is what came back, the body decoded where it is JSON.
type answer struct {
	*http.Response
	raw  []byte
	body map[string]any
}

// ask sends one request. Headers are "Name: value"; the Content-Type is JSON where there is a body and nothing else is said.
func ask(t testing.TB, server transports.Server, method, path, body string, headers ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, "http://"+server.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	a := answer{Response: response}
	if a.raw, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(response.Header.Get("Content-Type"), "json") && len(a.raw) > 0 {
		if err := json.Unmarshal(a.raw, &a.body); err != nil {
			t.Fatalf("%s %s: %v in %q", method, path, err, a.raw)
		}
	}
	return a
}

func TestHandWrittenRequests(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/v1/orders", order, `client_order_id:"o-1" symbol:"DEMO" side:SIDE_BUY type:ORDER_TYPE_LIMIT time_in_force:TIME_IN_FORCE_GTC quantity:5 price:-7`},
		{"POST", "/v1/orders", `{"clientOrderId":"o-2","clientTag":"AQI="}`, `client_order_id:"o-2" client_tag:"\x01\x02"`},
		{"PUT", "/v1/orders/o-1", `{"request_id":"r","quantity":4,"price":"8"}`, `request_id:"r" client_order_id:"o-1" quantity:4 price:8`},
		{"PUT", "/v1/orders/o-1", `{"client_order_id":"o-1"}`, `client_order_id:"o-1"`},
		{"PUT", "/v1/orders/", `{}`, ``},
		{"DELETE", "/v1/orders/o-1?request_id=r", "", `request_id:"r" client_order_id:"o-1"`},
		{"DELETE", "/v1/orders/o%2D1", "", `client_order_id:"o-1"`},
		{"DELETE", "/v1/orders/a%2Fb", "", `client_order_id:"a/b"`},
		{"DELETE", "/v1/orders/", "", ``},
		{"DELETE", "/v1/orders", "", ``},
		{"DELETE", "/v1/orders?symbol=DEMO&side=SIDE_BUY", "", `symbol:"DEMO" side:SIDE_BUY`},
		{"DELETE", "/v1/orders?side=sell&request_id=r", "", `request_id:"r" side:SIDE_SELL`},
		{"DELETE", "/v1/orders?side=77", "", `side:77`},
		{"POST", "/v1/cancel-all-after", `{"timeout_ms":1000}`, `timeout_ms:1000`},
		{"GET", "/v1/orders/o-1", "", `client_order_id:"o-1"`},
		{"GET", "/v1/orders", "", ``},
		{"GET", "/v1/orders?state=open", "", `state:LIST_ORDERS_STATE_OPEN`},
		{"GET", "/v1/orders?state=all&page_size=10&page_token=a%20b", "", `state:LIST_ORDERS_STATE_ALL page_size:10 page_token:"a b"`},
		{"GET", "/v1/books/DEMO?depth=5", "", `symbol:"DEMO" depth:5`},
		{"GET", "/v1/books/..", "", `symbol:".."`},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			before := len(gateway.Requests())
			a := ask(t, server, c.method, c.path, c.body)
			if a.StatusCode != 200 || a.Header.Get("Content-Type") != "application/json" {
				t.Fatalf("status %d, %s: %s", a.StatusCode, a.Header.Get("Content-Type"), a.raw)
			}
			seen := gateway.Requests()[before:]
			if len(seen) != 1 || compact(seen[0]) != c.want {
				t.Errorf("the gateway saw %v, want once %s", seen, c.want)
			}
		})
	}
}

// compact is prototext without the extra spaces that it varies at random.
func compact(m proto.Message) string {
	text, _ := proto.Marshal(m)
	fresh := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(text, fresh); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(fresh.(interface{ String() string }).String(), ": ", ":")), " ")
}

func TestAnswerIsFlatJSONWithZeroValues(t *testing.T) {
	server := listen(t, &fake.Gateway{}, transports.ListenConfig{})
	a := ask(t, server, "POST", "/v1/orders", order)
	for name, want := range map[string]any{
		"client_order_id": "o-1", "order_id": "1", "status": "ORDER_STATUS_ACCEPTED", "reason": "REASON_UNSPECIFIED", "quantity": "5",
		"filled_quantity": "0", "duplicate": false, "order_version": 1.0, "client_tag": "", "text": "",
	} {
		if got, ok := a.body[name]; !ok || got != want {
			t.Errorf("%s is %v (there: %t), want %v", name, got, ok, want)
		}
	}
}

func TestAcceptChoosesTheEncoding(t *testing.T) {
	server := listen(t, &fake.Gateway{}, transports.ListenConfig{})
	binary, err := proto.Marshal(fake.Order("o", nil))
	if err != nil {
		t.Fatal(err)
	}
	const jsonType, protobufType = "application/json", "application/x-protobuf"
	for _, c := range []struct{ contentType, accept, want string }{
		{jsonType, "", jsonType},
		{protobufType, "", protobufType},
		{jsonType, "*/*", jsonType},
		{protobufType, "*/*", protobufType},
		{protobufType, "application/*", protobufType},
		{jsonType, protobufType, protobufType},
		{protobufType, jsonType, jsonType},
		{protobufType, "application/json;q=0.5, application/x-protobuf;q=0.4", jsonType},
		{jsonType, "text/html, application/x-protobuf;q=0.1", protobufType},
		{jsonType, "*/*;q=0.8, application/json;q=0", protobufType},
		{jsonType + "; charset=UTF-8", "", jsonType},
		{jsonType, "text/html", ""},
		{jsonType, "application/json;q=0", ""},
		{jsonType, "application/json;q=x", ""},
		{"", protobufType, protobufType}, // bodyless
		{"", "", jsonType},
	} {
		t.Run(c.contentType+" "+c.accept, func(t *testing.T) {
			method, path, body, headers := "GET", "/v1/orders/o", "", []string{"Accept: " + c.accept}
			if c.accept == "" {
				headers = nil
			}
			if c.contentType != "" {
				method, path, body, headers = "POST", "/v1/orders", order, append(headers, "Content-Type: "+c.contentType)
				if c.contentType == protobufType {
					body = string(binary)
				}
			}
			a := ask(t, server, method, path, body, headers...)
			if c.want == "" {
				if a.StatusCode != 406 || a.body["outcome"] != "OUTCOME_NOT_PROCESSED" {
					t.Errorf("status %d, %s", a.StatusCode, a.raw)
				}
				return
			}
			if got := a.Header.Get("Content-Type"); a.StatusCode != 200 || got != c.want {
				t.Fatalf("status %d, %s, want %s: %s", a.StatusCode, got, c.want, a.raw)
			}
			if c.want == protobufType && method == "POST" {
				if err := proto.Unmarshal(a.raw, &pb.SubmitOrderResponse{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestRefusalsOfHTTP(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		field, detail            string // a part of it
	}{
		{"unknown path", "GET", "/v2/orders", "", nil, 404, "", "/openapi.json"},
		{"unknown member path", "GET", "/v1/orders/a/b", "", nil, 404, "", "no such path"},
		{"root", "GET", "/", "", nil, 404, "", "no such path"},
		{"doubled slash", "GET", "/v1//orders", "", nil, 404, "", "no such path"},
		{"collection behind a slash", "GET", "/v1/instruments/", "", nil, 404, "", "no such path"},
		{"method", "PATCH", "/v1/orders", "{}", nil, 405, "", "PATCH is not a method of /v1/orders"},
		{"options", "OPTIONS", "/v1/orders", "", nil, 405, "", "OPTIONS"},
		{"method of the document", "POST", "/openapi.json", "{}", nil, 405, "", "POST"},
		{"no content type", "POST", "/v1/orders", order, []string{"Content-Type: "}, 415, "", `""`},
		{"form", "POST", "/v1/orders", "a=b", []string{"Content-Type: application/x-www-form-urlencoded"}, 415, "", "application/json"},
		{"charset", "POST", "/v1/orders", order, []string{"Content-Type: application/json; charset=latin1"}, 415, "", "latin1"},
		{"compressed", "POST", "/v1/orders", order, []string{"Content-Encoding: gzip"}, 415, "", "gzip"},
		{"not JSON", "POST", "/v1/orders", "{", nil, 400, "", "orderentry.v1.SubmitOrderRequest"},
		{"no body", "POST", "/v1/orders", "", []string{"Content-Type: application/json"}, 400, "", "unexpected"},
		{"two values", "POST", "/v1/orders", order + order, nil, 400, "", ""},
		{"array", "POST", "/v1/orders", "[]", nil, 400, "", ""},
		{"unknown field", "POST", "/v1/orders", `{"qty":5}`, nil, 400, "qty", `unknown field "qty"`},
		{"doubled field", "POST", "/v1/orders", `{"side":1,"side":1}`, nil, 400, "side", "duplicate"},
		{"doubled in both spellings", "POST", "/v1/orders", `{"time_in_force":1,"timeInForce":1}`, nil, 400, "timeInForce", "duplicate"},
		{"unknown enum name", "POST", "/v1/orders", `{"time_in_force":"GTC"}`, nil, 400, "time_in_force", `"GTC"`},
		{"fraction", "POST", "/v1/orders", `{"price":1.5}`, nil, 400, "price", "1.5"},
		{"text for a number", "POST", "/v1/orders", `{"quantity":"many"}`, nil, 400, "quantity", "many"},
		{"negative lots", "POST", "/v1/orders", `{"quantity":-1}`, nil, 400, "quantity", "-1"},
		{"number for text", "POST", "/v1/orders", `{"client_order_id":1}`, nil, 400, "client_order_id", ""},
		{"not base64", "POST", "/v1/orders", `{"client_tag":"*"}`, nil, 400, "client_tag", ""},
		{"not UTF-8", "POST", "/v1/orders", "{\"client_order_id\":\"\xff\"}", nil, 400, "", "UTF-8"},
		{"not protobuf", "POST", "/v1/orders", "\xff", []string{"Content-Type: application/x-protobuf"}, 400, "", "orderentry.v1.SubmitOrderRequest"},
		{"body against path", "PUT", "/v1/orders/a", `{"client_order_id":"b"}`, nil, 400, "client_order_id", `the body says "b", the path "a"`},
		{"query beside a body", "POST", "/v1/orders?symbol=X", order, nil, 400, "symbol", "takes none"},
		{"body of a cancel", "DELETE", "/v1/orders/a", `{}`, nil, 400, "", "takes no body"},
		{"body of a mass cancel", "DELETE", "/v1/orders", `{"symbol":"X"}`, nil, 400, "", "request_id, symbol, side"},
		{"unknown parameter", "DELETE", "/v1/orders?sybmol=X", "", nil, 400, "sybmol", "request_id, symbol, side"},
		{"empty parameter", "DELETE", "/v1/orders?symbol=", "", nil, 400, "symbol", "empty"},
		{"doubled parameter", "DELETE", "/v1/orders?symbol=A&symbol=B", "", nil, 400, "symbol", "2 times"},
		{"unknown side", "DELETE", "/v1/orders?side=both", "", nil, 400, "side", "buy, sell"},
		{"bad escape", "GET", "/v1/orders?state=%zz", "", nil, 400, "", "query"},
		{"not UTF-8 in the query", "GET", "/v1/orders?page_token=%ff", "", nil, 400, "page_token", "UTF-8"},
		{"not UTF-8 in the path", "GET", "/v1/orders/%ff", "", nil, 400, "client_order_id", "UTF-8"},
		{"negative page size", "GET", "/v1/orders?page_size=-1", "", nil, 400, "page_size", "whole number"},
		{"too large a depth for its type", "GET", "/v1/books/X?depth=4294967296", "", nil, 400, "depth", "4294967295"},
		{"other scheme of authorization", "GET", "/v1/orders", "", []string{"Authorization: Basic YTpi"}, 401, "", "Bearer"},
		{"empty key", "GET", "/v1/orders", "", []string{"Authorization: Bearer "}, 401, "", "Bearer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := ask(t, server, c.method, c.path, c.body, c.headers...)
			if a.StatusCode != c.status || a.Header.Get("Content-Type") != "application/problem+json" {
				t.Fatalf("status %d, %s, want %d and a problem: %s", a.StatusCode, a.Header.Get("Content-Type"), c.status, a.raw)
			}
			detail, _ := a.body["detail"].(string)
			if field, _ := a.body["field"].(string); field != c.field || !strings.Contains(detail, c.detail) {
				t.Errorf("field %q, want %q; detail %q, want %q in it", field, c.field, detail, c.detail)
			}
			if a.body["outcome"] != "OUTCOME_NOT_PROCESSED" || a.body["status"] != float64(c.status) || a.body["type"] != "about:blank" {
				t.Errorf("%s", a.raw)
			}
			if c.status == 405 && a.Header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			if c.status == 401 && !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Error("401 without WWW-Authenticate")
			}
		})
	}
	if seen := gateway.Requests(); len(seen) != 0 {
		t.Errorf("refused requests reached the gateway: %v", seen)
	}
}

func TestAllowNamesTheMethods(t *testing.T) {
	server := listen(t, &fake.Gateway{}, transports.ListenConfig{})
	for path, want := range map[string]string{
		"/v1/orders": "DELETE, GET, HEAD, POST", "/v1/orders/a": "DELETE, GET, HEAD, PUT", "/v1/cancel-all-after": "POST", "/v1/books/A": "GET, HEAD",
	} {
		if got := ask(t, server, "PATCH", path, "").Header.Get("Allow"); got != want {
			t.Errorf("%s: Allow is %q, want %q", path, got, want)
		}
	}
}

func TestHeadIsGetWithoutBody(t *testing.T) {
	server := listen(t, &fake.Gateway{}, transports.ListenConfig{})
	a := ask(t, server, "HEAD", "/v1/books/DEMO", "")
	if a.StatusCode != 200 || len(a.raw) != 0 || a.ContentLength <= 0 {
		t.Errorf("status %d, %d bytes, Content-Length %d", a.StatusCode, len(a.raw), a.ContentLength)
	}
}

// TestAnswersStandAlone: an answer's buffer is its own until it is written.
func TestAnswersStandAlone(t *testing.T) {
	resttest.Answers(t, func(inner net.Listener, gateway transports.Gateway) transports.Server {
		return rest.Serve(inner, gateway, transports.ListenConfig{})
	})
}
