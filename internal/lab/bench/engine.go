package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/dynctl/dynctl/internal/model"
)

func measureEngine(ctx context.Context, s *session) (Section, error) {
	sec := Section{
		Title: "Engine",
		About: "Requests straight to an engine on the CPU backend, one device with all cores, greedy\n" +
			"sampling, KV blocks of 64 tokens. Prefill is the time to the first token of one random\n" +
			"prompt. Decode counts the tokens that came while all sequences were running; a context\n" +
			"is KV that is in place already, its own for each sequence.",
	}
	dir, err := model.Builtin(s.home)
	if err != nil {
		return sec, err
	}
	e := &engineSection{session: s, out: &sec}
	if err := e.measure(ctx, "Built-in model", dir, s.scale.engine.builtin); err != nil {
		return sec, err
	}
	if s.opts.Model != "" {
		err = e.measure(ctx, "Model "+s.opts.Model, s.opts.Model, s.scale.engine.large)
		return sec, err
	}
	err = e.synthetic(ctx)
	return sec, err
}

// engineSection collects the results of the section.
type engineSection struct {
	*session
	out *Section
}

func (e *engineSection) note(format string, args ...any) {
	e.out.Notes = append(e.out.Notes, fmt.Sprintf(format, args...))
}

// synthetic measures the random model in a real shape.
func (e *engineSection) synthetic(ctx context.Context) error {
	spec := e.scale.engine.synthetic
	name := "Random bf16 model in the shape of Qwen3-0.6B"
	if spec.Layers != syntheticLayers {
		name += fmt.Sprintf(", cut to %d of %d layers", spec.Layers, syntheticLayers)
		e.note("The random model has %d layers instead of %d, so its figures say nothing about the whole one.", spec.Layers, syntheticLayers)
	}
	dir, err := e.synthesize(spec)
	if err != nil {
		// A small disk must not prevent the other measurements.
		e.note("%s: left out: %v.", name, err)
		return nil
	}
	err = e.measure(ctx, name, dir, e.scale.engine.large)
	if errors.Is(err, errMemory) {
		e.note("%s: left out: %v.", name, err)
		return nil
	}
	return err
}

// Column keys of this section.
const (
	keyRate  = "tokens_per_s"
	keyCPU   = "cpu_ms_per_token"
	keyRead  = "read_gbps"
	keyLimit = "percent_of_memory"
	keyGain  = "times_one_sequence"
)

// engineColumns returns the columns of a model. Without memory the memory's share is left
// out, for models that fit into a cache.
func engineColumns(memory bool) []Column {
	c := []Column{
		{keyRate, "tokens/s", ""},
		{keyGain, "× one sequence", "tokens/s against decoding one sequence with an empty context"},
		{keyCPU, "CPU ms/token", "processor time of the whole process, which other programs hardly change"},
	}
	if memory {
		c = append(c,
			Column{keyRead, "read GB/s", "bytes of weights and KV that a decode step needs, times steps a second"},
			Column{keyLimit, "% of memory", "the same against reading memory with all cores"})
	}
	return c
}

// measure adds the tables of one model.
func (e *engineSection) measure(ctx context.Context, title, dir string, t turns) error {
	m, err := model.Open(dir, model.Options{Log: e.log})
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // it was only read
	w := &engineModel{engineSection: e, model: m, weights: weightBytes(m), cores: runtime.NumCPU()}
	if err := w.start(ctx); err != nil {
		return err
	}
	defer w.rig.close()
	cases, err := w.cases(ctx)
	if err != nil {
		return err
	}
	memory := w.weights > e.scale.engine.cacheBytes
	if memory {
		var mem scratch
		defer mem.close()
		b, err := mem.take(e.scale.engine.readBytes)
		if err != nil {
			return err
		}
		window := e.scale.engine.window
		cases = append([]Case{readCase(caseRead1, window, 1, b), readCase(caseReadAll, window, w.cores, b)}, cases...)
		cases = append(cases, readCase(caseReadWeights, window, w.cores, w.mapped()...))
	}
	res, err := e.takeTurns(ctx, "engine, "+title, t, cases)
	if err != nil {
		return err
	}
	var names []string
	for _, c := range w.names {
		res.ratio(c, keyGain, keyRate, caseDecodeOne, 1)
		res.derive(c, keyLimit, func(round map[string]Sample) (float64, bool) {
			read, ok := round[c][keyRead]
			limit, ok2 := round[caseReadAll][keyGBps]
			return read / limit * 100, ok && ok2
		})
		names = append(names, c)
	}
	about := fmt.Sprintf("%s of weights are read for a decode step.", bytesText(w.weights))
	if memory {
		e.out.Tables = append(e.out.Tables, res.table("Memory", "", []Column{{keyGBps, "GB/s", ""}}, caseRead1, caseReadAll, caseReadWeights))
	} else {
		about += " They may stay in the processor's caches, so the memory is not the limit."
	}
	e.out.Tables = append(e.out.Tables, res.table(title, about, engineColumns(memory), names...))
	return nil
}
