package cluster

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Pool is a model with the workers that serve it, beside those that the topology itself has:
// its main pool. The fields are those of [Topology].
type Pool struct {
	Model       ModelSpec  `json:"model"`
	Prefill     int        `json:"prefill,omitempty"`
	Decode      int        `json:"decode,omitempty"`
	Encode      int        `json:"encode,omitempty"`
	Engine      EngineSpec `json:"engine,omitzero"`
	Placement   Placement  `json:"placement,omitempty"`
	PrefillSpec RoleSpec   `json:"prefill_spec,omitzero"`
	DecodeSpec  RoleSpec   `json:"decode_spec,omitzero"`
	EncodeSpec  RoleSpec   `json:"encode_spec,omitzero"`
	// Planner overrides the settings planner.* for this pool.
	Planner PlannerSpec `json:"planner,omitzero"`
}

// Attached is a server that runs already and serves as one worker of the cluster. Some node
// speaks for it; the worker takes no device. Its URL names it, as its pool too.
type Attached struct {
	Model ModelSpec `json:"model"`
	Role  Role      `json:"role"`
	// Engine has a backend among [ExternalBackends], and the URL of the server.
	Engine EngineSpec `json:"engine"`
	// Node is the name of the node that shall speak for it; empty leaves the choice.
	Node string `json:"node,omitempty"`
}

// URL returns the address of the server.
func (a Attached) URL() string { return a.Engine.Server.URL }

// PoolNames lists the pools: the main one, which is called "", those with names, and one for
// each attached server, called by its URL.
func (t Topology) PoolNames() []string {
	names := append([]string{""}, slices.Sorted(maps.Keys(t.Pools))...)
	for _, a := range t.Attached {
		names = append(names, a.URL())
	}
	return names
}

// PoolWords names a pool in a sentence.
func PoolWords(pool string) string {
	if pool == "" {
		return "the main pool"
	}
	return "pool " + pool
}

// AttachedAt returns the attached server with that URL.
func (t Topology) AttachedAt(url string) (Attached, bool) {
	i := slices.IndexFunc(t.Attached, func(a Attached) bool { return a.URL() == url })
	if i < 0 {
		return Attached{}, false
	}
	return t.Attached[i], true
}

// In returns the topology as the workers of one pool see it: with that pool as its main pool,
// and without others. A pool that there is not has no workers.
func (t Topology) In(pool string) Topology {
	if pool != "" {
		a, attached := t.AttachedAt(pool)
		if t.set(t.Pools[pool]); attached {
			t.set(Pool{Model: a.Model, Engine: a.Engine})
			if n, _ := t.Of(a.Role); n != nil {
				*n = 1
			}
		}
	}
	t.Pools, t.Attached = nil, nil
	return t
}

// Put makes the main pool of other the pool of that name. A pool that says nothing is deleted.
func (t *Topology) Put(pool string, other Topology) {
	p := Pool{
		other.Model, other.Prefill, other.Decode, other.Encode, other.Engine, other.Placement,
		other.PrefillSpec, other.DecodeSpec, other.EncodeSpec, other.Planner,
	}
	if pool == "" {
		t.set(p)
		return
	}
	pools := maps.Clone(t.Pools) // another copy of the topology has the same map
	if pools == nil {
		pools = map[string]Pool{}
	}
	pools[pool] = p
	if p == (Pool{}) {
		delete(pools, pool)
	}
	if t.Pools = pools; len(pools) == 0 {
		t.Pools = nil
	}
}

// ModelNames lists the names of the models that are declared, that of the main pool first.
func (t Topology) ModelNames() (names []string) {
	add := func(m ModelSpec) {
		if m.Name != "" && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	add(t.Model)
	for _, name := range slices.Sorted(maps.Keys(t.Pools)) {
		add(t.Pools[name].Model)
	}
	for _, a := range t.Attached {
		add(a.Model)
	}
	return names
}

// OfServer reports that only servers of an engine that others wrote have the main pool's model:
// it has no path, and is not the built-in one.
func (t Topology) OfServer() bool {
	_, e := t.Specs(RoleDecode)
	return t.Model.Path == "" && e.External()
}

// Decodes reports whether a model is to have decode workers.
func (t Topology) Decodes(model string) bool {
	for _, p := range t.Pools {
		if p.Model.Name == model && p.Decode > 0 {
			return true
		}
	}
	return t.Model.Name == model && t.Decode > 0 ||
		slices.ContainsFunc(t.Attached, func(a Attached) bool { return a.Model.Name == model && a.Role == RoleDecode })
}

// Equal reports whether two topologies are the same in all fields.
func (t Topology) Equal(other Topology) bool { return reflect.DeepEqual(t, other) }

// set makes p the main pool.
func (t *Topology) set(p Pool) {
	t.Model, t.Prefill, t.Decode, t.Encode, t.Engine, t.Placement = p.Model, p.Prefill, p.Decode, p.Encode, p.Engine, p.Placement
	t.PrefillSpec, t.DecodeSpec, t.EncodeSpec, t.Planner = p.PrefillSpec, p.DecodeSpec, p.EncodeSpec, p.Planner
}

// MaxPools limits the pools with names.
const MaxPools = 64

// PoolName matches the names that pools may have.
var PoolName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// checkPools reports what is wrong with the pools beside the main one, and between pools.
// Fields are prefixed with "pools.", the name and a dot, or with "attached.", the URL and a dot.
func (t Topology) checkPools(wrong func(field, format string, args ...any)) {
	if len(t.Pools) > MaxPools {
		wrong("pools", "%d are more than %d", len(t.Pools), MaxPools)
	}
	if len(t.Attached) > MaxWorkersPerRole {
		wrong("attached", "%d servers are more than %d", len(t.Attached), MaxWorkersPerRole)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Pools)) {
		within := func(field, format string, args ...any) { wrong("pools."+name+"."+field, format, args...) }
		if !PoolName.MatchString(name) {
			wrong("pools."+name, "names of pools have lower-case letters, digits and -, at most 63")
		}
		view := t.In(name)
		view.Rolling = Rolling{} // told once
		view.check(within)
		view.Planner.check(func(field, format string, args ...any) { within("planner."+field, format, args...) })
	}
	seen := map[string]bool{}
	for _, a := range t.Attached {
		within := func(field, format string, args ...any) { wrong("attached."+a.URL()+"."+field, format, args...) }
		if seen[a.URL()] {
			within("url", "it is attached twice")
		}
		seen[a.URL()] = true
		a.check(within)
	}
	t.checkNames(wrong)
}

// Validate returns an error that names the first wrong field.
func (a Attached) Validate() error { return first(a.check) }

func (a Attached) check(wrong func(field, format string, args ...any)) {
	switch {
	case !slices.Contains(Roles, a.Role):
		wrong("role", "%q is not one of prefill, decode, encode", a.Role)
	case !a.Engine.External():
		wrong("engine", "%q is not one of %s", a.Engine.Backend, strings.Join(ExternalBackends(), ", "))
	case a.URL() == "":
		wrong("url", "it has none")
	case a.Model.Name == "":
		wrong("model", "no name")
	default:
		view := (Topology{Attached: []Attached{a}}).In(a.URL())
		a.Engine.check(wrong)
		view.checkServers(wrong)
	}
}

// checkNames reports pools that serve different models under one name.
func (t Topology) checkNames(wrong func(field, format string, args ...any)) {
	paths, first := map[string]string{}, map[string]string{}
	for _, pool := range t.PoolNames() {
		view := t.In(pool)
		m := view.Model
		if view.Workers() == 0 || m.Name == "" {
			continue
		}
		path, taken := paths[m.Name]
		if !taken {
			paths[m.Name], first[m.Name] = m.Path, pool
			continue
		}
		if path == m.Path {
			continue
		}
		field := "pools." + pool + ".model"
		if _, attached := t.AttachedAt(pool); attached {
			field = "attached." + pool + ".model"
		}
		other := "the main pool"
		if first[m.Name] != "" {
			other = "pool " + first[m.Name]
		}
		wrong(field, "%s is what %s serves, of another path: give it another name, or the same path", m.Name, other)
	}
}
