package topofile

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

// Sections whose keys are names: of pools, and URLs of attached servers.
const (
	poolSection     = "pools"
	attachedSection = "attached"
)

// poolFields lists the fields that a pool has, by their paths within it: those that are about
// workers and their model.
var poolFields = sync.OnceValue(func() []Field {
	out := slices.DeleteFunc(slices.Clone(fields()), func(fd Field) bool { return fd.setting || fd.Path == "namespace" })
	return append(out, plannerFields(func(f *File) *cluster.PlannerSpec { return &f.Topology.Planner })...)
})

// plannerFields returns the fields of a pool that override settings of the planner.
func plannerFields(of func(*File) *cluster.PlannerSpec) []Field {
	duration := func(name, help string, of func(*File) *time.Duration) Field {
		return Field{
			Path: "planner." + name, Key: config.Key{Kind: config.KindDuration, Help: help},
			get: func(f *File) any { return *of(f) },
			set: func(f *File, v any) { *of(f) = v.(time.Duration) },
		}
	}
	count := func(name, help string, of func(*File) *int) Field {
		return number("planner."+name, help+" of this pool; by default the setting planner."+name, cluster.MaxWorkersPerRole, of)
	}
	out := []Field{
		text("planner.mode", "off: the planner leaves this pool alone; by default the setting planner.mode", []string{cluster.PlannerOff}, func(f *File) *string { return &of(f).Mode }),
		duration("ttft", "longest time to the first token for this pool; by default the setting planner.ttft", func(f *File) *time.Duration { return &of(f).TTFT }),
		duration("itl", "longest mean time between tokens for this pool; by default the setting planner.itl", func(f *File) *time.Duration { return &of(f).ITL }),
		count("prefill_min", "fewest prefill workers", func(f *File) *int { return &of(f).PrefillMin }),
		count("prefill_max", "most prefill workers", func(f *File) *int { return &of(f).PrefillMax }),
		count("decode_min", "fewest decode workers", func(f *File) *int { return &of(f).DecodeMin }),
		count("decode_max", "most decode workers", func(f *File) *int { return &of(f).DecodeMax }),
	}
	for i := range out {
		out[i].Key.Name = out[i].Path
	}
	return out
}

// underPool splits a path below a pool: "pools.small.decode" is "decode" in the pool small.
func underPool(path string) (pool, rest string, ok bool) {
	below, ok := strings.CutPrefix(path, poolSection+".")
	if !ok {
		return "", "", false
	}
	pool, rest, _ = strings.Cut(below, ".")
	return pool, rest, true
}

// underAttached splits a path below an attached server, whose URL may have dots.
func underAttached(path string) (url, name string, ok bool) {
	below, ok := strings.CutPrefix(path, attachedSection+".")
	i := strings.LastIndexByte(below, '.')
	if !ok || i < 0 {
		return "", "", false
	}
	return below[:i], below[i+1:], true
}

// base returns a path as it is within its pool.
func base(path string) string {
	if _, rest, ok := underPool(path); ok {
		return rest
	}
	return path
}

// scope returns the fields among which a path is looked for, and the path among them.
func scope(path string) ([]Field, string) {
	if _, rest, ok := underPool(path); ok {
		return poolFields(), rest
	}
	return fields(), path
}

// in returns the field for a pool with a name.
func (fd Field) in(pool string) Field {
	within := func(f *File) File { return File{Revision: cluster.Revision{Topology: f.Topology.In(pool)}} }
	prefix, get, set := poolSection+"."+pool+".", fd.get, fd.set
	fd.Path = prefix + fd.Path
	fd.Key.Name, fd.Key.Former = fd.Path, slices.Clone(fd.Key.Former)
	for i, former := range fd.Key.Former {
		fd.Key.Former[i] = prefix + former
	}
	fd.get = func(f *File) any {
		g := within(f)
		return get(&g)
	}
	fd.set = func(f *File, v any) {
		g := within(f)
		set(&g, v)
		f.Topology.Put(pool, g.Topology)
	}
	return fd
}

// attachedFields lists what is said of an attached server beside its URL. They are about the
// only server of a file.
var attachedFields = sync.OnceValue(func() []Field {
	of := func(f *File) *cluster.Attached { return &f.Topology.Attached[0] }
	role := text("role", "what it does", []string{string(cluster.RolePrefill), string(cluster.RoleDecode), string(cluster.RoleEncode)}, nil)
	role.get = func(f *File) any { return string(of(f).Role) }
	role.set = func(f *File, v any) { of(f).Role = cluster.Role(v.(string)) }
	out := []Field{
		text("engine", "what the server is", cluster.ExternalBackends(), func(f *File) *string { return &of(f).Engine.Backend }),
		role,
		text("model", "what clients put into \"model\"", nil, func(f *File) *string { return &of(f).Model.Name }),
		path("path", "directory on every node with the tokenizer of the model; without it the server gets prompts as clients sent them", func(f *File) *string { return &of(f).Model.Path }),
		text("node", "name of the node that speaks for it; by default any, and another one when that is lost", nil, func(f *File) *string { return &of(f).Node }),
	}
	for _, fd := range serverFields("", func(f *File) *cluster.External { return &of(f).Engine.Server }) {
		fd.Path = strings.TrimPrefix(fd.Path, ".")
		switch fd.Path {
		case "url", "command", "env", "port", "sleep":
		default:
			out = append(out, fd)
		}
	}
	return out
})

// at returns the field for the server with that URL. Setting one attaches the server.
func (fd Field) at(url string) Field {
	find := func(f *File) (File, int) {
		a, ok := f.Topology.AttachedAt(url)
		if !ok {
			a.Engine.Server.URL = url
		}
		g := File{}
		g.Topology.Attached = []cluster.Attached{a}
		return g, slices.IndexFunc(f.Topology.Attached, func(a cluster.Attached) bool { return a.URL() == url })
	}
	get, set := fd.get, fd.set
	fd.Path = attachedSection + "." + url + "." + fd.Path
	fd.Key.Name = fd.Path
	fd.get = func(f *File) any {
		g, _ := find(f)
		return get(&g)
	}
	fd.set = func(f *File, v any) {
		g, i := find(f)
		set(&g, v)
		all := slices.Clone(f.Topology.Attached) // another file may have the same array
		if i < 0 {
			i, all = len(all), append(all, cluster.Attached{})
		}
		all[i] = g.Topology.Attached[0]
		f.Topology.Attached = all
	}
	return fd
}

// all lists the fields of some files: [Fields], and those of their pools and servers.
func all(files ...File) []Field {
	out := slices.Clone(Fields())
	pools, urls := map[string]bool{}, []string{}
	for _, f := range files {
		for name := range f.Topology.Pools {
			pools[name] = true
		}
		for _, a := range f.Topology.Attached {
			if !slices.Contains(urls, a.URL()) {
				urls = append(urls, a.URL())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		for _, fd := range poolFields() {
			out = append(out, fd.in(name))
		}
	}
	for _, url := range urls {
		for _, fd := range attachedFields() {
			out = append(out, fd.at(url))
		}
	}
	return out
}
