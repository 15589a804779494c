package restapi

import (
	"math"
	"regexp"
	"slices"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "tailgate/proto/gen/orderentry/v1"
)

// problemSchema is the name of the schema of problem+json.
const problemSchema = "Problem"

// schemas collects the JSON Schemas of messages and enums under their names, each made when it is first referred to.
type schemas struct {
	made object
	// inputs are the messages that callers write. In them a 64-bit number may be written as a number too, where answers always
	// have text (protobuf's JSON mapping), and fields that may not be left out are required.
	inputs map[protoreflect.FullName]bool
	// inPath are fields that the path gives, so that a body may leave them out.
	inPath map[protoreflect.FullName]bool
}

func newSchemas(t *table) *schemas {
	s := &schemas{made: object{}, inputs: make(map[protoreflect.FullName]bool), inPath: make(map[protoreflect.FullName]bool)}
	for _, r := range t.routes {
		if r.Body {
			s.inputs[r.input.FullName()] = true
			if r.variable != nil {
				s.inPath[r.variable.FullName()] = true
			}
		}
	}
	detail := t.errorDetail().Fields()
	properties := object{
		"type": object{"type": "string", "format": "uri-reference"}, "title": object{"type": "string"},
		"status": object{"type": "integer"}, "detail": described(object{"type": "string"}, detail.ByName("message")),
	}
	for _, name := range []protoreflect.Name{"reason", "outcome", "retry_after_ms", "field"} {
		properties[string(name)] = described(s.field(detail.ByName(name), false), detail.ByName(name))
	}
	s.made[problemSchema] = object{
		"type": "object", "properties": properties,
		"required": []string{"type", "title", "status", "detail", "reason", "outcome"},
	}
	return s
}

// errorDetail is the descriptor of ErrorDetail in the files that the table was made from, with their comments.
func (t *table) errorDetail() protoreflect.MessageDescriptor {
	imports := t.routes[0].input.ParentFile().Imports()
	name := (*pb.ErrorDetail)(nil).ProtoReflect().Descriptor().Name()
	for i := range imports.Len() {
		if m := imports.Get(i).Messages().ByName(name); m != nil {
			return m
		}
	}
	panic("restapi: the contract imports no file with " + string(name))
}

// message returns a reference to the schema of m.
func (s *schemas) message(m protoreflect.MessageDescriptor) object {
	name := string(m.Name())
	reference := object{"$ref": "#/components/schemas/" + name}
	if _, ok := s.made[name]; ok {
		return reference
	}
	schema := described(object{"type": "object"}, m)
	s.made[name] = schema // before its fields, so that a message may contain itself
	input := s.inputs[m.FullName()]
	properties := object{}
	var required []string
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		properties[string(f.Name())] = described(s.field(f, input), f)
		if input && !s.inPath[f.FullName()] && needed(f) {
			required = append(required, string(f.Name()))
		}
	}
	schema["properties"] = properties
	if required != nil {
		schema["required"] = required
	}
	if input {
		schema["additionalProperties"] = false
	}
	if rules := messageRules(m).GetCel(); len(rules) > 0 {
		var list []any
		for _, rule := range rules {
			list = append(list, object{"id": rule.GetId(), "message": rule.GetMessage(), "expression": rule.GetExpression()})
		}
		schema["x-cel"] = list // rules over several fields, in the Common Expression Language
	}
	return reference
}

// enum returns a reference to the schema of e.
func (s *schemas) enum(e protoreflect.EnumDescriptor) object {
	name := string(e.Name())
	if _, ok := s.made[name]; !ok {
		var names []string
		descriptions := object{}
		for i := range e.Values().Len() {
			v := e.Values().Get(i)
			names = append(names, string(v.Name()))
			if text := comment(v); text != "" {
				descriptions[string(v.Name())] = text
			}
		}
		schema := described(object{"type": "string", "enum": names}, e)
		if len(descriptions) > 0 {
			schema["x-enum-descriptions"] = descriptions
		}
		s.made[name] = schema
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// field returns the schema of a field's value in JSON.
func (s *schemas) field(f protoreflect.FieldDescriptor, input bool) object {
	if f.IsList() {
		list := object{"type": "array", "items": s.single(f, input)}
		if most := fieldRules(f).GetRepeated().GetMaxItems(); most > 0 {
			list["maxItems"] = most
		}
		return list
	}
	return s.single(f, input)
}

func (s *schemas) single(f protoreflect.FieldDescriptor, input bool) object {
	rules := fieldRules(f)
	switch f.Kind() {
	case protoreflect.MessageKind:
		return s.message(f.Message())
	case protoreflect.EnumKind:
		schema := s.enum(f.Enum())
		if in := rules.GetEnum().GetIn(); len(in) > 0 {
			var names []string
			for _, n := range in {
				names = append(names, string(f.Enum().Values().ByNumber(protoreflect.EnumNumber(n)).Name()))
			}
			schema["enum"] = names
		}
		return schema
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.BytesKind:
		schema := object{"type": "string", "contentEncoding": "base64"}
		if most := rules.GetBytes().GetMaxLen(); most > 0 {
			schema["maxLength"] = 4 * ((most + 2) / 3)
		}
		return schema
	case protoreflect.Uint32Kind:
		return uint32Schema(f)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind, protoreflect.Int64Kind:
		return wideSchema(f, input)
	default:
		return stringSchema(f)
	}
}

// parameterSchema returns the schema of a field's value in a URL.
func parameterSchema(f protoreflect.FieldDescriptor) object {
	switch f.Kind() {
	case protoreflect.EnumKind:
		return object{"type": "string", "enum": enumTexts(f.Enum())}
	case protoreflect.Uint32Kind:
		return uint32Schema(f)
	case protoreflect.Uint64Kind:
		return object{"type": "integer", "format": "uint64", "minimum": 0, "maximum": uint64(math.MaxUint64)}
	default:
		return stringSchema(f)
	}
}

func uint32Schema(f protoreflect.FieldDescriptor) object {
	schema := object{"type": "integer", "minimum": 0, "maximum": uint32(math.MaxUint32)}
	rules := fieldRules(f).GetUint32()
	if rules.HasGte() {
		schema["minimum"] = rules.GetGte()
	}
	if rules.HasLte() {
		schema["maximum"] = rules.GetLte()
	}
	return schema
}

// wideSchema is for 64 bits: JSON has them as text, since many readers keep numbers as doubles. The bounds hold for both forms;
// a schema can say them of numbers only.
func wideSchema(f protoreflect.FieldDescriptor, input bool) object {
	schema := object{"type": "string", "format": "uint64", "pattern": "^[0-9]+$"}
	var minimum, maximum any = 0, uint64(math.MaxUint64)
	if f.Kind() == protoreflect.Int64Kind {
		schema["format"], schema["pattern"] = "int64", "^-?[0-9]+$"
		minimum, maximum = int64(math.MinInt64), int64(math.MaxInt64)
	}
	if !input {
		return schema
	}
	if rules := fieldRules(f).GetInt64(); rules.HasGte() {
		minimum = rules.GetGte()
	}
	if rules := fieldRules(f).GetInt64(); rules.HasLte() {
		maximum = rules.GetLte()
	}
	if rules := fieldRules(f).GetUint64(); rules.HasGte() {
		minimum = rules.GetGte()
	}
	if rules := fieldRules(f).GetUint64(); rules.HasLte() {
		maximum = rules.GetLte()
	}
	schema["type"], schema["minimum"], schema["maximum"] = []string{"string", "integer"}, minimum, maximum
	return schema
}

func stringSchema(f protoreflect.FieldDescriptor) object {
	schema := object{"type": "string"}
	rules := fieldRules(f).GetString()
	if rules.GetPattern() != "" {
		schema["pattern"] = rules.GetPattern()
	}
	if rules.GetMaxBytes() > 0 {
		schema["maxLength"] = rules.GetMaxBytes() // in characters here: necessary, not sufficient
	}
	return schema
}

// needed reports whether the rules refuse the field's zero value, which is what a field left out has.
func needed(f protoreflect.FieldDescriptor) bool {
	rules := fieldRules(f)
	if pattern := rules.GetString().GetPattern(); pattern != "" {
		expression, err := regexp.Compile(pattern)
		return err == nil && !expression.MatchString("")
	}
	if in := rules.GetEnum().GetIn(); len(in) > 0 {
		return !slices.Contains(in, 0)
	}
	return rules.GetRequired() || rules.GetUint64().GetGte() > 0 || rules.GetInt64().GetGte() > 0 || rules.GetUint32().GetGte() > 0
}

func fieldRules(f protoreflect.FieldDescriptor) *validate.FieldRules {
	rules, _ := proto.GetExtension(f.Options(), validate.E_Field).(*validate.FieldRules)
	return rules
}

func messageRules(m protoreflect.MessageDescriptor) *validate.MessageRules {
	rules, _ := proto.GetExtension(m.Options(), validate.E_Message).(*validate.MessageRules)
	return rules
}
