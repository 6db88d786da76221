package deps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dynctl/dynctl"

// graph maps the import path of a package to what it imports, test files left out.
type graph map[string][]string

// expand turns the name that a rule uses into an import path: "std:testing" is of
// the standard library, "cmd/dynctl", "dynamo" and "engine" are of this module, and what
// begins with a host name is of another one.
func expand(name string) string {
	if path, ok := strings.CutPrefix(name, "std:"); ok {
		return path
	}
	first, _, _ := strings.Cut(name, "/")
	switch {
	case strings.Contains(first, "."):
		return name
	case first == "cmd", first == "dynamo":
		return module + "/" + name
	}
	return module + "/internal/" + name
}

// short is the reverse of expand, for messages.
func short(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module+"/"), "internal/")
}

// loaded are the graphs that load has read, by its flags; the tests run one after another.
var loaded = map[string]graph{}

// load reads the import graph of the module for the platforms that are released,
// because build tags hide imports from the others.
func load(t *testing.T, flags ...string) graph {
	t.Helper()
	key := strings.Join(flags, " ")
	if g := loaded[key]; g != nil {
		return g
	}
	g := graph{}
	for _, platform := range []string{"linux", "darwin"} {
		args := append([]string{"list", "-e", "-deps", "-json=ImportPath,Imports,Standard"}, flags...)
		cmd := exec.CommandContext(t.Context(), "go", append(args, "./...")...)
		cmd.Dir = root(t)
		cmd.Env = append(os.Environ(), "GOOS="+platform, "GOARCH=amd64", "CGO_ENABLED=0")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list for %s: %v\n%s", platform, err, stderr.Bytes())
		}
		if err := g.add(out); err != nil {
			t.Fatalf("go list for %s: %v", platform, err)
		}
	}
	loaded[key] = g
	return g
}

func (g graph) add(list []byte) error {
	dec := json.NewDecoder(bytes.NewReader(list))
	for {
		var p struct {
			ImportPath string
			Imports    []string
			Standard   bool
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("output: %w", err)
		}
		if p.Standard {
			// What the standard library imports is not our business, and it may
			// import "testing" for itself.
			p.Imports = nil
		}
		for _, to := range p.Imports {
			if !slices.Contains(g[p.ImportPath], to) {
				g[p.ImportPath] = append(g[p.ImportPath], to)
			}
		}
		if g[p.ImportPath] == nil {
			g[p.ImportPath] = []string{}
		}
	}
}

// root is the directory of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = parent
	}
}

// matches reports whether the package at path is the one a rule names or, for
// "x/...", lies at or below x, or, for "...x", is one of this module that ends in x.
func matches(pattern, path string) bool {
	if end, ok := strings.CutPrefix(pattern, "..."); ok {
		return isOurs(path) && strings.HasSuffix(path, end)
	}
	below, tree := strings.CutSuffix(expand(pattern), "/...")
	return path == below || tree && strings.HasPrefix(path, below+"/")
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

// ours returns the packages of this module that match any pattern, sorted.
func (g graph) ours(patterns ...string) []string {
	var paths []string
	for p := range g {
		if isOurs(p) && matchesAny(patterns, p) {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

func isOurs(path string) bool { return strings.HasPrefix(path, module+"/") }

// path returns a shortest chain of imports from a package to one that matches any
// pattern, or nil.
func (g graph) path(from string, patterns []string) []string {
	before := map[string]string{from: ""}
	queue := []string{from}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if p != from && matchesAny(patterns, p) {
			chain := []string{p}
			for p = before[p]; p != ""; p = before[p] {
				chain = append([]string{p}, chain...)
			}
			return chain
		}
		for _, next := range g[p] {
			if _, seen := before[next]; !seen {
				before[next] = p
				queue = append(queue, next)
			}
		}
	}
	return nil
}
