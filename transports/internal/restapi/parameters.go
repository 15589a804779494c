package restapi

import (
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"tailgate/transports"
)

// The rules of path and query values. A field may be given once; an empty parameter is refused rather than taken for an absent one,
// because "symbol=" out of a script with an unset variable would cancel everything. An enum is given by its name in the
// contract, by that name without its prefix in lower case (state=open), or by number, as in JSON.

// readQuery sets the fields of request that the query names.
func (r *Route) readQuery(raw string, request proto.Message) error {
	if raw == "" {
		return nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return transports.Malformed("", "the query cannot be read: %v", err)
	}
	m := request.ProtoReflect()
	for _, f := range r.query {
		given, ok := values[string(f.Name())]
		if !ok {
			continue
		}
		delete(values, string(f.Name()))
		if len(given) > 1 {
			return transports.Malformed(string(f.Name()), "the query parameter is given %d times", len(given))
		}
		if given[0] == "" {
			return transports.Malformed(string(f.Name()), "the query parameter is empty; leave it out where it does not matter")
		}
		if err := setField(m, f, given[0]); err != nil {
			return err
		}
	}
	for name := range values { // one of them, whichever comes first
		return transports.Malformed(name, "no such query parameter; %s %s takes %s", r.Method, r.Path, r.parameterNames())
	}
	return nil
}

func (r *Route) parameterNames() string {
	if len(r.query) == 0 {
		return "none"
	}
	names := make([]string, len(r.query))
	for i, f := range r.query {
		names[i] = string(f.Name())
	}
	return strings.Join(names, ", ")
}

// setField sets a string, number or enum field, the kinds that paths and queries of the contract have.
func setField(m protoreflect.Message, f protoreflect.FieldDescriptor, text string) error {
	name := string(f.Name())
	switch f.Kind() {
	case protoreflect.StringKind:
		if !utf8.ValidString(text) {
			return transports.Malformed(name, "not valid UTF-8")
		}
		m.Set(f, protoreflect.ValueOfString(text))
	case protoreflect.Uint32Kind:
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return transports.Malformed(name, "%q is not a whole number from 0 to %d", text, uint32(1<<32-1))
		}
		m.Set(f, protoreflect.ValueOfUint32(uint32(n)))
	case protoreflect.Uint64Kind:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return transports.Malformed(name, "%q is not a whole number from 0 to %d", text, uint64(1<<64-1))
		}
		m.Set(f, protoreflect.ValueOfUint64(n))
	case protoreflect.EnumKind:
		n, ok := enumNumber(f.Enum(), text)
		if !ok {
			return transports.Malformed(name, "%q is not a %s: %s", text, f.Enum().Name(), strings.Join(enumTexts(f.Enum()), ", "))
		}
		m.Set(f, protoreflect.ValueOfEnum(n))
	default:
		return transports.Malformed(name, "a %s has no form in a URL", f.Kind())
	}
	return nil
}

// fieldText is the inverse of setField.
func fieldText(m protoreflect.Message, f protoreflect.FieldDescriptor) string {
	switch v := m.Get(f); f.Kind() {
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return strconv.FormatUint(v.Uint(), 10)
	case protoreflect.EnumKind:
		if value := f.Enum().Values().ByNumber(v.Enum()); value != nil {
			return enumText(f.Enum(), value)
		}
		return strconv.FormatInt(int64(v.Enum()), 10)
	default:
		return v.String()
	}
}

// writeQuery is the inverse of readQuery: fields with their zero value are left out.
func (r *Route) writeQuery(request proto.Message) string {
	m := request.ProtoReflect()
	var b strings.Builder
	for _, f := range r.query {
		if !m.Has(f) {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('&')
		}
		b.WriteString(string(f.Name()))
		b.WriteByte('=')
		b.WriteString(url.QueryEscape(fieldText(m, f)))
	}
	return b.String()
}

func enumNumber(e protoreflect.EnumDescriptor, text string) (protoreflect.EnumNumber, bool) {
	values := e.Values()
	for i := range values.Len() {
		if v := values.Get(i); string(v.Name()) == text || enumText(e, v) == text {
			return v.Number(), true
		}
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return protoreflect.EnumNumber(n), err == nil
}

// enumText is LIST_ORDERS_STATE_OPEN of ListOrdersState as "open".
func enumText(e protoreflect.EnumDescriptor, v protoreflect.EnumValueDescriptor) string {
	first := string(e.Values().Get(0).Name()) // the lint rule of the contract: <PREFIX>_UNSPECIFIED
	return strings.ToLower(strings.TrimPrefix(string(v.Name()), strings.TrimSuffix(first, "UNSPECIFIED")))
}

// enumTexts are the short forms of an enum's values but the unspecified one.
func enumTexts(e protoreflect.EnumDescriptor) []string {
	var texts []string
	for i := range e.Values().Len() {
		if v := e.Values().Get(i); v.Number() != 0 {
			texts = append(texts, enumText(e, v))
		}
	}
	return texts
}

// Location is the inverse of what the server reads from method and URL: path, escaped path and query of a request.
func (r *Route) Location(request proto.Message) (path, escaped, query string) {
	path, escaped = r.Path, r.Path
	if r.variable != nil {
		value := request.ProtoReflect().Get(r.variable).String()
		path = r.collection + "/" + value
		escaped = r.collection + "/" + url.PathEscape(value)
	}
	return path, escaped, r.writeQuery(request)
}
