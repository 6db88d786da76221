package cluster

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// The backends of an engine. An empty backend stands for the one of the device.
const (
	BackendCPU  = "cpu"
	BackendCUDA = "cuda"
	BackendMock = "mock" // fake arithmetic, for simulations, on any device
)

// Backends lists the names that [EngineSpec.Backend] may have.
func Backends() []string { return append(OwnBackends(), ExternalBackends()...) }

// OwnBackends lists the backends that compute within dynamod.
func OwnBackends() []string { return []string{BackendCPU, BackendCUDA, BackendMock} }

// backendKinds maps a backend to the kind of device that it needs.
var backendKinds = map[string]string{BackendCPU: "cpu", BackendCUDA: "gpu"}

// Placement says how workers are distributed over nodes. It applies only when a worker is
// placed; workers that have a place keep it.
type Placement string

const (
	// PlacementSpread puts workers on the node with the most room. It is the default.
	PlacementSpread Placement = "spread"
	// PlacementPack puts workers on as few nodes as possible, so that KV blocks stay
	// within a node. There it spreads them over the devices.
	PlacementPack Placement = "pack"
)

// Placements lists the ways of placing workers, the default first.
func Placements() []string { return []string{string(PlacementSpread), string(PlacementPack)} }

// QuantizeNone leaves the weights of one role as they are stored, although the topology
// quantizes those of all others.
const QuantizeNone = "none"

// RoleSpec overrides what [Topology] declares, for the workers of one role. Zero fields
// override nothing.
type RoleSpec struct {
	// Engine overrides Topology.Engine field by field.
	Engine EngineSpec `json:"engine,omitzero"`
	// Quantize overrides ModelSpec.Quantize; QuantizeNone leaves the weights as stored.
	Quantize  string    `json:"quantize,omitempty"`
	Placement Placement `json:"placement,omitempty"`
}

// RoleSpec returns the overrides of one role, zero for an unknown one.
func (t Topology) RoleSpec(r Role) RoleSpec {
	if _, spec := t.Of(r); spec != nil {
		return *spec
	}
	return RoleSpec{}
}

// Specs returns the model and the engine for workers of a role: the topology's, with the
// role's overrides applied, without what the role has no use for.
func (t Topology) Specs(r Role) (ModelSpec, EngineSpec) {
	m, own := t.Model, t.RoleSpec(r)
	switch own.Quantize {
	case "":
	case QuantizeNone:
		m.Quantize = ""
	default:
		m.Quantize = own.Quantize
	}
	return m, r.used(t.Engine.overlaid(own.Engine))
}

// engineOptions names the fields of [EngineSpec], in their order, as in [FieldError].
var engineOptions = func() (names []string) {
	t := reflect.TypeFor[EngineSpec]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, strings.TrimSuffix(name, "_ms"))
	}
	return names
}()

// Uses reports whether workers of the role follow an option of engines, named as in
// [FieldError].
func (r Role) Uses(option string) bool {
	return r.HoldsKV() || option == "backend" || option == "device" || option == "server"
}

// used returns the options that workers of the role follow. A change of the others does
// not concern them.
func (r Role) used(e EngineSpec) EngineSpec {
	for i, name := range engineOptions {
		if !r.Uses(name) {
			reflect.ValueOf(&e).Elem().Field(i).SetZero()
		}
	}
	return e
}

// PlacementOf returns how workers of a role are placed.
func (t Topology) PlacementOf(r Role) Placement {
	for _, p := range []Placement{t.RoleSpec(r).Placement, t.Placement} {
		if p != "" {
			return p
		}
	}
	return PlacementSpread
}

// overlaid replaces each field that over sets, and those of Server one by one. It covers
// all fields by reflection, so that new ones need no change here.
func (e EngineSpec) overlaid(over EngineSpec) EngineSpec {
	server := over.Server
	over.Server = External{}
	overlay(&e, over)
	overlay(&e.Server, server)
	return e
}

func overlay[T any](onto *T, over T) {
	to, from := reflect.ValueOf(onto).Elem(), reflect.ValueOf(over)
	for i := range from.NumField() {
		if f := from.Field(i); !f.IsZero() {
			to.Field(i).Set(f)
		}
	}
}

// deviceName matches a kind of device ("gpu") or one device ("gpu:0", "gpu:0+1").
var deviceName = regexp.MustCompile(`^[a-z]+(:[0-9]{1,4}(\+[0-9]{1,4})*)?$`)

// RanksOf returns the number of tensor-parallel ranks that workers of a device have. For
// a GPU device that is the number of GPUs in its id, 2 for gpu:0+1. 0 means any number.
func RanksOf(device string) int {
	kind, gpus, _ := strings.Cut(device, ":")
	if kind != "gpu" {
		return 0
	}
	return 1 + strings.Count(gpus, "+")
}

// WantedDevices describes the devices that the workers may have, for messages: "gpu with
// 2 ranks".
func (e EngineSpec) WantedDevices() string {
	var words []string
	if names := e.Devices(); len(names) > 0 {
		words = append(words, strings.Join(names, " or "))
	} else if e.Backend != "" {
		words = append(words, "that "+e.Backend+" computes on")
	}
	if e.TensorParallel > 0 && e.Backend != BackendMock {
		words = append(words, fmt.Sprintf("with %d ranks", e.TensorParallel))
	}
	return strings.Join(words, " ")
}

// Devices returns the device names listed in Device; nil means any device.
func (e EngineSpec) Devices() []string {
	if e.Device == "" {
		return nil
	}
	return strings.Split(e.Device, ",")
}

// RunsOn reports whether workers may run on a device. Device must name it, by id or by
// kind, or be empty. Its kind must be the one that Backend needs, and its ranks must
// match TensorParallel if that is set. A server that runs already has no device, which is "".
func (e EngineSpec) RunsOn(device string) bool {
	if e.Server.Attached() || device == "" {
		return e.Server.Attached() && device == ""
	}
	kind, _, _ := strings.Cut(device, ":")
	if on, ok := backendKinds[e.Backend]; ok && on != kind {
		return false
	}
	if n := RanksOf(device); n > 0 && e.TensorParallel != 0 && e.TensorParallel != n && e.Backend != BackendMock {
		return false
	}
	names := e.Devices()
	return len(names) == 0 || slices.Contains(names, device) || slices.Contains(names, kind)
}

func (e EngineSpec) checkDevices(wrong func(field, format string, args ...any)) {
	seen := map[string]bool{}
	for _, d := range e.Devices() {
		switch {
		case !deviceName.MatchString(d):
			wrong("device", "%q is not the name of a device, like cpu or cpu:0", d)
		case seen[d]:
			wrong("device", "%s is named twice", d)
		case strings.Contains(d, ":") && RanksOf(d) > 0 && e.TensorParallel > 0 && RanksOf(d) != e.TensorParallel:
			wrong("tensor_parallel", "%d ranks cannot run on %s, which has %d", e.TensorParallel, d, RanksOf(d))
		}
		seen[d] = true
	}
}

func (e EngineSpec) checkBackend(wrong func(field, format string, args ...any)) {
	if e.Backend != "" && !slices.Contains(Backends(), e.Backend) {
		wrong("backend", "%q is not one of %s", e.Backend, strings.Join(Backends(), ", "))
	}
	if on := backendKinds[e.Backend]; on != "" && e.Device != "" && !slices.ContainsFunc(e.Devices(), func(d string) bool { return strings.HasPrefix(d, on) }) {
		wrong("device", "the backend %s computes on %s devices only, and %s is none", e.Backend, on, e.Device)
	}
}

// checkRoles reports errors in the specs of the roles, and differences between the roles
// that would keep them from exchanging KV blocks.
func (t Topology) checkRoles(wrong func(field, format string, args ...any)) {
	check := func(field string, p Placement) {
		if p != "" && !slices.Contains(Placements(), string(p)) {
			wrong(field, "%q is not one of %s", p, strings.Join(Placements(), ", "))
		}
	}
	check("placement", t.Placement)
	for _, r := range Roles {
		own := t.RoleSpec(r)
		within := func(field, format string, args ...any) { wrong(string(r)+"."+field, format, args...) }
		check(string(r)+".placement", own.Placement)
		own.Engine.check(within)
		for i, option := range engineOptions {
			if !r.Uses(option) && !reflect.ValueOf(own.Engine).Field(i).IsZero() {
				within(option, "%s workers have no such option: they compute only the embeddings of images", r)
			}
		}
		if own.Quantize != QuantizeNone {
			(ModelSpec{Quantize: own.Quantize}).check(within)
		}
	}
	t.checkServers(wrong)
	if t.Prefill == 0 || t.Decode == 0 {
		return
	}
	pm, pe := t.Specs(RolePrefill)
	dm, de := t.Specs(RoleDecode)
	if pe.External() || de.External() {
		t.checkPair(pe, de, wrong)
		return
	}
	for _, f := range []struct {
		field           string
		prefill, decode any
	}{
		{"quantize", pm.Quantize, dm.Quantize},
		{"backend", exchanging(pe.Backend), exchanging(de.Backend)},
		{"block_size", pe.BlockSize, de.BlockSize},
		{"kv_cache_dtype", pe.KVDType, de.KVDType},
	} {
		if f.prefill == f.decode {
			continue
		}
		field := "decode." + f.field
		if t.PrefillSpec.has(f.field) {
			field = "prefill." + f.field
		}
		wrong(field, "prefill and decode workers exchange KV blocks and must agree: prefill has %s, decode %s; set it for both in one place", orDefault(f.prefill), orDefault(f.decode))
	}
}

// exchanging returns a value that is equal for backends that can exchange KV blocks.
func exchanging(backend string) string {
	if backendKinds[backend] != "" {
		return ""
	}
	return backend
}

// has reports whether a field is set for the role.
func (s RoleSpec) has(field string) bool {
	switch field {
	case "quantize":
		return s.Quantize != ""
	case "backend":
		return s.Engine.Backend != ""
	case "block_size":
		return s.Engine.BlockSize != 0
	case "kv_cache_dtype":
		return s.Engine.KVDType != ""
	}
	return false
}

func orDefault(v any) string {
	if reflect.ValueOf(v).IsZero() {
		return "the default"
	}
	return fmt.Sprint(v)
}
