package rest_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/fake"
)

// checker holds a JSON value to a schema of the document: the part of JSON Schema 2020-12 that the document uses.
type checker struct {
	t    *testing.T
	root map[string]any
}

// resolve follows a reference within the document.
func (c checker) resolve(schema map[string]any) map[string]any {
	c.t.Helper()
	reference, ok := schema["$ref"].(string)
	if !ok {
		return schema
	}
	at := c.root
	for step := range strings.SplitSeq(strings.TrimPrefix(reference, "#/"), "/") {
		next, ok := at[step].(map[string]any)
		if !ok {
			c.t.Fatalf("%s leads nowhere", reference)
		}
		at = next
	}
	return at
}

func (c checker) check(path string, schema map[string]any, value any) {
	c.t.Helper()
	if in, ok := schema["enum"].([]any); ok && !slices.Contains(in, value) {
		c.t.Errorf("%s: %v is not one of %v", path, value, in)
	}
	schema = c.resolve(schema)
	if in, ok := schema["enum"].([]any); ok && !slices.Contains(in, value) {
		c.t.Errorf("%s: %v is not one of %v", path, value, in)
	}
	types, ok := schema["type"].([]any)
	if !ok {
		types = []any{schema["type"]}
	}
	is := map[string]bool{}
	switch v := value.(type) {
	case string:
		is["string"] = true
		if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
			c.t.Errorf("%s: %q does not match %s", path, v, pattern)
		}
	case float64:
		is["number"], is["integer"] = true, v == float64(int64(v))
		if least, ok := schema["minimum"].(float64); ok && v < least {
			c.t.Errorf("%s: %v is below %v", path, v, least)
		}
	case bool:
		is["boolean"] = true
	case []any:
		is["array"] = true
		for i, item := range v {
			c.check(fmt.Sprintf("%s[%d]", path, i), schema["items"].(map[string]any), item)
		}
	case map[string]any:
		is["object"] = true
		properties, _ := schema["properties"].(map[string]any)
		for name, member := range v {
			property, ok := properties[name].(map[string]any)
			if !ok {
				c.t.Errorf("%s: member %q is not in the schema", path, name)
				continue
			}
			c.check(path+"."+name, property, member)
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				c.t.Errorf("%s: member %q is missing", path, name)
			}
		}
	}
	if !slices.ContainsFunc(types, func(t any) bool { name, _ := t.(string); return is[name] }) {
		c.t.Errorf("%s: %v is no %v", path, value, types)
	}
}

// dig walks into nested objects.
func dig(t *testing.T, at map[string]any, steps ...string) map[string]any {
	t.Helper()
	for _, step := range steps {
		next, ok := at[step].(map[string]any)
		if !ok {
			t.Fatalf("no %q in %v", step, steps)
		}
		at = next
	}
	return at
}

func TestOpenAPIDescribesTheTraffic(t *testing.T) {
	gateway := &fake.Gateway{}
	server := listen(t, gateway, transports.ListenConfig{})
	document := ask(t, server, "GET", "/openapi.json", "").body
	if document["openapi"] != "3.1.0" {
		t.Errorf("openapi is %v", document["openapi"])
	}
	c := checker{t, document}
	var all func(v any)
	all = func(v any) { // every reference leads somewhere
		switch v := v.(type) {
		case map[string]any:
			c.resolve(v)
			for _, member := range v {
				all(member)
			}
		case []any:
			for _, item := range v {
				all(item)
			}
		}
	}
	all(document)
	operations := map[string]bool{}
	for path, item := range dig(t, document, "paths") {
		for method, operation := range item.(map[string]any) {
			operations[operation.(map[string]any)["operationId"].(string)] = true
			if strings.Contains(path, "{") && method != "" {
				parameters, _ := operation.(map[string]any)["parameters"].([]any)
				if len(parameters) == 0 || parameters[0].(map[string]any)["in"] != "path" || parameters[0].(map[string]any)["required"] != true {
					t.Errorf("%s %s does not describe its path parameter", method, path)
				}
			}
		}
	}
	for _, op := range transports.Operations() {
		if !operations[op.String()] {
			t.Errorf("%s is not in the document", op)
		}
	}

	for _, x := range []struct{ method, template, path, body string }{
		{"post", "/v1/orders", "/v1/orders", order},
		{"put", "/v1/orders/{client_order_id}", "/v1/orders/o", `{"request_id":"r","quantity":"5","price":-1}`},
		{"delete", "/v1/orders/{client_order_id}", "/v1/orders/o", ""},
		{"delete", "/v1/orders", "/v1/orders?side=sell", ""},
		{"get", "/v1/orders/{client_order_id}", "/v1/orders/o", ""},
		{"get", "/v1/orders", "/v1/orders", ""},
		{"get", "/v1/books/{symbol}", "/v1/books/DEMO", ""},
		{"get", "/v1/instruments", "/v1/instruments", ""},
		{"post", "/v1/cancel-all-after", "/v1/cancel-all-after", `{"timeout_ms":5}`},
	} {
		operation := dig(t, document, "paths", x.template, x.method)
		if x.body != "" {
			var value any
			if err := json.Unmarshal([]byte(x.body), &value); err != nil {
				t.Fatal(err)
			}
			c.check(x.method+" "+x.path, dig(t, operation, "requestBody", "content", "application/json", "schema"), value)
		}
		a := ask(t, server, strings.ToUpper(x.method), x.path, x.body)
		c.check(x.method+" "+x.path+" 200", dig(t, operation, "responses", "200", "content", "application/json", "schema"), a.body)

		a = ask(t, server, strings.ToUpper(x.method), x.path, x.body, "Authorization: Basic x")
		response := c.resolve(dig(t, operation, "responses", fmt.Sprint(a.StatusCode)))
		c.check(x.method+" "+x.path+" 401", dig(t, response, "content", "application/problem+json", "schema"), a.body)
	}
}

// TestOpenAPISaysTheRules looks at bounds that come from the contract's validation rules.
func TestOpenAPISaysTheRules(t *testing.T) {
	document := ask(t, listen(t, &fake.Gateway{}, transports.ListenConfig{}), "GET", "/openapi.json", "").body
	schemas := dig(t, document, "components", "schemas")
	submit := dig(t, schemas, "SubmitOrderRequest")
	required := fmt.Sprint(submit["required"])
	if required != "[client_order_id symbol side type quantity]" {
		t.Errorf("required are %s", required)
	}
	if got := dig(t, submit, "properties", "client_order_id")["pattern"]; got != "^[A-Za-z0-9_-]{1,32}$" {
		t.Errorf("pattern is %v", got)
	}
	if got := fmt.Sprint(dig(t, submit, "properties", "side")["enum"]); got != "[SIDE_BUY SIDE_SELL]" {
		t.Errorf("sides are %v", got)
	}
	if rules, _ := submit["x-cel"].([]any); len(rules) != 7 {
		t.Errorf("rules over fields are %v", rules)
	}
	if got := fmt.Sprint(dig(t, schemas, "ReplaceOrderRequest")["required"]); got != "[quantity]" {
		t.Errorf("a replace requires %s in its body", got)
	}
	depth := dig(t, document, "paths", "/v1/books/{symbol}", "get")["parameters"].([]any)[1].(map[string]any)
	if depth["name"] != "depth" || dig(t, depth, "schema")["maximum"] != 5000.0 {
		t.Errorf("depth is %v", depth)
	}
	state := dig(t, document, "paths", "/v1/orders", "get")["parameters"].([]any)[0].(map[string]any)
	if got := fmt.Sprint(dig(t, state, "schema")["enum"]); got != "[open all]" {
		t.Errorf("states are %v", got)
	}
}

// TestOpenAPIDescribesTheStream holds what comes as events to the schemas that the document has for them.
func TestOpenAPIDescribesTheStream(t *testing.T) {
	feed := &fake.Feed{}
	feed.Publish(1)
	feed.Fail(transports.Refuse(pb.Reason_REASON_THROTTLED, "enough"))
	server := listen(t, &fake.Gateway{Feed: feed}, transports.ListenConfig{})
	document := ask(t, server, "GET", "/openapi.json", "").body
	operation := dig(t, document, "paths", "/v1/executions", "get")
	var names []string
	parameters, _ := operation["parameters"].([]any)
	for _, p := range parameters {
		names = append(names, fmt.Sprint(p.(map[string]any)["in"], " ", p.(map[string]any)["name"]))
	}
	if got := strings.Join(names, ", "); got != "query account, query from_sequence, query epoch, header Last-Event-ID" {
		t.Errorf("parameters are %s", got)
	}
	data := dig(t, operation, "responses", "200", "content", "text/event-stream", "x-event-data")
	c := checker{t, document}
	seen := 0
	for event := range strings.SplitSeq(string(ask(t, server, "GET", "/v1/executions", "").raw), "\n\n") {
		_, event, ok := strings.Cut(event, "event: ")
		if !ok {
			continue
		}
		seen++
		name, text, _ := strings.Cut(event, "\ndata: ")
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		c.check(name, dig(t, data, name), value)
	}
	if seen != 2 {
		t.Errorf("%d events came, want an execution and an error", seen)
	}
}
