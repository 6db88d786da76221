package topofile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// finish fills in what follows from other fields, and finds what is wrong between them.
func (r *reader) finish() {
	r.blind()
	r.file.Complete()
	said := map[string]bool{} // a value that cannot be read is missing, too
	for _, p := range r.problems {
		said[p.Path] = true
	}
	for _, p := range r.file.Problems() {
		if said[p.Path] {
			continue
		}
		r.wrong(p.Path, r.nearest(p.Path), "%s", p.Text)
	}
}

// blind refuses encode workers of the built-in model of text in a file that names it. Where no
// model is named, Complete takes the one that sees images.
func (r *reader) blind() {
	for _, pool := range append([]string{""}, slices.Sorted(maps.Keys(r.file.Topology.Pools))...) {
		t, at := r.file.Topology.In(pool), ""
		if pool != "" {
			at = poolSection + "." + pool + "."
		}
		_, named := r.at[at+modelPath]
		if t.Encode == 0 || t.OfServer() || t.Model.Path != "" || !named && t.Model.Name != cluster.BuiltinModelName {
			continue
		}
		r.wrong(at+"encode.workers", r.nearest(at+"encode.workers"), "the built-in model %s sees no images; %s does", cluster.BuiltinModelName, cluster.BuiltinVisionName)
	}
}

// nearest is the position of a field or, where the file does not have it, of the section
// that it would belong to.
func (r *reader) nearest(path string) position {
	for path != "" {
		if at, ok := r.at[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return position{}
}

// Complete fills in what follows from other fields: the names of models. A topology that has
// pools or attached servers needs no main model.
func (f *File) Complete() {
	t := &f.Topology
	for name := range t.Pools {
		pool := t.In(name)
		complete(&pool)
		t.Put(name, pool)
	}
	if main := t.In(""); t.Workers() == 0 || main.Workers() > 0 {
		complete(&main)
		t.Put("", main)
	}
}

// complete is Complete for one pool.
func complete(t *cluster.Topology) {
	m := &t.Model
	if m.Path == "" && t.Encode > 0 && !t.OfServer() { // the built-in model that sees
		if m.Name == cluster.BuiltinModelName {
			m.Name = ""
		}
		m.Path = cluster.BuiltinVisionName
	}
	if m.Name == "" && (m.Path != "" || !t.Engine.External()) { // a server need not have files here
		m.Name = ModelName(m.Path)
	}
}

// Problems returns what is wrong with the file as a whole.
func (f File) Problems() (out Problems) {
	if ns := f.Namespace; ns != "" {
		if err := cluster.ValidateNamespace(ns); err != nil {
			out = append(out, Problem{Path: "namespace", Text: strings.TrimPrefix(err.Error(), fmt.Sprintf("namespace %q: ", ns))})
		}
	}
	for _, p := range f.Topology.Problems() {
		out = append(out, Problem{Path: pathOf(p.Field), Text: p.Text})
	}
	return out
}

// pathOf turns the name of a field of a topology into its path in files.
func pathOf(name string) string {
	if pool, rest, ok := underPool(name); ok {
		return strings.TrimSuffix(poolSection+"."+pool+"."+pathOf(rest), ".")
	}
	if url, field, ok := underAttached(name); ok {
		if field == "backend" {
			field = "engine"
		}
		return attachedSection + "." + strings.TrimSuffix(url, ".server") + "." + field
	}
	role := ""
	if before, after, ok := strings.Cut(name, "."); ok && isRole(before) {
		role, name = before+".", after
	}
	if name == "device" {
		name = "devices"
	}
	if role == "" {
		switch {
		case isRole(name):
			return name + ".workers"
		case name == "model":
			return "model.name"
		}
	}
	for _, section := range []string{"", "model.", "engine."} {
		if _, ok := field(role + section + name); ok {
			return role + section + name
		}
	}
	return role + name
}

// Set changes one field as an assignment "path=value" says; it is how command lines do
// what files do. An empty value puts the field back to its default. Check with
// [File.Problems] when all are set.
func (f *File) Set(assignment string, src Source) error {
	path, value, ok := strings.Cut(assignment, "=")
	if !ok {
		return fmt.Errorf("%q is not <field>=<value>", assignment)
	}
	if isRole(base(path)) {
		path += ".workers"
	}
	if pool, _, ok := underPool(path); ok && !cluster.PoolName.MatchString(pool) {
		return fmt.Errorf("%q is not the name of a pool", pool)
	}
	fd, known := field(path)
	if !known {
		return fmt.Errorf("no field %q%s", path, hintPath(path))
	}
	if note := fd.Key.FormerSpelling(path, value); note != "" {
		f.Notes = append(f.Notes, "--set "+assignment+": "+note)
	}
	if pool, _, _ := underPool(path); base(path) == modelPath {
		if t := f.Topology.In(pool); t.Model.Name == ModelName(t.Model.Path) {
			t.Model.Name = "" // it followed from the path
			f.Topology.Put(pool, t)
		}
	}
	if value == "" {
		fd.clear(f)
		return nil
	}
	v, err := fd.parse(value, src)
	if err == nil {
		err = fd.check(v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fd.set(f, v)
	return nil
}

// clear puts a field back to its default.
func (fd Field) clear(f *File) {
	if fd.setting {
		delete(f.Settings, fd.Path)
		return
	}
	zero := File{}
	fd.set(f, fd.get(&zero))
}
