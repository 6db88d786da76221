package deps

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestImportRules(t *testing.T) {
	for _, broken := range check(load(t), onlyRules, neverRules, homeRules) {
		t.Error(broken)
	}
}

// check returns a sentence for every broken rule.
func check(g graph, onlys []only, nevers []never, homes []home) []string {
	var broken []string
	for _, r := range onlys {
		for _, p := range g.ours(r.pkg) {
			for _, imp := range g[p] {
				if isOurs(imp) && !matchesAny(r.may, imp) {
					broken = append(broken, fmt.Sprintf("%s imports %s, may import only %q: %s", short(p), short(imp), r.may, r.why))
				}
			}
		}
	}
	// The nouns are stricter than a rule about this module can say.
	for _, p := range g.ours("cluster") {
		for _, imp := range g[p] {
			if first, _, _ := strings.Cut(imp, "/"); strings.Contains(first, ".") && !isOurs(imp) {
				broken = append(broken, fmt.Sprintf("cluster imports %s, may import only the standard library", imp))
			}
		}
	}
	for _, r := range nevers {
		for _, p := range g.ours(r.pkg) {
			if path := g.path(p, r.links); path != nil {
				for i := range path {
					path[i] = short(path[i])
				}
				broken = append(broken, fmt.Sprintf("%s links %s (%s): %s", short(p), path[len(path)-1], strings.Join(path, " -> "), r.why))
			}
		}
	}
	for _, r := range homes {
		for _, p := range g.ours(module + "/...") {
			for _, imp := range g[p] {
				if matches(r.library+"/...", imp) && !matchesAny(r.in, p) && !testSupport(p) {
					broken = append(broken, fmt.Sprintf("%s imports %s, whose home is %q: %s", short(p), imp, r.in, r.why))
				}
			}
		}
	}
	slices.Sort(broken)
	return slices.Compact(broken)
}

// testSupport reports whether a package holds suites and fixtures for tests, like
// nixl/nixltest: it uses libraries as test files do. dynamod and dynctl link none, see
// laboratory.
func testSupport(path string) bool { return strings.HasSuffix(path, "test") }

// A program built with the tag nodl is fully static: nothing in it can load a library.
func TestNodlLoadsNothing(t *testing.T) {
	loader := []string{"github.com/ebitengine/purego/..."}
	if load(t).path(expand("cmd/dynamod"), loader) == nil {
		t.Error("cmd/dynamod loads nothing without the tag either: this test shows nothing")
	}
	static := load(t, "-tags=nodl")
	for _, p := range static.ours(module + "/...") {
		if path := static.path(p, loader); path != nil {
			t.Errorf("%s links the loader of libraries (%s)", short(p), strings.Join(path, " -> "))
		}
	}
}

// A program built without the tag kubernetes has nothing of Kubernetes, and with it nothing
// that breaks a rule.
func TestKubernetesNeedsItsTag(t *testing.T) {
	client := []string{"k8s.io/client-go/..."}
	plain, tagged := load(t), load(t, "-tags=kubernetes")
	for _, program := range []string{"cmd/dynctl", "cmd/dynamod"} {
		if path := plain.path(expand(program), client); path != nil {
			t.Errorf("%s links Kubernetes (%s)", program, strings.Join(path, " -> "))
		}
		if tagged.path(expand(program), client) == nil {
			t.Errorf("%s does not link Kubernetes with the tag either: this test shows nothing", program)
		}
	}
	for _, broken := range check(tagged, onlyRules, neverRules, homeRules) {
		t.Error(broken)
	}
}

// A rule about packages that do not exist says nothing.
func TestRulesNamePackagesThatExist(t *testing.T) {
	g := load(t)
	exist := func(names ...string) {
		for _, name := range names {
			if path := expand(name); isOurs(path) && len(g.ours(name)) == 0 {
				t.Errorf("a rule names %s, which does not exist", name)
			}
		}
	}
	for _, r := range onlyRules {
		exist(r.pkg)
		exist(r.may...)
	}
	for _, r := range neverRules {
		exist(r.pkg)
		exist(r.links...)
	}
	for _, r := range homeRules {
		exist(r.library)
		exist(r.in...)
	}
}

// A rule that cannot fail is none: each kind is tried on a graph that breaks it.
func TestCheckFindsBrokenRules(t *testing.T) {
	ours := func(names ...string) []string {
		for i := range names {
			names[i] = expand(names[i])
		}
		return names
	}
	g := graph{
		expand("cluster"):       {"time", "example.org/uuid"},
		expand("runtime"):       {},
		expand("engine"):        ours("cluster", "std:runtime"),
		expand("engine/cpu"):    ours("engine", "runtime"),
		expand("client"):        append(ours("helper"), "example.org/yaml/v3"),
		expand("helper"):        ours("engine/cpu"),
		expand("cmd/dynctl"):    append(ours("client"), "example.org/yaml/v3"),
		expand("config"):        {"example.org/yaml/v3/internal"},
		expand("configtest"):    {"example.org/yaml/v3"},
		expand("cmd/dynamod"):   ours("frontend"),
		expand("frontend"):      ours("configtest"),
		"example.org/yaml/v3":   {"fmt"},
		"example.org/other/lib": {},
	}
	got := check(g,
		[]only{{"cluster", nil, "why"}, {"engine", []string{"cluster"}, "why"}, {"engine/cpu", []string{"engine"}, "why"}},
		[]never{{"cmd/dynctl", []string{"engine/..."}, "why"}, {"engine", []string{"runtime/..."}, "why"}, {"cmd/dynamod", []string{"...test"}, "why"}},
		[]home{{"example.org/yaml/v3", []string{"config"}, "why"}})
	want := []string{
		`client imports example.org/yaml/v3, whose home is ["config"]: why`,
		"cluster imports example.org/uuid, may import only the standard library",
		"cmd/dynamod links configtest (cmd/dynamod -> frontend -> configtest): why",
		`cmd/dynctl imports example.org/yaml/v3, whose home is ["config"]: why`,
		"cmd/dynctl links engine/cpu (cmd/dynctl -> client -> helper -> engine/cpu): why",
		`engine/cpu imports runtime, may import only ["engine"]: why`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEveryRuleHasAReason(t *testing.T) {
	seen := map[string]bool{}
	reason := func(kind, subject, why string) {
		if why == "" || seen[kind+subject] {
			t.Errorf("%s rule about %s: no reason, or a second rule", kind, subject)
		}
		seen[kind+subject] = true
	}
	for _, r := range onlyRules {
		reason("only", r.pkg, r.why)
	}
	for _, r := range neverRules {
		reason("never", r.pkg, r.why)
	}
	for _, r := range homeRules {
		reason("home", r.library, r.why)
	}
}

// TestPackageComments wants exactly one package comment in every package, so that
// there is one place to start reading.
func TestPackageComments(t *testing.T) {
	comments := map[string][]string{} // directory -> files with a package comment
	dir := root(t)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != dir && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return nil // half-written; the compiler will say so
		}
		pkg := filepath.Dir(path)
		comments[pkg] = append(comments[pkg], packageComment(path, file)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg, files := range comments {
		if len(files) != 1 {
			rel, _ := filepath.Rel(dir, pkg)
			t.Errorf("%s has %d package comments %q, want one", rel, len(files), files)
		}
	}
}

func packageComment(path string, file *ast.File) []string {
	if file.Doc == nil || strings.TrimSpace(file.Doc.Text()) == "" {
		return nil // nothing, or only directives such as //go:build
	}
	return []string{filepath.Base(path)}
}
