package model

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/model/mapped"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Options configures [Open] and [Examine].
type Options struct {
	// Log receives warnings about oddities that do not prevent loading, such as unused
	// tensors. nil drops them.
	Log *slog.Logger
	// Quantize is the format to which matrices are quantized, one of
	// [cluster.WeightFormats]; "" keeps them as stored. If it is set, call
	// [Model.Prepare] before reading any tensor.
	Quantize string
}

// Model is an open checkpoint.
type Model struct {
	config     Config
	dir        string
	mmproj     string // file that reads images for a GGUF file; "" if there is none
	files      []File
	eos        []uint32
	tokenLimit int
	digest     string
	quantize   string    // requested format
	set        weightSet // nil if there are no readable weights
	format     string
	wanted     map[string]bool // tensors that the configuration needs
	warnings   []string
	specs      []TensorSpec
	places     map[roleKey]place
}

type roleKey struct {
	role          Role
	layer, expert int
}

// place tells where a role's values are stored: all of a tensor, or a run of its rows.
type place struct {
	tensor string
	first  int   // row, counted over all dimensions but the last
	shape  []int // nil for the whole tensor
}

// checkTensors checks that each tensor that the configuration needs exists with its shape
// and a type that engines support.
func (m *Model) checkTensors() (problems []error) {
	var missing []string
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%w: "+format, append([]any{ErrWeights}, args...)...))
	}
	names := m.set.Names()
	naming := newNaming(m.config.family(), names, func(name string) bool { _, ok := m.set.Lookup(name); return ok })
	m.untie(naming)
	if m.config.Vision != nil && !naming.vision.found {
		m.config.Vision = nil
		m.warnings = append(m.warnings, ConfigName+" describes a model that reads images, but the weights have no vision tensors: it reads text only")
	}
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
	ignorable := m.config.ignorable(naming, names)
	for _, name := range names {
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

// untie makes a model use the head in its files although the configuration says that the head
// is the embedding, if the two differ: then whoever made the files trained it.
func (m *Model) untie(naming naming) {
	if !m.config.TiedHead {
		return
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			_ = mapped.FaultError(r) // Check tells it
		}
	}()
	head, ok := m.set.Tensor(naming.fill(naming.fam.names[RoleHead]))
	embed, known := m.set.Tensor(naming.fill(naming.fam.names[RoleEmbed]))
	if !ok || !known || !slices.Equal(head.Shape, embed.Shape) || head.DType == embed.DType && bytes.Equal(head.Data, embed.Data) {
		return
	}
	m.config.TiedHead = false
	m.warnings = append(m.warnings, fmt.Sprintf("%s sets tie_word_embeddings, but %s of %s differs from the embedding and is used", ConfigName, head.Name, head.File))
}

// computable reports whether engines support a tensor's type: plain types for all
// tensors, and quantized types for matrices.
func computable(t Tensor) bool {
	switch t.DType {
	case safetensors.F32, safetensors.F16, safetensors.BF16:
		return true
	}
	return t.DType.Quantized() && len(t.Shape) > 1
}

// place records the roles of a tensor.
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

// Config returns the model's shape.
func (m *Model) Config() Config { return m.config }

// Dir returns the model folder, or the GGUF file, with links resolved.
func (m *Model) Dir() string { return m.dir }

// Mmproj returns the mmproj file with which a model in a GGUF file reads images, links
// resolved; "" if there is none.
func (m *Model) Mmproj() string { return m.mmproj }

// Digest identifies the checkpoint, in hex: equal for copies of the same files, different
// when configuration, tokenizer or weights differ. Of the weights it covers only the
// index and both ends of each file; of a GGUF file and its mmproj file everything before the
// data, and both ends of the data. A quantized model has a different digest for each format, because its
// KV blocks differ from those of the stored checkpoint.
func (m *Model) Digest() string { return m.digest }

// Files returns the small files of the checkpoint that exist, for the model card.
func (m *Model) Files() []File { return m.files }

// EOS returns the ids that end a text, in ascending order.
func (m *Model) EOS() []uint32 { return m.eos }

// TokenLimit returns the number of ids that the tokenizer uses. Further rows of the head
// are padding and must not be sampled.
func (m *Model) TokenLimit() int { return m.tokenLimit }

// Tensors returns the tensors of the model as this checkpoint stores them. Unlike
// [Config.Tensors] it reflects the form that the checkpoint has.
func (m *Model) Tensors() []TensorSpec { return m.specs }

// TensorBytes returns the size of the data of [Model.Tensor] without making it; 0 for a
// missing tensor.
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

// Tensor finds a tensor by its name in the checkpoint. For a GGUF file that is the name
// in the original Hugging Face folder. Quantized matrices come as they are stored: rows
// of whole blocks, see [safetensors.DType.Block], and fp8 with its scales.
func (m *Model) Tensor(name string) (Tensor, error) {
	t, ok := m.set.Tensor(name)
	if !ok {
		return Tensor{}, fmt.Errorf("%w: tensor %q is missing", ErrWeights, name)
	}
	return t, nil
}

// Weight finds a tensor by its role; layer is 0 for roles that exist once. The head of a
// tied model is its embedding. Roles that share a tensor get their rows of it. ok is
// false if this model has no such tensor.
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
	rowBytes := t.DType.Bytes(elems(at.shape[1:]))
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
