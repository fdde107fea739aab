package layering

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "tranche"

// mayImport is the table: what a package (and the packages below it) may import of this module. A package that is missing here
// is a fault: new packages are entered on purpose.
var mayImport = map[string][]string{
	"episode":                            {},
	"bucketing":                          {},
	"scheduler":                          {"bucketing", "episode"},
	"sampler":                            {"episode"},
	"sampler/taskfile":                   {"episode"},
	"inference":                          {"episode", "internal/later", "internal/secret"},
	"inference/enginesim":                {"episode"},
	"action":                             {"episode", "internal/ends", "internal/jsonschema", "internal/workpool", "internal/later", "internal/offspring", "internal/redirect", "internal/secret"},
	"action/mcptools":                    {"episode", "action", "internal/offspring", "internal/redirect"},
	"action/sandbox":                     {"episode"},
	"action/sandbox/tree":                {"action/sandbox"},
	"action/sandbox/output":              {"action/sandbox", "internal/ends"},
	"action/sandbox/seccomp":             {},
	"action/sandbox/ns":                  {"action/sandbox", "action/sandbox/output", "action/sandbox/seccomp", "action/sandbox/tree"},
	"action/sandbox/bwrap":               {"action/sandbox", "action/sandbox/ns", "action/sandbox/seccomp"},
	"action/sandbox/remote":              {"action/sandbox", "internal/redirect"},
	"action/sandbox/docker":              {"action/sandbox", "action/sandbox/ns"},
	"action/sandbox/rootfs":              {"action/sandbox", "action/sandbox/tree"},
	"action/sandbox/keeper":              {"action/sandbox", "action/sandbox/output", "action/sandbox/tree"},
	"action/sandbox/plain":               {"action/sandbox", "action/sandbox/keeper"},
	"action/sandbox/landlock":            {"action/sandbox", "action/sandbox/keeper", "action/sandbox/seccomp"},
	"action/sandbox/session":             {"action/sandbox"},
	"action/sandbox/session/sessiontest": {"action/sandbox", "action/sandbox/session", "action/sandbox/plain", "action/sandbox/landlock", "action/sandbox/bwrap", "action/sandbox/ns"}, // it tests over back ends
	"action/codetools":                   {"action", "action/sandbox", "action/sandbox/session", "episode"},
	"reward":                             {"episode", "internal/workpool"},
	"reward/mathgrade":                   {"episode", "reward", "internal/ends", "internal/offspring"},
	"reward/codegrade":                   {"episode", "reward", "action/sandbox"},
	"reward/audit":                       {"episode"},
	"reward/textgrade":                   {"episode", "reward", "internal/jsonschema"},
	"reward/judge":                       {"episode", "reward"},
	"reward/usergrade":                   {"episode", "reward", "action/sandbox", "action/sandbox/session", "internal/ends", "internal/jsonschema", "internal/later", "internal/offspring"},
	"storage":                            {"episode"},
	"storage/export":                     {"storage", "episode"},
	"storage/arrowrows":                  {"episode", "storage"},
	"storage/feed":                       {"episode", "storage", "storage/arrowrows"},
	"storage/objectstore":                {"storage", "episode"},
	"storage/verify":                     {"episode", "storage"},
	"monitor":                            {"episode"},
	"bench":                              {"episode", "bucketing", "scheduler", "sampler", "inference/enginesim"},
	"cmd/tranche":                        {"*"},
	"internal/ends":                      {},
	"internal/jsonschema":                {},
	"internal/later":                     {},
	"internal/workpool":                  {},
	"internal/offspring":                 {},
	"internal/redirect":                  {},
	"internal/secret":                    {},
	"internal/mock":                      {},
	"internal/fakestore":                 {},
	"internal/layering":                  {},
	"internal/interop":                   {"*"}, // programs of others against this binary: tests only
	"scripts":                            {},
	"examples":                           {},

	"action/sandbox/sandboxtest": {"action/sandbox"},
}

// owners says which packages may use a third-party module in code that ships.
var owners = map[string][]string{
	"github.com/sashabaranov/go-openai":        {"inference"},
	"github.com/alitto/pond/v2":                {"internal/workpool"},
	"github.com/santhosh-tekuri/jsonschema/v6": {"internal/jsonschema"},
	"github.com/expr-lang/expr":                {"action"},
	"github.com/modelcontextprotocol/go-sdk":   {"action/mcptools"},
	"github.com/parquet-go/parquet-go":         {"storage"},
	"github.com/apache/arrow-go/v18":           {"storage", "storage/arrowrows"},
	"github.com/klauspost/compress":            {"storage"},
	"github.com/minio/minio-go/v7":             {"storage/objectstore"},
	"github.com/Azure/azure-sdk-for-go":        {"storage/objectstore"},
	"golang.org/x/oauth2":                      {"storage/objectstore"},
	"github.com/goccy/go-yaml":                 {"cmd/tranche"},
	"github.com/alecthomas/kong":               {"cmd/tranche"},
	"golang.org/x/term":                        {"cmd/tranche"},
	"github.com/go-task/slim-sprig/v3":         {"sampler/taskfile"},
	"gonum.org/v1/gonum":                       {"sampler", "monitor", "bench"},
	"gonum.org/v1/plot":                        {"bench"},
	"golang.org/x/sys":                         {"storage", "inference", "action/sandbox", "action/sandbox/tree", "action/sandbox/output", "action/sandbox/seccomp", "action/sandbox/keeper", "action/sandbox/landlock", "action/sandbox/bwrap", "action/sandbox/docker", "action/sandbox/ns", "action/sandbox/sandboxtest"},
}

// testOnly are modules that tests anywhere may use and shipped code may not.
var testOnly = []string{"pgregory.net/rapid", "go.uber.org/goleak", "github.com/rogpeppe/go-internal"}

// use is one import of one file.
type use struct {
	file, pkg, path string
	test            bool
}

func TestImportsPointDown(t *testing.T) {
	for _, u := range imports(t) {
		if msg := layerFault(u); msg != "" {
			t.Error(msg)
		}
	}
}

func TestThirdPartyModulesHaveOneOwner(t *testing.T) {
	for _, u := range imports(t) {
		if msg := ownerFault(u); msg != "" {
			t.Error(msg)
		}
	}
}

// TestTheTableBites shows that the two checks can fail at all.
func TestTheTableBites(t *testing.T) {
	cases := []struct {
		name  string
		use   use
		layer bool
		owner bool
	}{
		{"storage may not know the scheduler", use{"x.go", "storage", "tranche/scheduler", false}, true, false},
		{"siblings may not know one another", use{"x.go", "reward", "tranche/action", false}, true, false},
		{"the nouns know nobody", use{"x.go", "episode", "tranche/bucketing", false}, true, false},
		{"a package outside the table", use{"x.go", "newcomer", "tranche/episode", false}, true, false},
		{"a module of somebody else", use{"x.go", "scheduler", "github.com/parquet-go/parquet-go/encoding", false}, false, true},
		{"a module nobody owns", use{"x.go", "storage", "example.org/left/pad", false}, false, true},
		{"a test library in shipped code", use{"x.go", "storage", "pgregory.net/rapid", false}, false, true},
		{"a test library in a test", use{"x_test.go", "storage", "pgregory.net/rapid", true}, false, false},
		{"a test may use the mock server", use{"x_test.go", "inference", "tranche/internal/mock", true}, false, false},
		{"shipped code may not", use{"x.go", "inference", "tranche/internal/mock", false}, true, false},
		{"downwards is fine", use{"x.go", "scheduler", "tranche/bucketing", false}, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := layerFault(c.use) != ""; got != c.layer {
				t.Errorf("layer fault = %v, want %v: %s", got, c.layer, layerFault(c.use))
			}
			if got := ownerFault(c.use) != ""; got != c.owner {
				t.Errorf("owner fault = %v, want %v: %s", got, c.owner, ownerFault(c.use))
			}
		})
	}
}

// layerFault says why an import of this module breaks the table, "" when it does not.
func layerFault(u use) string {
	target, ours := strings.CutPrefix(u.path, module+"/")
	if !ours {
		return ""
	}
	allowed, known := mayImport[u.pkg]
	switch {
	case !known:
		return fmt.Sprintf("%s: package %s is not in the import table: enter it", u.file, u.pkg)
	case target == u.pkg, slices.Contains(allowed, "*"), slices.Contains(allowed, target):
		return ""
	case u.test && testMayImport(u.pkg, target):
		return ""
	}
	return fmt.Sprintf("%s: package %s may not import %s (allowed: %v)", u.file, u.pkg, target, allowed)
}

// testMayImport: tests use the mock servers, tests of a client may run it against the simulated engine, the attacks are tried on every back
// end, and the code tools on the one that runs everywhere; the grader of programs is played the exploits that an audit plays.
func testMayImport(pkg, target string) bool {
	return target == "internal/mock" || target == "internal/fakestore" || pkg == "inference" && target == "inference/enginesim" ||
		pkg == "sampler/taskfile" && target == "storage" || pkg == "action/sandbox/sandboxtest" && strings.HasPrefix(target, "action/sandbox/") ||
		pkg == "action/codetools" && target == "action/sandbox/plain" || pkg == "reward/codegrade" && target == "reward/audit" ||
		(pkg == "reward/codegrade" || pkg == "reward/usergrade") && target == "action/sandbox/ns" ||
		pkg == "reward/usergrade" && target == "action/sandbox/plain"
}

func ownerFault(u use) string {
	first, _, _ := strings.Cut(u.path, "/")
	if !strings.Contains(first, ".") { // the standard library and this module
		return ""
	}
	for _, m := range testOnly {
		if within(u.path, m) {
			if u.test {
				return ""
			}
			return fmt.Sprintf("%s: %s is for tests only", u.file, m)
		}
	}
	for m, pkgs := range owners {
		if within(u.path, m) {
			if u.test || slices.Contains(pkgs, u.pkg) {
				return ""
			}
			return fmt.Sprintf("%s: %s belongs to %v", u.file, m, pkgs)
		}
	}
	return fmt.Sprintf("%s: %s has no owner in the table", u.file, u.path)
}

func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// imports reads every Go file of the tree, those of other platforms and build tags too.
func imports(t *testing.T) []use {
	t.Helper()
	root := repoRoot(t)
	var list []use
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); rel != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "runs") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || ignored(path) {
			return nil
		}
		found, err := importsOf(path, filepath.ToSlash(rel))
		list = append(list, found...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("found no Go file: the check would pass on nothing")
	}
	return list
}

// ignored are files outside every build (//go:build ignore): generators, free to import what they need.
func ignored(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && strings.Contains(string(text), "\n//go:build ignore\n") || strings.HasPrefix(string(text), "//go:build ignore\n")
}

func importsOf(path, rel string) ([]use, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var list []use
	for _, spec := range file.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		list = append(list, use{rel, pkg, target, strings.HasSuffix(rel, "_test.go")})
	}
	return list, nil
}

func repoRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}
