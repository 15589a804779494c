package restapi

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "tailgate/proto/gen/orderentry/v1"
)

// TestDescriptionsAreTheContractsComments gives the generator descriptors that carry comments, which those in Go code do not.
func TestDescriptionsAreTheContractsComments(t *testing.T) {
	file := protodesc.ToFileDescriptorProto(pb.File_orderentry_v1_order_entry_proto)
	// Paths are field numbers of FileDescriptorProto: message_type 4, service 6, method 2, field 2.
	for _, c := range []struct {
		path []int32
		text string
	}{
		{[]int32{6, 0}, " The service.\n"},
		{[]int32{6, 0, 2, 0}, " Enters\n an order.\n"},
		{[]int32{4, 0, 2, 0}, " The id.\n"},
	} {
		file.SourceCodeInfo = &descriptorpb.SourceCodeInfo{Location: append(file.GetSourceCodeInfo().GetLocation(),
			&descriptorpb.SourceCodeInfo_Location{Path: c.path, Span: []int32{0, 0, 0}, LeadingComments: new(c.text)})}
	}
	rich, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	service := rich.Services().Get(0)
	if got := described(object{}, service.Methods().Get(0))["description"]; got != "Enters an order." {
		t.Errorf("of the method: %v", got)
	}
	if got := described(object{}, service)["description"]; got != "The service." {
		t.Errorf("of the service: %v", got)
	}
	schema := &schemas{made: object{}}
	schema.message(rich.Messages().Get(0))
	made := schema.made["SubmitOrderRequest"].(object)
	if got := made["properties"].(object)["client_order_id"].(object)["description"]; got != "The id." {
		t.Errorf("of the field: %v", got)
	}
}

// TestServedDocumentIsDescribed: whatever the contract explains, the served document explains.
func TestServedDocumentIsDescribed(t *testing.T) {
	var document struct {
		Paths      map[string]map[string]struct{ OperationID, Description string }
		Components struct {
			Schemas map[string]struct {
				Description string
				Properties  map[string]struct{ Description string }
			}
		}
	}
	if err := json.Unmarshal(openAPI(), &document); err != nil {
		t.Fatal(err)
	}
	if len(document.Paths) < 5 || len(document.Components.Schemas) < 10 {
		t.Fatalf("%d paths and %d schemas", len(document.Paths), len(document.Components.Schemas))
	}
	for path, item := range document.Paths {
		for method, operation := range item {
			if operation.Description == "" {
				t.Errorf("%s %s has no description", method, path)
			}
		}
	}
	for name, schema := range document.Components.Schemas {
		if name == "Problem" { // RFC 9457's, not the contract's
			continue
		}
		if schema.Description == "" {
			t.Errorf("%s has no description", name)
		}
		for property, p := range schema.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s has no description", name, property)
			}
		}
	}
}
