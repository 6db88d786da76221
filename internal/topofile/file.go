package topofile

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// File is the content of a topology file: everything that can be declared of one namespace.
// Fields that the file leaves out have their defaults.
type File struct {
	// Namespace is the one to declare it in; empty means the one that dynctl is set to.
	Namespace string
	cluster.Revision
	// Notes name what the file spells as the release before did, with the present
	// spelling. It is read all the same, for one release.
	Notes []string
}

// Of returns the file that declares what is declared already. Settings that this build
// does not know stay out of it.
func Of(r cluster.Revision) File {
	f := File{}
	f.Topology.Take(r.Topology)
	for _, field := range Fields() {
		if raw, ok := r.Settings[field.Path]; ok && field.setting {
			f.keep(field.Path, raw)
		}
	}
	return f
}

// Onto returns r with all that the file declares. Settings that this build does not know
// stay in it.
func (f File) Onto(r cluster.Revision) cluster.Revision {
	r.Topology.Take(f.Topology)
	settings := maps.Clone(r.Settings)
	for _, field := range Fields() {
		if field.setting {
			delete(settings, field.Path)
		}
	}
	for name, raw := range f.Settings {
		if settings == nil {
			settings = map[string]json.RawMessage{}
		}
		settings[name] = raw
	}
	r.Settings = settings
	return r
}

// keep sets a setting as it is stored.
func (f *File) keep(name string, raw json.RawMessage) {
	if f.Settings == nil {
		f.Settings = map[string]json.RawMessage{}
	}
	f.Settings[name] = raw
}

// Clone returns a copy that shares nothing.
func (f File) Clone() File {
	f.Settings = maps.Clone(f.Settings)
	return f
}

// ModelName returns the name of a model that was given none: that of its directory or file,
// or of a built-in model.
func ModelName(path string) string {
	if name := (cluster.ModelSpec{Path: path}).Builtin(); name != "" {
		return name
	}
	name := filepath.Base(path)
	if ext := filepath.Ext(name); strings.EqualFold(ext, ".gguf") {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}
