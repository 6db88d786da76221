package cluster

import (
	"errors"
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
	// Prefill and Decode are worker counts. Decode without Prefill is aggregated
	// serving.
	Prefill int        `json:"prefill"`
	Decode  int        `json:"decode"`
	Engine  EngineSpec `json:"engine"`
	// Generation increases by one with every change.
	Generation int64     `json:"generation"`
	UpdatedAt  time.Time `json:"updated_at"`
	UpdatedBy  string    `json:"updated_by,omitempty"` // "user@host"
}

// ModelSpec names the model to serve.
type ModelSpec struct {
	// Name is what clients put into the "model" field.
	Name string `json:"name"`
	// Path is the model directory on every node; empty for the built-in model.
	Path string `json:"path,omitempty"`
	// ToolParser and ReasoningParser name the formats in which the model writes
	// tool calls and reasoning; empty means what its chat template shows, "none"
	// leaves them in the text.
	ToolParser      string `json:"tool_parser,omitempty"`
	ReasoningParser string `json:"reasoning_parser,omitempty"`
	// Quantize is the format that workers give the weights when they load them, one of
	// [WeightFormats]; empty leaves them as they are stored.
	Quantize string `json:"quantize,omitempty"`
}

// WeightFormats lists the formats that weights can be quantized to, from the nearest to
// the smallest.
func WeightFormats() []string { return []string{"q8_0", "q4_0"} }

// Validate returns an error that names the first wrong field.
func (m ModelSpec) Validate() error {
	if m.Quantize != "" && !slices.Contains(WeightFormats(), m.Quantize) {
		return fmt.Errorf("quantize: %q is not one of %s", m.Quantize, strings.Join(WeightFormats(), ", "))
	}
	return nil
}

// BuiltinModelName is the served name of the built-in model.
const BuiltinModelName = "dynctl-tiny"

// EngineSpec holds the engine limits that all workers share. Zero means the
// default of the engine or, for MaxModelLen, of the model.
type EngineSpec struct {
	KVBlocks       int `json:"kv_blocks,omitempty"`
	BlockSize      int `json:"block_size,omitempty"` // tokens: 16, 32, 64 or 128
	MaxModelLen    int `json:"max_model_len,omitempty"`
	MaxSeqs        int `json:"max_seqs,omitempty"`
	MaxBatchTokens int `json:"max_batch_tokens,omitempty"`
	// ITLTargetMS is how many milliseconds a step may take that decodes and prefills.
	ITLTargetMS int64 `json:"itl_target_ms,omitempty"`
	// Speculative says how tokens are proposed and verified several at a time.
	Speculative Speculative `json:"speculative,omitzero"`
	Device      string      `json:"device,omitempty"` // "", "cpu", "cpu:0", ...
}

// MaxITLTarget is the longest target; no step takes as long.
const MaxITLTarget = 24 * time.Hour

// MaxWorkersPerRole keeps a typing mistake from starting a million workers.
const MaxWorkersPerRole = 1024

// Count returns the desired number of workers of a role.
func (t Topology) Count(r Role) int {
	switch r {
	case RolePrefill:
		return t.Prefill
	case RoleDecode:
		return t.Decode
	}
	return 0
}

// Validate returns an error that names the first wrong field.
func (t Topology) Validate() error {
	switch {
	case t.Prefill < 0 || t.Prefill > MaxWorkersPerRole:
		return fmt.Errorf("prefill: %d is not between 0 and %d", t.Prefill, MaxWorkersPerRole)
	case t.Decode < 0 || t.Decode > MaxWorkersPerRole:
		return fmt.Errorf("decode: %d is not between 0 and %d", t.Decode, MaxWorkersPerRole)
	case t.Prefill > 0 && t.Decode == 0:
		return errors.New("decode: prefill workers need at least one decode worker")
	case t.Prefill+t.Decode > 0 && t.Model.Name == "":
		return errors.New("model: no name")
	}
	if err := t.Model.Validate(); err != nil {
		return err
	}
	return t.Engine.Validate()
}

// Validate returns an error that names the first wrong field.
func (e EngineSpec) Validate() error {
	switch e.BlockSize {
	case 0, 16, 32, 64, 128:
	default:
		return fmt.Errorf("block_size: %d tokens is not one of 16, 32, 64, 128", e.BlockSize)
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"kv_blocks", e.KVBlocks}, {"max_model_len", e.MaxModelLen}, {"max_seqs", e.MaxSeqs}, {"max_batch_tokens", e.MaxBatchTokens}} {
		if f.value < 0 {
			return fmt.Errorf("%s: %d is negative", f.name, f.value)
		}
	}
	if e.ITLTargetMS < 0 || e.ITLTargetMS > MaxITLTarget.Milliseconds() {
		return fmt.Errorf("itl_target: %d ms is not between 0 and %s", e.ITLTargetMS, MaxITLTarget)
	}
	return e.Speculative.Validate()
}

// namespaceName is the rule for namespaces and components.
var namespaceName = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)

// ValidateNamespace refuses names that would make ambiguous keys or subjects.
func ValidateNamespace(ns string) error {
	if !namespaceName.MatchString(ns) {
		return fmt.Errorf("namespace %q: use lower-case letters, digits, - and _, joined by dots", ns)
	}
	if key := "/dynctl/" + ns; key+"/" == NodePrefix || key == LeaderPrefix {
		return fmt.Errorf("namespace %q: the name is taken by keys of all namespaces", ns)
	}
	return nil
}
