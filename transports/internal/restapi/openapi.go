package restapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"tailgate/proto/gen/documented"
	pb "tailgate/proto/gen/orderentry/v1"
)

// openAPI is the served document, made once.
var openAPI = sync.OnceValue(func() []byte {
	text, err := json.MarshalIndent(newTable(documentedContract()).document(), "", "  ")
	if err != nil {
		panic(err) // maps, strings and numbers always encode
	}
	return append(text, '\n')
})

// documentedContract is the contract with its comments, which the compiled-in descriptors do not have.
func documentedContract() protoreflect.FileDescriptor {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(documented.Contract, &set); err != nil {
		panic(err) // generated with this build
	}
	files := new(protoregistry.Files)
	for _, f := range set.GetFile() { // imports come before those that import them
		file, err := protodesc.NewFile(f, resolver{files})
		if err == nil {
			err = files.RegisterFile(file)
		}
		if err != nil {
			panic(err) // generated with this build
		}
	}
	file, err := files.FindFileByPath(pb.File_orderentry_v1_order_entry_proto.Path())
	if err != nil {
		panic(err) // generated with this build
	}
	return file
}

// resolver finds our own files first, and what they import among the compiled-in ones.
type resolver struct{ own *protoregistry.Files }

// FindFileByPath implements protodesc.Resolver.
func (r resolver) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if f, err := r.own.FindFileByPath(path); err == nil {
		return f, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (r resolver) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := r.own.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

func serveOpenAPI(r *Request, reply *Reply) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refusal := refuse(http.StatusMethodNotAllowed, "%s is not a method of %s", r.Method, OpenAPIPath)
		refusal.allow = []string{http.MethodGet, http.MethodHead}
		return refusal
	}
	reply.Status, reply.ContentType, reply.Body = http.StatusOK, jsonText.header, openAPI()
	return nil
}

// object is a JSON object under construction; encoding/json writes its members sorted, so that the document is always the same.
type object = map[string]any

// document makes an OpenAPI 3.1 description of the table: paths from the routes, schemas and bounds from the descriptors and their buf.validate
// rules, texts from the comments of the contract where the descriptors carry them. Nothing in it is said twice.
func (t *table) document() object {
	schemas := newSchemas(t)
	paths := object{}
	for _, r := range t.routes {
		item, _ := paths[r.Path].(object)
		if item == nil {
			item = object{}
			paths[r.Path] = item
		}
		item[strings.ToLower(r.Method)] = t.describe(r, schemas)
	}
	service := t.routes[0].input.ParentFile().Services().ByName("OrderEntryService")
	return object{
		"openapi":  "3.1.0",
		"info":     described(object{"title": string(service.FullName()), "version": "v1"}, service),
		"paths":    paths,
		"security": []any{object{"key": []string{}}, object{}}, // a gateway without configured keys takes none
		"components": object{
			"schemas":         schemas.made,
			"responses":       problemResponses(),
			"securitySchemes": object{"key": object{"type": "http", "scheme": "bearer"}},
		},
	}
}

func (t *table) describe(r *Route, schemas *schemas) object {
	rpc := r.input.ParentFile().Services().ByName("OrderEntryService").Methods().ByName(r.rpc)
	operation := described(object{"operationId": string(r.rpc)}, rpc)
	var parameters []any
	if r.variable != nil {
		parameters = append(parameters, parameter(r.variable, "path"))
	}
	for _, f := range r.query {
		parameters = append(parameters, parameter(f, "query"))
	}
	if r.Stream {
		parameters = append(parameters, object{
			"name": lastEventID, "in": "header", "schema": object{"type": "string", "pattern": "^[0-9]{1,10}-[0-9]{1,20}$"},
			"description": "Id of the last event that was read, EPOCH-SEQUENCE; the stream goes on behind it, whatever the query says.",
		})
	}
	if parameters != nil {
		operation["parameters"] = parameters
	}
	if r.Body {
		operation["requestBody"] = object{"required": true, "content": content(r.input, schemas)}
	}
	responses := object{"200": object{"description": "The answer; business refusals are among them, by status and reason.", "content": content(r.output, schemas)}}
	if r.Stream {
		responses["200"] = eventStreamResponse(r.output, schemas)
	}
	for _, status := range r.statuses() {
		responses[strconv.Itoa(status)] = problemReference(status)
	}
	operation["responses"] = responses
	return operation
}

// statuses are those with which an operation can end without an answer.
func (r *Route) statuses() []int {
	set := map[int]bool{http.StatusNotAcceptable: true}
	for reason, status := range reasonStatus {
		switch reason {
		case pb.Reason_REASON_CONNECTION_LOST: // said by clients
		case pb.Reason_REASON_NOT_FOUND:
			set[status] = r.rpc == "GetOrder" || set[status]
		default:
			set[status] = true
		}
	}
	if r.Body {
		set[http.StatusUnsupportedMediaType], set[http.StatusRequestTimeout] = true, true
	}
	maps.DeleteFunc(set, func(_ int, said bool) bool { return !said })
	return slices.Sorted(maps.Keys(set))
}

func parameter(f protoreflect.FieldDescriptor, in string) object {
	p := described(object{"name": string(f.Name()), "in": in, "schema": parameterSchema(f)}, f)
	if in == "path" {
		p["required"] = true
	}
	return p
}

// content offers a message in both encodings.
func content(m protoreflect.MessageDescriptor, schemas *schemas) object {
	return object{
		jsonType: object{"schema": schemas.message(m)},
		// Bytes; their shape is the message's in the contract, which OpenAPI cannot say.
		protobufType: object{"schema": object{"title": string(m.FullName())}},
	}
}

// eventStreamResponse describes the stream: OpenAPI 3.1 has no word for what is inside of one, so the schemas of its events stand in a
// member of our own, by the events' names.
func eventStreamResponse(output protoreflect.MessageDescriptor, schemas *schemas) object {
	return object{
		"description": "Server-Sent Events: \"execution\" with the report in one line of JSON as its data and EPOCH-SEQUENCE as its id; last of all " +
			"\"error\" with a problem document, where the gateway ends the stream. Comments keep the connection alive. Streams take at most half of " +
			"the connections that the gateway lets in at a time; one more is answered 503, REASON_OVERLOADED.",
		"content": object{EventsType: object{
			"schema": object{"type": "string"},
			"x-event-data": object{
				"execution": schemas.message(output.Fields().ByName("execution").Message()),
				"error":     object{"$ref": "#/components/schemas/" + problemSchema},
			},
		}},
	}
}

func problemReference(status int) object {
	return object{"$ref": "#/components/responses/" + strconv.Itoa(status)}
}

// problemResponses has a response for every status that is not 200, with the reasons that it stands for.
func problemResponses() object {
	reasons := map[int][]string{
		http.StatusNotAcceptable: nil, http.StatusUnsupportedMediaType: nil, http.StatusRequestTimeout: nil,
	}
	for reason, status := range reasonStatus {
		if reason != pb.Reason_REASON_CONNECTION_LOST {
			reasons[status] = append(reasons[status], reason.String())
		}
	}
	responses := object{}
	for status, names := range reasons {
		slices.Sort(names)
		text := http.StatusText(status)
		if len(names) > 0 {
			text += ": " + strings.Join(names, ", ")
		}
		response := object{
			"description": text,
			"content":     object{ProblemType: object{"schema": object{"$ref": "#/components/schemas/" + problemSchema}}},
		}
		switch status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			response["headers"] = object{"Retry-After": object{"schema": object{"type": "integer", "minimum": 1}}}
		case http.StatusUnauthorized:
			response["headers"] = object{"WWW-Authenticate": object{"schema": object{"type": "string"}}}
		}
		responses[strconv.Itoa(status)] = response
	}
	return responses
}

// described adds the comment that stands before d in the contract. Descriptors out of generated Go code carry no comments; then
// nothing is added.
func described(o object, d protoreflect.Descriptor) object {
	if text := comment(d); text != "" {
		o["description"] = text
	}
	return o
}

func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, " ")
}
