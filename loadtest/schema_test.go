package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tailgate/loadtest/export"
	"tailgate/loadtest/report"
)

// schema is the published one, or one that also refuses what it does not describe. Published, it allows for fields that come later; here none may be
// without a description.
func schema(strict bool) *jsonschema.Schema {
	if strict {
		return strictly()
	}
	return published()
}

var (
	published = sync.OnceValue(func() *jsonschema.Schema { return compile(false) })
	strictly  = sync.OnceValue(func() *jsonschema.Schema { return compile(true) })
)

// compile makes one.
func compile(strict bool) *jsonschema.Schema {
	text, err := jsonschema.UnmarshalJSON(bytes.NewReader(export.Schema))
	if err != nil {
		panic(err)
	}
	if strict {
		forbidOthers(text)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(export.SchemaFile, text); err != nil {
		panic(err)
	}
	return compiler.MustCompile(export.SchemaFile)
}

func forbidOthers(node any) {
	switch node := node.(type) {
	case map[string]any:
		if _, ok := node["properties"].(map[string]any); ok {
			node["additionalProperties"] = false
		}
		for _, child := range node {
			forbidOthers(child)
		}
	case []any:
		for _, child := range node {
			forbidOthers(child)
		}
	}
}

// validate holds a run.json against the schema.
func validate(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema(true).Validate(instance); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// TestSchema: what the tester writes is what the schema beside it says: open and closed loop, a floor, a cell that failed; what it does not say is
// found.
func TestSchema(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"matrix", "--transports", strings.Join(kinds(), ","), "--sizes", "64", "--clients", "2", "--requests", "2000", "--warmup", "10ms"},
		{"--transport", name(), "--rate", "2000", "--duration", "400ms", "--step", "200ms:3000", "--size-mix", "64:1,128:1", "--slo", "p99<1s", "--slo", "max<1ns"},
		{"--transport", name(), "--target", "127.0.0.1:1", "--clients", "1"},
	} {
		p := loadtest(t, args...)
		validate(t, filepath.Join(p.out, report.FileName))
		if beside, err := os.ReadFile(filepath.Join(p.out, export.SchemaFile)); err != nil || !bytes.Equal(beside, export.Schema) {
			t.Errorf("the schema beside the results: %v", err)
		}
		if metrics, err := os.ReadFile(filepath.Join(p.out, export.MetricsFile)); err != nil || !bytes.HasSuffix(metrics, []byte("# EOF\n")) {
			t.Errorf("metrics: %v", err)
		}
		measured := 0
		for _, c := range p.run(t).Cells {
			if c.Client == nil {
				continue
			}
			measured++
			for _, ending := range []string{".hgrm", ".hlog"} {
				if info, err := os.Stat(filepath.Join(p.out, export.FileName(c)+ending)); err != nil || info.Size() == 0 {
					t.Errorf("%s%s: %v", export.FileName(c), ending, err)
				}
			}
		}
		if measured == 0 && !strings.Contains(strings.Join(args, " "), "--target") {
			t.Errorf("%v: nothing was measured", args)
		}
	}
	for _, wrong := range []string{`{}`, `{"schema":"another"}`, `[]`} {
		instance, err := jsonschema.UnmarshalJSON(strings.NewReader(wrong))
		if err != nil {
			t.Fatal(err)
		}
		if schema(false).Validate(instance) == nil {
			t.Errorf("%s passes", wrong)
		}
	}
}
