package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the module path in go.mod. The table below names packages without it.
const module = "tailgate"

// A rule says what the packages of one room may import. Packages are written relative to the module, in the go
// command's notation: "a/..." is a and everything beneath it, and "*" stands for any one path element.
type rule struct {
	// room is the pattern of the packages that the rule is for; the first rule that matches a package is its rule.
	room string
	// may lists our packages that the room may import. The room's own packages are always allowed.
	may []string
	// tests lists what the room's _test.go files may import of ours beyond may.
	tests []string
	// libraries, unless nil, lists all packages from outside the module that the room may import. Tests are free.
	libraries []string
	// never lists packages from outside the module that the room must not import. Tests are free.
	never []string
	// why is told to whoever breaks the rule.
	why string
}

const (
	contract  = "proto/gen/..."
	transport = "transports"
)

// rooms is the import table of the whole module, floor by floor. A new transport or a new room of the load tester has
// its place already; a new room of the gateway gets a line here, below the rooms that it may know.
var rooms = []rule{
	// Floor 0: the contract's generated code, and the engine.
	{
		room: contract,
		why:  "the contract is behaviour-free and knows nothing of ours",
	},
	{
		room:      "matching/...",
		libraries: []string{"cmp", "errors", "iter", "math", "math/bits", "slices", "strconv"},
		why:       "the engine is pure: no clock, goroutine, lock, I/O, logging, protobuf or map order, so that a replay of the same commands gives the same events to the byte",
	},
	{
		room: "configs",
		why:  "it only embeds the files that lie beside it",
	},

	// Floor 1: the transport contract.
	{
		room:  transport,
		may:   []string{contract},
		never: processAndConfig,
		why:   "the transport contract stands on the order-entry contract alone",
	},

	// Floor 2: transports. A transport never knows a sibling; what two of them share goes to transports/internal.
	{
		room:  "transports/internal/...",
		may:   []string{contract, transport},
		never: processAndConfig,
		why:   "a shared helper serves every transport, so it knows none",
	},
	{
		room: "transports/all",
		may:  []string{transport, "transports/*"},
		why:  "the list of transports knows transports and nothing that uses them",
	},
	{
		room:  "transports/transportstest/...",
		may:   []string{contract, transport},
		tests: []string{"transports/memory"},
		why:   "one suite for every transport cannot know any of them; its own tests use the in-memory one",
	},
	{
		room:  "transports/*/...",
		may:   []string{contract, transport, "transports/internal/..."},
		tests: []string{"transports/transportstest"},
		never: processAndConfig,
		why:   "a transport moves requests: it knows no sibling, no order's meaning, no book, no configuration file and never ends the process",
	},

	// Floor 3: the gateway's rooms, in the order of an order's way from its end.
	{
		room: "gateway/journal/...",
		why:  "the journal keeps opaque payloads: it knows no command, no order and no transport",
	},
	{
		room:  "gateway/orders/...",
		may:   []string{contract, "matching"},
		never: []string{"log/slog", "net", "net/http", "os", "sync", "sync/atomic", "time", "google.golang.org/protobuf/..."},
		why:   "the orders' state is a fold over the journal: no clock, file, socket, lock or message, so that a replay gives the same state and answers",
	},
	{
		room: "gateway/telemetry/...",
		may:  []string{contract, transport, "matching", "gateway/journal"},
		why:  "telemetry counts for the rooms and drives none of them",
	},
	{
		room: "gateway/feed/...",
		may:  []string{contract, transport, "matching", "gateway/journal", "gateway/orders", "gateway/telemetry"},
		why:  "the feed gives the events that the state numbers and keeps to their readers; it does not know who enters orders or who writes the journal",
	},
	{
		room: "gateway/sequencer/...",
		may:  []string{contract, transport, "matching", "gateway/feed", "gateway/journal", "gateway/orders", "gateway/telemetry"},
		why:  "the sequencer is below entry and knows no concrete transport",
	},
	{
		room:  "gateway/entry/...",
		may:   []string{contract, transport, "matching", "gateway/feed", "gateway/journal", "gateway/orders", "gateway/sequencer", "gateway/telemetry"},
		tests: []string{"transports/memory"},
		why:   "entry serves every transport through the contract and knows no concrete one",
	},
	{
		room: "gateway/config/...",
		may: []string{
			contract, transport, "matching", "configs",
			"gateway/entry", "gateway/feed", "gateway/journal", "gateway/orders", "gateway/sequencer", "gateway/telemetry",
		},
		why: "configuration describes the rooms; only gateway/server acts on it",
	},
	{
		room: "gateway/admin/...",
		may: []string{
			contract, transport, "matching",
			"gateway/config", "gateway/entry", "gateway/feed", "gateway/journal", "gateway/orders", "gateway/sequencer", "gateway/telemetry",
		},
		tests: []string{"transports/memory"},
		why:   "the admin listener looks at the rooms; it knows no concrete transport",
	},

	// Floor 4: where the parts meet.
	{
		room:  "gateway/server/...",
		may:   []string{contract, transport, "transports/all", "transports/memory", "matching", "configs", "gateway/*"},
		tests: []string{"transports/*", "gateway/journal/journaltest"},
		why:   "a transport is chosen here, but from transports/all, and the gateway does not know its load tester",
	},
	{
		room:  "gateway",
		may:   []string{contract, transport, "transports/all", "configs", "matching", "gateway/*"},
		tests: []string{"transports/*"},
		why:   "the gateway's binary takes its transports from transports/all and does not know its load tester",
	},
	{
		room:  hostRoom + "/...",
		may:   append([]string{hosted}, wire...),
		tests: []string{"transports/memory"},
		why:   "the load tester knows the wire alone, so that its numbers hold for any deployment; this room hosts the gateway in a child process, through gateway/server and no other door",
	},
	{
		room: "loadtest/...",
		may:  wire,
		why:  "the load tester knows the wire alone, so that its numbers hold for any deployment; the gateway is hosted by " + hostRoom,
	},
	{
		room:  "deploy/...",
		tests: []string{"configs", "gateway/*", "transports/all", transport},
		why:   "deploy holds no code of its own, only tests that what it names exists",
	},
}

var (
	// wire is what a load tester may know: the messages, and the clients of the transports.
	wire = []string{contract, transport, "transports/all", "transports/*", "loadtest/..."}
	// processAndConfig are the doors to configuration files and to the process's fate.
	processAndConfig = []string{"flag", "os/exec", "os/signal", "github.com/alecthomas/kong", "go.yaml.in/yaml/..."}
)

const (
	// hosted may be imported by one file of hostRoom only: what crosses from the tester to the gateway stays countable.
	hosted   = "gateway/server"
	hostRoom = "loadtest/host"
)

// topLevel is everything that may stand at the top of the project beside dot files.
var topLevel = []string{
	"proto", "matching", "transports", "gateway", "loadtest", "configs", "deploy",
	"go.mod", "go.sum", "README.md", "CHANGELOG.md",
}

// source is one Go file: the package that it belongs to and what it imports, as full import paths.
type source struct {
	file    string
	pkg     string
	test    bool
	imports []string
}

// TestImports holds every Go file of the module, whatever its build constraints, to the import table. It asks the go
// command, whose answer the test cache does not see: run it with -count=1.
func TestImports(t *testing.T) {
	sources, err := listSources("..")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(sources, func(s source) bool { return s.pkg == module+"/"+transport }) {
		t.Fatalf("the transport contract is not among the %d files found, so this test sees the wrong module", len(sources))
	}
	for _, broken := range checkImports(sources) {
		t.Error(broken)
	}
}

// TestTopLevel holds the top of the project to its short list.
func TestTopLevel(t *testing.T) {
	ignored, err := os.ReadFile("../.gitignore")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	for _, broken := range checkTopLevel(names, string(ignored)) {
		t.Error(broken)
	}
}

// checkImports returns one line for each import that the table forbids and each package that it does not place.
func checkImports(sources []source) []string {
	var broken []string
	var hosts []string
	unplaced := map[string]bool{}
	for _, src := range sources {
		from := local(src.pkg)
		r, ok := ruleFor(from)
		if !ok {
			if !unplaced[from] {
				unplaced[from] = true
				broken = append(broken, fmt.Sprintf("%s: package %s has no place in the house; give its room a line in the table `rooms` of gateway/imports_test.go", src.file, from))
			}
			continue
		}
		for _, imported := range src.imports {
			ours := imported == module || strings.HasPrefix(imported, module+"/")
			if ours && local(imported) == hosted && strings.HasPrefix(from, "loadtest") && !src.test {
				hosts = append(hosts, src.file)
			}
			if ours && !mayImport(r, from, local(imported), src.test) {
				broken = append(broken, fmt.Sprintf("%s: %s must not import %s: %s", src.file, from, local(imported), r.why))
			}
			if !ours && !src.test && (matchesAny(r.never, imported) || r.libraries != nil && !matchesAny(r.libraries, imported)) {
				broken = append(broken, fmt.Sprintf("%s: %s must not import %q: %s", src.file, from, imported, r.why))
			}
		}
	}
	if len(hosts) > 1 {
		broken = append(broken, fmt.Sprintf("%s is imported by %d files of the load tester (%s); one file hosts the gateway, the others ask it", hosted, len(hosts), strings.Join(hosts, ", ")))
	}
	return broken
}

// mayImport reports whether a file of package from, under rule r, may import package to.
func mayImport(r rule, from, to string, test bool) bool {
	return roomOf(r.room, from) == roomOf(r.room, to) && matches(r.room, to) ||
		matchesAny(r.may, to) ||
		test && matchesAny(r.tests, to)
}

// ruleFor returns the first rule whose room holds the package.
func ruleFor(pkg string) (rule, bool) {
	for _, r := range rooms {
		if matches(r.room, pkg) {
			return r, true
		}
	}
	return rule{}, false
}

// roomOf returns the folder that a pattern means for one of its packages: "transports/*/..." means transports/tcp for
// the package transports/tcp/wire.
func roomOf(pattern, pkg string) string {
	depth := strings.Count(strings.TrimSuffix(pattern, "/..."), "/") + 1
	elements := strings.Split(pkg, "/")
	return strings.Join(elements[:min(depth, len(elements))], "/")
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, pkg) })
}

// matches reports whether a package path fits a pattern of the table.
func matches(pattern, pkg string) bool {
	if prefix, below := strings.CutSuffix(pattern, "/..."); below {
		pattern, pkg = prefix, roomOf(prefix, pkg)
	}
	ok, err := path.Match(pattern, pkg)
	if err != nil {
		panic(fmt.Sprintf("pattern %q in the table of gateway/imports_test.go: %v", pattern, err))
	}
	return ok
}

// local cuts the module path off an import path of ours.
func local(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

// checkTopLevel returns one line for each name that does not belong at the top: neither on the list, nor a dot file,
// nor something that the ignore list says the binaries and tools leave behind.
func checkTopLevel(names []string, ignoreList string) []string {
	ignored := func(name string) bool {
		for line := range strings.Lines(ignoreList) {
			pattern := strings.Trim(strings.TrimSpace(line), "/")
			if ok, err := path.Match(pattern, name); err == nil && ok {
				return true
			}
		}
		return false
	}
	var broken []string
	for _, name := range names {
		if !strings.HasPrefix(name, ".") && !slices.Contains(topLevel, name) && !ignored(name) {
			broken = append(broken, fmt.Sprintf("%s does not belong at the top of the project: put it into one of %s", name, strings.Join(topLevel, " ")))
		}
	}
	return broken
}

// listSources asks the go command for the packages beneath root and reads the imports of every Go file in them. Files
// left out by build constraints count too: what another system or tag compiles obeys the same table.
func listSources(root string) ([]source, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,CgoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list ./... in %s: %w\n%s", root, err, stderr.String())
	}

	var sources []source
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var pkg struct {
			ImportPath, Dir                                              string
			GoFiles, CgoFiles, IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			return sources, nil
		} else if err != nil {
			return nil, fmt.Errorf("the answer of go list ./...: %w", err)
		}
		for _, name := range slices.Concat(pkg.GoFiles, pkg.CgoFiles, pkg.IgnoredGoFiles, pkg.TestGoFiles, pkg.XTestGoFiles) {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(pkg.Dir, name), nil, parser.ImportsOnly)
			if err != nil {
				return nil, fmt.Errorf("imports of %s: %w", filepath.Join(pkg.Dir, name), err)
			}
			src := source{
				file: path.Join(local(pkg.ImportPath), name),
				pkg:  pkg.ImportPath,
				test: strings.HasSuffix(name, "_test.go"),
			}
			for _, spec := range parsed.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return nil, fmt.Errorf("import %s of %s: %w", spec.Path.Value, src.file, err)
				}
				src.imports = append(src.imports, imported)
			}
			sources = append(sources, src)
		}
	}
}

// TestImportTable holds the checker itself to what the house says: each edge is one import of one file.
func TestImportTable(t *testing.T) {
	for _, edge := range []struct {
		from, to string
		test     bool
		broken   string // what the complaint says; empty where the import is allowed
	}{
		// Floor 0.
		{from: "proto/gen/orderentry/v1/orderentryv1connect", to: "proto/gen/orderentry/v1"},
		{from: "proto/gen/orderentry/v1", to: "transports", broken: "must not import transports"},
		{from: "proto/gen/orderentry/v1", to: "matching", test: true, broken: "must not import matching"},
		{from: "matching", to: "matching/internal/naive"},
		{from: "matching/internal/naive", to: "matching"},
		{from: "matching", to: "proto/gen/orderentry/v1", broken: "must not import proto/gen"},
		{from: "matching", to: "math/bits"},
		{from: "matching", to: "time", broken: `must not import "time"`},
		{from: "matching", to: "sync/atomic", broken: `must not import "sync/atomic"`},
		{from: "matching/internal/levels", to: "maps", broken: `must not import "maps"`},
		{from: "matching", to: "google.golang.org/protobuf/proto", broken: "must not import"},
		{from: "matching", to: "time", test: true},
		{from: "configs", to: "gateway/config", broken: "must not import gateway/config"},

		// Floors 1 and 2.
		{from: "transports", to: "proto/gen/orderentry/v1"},
		{from: "transports", to: "transports/internal/sockopt", broken: "must not import transports/internal/sockopt"},
		{from: "transports", to: "transports/tcp", test: true, broken: "must not import transports/tcp"},
		{from: "transports/tcp", to: "transports"},
		{from: "transports/tcp", to: "transports/tcp/wire"},
		{from: "transports/tcp/wire", to: "transports/tcp"},
		{from: "transports/tcp", to: "transports/internal/sockopt"},
		{from: "transports/tcp", to: "transports/rest", broken: "must not import transports/rest"},
		{from: "transports/tcp/wire", to: "transports/rest/routes", broken: "must not import transports/rest/routes"},
		{from: "transports/tcp", to: "transports/rest", test: true, broken: "must not import transports/rest"},
		{from: "transports/tcp", to: "transports/all", broken: "must not import transports/all"},
		{from: "transports/tcp", to: "transports/transportstest", test: true},
		{from: "transports/tcp", to: "transports/transportstest", broken: "must not import transports/transportstest"},
		{from: "transports/tcp", to: "matching", broken: "must not import matching"},
		{from: "transports/tcp", to: "gateway/entry", broken: "must not import gateway/entry"},
		{from: "transports/tcp", to: "gateway/server", test: true, broken: "must not import gateway/server"},
		{from: "transports/tcp", to: "os/exec", broken: `must not import "os/exec"`},
		{from: "transports/tcp", to: "go.yaml.in/yaml/v3", broken: "must not import"},
		{from: "transports/internal/hotcodec", to: "transports/tcp", broken: "must not import transports/tcp"},
		{from: "transports/all", to: "transports/tcp"},
		{from: "transports/all", to: "gateway/server", broken: "must not import gateway/server"},
		{from: "transports/transportstest", to: "transports/memory", broken: "must not import transports/memory"},
		{from: "transports/transportstest", to: "transports/memory", test: true},

		// Floor 3.
		{from: "gateway/journal", to: "matching", broken: "must not import matching"},
		{from: "gateway/journal", to: "transports", broken: "must not import transports"},
		{from: "gateway/orders", to: "matching"},
		{from: "gateway/orders", to: "time", broken: `must not import "time"`},
		{from: "gateway/orders", to: "gateway/journal", broken: "must not import gateway/journal"},
		{from: "gateway/sequencer", to: "gateway/orders"},
		{from: "gateway/sequencer", to: "gateway/journal"},
		{from: "gateway/sequencer", to: "gateway/entry", broken: "must not import gateway/entry"},
		{from: "gateway/entry", to: "gateway/sequencer"},
		{from: "gateway/entry", to: "transports"},
		{from: "gateway/entry", to: "transports/tcp", broken: "must not import transports/tcp"},
		{from: "gateway/entry", to: "transports/memory", test: true},
		{from: "gateway/entry", to: "transports/tcp", test: true, broken: "must not import transports/tcp"},
		{from: "gateway/entry", to: "matching/internal/naive", broken: "must not import matching/internal/naive"},
		{from: "gateway/entry", to: "gateway/server", broken: "must not import gateway/server"},

		// Floor 4.
		{from: "gateway/server", to: "transports/all"},
		{from: "gateway/server", to: "transports/tcp", broken: "must not import transports/tcp"},
		{from: "gateway/server", to: "transports/tcp", test: true},
		{from: "gateway/server", to: "transports/transportstest", test: true},
		{from: "gateway/server", to: "loadtest/stats", test: true, broken: "must not import loadtest/stats"},
		{from: "gateway", to: "gateway/server"},
		{from: "gateway", to: "loadtest/stats", broken: "must not import loadtest/stats"},
		{from: "loadtest/runner", to: "transports/all"},
		{from: "loadtest/runner", to: "loadtest/stats"},
		{from: "loadtest/runner", to: "loadtest/host"},
		{from: "loadtest/host", to: "loadtest/stats"},
		{from: "loadtest/host", to: "gateway/server"},
		{from: "loadtest/host", to: "gateway/config", broken: "must not import gateway/config"},
		{from: "loadtest/runner", to: "gateway/server", broken: "must not import gateway/server"},
		{from: "loadtest/runner", to: "matching", test: true, broken: "must not import matching"},
		{from: "deploy", to: "gateway/config", test: true},
		{from: "deploy", to: "gateway/config", broken: "must not import gateway/config"},

		// What the table does not place.
		{from: "gateway/frontdoor", to: "errors", broken: "package gateway/frontdoor has no place in the house"},
		{from: "pkg/util", to: "errors", broken: "package pkg/util has no place in the house"},
		{from: ".", to: "errors", broken: "package . has no place in the house"},
	} {
		imported := edge.to
		if first, _, _ := strings.Cut(edge.to, "/"); slices.Contains(topLevel, first) {
			imported = module + "/" + edge.to
		}
		src := source{file: edge.from + "/x.go", pkg: module + "/" + edge.from, test: edge.test, imports: []string{imported}}
		if edge.from == "." {
			src.pkg = module
		}
		got := strings.Join(checkImports([]source{src}), "\n")
		if edge.broken == "" && got != "" || !strings.Contains(got, edge.broken) {
			t.Errorf("%s -> %s (test: %t): got %q, want %q", edge.from, edge.to, edge.test, got, edge.broken)
		}
	}
}

// TestHostedFromOneFile: each import of gateway/server alone is allowed, two files of them are not.
func TestHostedFromOneFile(t *testing.T) {
	host := func(file string) source {
		return source{file: file, pkg: module + "/" + hostRoom, imports: []string{module + "/" + hosted}}
	}
	if broken := checkImports([]source{host("loadtest/host/child.go")}); len(broken) != 0 {
		t.Errorf("one file: %q", broken)
	}
	broken := checkImports([]source{host("loadtest/host/child.go"), host("loadtest/host/parent.go")})
	if len(broken) != 1 || !strings.Contains(broken[0], "2 files") || !strings.Contains(broken[0], "parent.go") {
		t.Errorf("two files: got %q, want one complaint that names both", broken)
	}
}

// TestTopLevelTable holds the check of the top level itself to its word.
func TestTopLevelTable(t *testing.T) {
	const ignoreList = "# a comment\n/data/\n*.prof\n"
	for name, belongs := range map[string]bool{
		"proto": true, "README.md": true, ".tools": true, "data": true, "cpu.prof": true,
		"internal": false, "pkg": false, "docs": false, "data2": false, "main.go": false,
	} {
		if broken := checkTopLevel([]string{name}, ignoreList); (len(broken) == 0) != belongs {
			t.Errorf("%s belongs at the top: %t, but the check says %q", name, belongs, broken)
		}
	}
}
