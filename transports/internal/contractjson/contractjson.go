// Package contractjson is the contract's messages as JSON: protobuf's JSON mapping with the field names of the proto files and zero values
// written. Who enters orders is read strictly, so that a misspelt field is refused by its name and never left out in silence; who reads answers
// takes what a newer gateway adds. It must never know how the bytes travel.
package contractjson

import (
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"tailgate/transports/internal/outcome"
)

// Append appends m's JSON to b. It fails on a string that is not valid UTF-8.
func Append(b []byte, m proto.Message) ([]byte, error) {
	return protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.MarshalAppend(b, m)
}

// ReadRequest fills m from b. The error is a *transports.Fault (MALFORMED) that names the field where there is one.
func ReadRequest(b []byte, m proto.Message) error {
	err := protojson.Unmarshal(b, m)
	if err == nil {
		return nil
	}
	fault := outcome.NotDecoded(m, textError{err})
	fault.Field = field(m.ProtoReflect().Descriptor(), err.Error())
	return fault
}

// ReadResponse fills m from b; fields that m does not have are left out.
func ReadResponse(b []byte, m proto.Message) error {
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m)
}

// frame is the room for everything of a message but its tag, which base64 makes 4/3 as large: the names, numbers and white space of
// the largest request of the contract take less than 1 KiB, four times that is allowed.
const frame = 4 << 10

// MaxBytes is what the JSON of a message of so many bytes in protobuf has at most.
func MaxBytes(protobufBytes int) int { return 4*((protobufBytes+2)/3) + frame }

// textError takes away protojson's prefix, whose space it varies at random so that nobody compares its texts.
type textError struct{ error }

// Error implements error.
func (e textError) Error() string {
	return strings.TrimLeft(strings.TrimPrefix(e.error.Error(), "proto:"), " \u00a0")
}

// fields are the forms in which protojson names the field that is wrong.
var fields = regexp.MustCompile(`(?:(?:unknown|duplicate) field ("(?:[^"\\]|\\.)*")|invalid value for \w+ field (\w+))`)

// field finds the field's name in a text of protojson, empty where it names none. Only an error is worth this.
func field(d protoreflect.MessageDescriptor, text string) string {
	found := fields.FindStringSubmatch(text)
	switch {
	case found == nil:
		return ""
	case found[1] != "": // as the request wrote it
		name, err := strconv.Unquote(found[1])
		if err != nil {
			return ""
		}
		return name
	default: // in lowerCamelCase, whatever the request wrote
		if f := d.Fields().ByJSONName(found[2]); f != nil {
			return string(f.Name())
		}
		return found[2]
	}
}
