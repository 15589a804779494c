package restapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// Route says where one operation of the contract is found. Fields of the request that are neither in the path nor in a body are
// query parameters, under their proto names. It never changes.
type Route struct {
	Operation transports.Operation
	Method    string
	Path      string // at most one {field}, as the last segment
	Body      bool   // the request travels as the body
	Stream    bool   // the answer is a stream of events

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
	routes      []*Route // in the order of the OpenAPI document
	byOperation map[transports.Operation]*Route
	collections map[string][]*Route // by path, of routes without a {field}
	members     map[string][]*Route // by path up to the last slash, of routes with one
}

// OpenAPIPath is where the document is served, to anybody: it says nothing that the contract does not.
const OpenAPIPath = "/openapi.json"

var routes = newTable(pb.File_orderentry_v1_order_entry_proto)

// Routes are all of them, for a framework that finds them itself. What it does not find goes to [API.Serve] without a route.
func Routes() []*Route { return slices.Clone(routes.routes) }

// RouteOf returns the route of an operation, nil where it has none.
func RouteOf(op transports.Operation) *Route { return routes.byOperation[op] }

// Pattern is the path as frameworks write it: its {field}, where it has one, as ":field".
func (r *Route) Pattern() string {
	if r.variable == nil {
		return r.Path
	}
	return r.collection + "/:" + string(r.variable.Name())
}

// Methods are those that lead to the route: with GET also HEAD, which is GET without the body (servers leave it out): RFC 9110, section 9.3.2.
func (r *Route) Methods() []string {
	if r.Method == http.MethodGet {
		return []string{http.MethodGet, http.MethodHead}
	}
	return []string{r.Method}
}

// operations are the routes as written; newTable completes them.
func operations() []*Route {
	return []*Route{
		{Operation: transports.SubmitOrder, Method: http.MethodPost, Path: "/v1/orders", Body: true},
		{Operation: transports.ListOrders, Method: http.MethodGet, Path: "/v1/orders"},
		{Operation: transports.MassCancel, Method: http.MethodDelete, Path: "/v1/orders"},
		{Operation: transports.GetOrder, Method: http.MethodGet, Path: "/v1/orders/{client_order_id}"},
		{Operation: transports.ReplaceOrder, Method: http.MethodPut, Path: "/v1/orders/{client_order_id}", Body: true},
		{Operation: transports.CancelOrder, Method: http.MethodDelete, Path: "/v1/orders/{client_order_id}"},
		{Operation: transports.CancelAllAfter, Method: http.MethodPost, Path: "/v1/cancel-all-after", Body: true},
		{Operation: transports.ListInstruments, Method: http.MethodGet, Path: "/v1/instruments"},
		{Operation: transports.GetBook, Method: http.MethodGet, Path: "/v1/books/{symbol}"},
		{Operation: transports.StreamExecutions, Stream: true, Method: http.MethodGet, Path: "/v1/executions"},
	}
}

// newTable completes the routes from the contract's descriptors. It panics on routes that do not fit them.
func newTable(contract protoreflect.FileDescriptor) *table {
	list := operations()
	t := &table{
		routes: list, byOperation: make(map[transports.Operation]*Route),
		collections: make(map[string][]*Route), members: make(map[string][]*Route),
	}
	methods := contract.Services().ByName("OrderEntryService").Methods()
	for _, r := range list {
		r.rpc = protoreflect.Name(r.Operation.String())
		t.byOperation[r.Operation] = r
		rpc := methods.ByName(r.rpc)
		r.input, r.output = rpc.Input(), rpc.Output()
		r.collection = r.Path
		if name, rest, ok := strings.Cut(r.Path, "/{"); ok {
			r.collection = name
			r.variable = r.input.Fields().ByName(protoreflect.Name(strings.TrimSuffix(rest, "}")))
			if r.variable == nil {
				panic("restapi: the path " + r.Path + " names a field that " + string(r.input.FullName()) + " does not have")
			}
			t.members[name] = append(t.members[name], r)
		} else {
			t.collections[name] = append(t.collections[name], r)
		}
		for i := range r.input.Fields().Len() {
			if f := r.input.Fields().Get(i); !r.Body && f != r.variable {
				r.query = append(r.query, f)
			}
		}
	}
	return t
}

// value is what the path of a request to this route has in the place of {field}. A framework's router may take the rest of a path for a last
// segment, slashes and all, which here is no path of the API.
func (r *Route) value(path string) (string, error) {
	if r.variable == nil {
		return "", nil
	}
	i := strings.LastIndexByte(path, '/')
	if i < 0 || path[:i] != r.collection {
		return "", noSuchPath(path)
	}
	value, err := url.PathUnescape(path[i+1:])
	if err != nil {
		return "", transports.Malformed(string(r.variable.Name()), "the path cannot be read: %v", err)
	}
	return value, nil
}

// find finds the route of a request by its method and its path, escaped still, or says with a refusal what there is in its place.
func (t *table) find(method, path string) (*Route, error) {
	wanted := method
	if method == http.MethodHead { // see Methods
		wanted = http.MethodGet
	}
	candidates, ok := t.collections[path]
	if !ok {
		// A member's name may be empty here: the gateway refuses it by its field, and a DELETE of an id that a script left empty
		// must not become the DELETE of everything.
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			candidates = t.members[path[:i]]
		}
	}
	if candidates == nil {
		return nil, noSuchPath(path)
	}
	var allowed []string
	for _, r := range candidates {
		if r.Method == wanted {
			return r, nil
		}
		allowed = append(allowed, r.Methods()...)
	}
	slices.Sort(allowed)
	refusal := refuse(http.StatusMethodNotAllowed, "%s is not a method of %s", method, path)
	refusal.allow = allowed
	return nil, refusal
}

func noSuchPath(path string) *refusal {
	return refuse(http.StatusNotFound, "no such path: %s; %s lists them all", path, OpenAPIPath)
}
