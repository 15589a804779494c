package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// route says where one operation of the contract is found. Fields of the request that are neither in the path nor in a body are
// query parameters, under their proto names.
type route struct {
	operation transports.Operation
	method    string
	path      string // at most one {field}, as the last segment
	body      bool   // the request travels as the body
	stream    bool   // the answer is a stream of events

	// Derived by newTable.
	rpc        protoreflect.Name
	collection string                         // path without "/{field}"
	variable   protoreflect.FieldDescriptor   // the {field}, or nil
	query      []protoreflect.FieldDescriptor // the parameters taken
	input      protoreflect.MessageDescriptor
	output     protoreflect.MessageDescriptor
}

// table is all of it, found by path.
type table struct {
	routes      []*route // in the order of the OpenAPI document
	byOperation map[transports.Operation]*route
	collections map[string][]*route // by path, of routes without a {field}
	members     map[string][]*route // by path up to the last slash, of routes with one
}

// openAPIPath is where the document is served, to anybody: it says nothing that the contract does not.
const openAPIPath = "/openapi.json"

var routes = newTable(pb.File_orderentry_v1_order_entry_proto)

// operations are the routes as written; newTable completes them.
func operations() []*route {
	return []*route{
		{operation: transports.SubmitOrder, method: http.MethodPost, path: "/v1/orders", body: true},
		{operation: transports.ListOrders, method: http.MethodGet, path: "/v1/orders"},
		{operation: transports.MassCancel, method: http.MethodDelete, path: "/v1/orders"},
		{operation: transports.GetOrder, method: http.MethodGet, path: "/v1/orders/{client_order_id}"},
		{operation: transports.ReplaceOrder, method: http.MethodPut, path: "/v1/orders/{client_order_id}", body: true},
		{operation: transports.CancelOrder, method: http.MethodDelete, path: "/v1/orders/{client_order_id}"},
		{operation: transports.CancelAllAfter, method: http.MethodPost, path: "/v1/cancel-all-after", body: true},
		{operation: transports.ListInstruments, method: http.MethodGet, path: "/v1/instruments"},
		{operation: transports.GetBook, method: http.MethodGet, path: "/v1/books/{symbol}"},
		{operation: transports.StreamExecutions, stream: true, method: http.MethodGet, path: "/v1/executions"},
	}
}

// newTable completes the routes from the contract's descriptors. It panics on routes that do not fit them.
func newTable(contract protoreflect.FileDescriptor) *table {
	list := operations()
	t := &table{
		routes: list, byOperation: make(map[transports.Operation]*route),
		collections: make(map[string][]*route), members: make(map[string][]*route),
	}
	methods := contract.Services().ByName("OrderEntryService").Methods()
	for _, r := range list {
		r.rpc = protoreflect.Name(r.operation.String())
		t.byOperation[r.operation] = r
		rpc := methods.ByName(r.rpc)
		r.input, r.output = rpc.Input(), rpc.Output()
		r.collection = r.path
		if name, rest, ok := strings.Cut(r.path, "/{"); ok {
			r.collection = name
			r.variable = r.input.Fields().ByName(protoreflect.Name(strings.TrimSuffix(rest, "}")))
			if r.variable == nil {
				panic("rest: the path " + r.path + " names a field that " + string(r.input.FullName()) + " does not have")
			}
			t.members[name] = append(t.members[name], r)
		} else {
			t.collections[name] = append(t.collections[name], r)
		}
		for i := range r.input.Fields().Len() {
			if f := r.input.Fields().Get(i); !r.body && f != r.variable {
				r.query = append(r.query, f)
			}
		}
	}
	return t
}

// match finds the route of a request and the value in its path, unescaped. Where no route has the method, allowed has those
// that do; where the path is unknown, allowed is nil.
func (t *table) match(method string, u *url.URL) (r *route, value string, allowed []string) {
	if method == http.MethodHead { // as GET, without the body (net/http leaves it out): RFC 9110, section 9.3.2
		method = http.MethodGet
	}
	path := u.EscapedPath()
	candidates, ok := t.collections[path]
	if !ok {
		// A member's name may be empty here: the gateway refuses it by its field, and a DELETE of an id that a script left empty
		// must not become the DELETE of everything.
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return nil, "", nil
		}
		if candidates, ok = t.members[path[:i]]; !ok {
			return nil, "", nil
		}
		var err error
		if value, err = url.PathUnescape(path[i+1:]); err != nil {
			return nil, "", nil // net/http has unescaped it before, so this does not happen
		}
	}
	for _, r := range candidates {
		if r.method == method {
			return r, value, nil
		}
	}
	for _, r := range candidates {
		allowed = append(allowed, r.method)
		if r.method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	return nil, "", allowed
}
