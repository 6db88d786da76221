package ggufmodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/ggufvocab"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Checkpoint is an open GGUF file, alone or with the mmproj file of a model that reads images.
type Checkpoint struct {
	file  *gguf.File
	extra *gguf.File // the mmproj file; nil if there is none
	arch  arch
	// vision is the content of the mmproj file; nil if there is none, or one that does not fit.
	vision *mmproj
	// heads and kvHeads order the rows of queries and keys.
	heads, kvHeads int
	files          map[string][]byte
	tensors        map[string]*tensor // by their names in a folder
	problems       []error
}

type tensor struct {
	plan
	data func() []byte // makes it at the first call
}

// Open opens the file of a text model and, unless mmproj is empty, the mmproj file that belongs
// to it. Errors are those of [gguf.Open]: everything that is wrong with well-formed files is
// told by [Checkpoint.Problems].
func Open(path, mmproj string) (*Checkpoint, error) {
	file, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{file: file, files: map[string][]byte{}, tensors: map[string]*tensor{}}
	if mmproj != "" {
		if c.extra, err = gguf.Open(mmproj); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	c.readKeys()
	for _, t := range file.Tensors {
		if t.Name == freqsTensor || t.Name == longTensor || t.Name == shortTensor {
			continue // part of config.json
		}
		c.take(c.plans(t))
	}
	if c.vision != nil {
		for _, t := range c.extra.Tensors {
			plans, err := c.vision.plans(t)
			if err != nil {
				c.fail(err)
				continue
			}
			c.take(plans)
		}
	}
	return c, nil
}

// take adds tensors.
func (c *Checkpoint) take(plans []plan) {
	for _, p := range plans {
		if c.tensors[p.tensor.Name] != nil {
			c.fail(badf("two tensors are both %s", p.tensor.Name))
		}
		c.tensors[p.tensor.Name] = &tensor{p, sync.OnceValue(p.build)}
	}
}

// readKeys makes the small files.
func (c *Checkpoint) readKeys() {
	var err error
	if c.arch, err = findArch(c.file.Keys); err != nil {
		c.fail(err)
		c.readText(0)
		return
	}
	text := c.readConfig()
	added := c.readText(text.number("max_position_embeddings"))
	config := text.config
	if c.extra != nil && added != nil && len(text.errs) == 0 {
		m := newMmproj(c.extra.Name(), &c.extra.Header, text, added)
		c.problems = append(c.problems, m.problems()...)
		if len(m.vision.errs) == 0 {
			c.vision, config = m, m.config
			c.add("preprocessor_config.json", m.prepare)
		}
	}
	c.add("config.json", config)
}

// readConfig makes config.json of the text model.
func (c *Checkpoint) readConfig() *converter {
	conv := converter{arch: c.arch, keys: c.file.Keys, tensors: map[string]gguf.Tensor{}, floats: c.floats}
	for _, t := range c.file.Tensors {
		conv.tensors[t.Name] = t
	}
	conv.convert()
	c.problems = append(c.problems, conv.errs...)
	c.heads = conv.number("num_attention_heads")
	if c.kvHeads = conv.number("num_key_value_heads"); c.kvHeads == 0 {
		c.kvHeads = c.heads
	}
	return &conv
}

// readText makes the files about text. It returns the ids of tokens that are found as a whole;
// nil for a vocabulary that is wrong.
func (c *Checkpoint) readText(context int) (added map[string]uint32) {
	v, err := ggufvocab.Read(c.file.Keys, context)
	if err != nil {
		c.fail(err)
		return nil
	}
	c.files["tokenizer.json"], c.files["tokenizer_config.json"] = v.Tokenizer, v.TokenizerConfig
	if len(v.EOS) > 0 {
		c.add("generation_config.json", map[string]any{"eos_token_id": v.EOS})
	}
	return v.Added
}

// add writes a small file; equal files give equal bytes.
func (c *Checkpoint) add(name string, content map[string]any) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(content); err != nil {
		c.fail(badf("write %s: %w", name, err))
		return
	}
	c.files[name] = out.Bytes()
}

func (c *Checkpoint) fail(err error) { c.problems = append(c.problems, err) }

// maxFloats bounds the tensors that are read as numbers, in bytes.
const maxFloats = 1 << 20

// floats reads a small tensor, from the file rather than the mapping, so that a file
// that shrinks is an error.
func (c *Checkpoint) floats(name string) ([]float32, error) {
	i := slices.IndexFunc(c.file.Tensors, func(t gguf.Tensor) bool { return t.Name == name })
	if i < 0 {
		return nil, badf("tensor %s is missing", name)
	}
	t := c.file.Tensors[i]
	if t.Size > maxFloats {
		return nil, badf("tensor %s has %d bytes", name, t.Size)
	}
	data := make([]byte, t.Size)
	if _, err := c.file.ReadAt(data, c.file.DataStart+t.Offset); err != nil {
		return nil, err
	}
	values := make([]float32, len(data)/max(t.Type.BlockBytes(), 1)*t.Type.BlockWeights())
	if err := gguf.Dequantize(values, t.Type, data); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", name, err)
	}
	return values, nil
}

// Problems is everything that is wrong with the file's keys. Errors match
// [ErrConfig], [ErrUnsupported], [gguf.ErrKey], [ggufvocab.ErrVocabulary] or
// [ggufvocab.ErrUnknown].
func (c *Checkpoint) Problems() []error { return c.problems }

// Version is that of the format.
func (c *Checkpoint) Version() int { return c.file.Version }

// Files are the small files by name; those that could not be made are missing.
func (c *Checkpoint) Files() map[string][]byte { return c.files }

// Names lists all tensors in order of their names.
func (c *Checkpoint) Names() []string { return slices.Sorted(maps.Keys(c.tensors)) }

// Lookup describes a tensor without making it: Data is nil.
func (c *Checkpoint) Lookup(name string) (safetensors.Tensor, bool) {
	t, ok := c.tensors[name]
	if !ok {
		return safetensors.Tensor{}, false
	}
	return t.tensor, true
}

// Tensor finds a tensor and makes it if it is asked for the first time. A file that
// shrank makes this fault, as reading a mapping does.
func (c *Checkpoint) Tensor(name string) (safetensors.Tensor, bool) {
	t, ok := c.tensors[name]
	if !ok {
		return safetensors.Tensor{}, false
	}
	out := t.tensor
	if out.Data = t.source.Data; t.copied() {
		out.Data = t.data()
	}
	return out, true
}

// Fresh is [Checkpoint.Tensor] for a tensor that is read once: what is made for it is
// not kept.
func (c *Checkpoint) Fresh(name string) (safetensors.Tensor, bool) {
	t, ok := c.tensors[name]
	if !ok {
		return safetensors.Tensor{}, false
	}
	out := t.tensor
	if out.Data = t.source.Data; t.copied() {
		out.Data = t.build()
	}
	return out, true
}

// Stored is the type of a tensor in the file, and its size there in bytes.
func (c *Checkpoint) Stored(name string) (dtype string, bytes int64) {
	t, ok := c.tensors[name]
	if !ok {
		return "", 0
	}
	if t.second != nil {
		return t.source.Type.String(), t.source.Size + t.second.Size
	}
	return t.source.Type.String(), t.source.Size
}

// Warnings lists oddities that do not hinder loading; there are none.
func (c *Checkpoint) Warnings() []string { return nil }

// CopiedBytes is the memory that a tensor takes beside the mapping.
func (c *Checkpoint) CopiedBytes(name string) int64 {
	t, ok := c.tensors[name]
	switch {
	case !ok || !t.copied():
		return 0
	case t.second != nil:
		return t.source.Size + t.second.Size
	case t.dequantize || t.minusOne:
		return t.source.Size / int64(t.source.Type.BlockBytes()) * int64(t.source.Type.BlockWeights()) * 4
	}
	return t.source.Size
}

// sampleBytes is the size of each sample, from both ends of the data, in the fingerprint: all of it
// would take seconds for a large model.
const sampleBytes = 64 << 10

// Fingerprint writes what identifies the files: of each its size, everything before the data,
// and both ends of the data. It does not depend on the files' names.
func (c *Checkpoint) Fingerprint(w io.Writer) error {
	for i, f := range c.Opened() {
		size := f.Size()
		n := min(sampleBytes, size-min(f.DataStart, size))
		if _, err := fmt.Fprintf(w, "%s %d %d", []string{"gguf", "mmproj"}[i], size, f.DataStart); err != nil {
			return err
		}
		for _, part := range []struct{ at, n int64 }{{0, min(f.DataStart, size) + n}, {size - n, n}} {
			if _, err := io.Copy(w, io.NewSectionReader(f, part.at, part.n)); err != nil {
				return fmt.Errorf("read %s: %w", f.Name(), err)
			}
		}
	}
	return nil
}

// Opened are the open files: that of the text model, and then the mmproj file if there is one.
func (c *Checkpoint) Opened() []*gguf.File {
	if c.extra == nil {
		return []*gguf.File{c.file}
	}
	return []*gguf.File{c.file, c.extra}
}

// WillNeed asks the system to read the files ahead.
func (c *Checkpoint) WillNeed() {
	for _, f := range c.Opened() {
		f.WillNeed()
	}
}

// Bytes is the size of the files.
func (c *Checkpoint) Bytes() (n int64) {
	for _, f := range c.Opened() {
		n += f.Size()
	}
	return n
}

// CheckSize returns [gguf.ErrChanged] when a file changed its size since it was mapped.
func (c *Checkpoint) CheckSize() error {
	for _, f := range c.Opened() {
		if err := f.CheckSize(); err != nil {
			return err
		}
	}
	return nil
}

// Close unmaps the files; it may be called twice. No tensor may be read afterwards.
func (c *Checkpoint) Close() error {
	var err error
	for _, f := range c.Opened() {
		err = errors.Join(err, f.Close())
	}
	return err
}
