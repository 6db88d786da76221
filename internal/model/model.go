package model

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Options of [Open].
type Options struct {
	// Log receives warnings about oddities that do not hinder loading, such as
	// tensors that nobody asked for. Nil drops them.
	Log *slog.Logger
}

// Model is an open checkpoint.
type Model struct {
	config     Config
	dir        string
	files      []File
	eos        []uint32
	tokenLimit int
	digest     string
	set        *safetensors.Set
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

// Open reads and checks the checkpoint in dir: config.json, the small files, and
// the weights, which it maps. Nothing is left open when it fails. Errors name the
// file and the field or tensor; they match [ErrConfig], [ErrUnsupported],
// [ErrWeights], [ErrOutside], [safetensors.ErrFormat] or
// [safetensors.ErrNoWeights].
func Open(dir string, opts Options) (*Model, error) {
	m, err := open(dir, opts)
	if err != nil {
		return nil, fmt.Errorf("open model %s: %w", dir, err)
	}
	return m, nil
}

func open(dir string, opts Options) (_ *Model, err error) {
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	m := &Model{dir: f.dir, places: make(map[roleKey]place)}
	if m.files, err = readFiles(f); err != nil {
		return nil, err
	}
	if err := m.readConfig(); err != nil {
		return nil, err
	}
	if m.set, err = safetensors.OpenSet(f.dir, f.resolve); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = m.Close()
		}
	}()
	for _, w := range m.set.Warnings() {
		log.Warn("weight index is inconsistent", "model", m.dir, "detail", w)
	}
	if err := m.checkTensors(log); err != nil {
		return nil, err
	}
	if m.digest, err = digest(m.files, m.set); err != nil {
		return nil, err
	}
	return m, m.Check()
}

// readConfig reads everything that is not weights.
func (m *Model) readConfig() (err error) {
	content := find(m.files, ConfigName)
	if content == nil {
		return fmt.Errorf("read %s: %w: missing", ConfigName, ErrConfig)
	}
	if m.config, err = ParseConfig(content); err != nil {
		return err
	}
	if m.eos, err = readEOS(m.files, m.config.Vocab); err != nil {
		return err
	}
	m.tokenLimit, err = readTokenLimit(find(m.files, TokenizerName), m.config.Vocab)
	return err
}

// checkTensors proves that each tensor that the configuration asks for is there
// with its shape and a type that can be computed with.
func (m *Model) checkTensors(log *slog.Logger) error {
	wanted := make(map[string]bool)
	var missing []string
	naming := newNaming(m.config.family(), func(name string) bool { _, ok := m.set.Tensor(name); return ok })
	m.specs = m.config.tensors(naming)
	for _, spec := range m.specs {
		wanted[spec.Name] = true
		m.place(spec)
		t, ok := m.set.Tensor(spec.Name)
		if !ok {
			missing = append(missing, spec.Name)
			continue
		}
		if !slices.Equal(t.Shape, spec.Shape) {
			return fmt.Errorf("%w: tensor %q of %s has shape %v, want %v", ErrWeights, t.Name, t.File, t.Shape, spec.Shape)
		}
		switch t.DType {
		case safetensors.F32, safetensors.F16, safetensors.BF16:
		default:
			return fmt.Errorf("%w: tensor %q of %s has type %s; known are F32, F16, BF16", ErrWeights, t.Name, t.File, t.DType)
		}
	}
	if n := len(missing); n > 0 {
		list := strings.Join(missing[:min(n, 3)], ", ")
		return fmt.Errorf("%w: %d tensors are missing: %s", ErrWeights, n, list)
	}
	var extra []string
	ignorable := m.config.ignorable(naming)
	for _, name := range m.set.Names() {
		if !wanted[name] && !ignorable[name] {
			extra = append(extra, name)
		}
	}
	if n := len(extra); n > 0 {
		log.Warn("model has tensors that are not used", "model", m.dir, "count", n, "first", extra[0])
	}
	return nil
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

// Dir is the model folder with its links resolved.
func (m *Model) Dir() string { return m.dir }

// Digest identifies the checkpoint, in hex: equal for copies of the same files,
// different when configuration, tokenizer or weights differ. Of the weights only
// the index and both ends of each file are read.
func (m *Model) Digest() string { return m.digest }

// Files are the small files of the checkpoint that exist, for the model card.
func (m *Model) Files() []File { return m.files }

// EOS lists the ids that end a text, in ascending order.
func (m *Model) EOS() []uint32 { return m.eos }

// TokenLimit is the number of ids that the tokenizer knows; the rows of the head
// from there on are padding and must not be sampled.
func (m *Model) TokenLimit() int { return m.tokenLimit }

// WeightBytes is the size of all weight files.
func (m *Model) WeightBytes() int64 {
	var n int64
	for _, f := range m.set.Files() {
		n += f.Size()
	}
	return n
}

// Tensors lists the tensors that the model is made of, as this checkpoint stores
// them; unlike [Config.Tensors] it knows which form the checkpoint has.
func (m *Model) Tensors() []TensorSpec { return m.specs }

// Tensor finds a tensor by its name in the checkpoint.
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
	rowBytes := at.shape[1] * int(t.DType.Bits()/8)
	from := at.first * rowBytes
	t.Data = t.Data[from : from+at.shape[0]*rowBytes : from+at.shape[0]*rowBytes]
	t.Offset += int64(from)
	t.Shape = at.shape
	return t, true
}

// Check returns [safetensors.ErrChanged] when a weight file no longer has the
// size it was mapped with.
func (m *Model) Check() error { return m.set.CheckSize() }

// Close unmaps the weights; it may be called twice. No tensor may be read
// afterwards.
func (m *Model) Close() error {
	if m.set == nil {
		return nil
	}
	return m.set.Close()
}
