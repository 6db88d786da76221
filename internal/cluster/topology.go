package cluster

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Topology is the desired state of a cluster: which model, and how many workers
// of each role. It is changed only by compare-and-swap on its etcd revision.
type Topology struct {
	Model ModelSpec `json:"model"`
	// Prefill, Decode and Encode are worker counts. Decode without Prefill is aggregated
	// serving. Encode needs a vision-language model.
	Prefill int        `json:"prefill"`
	Decode  int        `json:"decode"`
	Encode  int        `json:"encode,omitempty"`
	Engine  EngineSpec `json:"engine"`
	// Placement distributes workers over nodes; empty means PlacementSpread.
	Placement Placement `json:"placement,omitempty"`
	// PrefillSpec, DecodeSpec and EncodeSpec override the fields above for one role; see
	// Specs.
	PrefillSpec RoleSpec `json:"prefill_spec,omitzero"`
	DecodeSpec  RoleSpec `json:"decode_spec,omitzero"`
	EncodeSpec  RoleSpec `json:"encode_spec,omitzero"`
	// Pools are models beside that one, with workers of their own, by name. Attached are
	// servers that run already; see In for how one of either is seen.
	Pools map[string]Pool `json:"pools,omitempty"`
	// Planner is that of a pool in the view of In. The main pool has none: the settings
	// planner.* say the same of it.
	Planner  PlannerSpec `json:"-"`
	Attached []Attached  `json:"attached,omitempty"`
	// Restarts counts the orders to restart all workers, one after another.
	Restarts int64 `json:"restarts,omitempty"`
	// Rolling says how the latest restart of all workers goes.
	Rolling Rolling `json:"rolling,omitzero"`
	// Flip names a worker that changes its role to make up for a change of the counts.
	Flip Flip `json:"flip,omitzero"`
	// Generation increases by one with every change.
	Generation int64     `json:"generation"`
	UpdatedAt  time.Time `json:"updated_at"`
	UpdatedBy  string    `json:"updated_by,omitempty"` // "user@host"
	// Reason is the command that made the last change, such as "dynctl scale --decode 4".
	Reason string `json:"reason,omitempty"`
}

// Rolling overrides the settings of rollouts for one order to restart all workers, the one
// with this number, and is ignored in later ones.
type Rolling struct {
	Rollout
	Restarts int64 `json:"restarts"`
}

// Flip names a worker and the role that it shall take. It applies to one generation of
// the topology and is ignored in later ones.
type Flip struct {
	Worker     string `json:"worker"`
	Role       Role   `json:"role"`
	Generation int64  `json:"generation"`
}

// ModelSpec names the model to serve.
type ModelSpec struct {
	// Name is the served name, which clients send in the "model" field.
	Name string `json:"name"`
	// Path is the model directory on every node; empty for the built-in model of text, and
	// [BuiltinVisionName] for the one that sees images.
	Path string `json:"path,omitempty"`
	// ToolParser and ReasoningParser name the formats in which the model writes tool
	// calls and reasoning. Empty means the formats that its chat template shows; "none"
	// leaves both in the text.
	ToolParser      string `json:"tool_parser,omitempty"`
	ReasoningParser string `json:"reasoning_parser,omitempty"`
	// Quantize is the format, one of [WeightFormats], to which workers convert the
	// weights on loading. Empty leaves them as they are stored.
	Quantize string `json:"quantize,omitempty"`
}

// WeightFormats lists the formats that weights can be quantized to, the most accurate
// first.
func WeightFormats() []string { return []string{"q8_0", "q4_0"} }

// Validate returns an error that names the first wrong field.
func (m ModelSpec) Validate() error { return first(m.check) }

func (m ModelSpec) check(wrong func(field, format string, args ...any)) {
	if m.Quantize != "" && !slices.Contains(WeightFormats(), m.Quantize) {
		wrong("quantize", "%q is not one of %s", m.Quantize, strings.Join(WeightFormats(), ", "))
	}
}

// Names of the built-in models, under which they are served unless another name is given.
const (
	BuiltinModelName  = "dynctl-tiny"
	BuiltinVisionName = "dynctl-tiny-vision" // sees images
)

// Builtin returns the name of the built-in model that this is, "" for a model of files.
func (m ModelSpec) Builtin() string {
	switch m.Path {
	case "":
		return BuiltinModelName
	case BuiltinVisionName:
		return m.Path
	}
	return ""
}

// BuiltinPath returns the Path of the built-in model of that name, and whether there is
// one.
func BuiltinPath(name string) (path string, ok bool) {
	switch name {
	case BuiltinModelName:
		return "", true
	case BuiltinVisionName:
		return name, true
	}
	return "", false
}

// EngineSpec configures a worker's engine and its limits. Zero means the default of the
// engine or, for MaxModelLen, of the model.
type EngineSpec struct {
	// Backend is the implementation that computes, one of Backends; empty means that of
	// the device.
	Backend   string `json:"backend,omitempty"`
	KVBlocks  int    `json:"kv_blocks,omitempty"`
	BlockSize int    `json:"block_size,omitempty"` // tokens: 16, 32, 64 or 128
	// KVDType is the type of keys and values, one of KVDTypes; empty means auto.
	KVDType        string `json:"kv_cache_dtype,omitempty"`
	MaxModelLen    int    `json:"max_model_len,omitempty"`
	MaxSeqs        int    `json:"max_num_seqs,omitempty"`
	MaxBatchTokens int    `json:"max_num_batched_tokens,omitempty"`
	// ITLTargetMS limits the duration, in milliseconds, of a step that both decodes and
	// prefills.
	ITLTargetMS int64 `json:"itl_target_ms,omitempty"`
	// Speculative configures speculative decoding.
	Speculative Speculative `json:"speculative,omitzero"`
	// Device lists the devices that workers may run on, separated by commas: "cpu" allows
	// any of that kind, "cpu:0" one device. Empty allows all.
	Device string `json:"device,omitempty"`
	// TensorParallel is the number of ranks of a worker; the ranks share the heads of
	// each layer. Workers with different numbers of ranks can exchange KV blocks.
	TensorParallel int `json:"tensor_parallel,omitempty"`
	// Server is about the servers of a backend among [ExternalBackends].
	Server External `json:"server,omitzero"`
}

// UnmarshalJSON also accepts the field names of the previous release.
func (e *EngineSpec) UnmarshalJSON(b []byte) error {
	type plain EngineSpec
	former := struct {
		*plain
		KVDType        *string `json:"kv_dtype"`
		MaxSeqs        *int    `json:"max_seqs"`
		MaxBatchTokens *int    `json:"max_batch_tokens"`
	}{plain: (*plain)(e), KVDType: &e.KVDType, MaxSeqs: &e.MaxSeqs, MaxBatchTokens: &e.MaxBatchTokens}
	return json.Unmarshal(b, &former)
}

// KVDTypes lists the types for keys and values. auto means f32 for models with f32
// weights and bf16 for all others.
var KVDTypes = []string{"auto", "f32", "bf16", "int8"}

// MaxITLTarget is the longest ITL target. No step takes that long.
const MaxITLTarget = 24 * time.Hour

// MaxWorkersPerRole limits a role's workers, so that a typing mistake cannot start a
// million.
const MaxWorkersPerRole = 1024

// Of returns where the topology keeps the desired number of workers of a role, and the
// overrides of the role. Both are nil for a role that is not in [Roles].
func (t *Topology) Of(r Role) (*int, *RoleSpec) {
	switch r {
	case RolePrefill:
		return &t.Prefill, &t.PrefillSpec
	case RoleDecode:
		return &t.Decode, &t.DecodeSpec
	case RoleEncode:
		return &t.Encode, &t.EncodeSpec
	}
	return nil, nil
}

// Count returns the desired number of workers of a role, 0 for an unknown one.
func (t Topology) Count(r Role) int {
	if n, _ := t.Of(r); n != nil {
		return *n
	}
	return 0
}

// Counts holds numbers of workers by role. A role that it lacks is not meant.
type Counts map[Role]int

// String lists the numbers in the order of [Roles]: "prefill=2 decode=4".
func (c Counts) String() string {
	var words []string
	for _, r := range Roles {
		if n, ok := c[r]; ok {
			words = append(words, fmt.Sprintf("%s=%d", r, n))
		}
	}
	return strings.Join(words, " ")
}

// Asks reports whether the topology has the numbers that c holds.
func (t Topology) Asks(c Counts) bool {
	for r, n := range c {
		if t.Count(r) != n {
			return false
		}
	}
	return true
}

// Workers returns the desired number of workers of all roles and pools.
func (t Topology) Workers() (n int) {
	for _, r := range Roles {
		n += t.CountAll(r)
	}
	return n
}

// CountAll returns the desired number of workers of a role in all pools.
func (t Topology) CountAll(r Role) (n int) {
	for _, pool := range t.PoolNames() {
		n += t.In(pool).Count(r)
	}
	return n
}

// FieldError is an error in one field of a topology. Field names are those of flags and
// JSON, prefixed with the role and a dot for the overrides of a role.
type FieldError struct{ Field, Text string }

// Error returns "field: what is wrong".
func (e FieldError) Error() string { return e.Field + ": " + e.Text }

// Validate returns an error that names the first wrong field.
func (t Topology) Validate() error { return first(t.check) }

// Problems returns all errors; empty means that the topology is valid.
func (t Topology) Problems() []FieldError { return all(t.check) }

func (t Topology) check(wrong func(field, format string, args ...any)) {
	main := t.In("")
	for _, r := range Roles {
		if n := t.Count(r); n < 0 || n > MaxWorkersPerRole {
			wrong(string(r), "%d is not between 0 and %d", n, MaxWorkersPerRole)
		}
	}
	for _, r := range []Role{RolePrefill, RoleEncode} {
		if t.Count(r) > 0 && t.Decode == 0 {
			wrong("decode", "%s workers need at least one decode worker", r)
		}
	}
	if main.Workers() > 0 && t.Model.Name == "" {
		wrong("model", "no name")
	}
	if t.Encode > 0 && t.Model.Builtin() == BuiltinModelName && !t.OfServer() {
		wrong(string(RoleEncode), "the built-in model %s sees no images: dynctl up --encode %d changes it to %s", BuiltinModelName, t.Encode, BuiltinVisionName)
	}
	t.Model.check(wrong)
	t.Engine.check(wrong)
	t.checkRoles(wrong)
	for _, f := range []struct{ field, text string }{{"max_surge", t.Rolling.MaxSurge}, {"max_unavailable", t.Rolling.MaxUnavailable}} {
		if err := CheckRollout(f.text); err != nil {
			wrong(f.field, "%s", err)
		}
	}
	t.checkPools(wrong)
}

// Validate returns an error that names the first wrong field.
func (e EngineSpec) Validate() error { return first(e.check) }

func (e EngineSpec) check(wrong func(field, format string, args ...any)) {
	e.checkBackend(wrong)
	switch e.BlockSize {
	case 0, 16, 32, 64, 128:
	default:
		wrong("block_size", "%d tokens is not one of 16, 32, 64, 128", e.BlockSize)
	}
	if e.KVDType != "" && !slices.Contains(KVDTypes, e.KVDType) {
		wrong("kv_cache_dtype", "%q is not one of %s", e.KVDType, strings.Join(KVDTypes, ", "))
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"kv_blocks", e.KVBlocks}, {"max_model_len", e.MaxModelLen}, {"max_num_seqs", e.MaxSeqs}, {"max_num_batched_tokens", e.MaxBatchTokens}, {"tensor_parallel", e.TensorParallel}} {
		if f.value < 0 {
			wrong(f.name, "%d is negative", f.value)
		}
	}
	if e.ITLTargetMS < 0 || e.ITLTargetMS > MaxITLTarget.Milliseconds() {
		wrong("itl_target", "%d ms is not between 0 and %s", e.ITLTargetMS, MaxITLTarget)
	}
	if err := e.Speculative.Validate(); err != nil {
		wrong("speculative", "%s", strings.TrimPrefix(err.Error(), "speculative: "))
	}
	e.checkDevices(wrong)
	e.checkExternal(wrong)
}

// all collects the errors that a check reports.
func all(check func(wrong func(field, format string, args ...any))) (out []FieldError) {
	check(func(field, format string, args ...any) {
		out = append(out, FieldError{field, fmt.Sprintf(format, args...)})
	})
	return out
}

// first returns the first error that a check reports, or nil.
func first(check func(wrong func(field, format string, args ...any))) error {
	if found := all(check); len(found) > 0 {
		return found[0]
	}
	return nil
}

// namespaceName matches valid names of namespaces and components.
var namespaceName = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)

// ValidateNamespace rejects names that would make ambiguous keys or subjects.
func ValidateNamespace(ns string) error {
	if !namespaceName.MatchString(ns) {
		return fmt.Errorf("namespace %q: use lower-case letters, digits, - and _, joined by dots", ns)
	}
	if key := "/dynctl/" + ns; key+"/" == NodePrefix || key == LeaderPrefix {
		return fmt.Errorf("namespace %q: the name is taken by keys of all namespaces", ns)
	}
	return nil
}
