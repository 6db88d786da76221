package inspect

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/model"
)

// workerCounts lists the numbers of workers for which Memory is reported.
func workerCounts() []int { return []int{1, 2, 4, 8} }

// Look describes the model at path: a folder or a GGUF file. What is wrong with the
// model is part of the report. Rendering templates ends with ctx.
func Look(ctx context.Context, path string) Report {
	m, problems := model.Examine(path, model.Options{Log: slog.New(slog.DiscardHandler)})
	defer func() { _ = m.Close() }() // nothing was written
	r := Report{                     // lists are empty rather than null in JSON
		Path: m.Dir(), Mmproj: m.Mmproj(), Format: m.Format(), Digest: m.Digest(),
		Problems: []string{}, Warnings: append([]string{}, m.Warnings()...),
		Weights: Weights{FileBytes: m.WeightBytes(), CopiedBytes: m.CopiedBytes()},
		DTypes:  []DType{}, Memory: []Memory{}, Files: []File{},
		Tokenizer: Tokenizer{Special: []Special{}, EOS: []uint32{}}, Chat: Chat{Toggles: []string{}},
	}
	for _, p := range problems {
		r.problem(p)
	}
	for _, f := range m.Files() {
		r.Files = append(r.Files, File{f.Name, f.Size, f.SHA256})
	}
	r.config(m)
	r.tensors(m)
	r.memory()
	r.text(ctx, m)
	r.Servable = len(r.Problems) == 0
	return r
}

// problem adds one, unless it was already told in the same words.
func (r *Report) problem(err error) {
	if text := err.Error(); !slices.ContainsFunc(r.Problems, func(p string) bool { return strings.Contains(p, text) }) {
		r.Problems = append(r.Problems, text)
	}
}

func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

func (r *Report) config(m *model.Model) {
	c := m.Config()
	r.Family, r.Architecture, r.Context, r.SeesImages = c.Family, c.Architecture, c.MaxContext, c.SeesImages()
	r.Vocabulary = Vocabulary{Rows: c.Vocab, Tokens: m.TokenLimit()}
	r.Tokenizer.EOS = append(r.Tokenizer.EOS, m.EOS()...)
	if c.Layers == 0 {
		return
	}
	r.Shape = Shape{
		Layers: c.Layers, Hidden: c.Hidden, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, FFN: c.FFN,
		RoPE: fmt.Sprintf("%s, base %g", c.RoPE.Type, c.RoPE.Theta), TiedHead: c.TiedHead,
	}
	if c.RoPE.Factor > 0 {
		r.Shape.RoPE += fmt.Sprintf(", factor %g", c.RoPE.Factor)
	}
	if s := c.RoPE.Sections; s != [3]int{} {
		r.Shape.RoPE += fmt.Sprintf(", sections %d, %d, %d", s[0], s[1], s[2])
	}
	if v := c.Vision; v != nil {
		r.Vision = &Vision{
			Tower: v.Tower, Layers: v.Layers, Hidden: v.Hidden, Heads: v.Heads, FFN: v.FFN,
			ImageSize: v.ImageSize, PatchSize: v.PatchSize, Projector: string(v.Projector.Kind), Tokens: v.Tokens(),
		}
		if v.Grid {
			r.Vision.Square = v.PatchSize * v.Projector.Factor
		}
	}
	size := map[string]int64{"f32": 4, "bf16": 2}[m.KVDType()]
	r.KV = KV{DType: m.KVDType(), BytesPerToken: 2 * size * int64(c.Layers) * int64(c.KVHeads) * int64(c.HeadDim)}
}

// tensors counts weights by purpose and by type. The purpose of those of the text model
// goes by the name.
func (r *Report) tensors(m *model.Model) {
	types := map[string]*DType{}
	vision := map[string]bool{}
	for _, spec := range m.Tensors() {
		vision[spec.Name] = spec.Role.Vision()
	}
	for _, t := range m.Inventory() {
		n := int64(1)
		for _, d := range t.Shape {
			n *= int64(d)
		}
		d := types[t.Stored]
		if d == nil {
			d = &DType{Name: t.Stored}
			types[t.Stored] = d
		}
		d.Tensors++
		d.Parameters += n
		d.Bytes += t.Bytes
		if !t.Used && r.Family != "" {
			r.Parameters.Unused += n
			continue
		}
		if vision[t.Name] {
			r.Parameters.Vision += n
		} else {
			*r.Parameters.of(t.Name) += n
		}
		r.Parameters.Total += n
	}
	for _, d := range types {
		r.DTypes = append(r.DTypes, *d)
	}
	slices.SortFunc(r.DTypes, func(a, b DType) int {
		return cmp.Or(cmp.Compare(b.Parameters, a.Parameters), cmp.Compare(a.Name, b.Name))
	})
}

// of is the count that a tensor belongs to.
func (p *Parameters) of(name string) *int64 {
	switch {
	case strings.Contains(name, "embed_tokens") || strings.Contains(name, "token_embd"):
		return &p.Embedding
	case strings.HasSuffix(name, "lm_head.weight"):
		return &p.Head
	case strings.Contains(name, "norm"):
		return &p.Norms
	case strings.Contains(name, "expert"):
		return &p.Experts
	case strings.Contains(name, "attn"):
		return &p.Attention
	}
	return &p.MLP
}

func (r *Report) memory() {
	if r.KV.BytesPerToken == 0 {
		return
	}
	for _, n := range workerCounts() {
		e := Memory{Workers: n, Weights: r.Weights.FileBytes + r.Weights.CopiedBytes, KV: int64(n) * int64(r.Context) * r.KV.BytesPerToken}
		e.Total = e.Weights + e.KV
		r.Memory = append(r.Memory, e)
	}
}
