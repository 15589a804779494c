package export

import _ "embed"

// SchemaFile is the name of the schema in the output folder, beside run.json.
const SchemaFile = "run.schema.json"

// Schema is the JSON Schema (draft 2020-12) of run.json.
//
//go:embed run.schema.json
var Schema []byte
