package model

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Options of [Open] and [Examine].
type Options struct {
	// Log receives warnings about oddities that do not hinder loading, such as
	// tensors that nobody asked for. Nil drops them.
	Log *slog.Logger
	// Quantize is the format that matrices shall have, one of
	// [cluster.WeightFormats]; "" leaves them as they are stored. [Model.Prepare] must
	// be called then, before any tensor is read.
	Quantize string
}

// Model is an open checkpoint.
type Model struct {
	config     Config
	dir        string
	files      []File
	eos        []uint32
	tokenLimit int
	digest     string
	quantize   string    // format that was asked for
	set        weightSet // nil when there are no weights to be read
	format     string
	wanted     map[string]bool // tensors that the configuration asks for
	warnings   []string
	specs      []TensorSpec
	places     map[roleKey]place
}

type roleKey struct {
	role          Role
	layer, expert int
}

// place is where a role's values lie: all of a tensor, or a run of its rows.
type place struct {
	tensor string
	first  int   // row, counted over all dimensions but the last
	shape  []int // nil: all of it
}

// checkTensors proves that each tensor that the configuration asks for is there
// with its shape and a type that can be computed with.
func (m *Model) checkTensors() (problems []error) {
	var missing []string
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%w: "+format, append([]any{ErrWeights}, args...)...))
	}
	naming := newNaming(m.config.family(), func(name string) bool { _, ok := m.set.Lookup(name); return ok })
	m.specs = m.config.tensors(naming)
	for _, spec := range m.specs {
		m.wanted[spec.Name] = true
		m.place(spec)
		t, ok := m.set.Lookup(spec.Name)
		if !ok {
			missing = append(missing, spec.Name)
			continue
		}
		if !slices.Equal(t.Shape, spec.Shape) {
			bad("tensor %q of %s has shape %v, want %v", t.Name, t.File, t.Shape, spec.Shape)
		}
		switch {
		case t.DType == safetensors.F8_E4M3:
			if t.Scales == nil {
				_, err := findScales(t, m.set.Lookup)
				bad("tensor %q of %s %w", t.Name, t.File, err)
				continue
			}
			m.wanted[t.Scales.Name] = true
		case !computable(t):
			bad("tensor %q of %s has type %s; known are %s", t.Name, t.File, t.DType, m.set.Types())
		}
	}
	if n := len(missing); n > 0 {
		bad("%d tensors are missing: %s", n, strings.Join(missing[:min(n, 3)], ", "))
	}
	var extra []string
	ignorable := m.config.ignorable(naming)
	for _, name := range m.set.Names() {
		if !m.wanted[name] && !ignorable[name] {
			extra = append(extra, name)
		}
	}
	extra = m.fp8Notes(extra)
	if n := len(extra); n > 0 {
		m.warnings = append(m.warnings, fmt.Sprintf("%d tensors are not used, the first is %s", n, extra[0]))
	}
	return problems
}

// computable reports whether engines know a tensor's type: quantized matrices, and
// everything of plain types.
func computable(t Tensor) bool {
	switch t.DType {
	case safetensors.F32, safetensors.F16, safetensors.BF16:
		return true
	}
	return t.DType.Quantized() && len(t.Shape) > 1
}

// place remembers what a tensor is for.
func (m *Model) place(spec TensorSpec) {
	if spec.Parts == nil {
		m.places[roleKey{spec.Role, spec.Layer, spec.Expert}] = place{tensor: spec.Name}
	}
	row := 0
	for _, p := range spec.Parts {
		m.places[roleKey{p.Role, spec.Layer, p.Expert}] = place{spec.Name, row, p.Shape}
		row += p.Shape[0]
	}
}

// Config is the model's shape.
func (m *Model) Config() Config { return m.config }

// Dir is the model folder, or the GGUF file, with its links resolved.
func (m *Model) Dir() string { return m.dir }

// Digest identifies the checkpoint, in hex: equal for copies of the same files,
// different when configuration, tokenizer or weights differ. Of the weights only
// the index and both ends of each file are read; of a GGUF file everything before
// the data, and both ends of that. A quantized model has a digest of its own for each
// format: its KV blocks are others than those of the checkpoint as it is stored.
func (m *Model) Digest() string { return m.digest }

// Files are the small files of the checkpoint that exist, for the model card.
func (m *Model) Files() []File { return m.files }

// EOS lists the ids that end a text, in ascending order.
func (m *Model) EOS() []uint32 { return m.eos }

// TokenLimit is the number of ids that the tokenizer knows; the rows of the head
// from there on are padding and must not be sampled.
func (m *Model) TokenLimit() int { return m.tokenLimit }

// Tensors lists the tensors that the model is made of, as this checkpoint stores
// them; unlike [Config.Tensors] it knows which form the checkpoint has.
func (m *Model) Tensors() []TensorSpec { return m.specs }

// TensorBytes is how many bytes the data of [Model.Tensor] has, without making it; 0
// for a tensor that is missing.
func (m *Model) TensorBytes(name string) int64 {
	t, ok := m.set.Lookup(name)
	if !ok {
		return 0
	}
	weights := 1
	for _, n := range t.Shape {
		weights *= n
	}
	return int64(t.DType.Bytes(weights))
}

// Tensor finds a tensor by its name in the checkpoint; for a GGUF file that is the
// name in the folder that the file was made of. Quantized matrices come as they are
// stored: rows of whole blocks, see [safetensors.DType.Block], and fp8 with its scales.
func (m *Model) Tensor(name string) (Tensor, error) {
	t, ok := m.set.Tensor(name)
	if !ok {
		return Tensor{}, fmt.Errorf("%w: tensor %q is missing", ErrWeights, name)
	}
	return t, nil
}

// Weight finds a tensor by what it is for; the layer is 0 for roles that exist
// once. The head of a tied model is its embedding. Roles that share a tensor get
// the rows that are theirs. False means that this model has no such tensor.
func (m *Model) Weight(role Role, layer int) (Tensor, bool) { return m.Expert(role, layer, 0) }

// Expert finds a tensor of one expert; see [Role.PerExpert] and [Model.Weight].
func (m *Model) Expert(role Role, layer, expert int) (Tensor, bool) {
	if role == RoleHead && m.config.TiedHead {
		role = RoleEmbed
	}
	at, ok := m.places[roleKey{role, layer, expert}]
	if !ok {
		return Tensor{}, false
	}
	t, ok := m.set.Tensor(at.tensor)
	if !ok || at.shape == nil {
		return t, ok
	}
	rowBytes := t.DType.Bytes(at.shape[1])
	from := at.first * rowBytes
	t.Data = t.Data[from : from+at.shape[0]*rowBytes : from+at.shape[0]*rowBytes]
	t.Offset += int64(from)
	t.Shape = at.shape
	if t.Scales != nil {
		scales := *t.Scales
		scales.First += at.first
		t.Scales = &scales
	}
	return t, true
}
