package ggufmodel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/ggufvocab"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Checkpoint is an open GGUF file.
type Checkpoint struct {
	file *gguf.File
	arch arch
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

// Open opens a file. Errors are those of [gguf.Open]: everything that is wrong with
// a well-formed file is told by [Checkpoint.Problems].
func Open(path string) (*Checkpoint, error) {
	file, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{file: file, files: map[string][]byte{}, tensors: map[string]*tensor{}}
	context := 0
	if c.arch, err = findArch(file.Keys); err != nil {
		c.fail(err)
	} else {
		context = c.readConfig()
	}
	c.readText(context)
	for _, t := range file.Tensors {
		if t.Name == freqsTensor || t.Name == longTensor || t.Name == shortTensor {
			continue // part of config.json
		}
		for _, p := range c.plans(t) {
			if c.tensors[p.tensor.Name] != nil {
				c.fail(badf("two tensors are both %s", p.tensor.Name))
			}
			c.tensors[p.tensor.Name] = &tensor{p, sync.OnceValue(p.build)}
		}
	}
	return c, nil
}

// readConfig makes config.json and returns the number of positions.
func (c *Checkpoint) readConfig() int {
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
	c.add("config.json", conv.config)
	return conv.number("max_position_embeddings")
}

// readText makes the files about text.
func (c *Checkpoint) readText(context int) {
	v, err := ggufvocab.Read(c.file.Keys, context)
	if err != nil {
		c.fail(err)
		return
	}
	c.files["tokenizer.json"], c.files["tokenizer_config.json"] = v.Tokenizer, v.TokenizerConfig
	if len(v.EOS) > 0 {
		c.add("generation_config.json", map[string]any{"eos_token_id": v.EOS})
	}
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
	return t.source.Type.String(), t.source.Size
}

// Warnings lists oddities that do not hinder loading; there are none.
func (c *Checkpoint) Warnings() []string { return nil }

// Bytes is the size of the file.
func (c *Checkpoint) Bytes() int64 { return c.file.Size() }

// CopiedBytes is the memory that a tensor takes beside the mapping.
func (c *Checkpoint) CopiedBytes(name string) int64 {
	t, ok := c.tensors[name]
	switch {
	case !ok || !t.copied():
		return 0
	case t.dequantize || t.minusOne:
		return t.source.Size / int64(t.source.Type.BlockBytes()) * int64(t.source.Type.BlockWeights()) * 4
	}
	return t.source.Size
}

// sampleBytes is the size of each sample, from both ends of the data, in the fingerprint: all of it
// would take seconds for a large model.
const sampleBytes = 64 << 10

// Fingerprint writes what identifies the file: its size, everything before the data,
// and both ends of the data. It does not depend on the file's name.
func (c *Checkpoint) Fingerprint(w io.Writer) error {
	size := c.file.Size()
	n := min(sampleBytes, size-min(c.file.DataStart, size))
	if _, err := fmt.Fprintf(w, "gguf %d %d", size, c.file.DataStart); err != nil {
		return err
	}
	for _, part := range []struct{ at, n int64 }{{0, min(c.file.DataStart, size) + n}, {size - n, n}} {
		if _, err := io.Copy(w, io.NewSectionReader(c.file, part.at, part.n)); err != nil {
			return fmt.Errorf("read %s: %w", c.file.Name(), err)
		}
	}
	return nil
}

// WillNeed asks the system to read the file ahead.
func (c *Checkpoint) WillNeed() { c.file.WillNeed() }

// Modified is when the file was changed last.
func (c *Checkpoint) Modified() time.Time { return c.file.Modified() }

// FileName is the base name of the file.
func (c *Checkpoint) FileName() string { return c.file.Name() }

// CheckSize returns [gguf.ErrChanged] when the file changed its size since it was
// mapped.
func (c *Checkpoint) CheckSize() error { return c.file.CheckSize() }

// Close unmaps the file; it may be called twice. No tensor may be read afterwards.
func (c *Checkpoint) Close() error { return c.file.Close() }
