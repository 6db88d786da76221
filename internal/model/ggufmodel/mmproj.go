package ggufmodel

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/model/gguf"
)

// mmproj makes of a mmproj file, and of the text model that it stands beside, what describes the
// whole.
type mmproj struct {
	projector
	file   string // base name
	header *gguf.Header
	vision converter // makes vision_config
	text   *converter
	added  map[string]uint32 // ids of the text model's tokens, by their text
	// config is config.json, and prepare is preprocessor_config.json.
	config, prepare map[string]any
	// swapped: the names of the two linear layers of MLPs are exchanged, as older writers had
	// them.
	swapped bool
	ffn     int // values inside a layer's MLP
}

// Bounds of numbers that this package counts with. internal/model checks the others.
const (
	maxTowerLayers = 1 << 12
	maxTowerSide   = 1 << 20 // pixels
	maxPinpoints   = 1 << 9
)

// newMmproj reads the keys of a mmproj file.
func newMmproj(file string, header *gguf.Header, text *converter, added map[string]uint32) *mmproj {
	m := &mmproj{file: file, header: header, text: text, added: added, config: map[string]any{}, prepare: map[string]any{}}
	m.vision = converter{arch: arch{name: "clip.vision"}, keys: header.Keys, tensors: map[string]gguf.Tensor{}, config: map[string]any{}}
	for _, t := range header.Tensors {
		m.vision.tensors[t.Name] = t
	}
	if err := m.find(); err != nil {
		m.fail(err)
		return m
	}
	modelType, ok := m.texts[text.arch.name]
	if !ok || text.arch.withExperts {
		m.fail(unsupportedf("clip.projector_type %q beside a text model of the architecture %s; it goes with %s",
			m.name, text.arch.name, strings.Join(slices.Sorted(maps.Keys(m.texts)), ", ")))
		return m
	}
	for _, f := range m.fields {
		m.vision.field(f)
	}
	m.vision.config["model_type"] = m.tower
	m.activation()
	m.colors()
	m.mlp()
	m.rows()
	if len(m.vision.errs) > 0 {
		return m // the numbers below follow from these
	}
	textConfig := maps.Clone(text.config)
	textConfig["model_type"] = modelType
	delete(textConfig, "architectures")
	m.config["text_config"], m.config["vision_config"] = textConfig, m.vision.config
	m.convert(m)
	m.tokens()
	m.config["architectures"], m.config["model_type"] = []string{m.class}, m.modelType
	m.prepare["processor_class"], m.prepare["image_processor_type"] = m.processor, m.imageProcessor
	return m
}

func (m *mmproj) fail(err error) { m.vision.fail(err) }

// problems are what is wrong, with the name of the file.
func (m *mmproj) problems() []error {
	var all []error
	for _, err := range m.vision.errs {
		all = append(all, fmt.Errorf("%s: %w", m.file, err))
	}
	return all
}

// find checks what the file is, and finds the kind of its projector.
func (m *mmproj) find() error {
	keys := m.header.Keys
	if name, _, err := keys.Text("general.architecture"); err != nil || name != clipArch {
		return orElse(err, badf("general.architecture %q: this is no mmproj file, although its name says so", name))
	}
	if err := checkWhole(keys); err != nil { // general.type has had several values
		return err
	}
	for name, want := range map[string]bool{"clip.has_vision_encoder": true, "clip.has_audio_encoder": false, "clip.has_text_encoder": false} {
		if has, ok, err := keys.Bool(name); err != nil || ok && has != want {
			return orElse(err, unsupportedf("%s is %v: it has to be the part of a model that reads images, and nothing else", name, has))
		}
	}
	name, ok, err := keys.Text("clip.projector_type")
	if !ok && err == nil {
		name, ok, err = keys.Text("clip.vision.projector_type")
	}
	if err != nil {
		return err
	}
	if old, _, _ := keys.Bool("clip.has_llava_projector"); !ok && old {
		name, ok = "mlp", true // files from before there were others
	}
	if !ok {
		return badf("clip.projector_type is missing")
	}
	var known []string
	for _, p := range projectors() {
		if p.name == name {
			m.projector = p
			return nil
		}
		known = append(known, p.name)
	}
	return unsupportedf("clip.projector_type %q; known are %s", name, strings.Join(known, ", "))
}

// activation reads that of the tower.
func (m *mmproj) activation() {
	gelu, _, err1 := m.header.Keys.Bool("clip.use_gelu")
	silu, _, err2 := m.header.Keys.Bool("clip.use_silu")
	m.fail(orElse(err1, err2))
	act := m.acts[2]
	switch {
	case gelu && silu:
		act = ""
	case gelu:
		act = m.acts[0]
	case silu:
		act = m.acts[1]
	}
	if act == "" {
		m.fail(unsupportedf("clip.use_gelu is %v and clip.use_silu is %v, which projectors of type %s do not have here", gelu, silu, m.name))
	}
	m.vision.config["hidden_act"] = act
}

// colors reads the mean and the deviation of each color.
func (m *mmproj) colors() {
	for _, name := range []string{"image_mean", "image_std"} {
		list, _, err := m.header.Keys.Floats(m.vision.key(name))
		m.fail(err)
		if err == nil && len(list) != 3 {
			m.fail(badf("%s has %d numbers, want one for each of 3 colors", m.vision.key(name), len(list)))
		}
		var colors []float64
		for _, v := range list {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				m.fail(badf("%s has %v", m.vision.key(name), v))
				return
			}
			if v == 0 && name == "image_std" {
				m.fail(badf("%s has 0, which divides colors", m.vision.key(name)))
				return
			}
			wide, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
			m.fail(err)
			colors = append(colors, wide)
		}
		m.prepare[name] = colors
	}
}

// mlp finds out from their shapes which of the linear layers of MLPs comes first, and their
// size: keys of some writers have another one.
func (m *mmproj) mlp() {
	hidden, _, _ := m.header.Keys.Int(m.vision.key("embedding_length"))
	up, down := m.vision.tensors["v.blk.0.ffn_up.weight"].Shape, m.vision.tensors["v.blk.0.ffn_down.weight"].Shape
	switch {
	case len(up) != 2 || len(down) != 2:
		m.fail(badf("tensor v.blk.0.ffn_up.weight or v.blk.0.ffn_down.weight is missing or is no matrix"))
	case up[0] == up[1]:
		m.fail(unsupportedf("tensor v.blk.0.ffn_up.weight is a square: writers disagree on its name, and only shapes tell which one it has"))
	case up[1] == hidden:
		m.ffn = up[0]
	default:
		m.swapped, m.ffn = true, down[0]
	}
}

// rows checks that rows have as many values as the text model's embeddings.
func (m *mmproj) rows() {
	shape := m.vision.tensors[m.out].Shape
	if len(shape) != 2 {
		m.fail(badf("tensor %s is missing or is no matrix", m.out))
		return
	}
	if n, want := shape[m.outDim], m.text.number("hidden_size"); n != want {
		m.fail(badf("it makes rows of %d values, the embeddings of the text model have %d: it belongs to another model", n, want))
	}
}

// tokens finds the tokens of images in the vocabulary of the text model.
func (m *mmproj) tokens() {
	var missing []string
	for _, token := range append([]string{m.token}, m.around...) {
		if _, ok := m.added[token]; !ok {
			missing = append(missing, token)
		}
	}
	if n := len(missing); n > 0 {
		m.fail(badf("the text model lacks %d special tokens that stand for images, the first is %s: convert a checkpoint that has them", n, missing[0]))
	}
	m.config["image_token_id"] = m.added[m.token]
}

// count reads a key below "clip.vision." that is a number from 1 to most; def if it is absent.
func (m *mmproj) count(name string, def, most int) int {
	n, ok, err := m.header.Keys.Int(m.vision.key(name))
	m.fail(err)
	if !ok {
		return def
	}
	if n < 1 || n > most {
		m.fail(badf("%s is %d, not between 1 and %d", m.vision.key(name), n, most))
		return def
	}
	return n
}
