package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
)

// accuracyVariant is a configuration of computing a model.
type accuracyVariant struct {
	name string
	isa  string // instruction set; best of the machine by default
	kv   string // type of KV elements, f32 by default
	// activations is the precision of activations beside bf16 weights, f32 by default.
	activations string
	format      string // of weights; the checkpoint's by default
	// slow reports that a large model would take minutes.
	slow bool
}

// accuracyVariants returns the variants that this build and machine support, the
// reference first: the checkpoint's weights, everything else float32.
func accuracyVariants() []accuracyVariant {
	out := []accuracyVariant{{name: "reference: float32 activations and KV"}}
	for _, kv := range []string{"bf16", "int8"} {
		out = append(out, accuracyVariant{name: "KV " + kv, kv: kv})
	}
	if kernel.Best().BF16() {
		out = append(out, accuracyVariant{name: "activations bf16", activations: "bf16"})
	}
	for _, f := range cpuFormats() {
		if f.quantize != "" {
			out = append(out, accuracyVariant{name: "weights " + f.name, format: f.name})
		}
	}
	for _, l := range kernel.Levels() {
		if l != kernel.Best() {
			out = append(out, accuracyVariant{name: "instructions " + l.String(), isa: l.String(), slow: l == kernel.Portable})
		}
	}
	return out
}

func measureAccuracy(ctx context.Context, s *session) (Section, error) {
	sec := Section{Title: "Accuracy", About: "Logits of each variant against those of the reference, after every token of the same text: the\n" +
		"text is given, no variant generates. *KL* is the divergence of the variant's distribution of the\n" +
		"next token from the reference's, in nats; *top 1* is how often both have the same most likely token."}
	dir := s.opts.Model
	if dir == "" {
		var err error
		if dir, err = model.Builtin(s.home); err != nil {
			return sec, err
		}
		sec.Notes = append(sec.Notes, "The built-in model is small and knows one kind of text: errors grow otherwise than in a large one. `--model` measures another.")
	}
	a := &accuracy{session: s, dir: dir}
	if err := a.read(); err != nil {
		return sec, err
	}
	t := Table{Name: "Built-in model", Columns: accuracyColumns(), About: fmt.Sprintf("%d tokens of %s.", len(a.tokens), a.source)}
	if s.opts.Model != "" {
		t.Name = "Model " + s.opts.Model
	}
	variants := accuracyVariants()
	for _, v := range variants {
		if v.slow && a.weights > s.scale.accuracy.slowBytes {
			sec.Notes = append(sec.Notes, fmt.Sprintf("%s is left out: it would take minutes with %s of weights.", v.name, bytesText(a.weights)))
			continue
		}
		s.say("accuracy: %s", v.name)
		d, err := a.compare(ctx, variants[0], v)
		if err != nil {
			return sec, fmt.Errorf("%s: %w", v.name, err)
		}
		t.Rows = append(t.Rows, Row{v.name, d.figures()})
	}
	sec.Tables = append(sec.Tables, t)
	return sec, nil
}

func accuracyColumns() []Column {
	return []Column{
		{keyKLMean, "KL mean", ""}, {keyKLMax, "KL max", ""},
		{keyAgree, "top 1 %", ""},
		{keyDiffMean, "logit difference mean", "absolute, over all positions and tokens"}, {keyDiffMax, "max", ""},
		{keyPerplexity, "perplexity", "of the text"}, {keyPerplexed, "more than reference %", ""},
	}
}

// accuracy compares variants on one text.
type accuracy struct {
	*session
	dir     string
	weights int64
	tokens  []uint32
	source  string // of the text, for people
	limit   int    // ids the tokenizer knows
}

// read tokenizes the text.
func (a *accuracy) read() error {
	m, err := model.Open(a.dir, model.Options{Log: a.log})
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // it was only read
	a.weights, a.limit = weightBytes(m), m.TokenLimit()
	text, err := []byte(strings.Repeat(proseText, 40)), error(nil)
	a.source = "a built-in text"
	if a.opts.Text != "" {
		a.source = a.opts.Text
		if text, err = os.ReadFile(a.opts.Text); err != nil {
			return fmt.Errorf("read text: %w", err)
		}
	}
	files := chat.Files{}
	for _, f := range m.Files() {
		files[f.Name] = f.Data
	}
	proc, err := chat.Load(files)
	switch {
	case err == nil:
		a.tokens = proc.EncodePrompt(string(text))
	case a.opts.Text != "":
		return fmt.Errorf("make tokens of %s: %w", a.opts.Text, err)
	default: // a checkpoint without a tokenizer
		a.source = "random numbers"
		r := rand.New(rand.NewPCG(1, 2))
		for range a.scale.accuracy.tokens {
			a.tokens = append(a.tokens, r.Uint32N(uint32(a.limit)))
		}
	}
	if a.opts.Text == "" {
		a.tokens = a.tokens[:min(len(a.tokens), a.scale.accuracy.tokens)]
	}
	if len(a.tokens) < 2 {
		return fmt.Errorf("%w: %s has %d tokens, at least 2 are needed", errText, a.source, len(a.tokens))
	}
	return nil
}

// errText is returned for a text that is too short to measure.
var errText = errors.New("the text is too short")

// compare runs the text through the reference and a variant.
func (a *accuracy) compare(ctx context.Context, ref, v accuracyVariant) (d divergence, err error) {
	r, err := newScorer(ctx, a, ref)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	other, err := newScorer(ctx, a, v)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, other.close()) }()
	size := min(a.scale.accuracy.window, r.context, other.context)
	last := time.Now()
	for first := 0; first < len(a.tokens); first += size {
		window := a.tokens[first:min(first+size, len(a.tokens))]
		for start := 0; start < len(window); start += scoredAtOnce {
			part := window[start:min(start+scoredAtOnce, len(window))]
			want, err := r.score(ctx, part, start)
			if err != nil {
				return d, err
			}
			got, err := other.score(ctx, part, start)
			if err != nil {
				return d, err
			}
			for i := range part {
				next := noNext
				if start+i+1 < len(window) {
					next = int(window[start+i+1])
				}
				d.add(want[i][:a.limit], got[i][:a.limit], next)
			}
			if time.Since(last) > 10*time.Second {
				last = time.Now()
				a.say("accuracy: %s, %d of %d tokens", v.name, first+start, len(a.tokens))
			}
		}
	}
	return d, nil
}

// scoredAtOnce is the number of positions of a text that a step computes with logits.
const scoredAtOnce = 32

// scorer computes the logits after every token of a text.
type scorer struct {
	model   *model.Model
	device  *cpu.Device
	weights *cpu.Weights
	backend *cpu.Backend
	memory  engine.KVPool
	context int
	table   []int32
	logits  [][]float32
}

func newScorer(ctx context.Context, a *accuracy, v accuracyVariant) (_ *scorer, err error) {
	s := &scorer{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.model, err = v.open(ctx, a); err != nil {
		return nil, err
	}
	if s.device, err = cpu.OpenDevice("cpu:0", cpu.DeviceOptions{ISA: v.isa, Activations: cmp.Or(v.activations, "f32")}); err != nil {
		return nil, err
	}
	if s.weights, err = s.device.Load(s.model); err != nil {
		return nil, err
	}
	opts := cpu.Options{BlockSize: rigBlockSize, MaxContext: a.scale.accuracy.window, KVDType: v.kv}
	if s.backend, err = s.weights.NewBackend(opts); err != nil {
		return nil, err
	}
	info := s.backend.Info()
	s.context = info.MaxContext
	blocks := (s.context + rigBlockSize - 1) / rigBlockSize
	if s.memory, err = s.backend.AllocKV(blocks); err != nil {
		return nil, err
	}
	for i := range blocks {
		s.table = append(s.table, int32(i))
	}
	for range scoredAtOnce {
		s.logits = append(s.logits, make([]float32, info.VocabSize))
	}
	return s, nil
}

// open opens the checkpoint with the variant's weights.
func (v accuracyVariant) open(ctx context.Context, a *accuracy) (*model.Model, error) {
	format, err := formatNamed(cmp.Or(v.format, "bf16")) // it means the checkpoint's own format
	if err != nil {
		return nil, err
	}
	return format.open(ctx, a.dir, filepath.Join(a.tmp, "quantized"), a.log)
}

// score computes tokens from position start on, after those of earlier calls. It returns
// the logits after each of them, which the next call overwrites.
func (s *scorer) score(ctx context.Context, tokens []uint32, start int) ([][]float32, error) {
	batch := make([]engine.BatchSeq, len(tokens))
	for i := range tokens {
		batch[i] = engine.BatchSeq{Tokens: tokens[i : i+1], Start: start + i, Blocks: s.table, Logits: s.logits[i]}
	}
	if err := s.backend.Step(ctx, batch); err != nil {
		return nil, err
	}
	return s.logits[:len(tokens)], nil
}

func (s *scorer) close() error {
	var errs []error
	if s.backend != nil {
		errs = append(errs, s.backend.Close())
	}
	if s.memory != nil {
		errs = append(errs, s.memory.Close())
	}
	if s.weights != nil {
		errs = append(errs, s.weights.Close())
	}
	if s.device != nil {
		errs = append(errs, s.device.Close())
	}
	if s.model != nil {
		errs = append(errs, s.model.Close())
	}
	return errors.Join(errs...)
}

// proseText is plain English for models that have read some.
const proseText = `A lighthouse stands at the end of the pier, and on clear evenings its beam can be seen from the hills
behind the town. The keeper, who has lived there for thirty years, writes down the weather twice a day: the height of
the waves, the direction of the wind, and the ships that pass. In winter the sea comes over the wall and freezes on the
stones. "You get used to the noise," he says, "but never to the quiet after a storm."

The harbor was built in 1874, when 312 boats fished for herring along this coast. Forty remain. Most of them leave at
four in the morning and come back before noon; what they catch is sold by two o'clock. A school class counted the gulls
on the market roof last spring: there were 186, and one heron.

To bake the bread of the region, mix 500 g of rye flour with 350 ml of warm water, a spoon of salt and some sourdough
from the day before. Leave it for twelve hours. Then heat the oven to 240 degrees, put the loaf in, and after ten
minutes turn it down to 200. The crust should sound hollow when you knock on it.

`
