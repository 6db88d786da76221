package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
)

// CPUOptions selects what the section cpu measures. Zero values mean everything.
type CPUOptions struct {
	Models  []string // names of shapes
	Formats []string // of weights
	Cases   []string // kinds of cases, or single ones: see [CPUCases]
	// Threads lists numbers of cores; one and all by default.
	Threads []int
	// Operators adds the share of each operator in a step.
	Operators bool
}

// Kinds of cases.
const (
	kindPrefill  = "prefill"
	kindDecode   = "decode"
	kindNeighbor = "neighbor"
	kindStart    = "start"
	kindPauses   = "gc"
)

// CPUCases returns the values of [CPUOptions.Cases]; "prefill-512" and the like select a
// single case.
func CPUCases() []string {
	return []string{kindPrefill, kindDecode, kindNeighbor, kindStart, kindPauses}
}

// CPUModels returns the values of [CPUOptions.Models].
func CPUModels() (names []string) {
	for _, s := range cpuShapes() {
		names = append(names, s.name)
	}
	return names
}

// CPUFormats returns the values of [CPUOptions.Formats].
func CPUFormats() (names []string) {
	for _, f := range cpuFormats() {
		names = append(names, f.name)
	}
	return names
}

// ErrChoice is returned for an unknown model or case, and for an impossible number of
// threads.
var ErrChoice = errors.New("no such choice to measure")

func (o CPUOptions) check() error {
	for _, m := range o.Models {
		if !slices.Contains(CPUModels(), m) {
			return fmt.Errorf("%w: model %q is not one of %s", ErrChoice, m, strings.Join(CPUModels(), ", "))
		}
	}
	for _, f := range o.Formats {
		if !slices.Contains(CPUFormats(), f) {
			return fmt.Errorf("%w: format %q is not one of %s", ErrChoice, f, strings.Join(CPUFormats(), ", "))
		}
	}
	for _, c := range o.Cases {
		if kind, _, _ := strings.Cut(c, "-"); !slices.Contains(CPUCases(), kind) {
			return fmt.Errorf("%w: case %q does not begin with one of %s", ErrChoice, c, strings.Join(CPUCases(), ", "))
		}
	}
	for _, n := range o.Threads {
		if n < 1 {
			return fmt.Errorf("%w: %d threads", ErrChoice, n)
		}
	}
	return nil
}

// wants reports whether a case is chosen.
func (o CPUOptions) wants(id string) bool {
	kind, _, _ := strings.Cut(id, "-")
	return len(o.Cases) == 0 || slices.Contains(o.Cases, id) || slices.Contains(o.Cases, kind)
}

func (o CPUOptions) threads() []int {
	if len(o.Threads) > 0 {
		return o.Threads
	}
	return slices.Compact([]int{1, runtime.NumCPU()})
}

func measureCPU(ctx context.Context, s *session) (Section, error) {
	c := &cpuSection{session: s, opts: s.opts.CPU, limits: map[string][]float64{}}
	c.out = Section{Title: "CPU engine", About: fmt.Sprintf(
		"Random models in real shapes, written for this run; speed does not depend on the values of\n"+
			"weights. Requests go straight to an engine, greedy, with KV blocks of %d tokens. Limits were\n"+
			"measured in the same rounds as the cases, with as many threads: memory by reading %s of\n"+
			"it, arithmetic by loops over registers.\n\n%s", rigBlockSize, bytesText(int64(s.scale.cpu.readBytes)), peerAbout)}
	if err := c.opts.check(); err != nil {
		return c.out, err
	}
	for _, shape := range s.scale.cpu.shapes {
		name, _, _ := strings.Cut(shape.name, " ")
		if len(c.opts.Models) > 0 && !slices.Contains(c.opts.Models, name) {
			continue
		}
		if err := c.shape(ctx, shape); err != nil {
			return c.out, err
		}
	}
	c.out.Tables = append([]Table{c.limitTable().removeEmpty()}, c.out.Tables...)
	for _, t := range []Table{c.startTable(), c.pauseTable()} {
		if len(t.Rows) > 0 {
			c.out.Tables = append(c.out.Tables, t.removeEmpty())
		}
	}
	return c.out, nil
}

// cpuSection collects the results of the section.
type cpuSection struct {
	*session
	opts CPUOptions
	out  Section

	limitNames []string // in order of measuring
	limits     map[string][]float64
	starts     []Row
	pauses     []Row
}

func (c *cpuSection) note(format string, args ...any) {
	c.out.Notes = append(c.out.Notes, fmt.Sprintf(format, args...))
}

// shape measures one model in all formats.
func (c *cpuSection) shape(ctx context.Context, shape cpuShape) error {
	dir, remove, err := c.checkpoint(shape.spec)
	if err != nil {
		// A small disk must not prevent the other measurements.
		c.note("%s is left out: %v.", shape.name, err)
		return nil
	}
	defer remove()
	for _, format := range cpuFormats() {
		if len(c.opts.Formats) > 0 && !slices.Contains(c.opts.Formats, format.name) {
			continue
		}
		if err := c.inFormat(ctx, shape, format, dir); err != nil {
			return err
		}
	}
	return nil
}

// inFormat measures one model in one format.
func (c *cpuSection) inFormat(ctx context.Context, shape cpuShape, format cpuFormat, dir string) (err error) {
	cache, err := os.MkdirTemp(c.tmp, "quantized-")
	if err != nil {
		return fmt.Errorf("keep quantized weights: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(cache)) }()
	m, err := format.open(ctx, dir, cache, c.log)
	if err != nil {
		return err
	}
	err = c.format(ctx, shape, format, m)
	if err := errors.Join(err, m.Close()); err != nil {
		return err
	}
	return c.measureStart(ctx, shape, format, dir, cache)
}

// format measures one model in one format with all numbers of threads.
func (c *cpuSection) format(ctx context.Context, shape cpuShape, format cpuFormat, m *model.Model) error {
	name := shape.name + ", " + format.name
	table := Table{Name: name, Columns: cpuColumns(), Published: []string{keyPeer, keyPeerShare}}
	var operators []Table
	for _, threads := range c.opts.threads() {
		g := &cpuGroup{cpuSection: c, shape: shape, format: format, model: m, threads: threads, title: name + ", " + threadsText(threads)}
		err := g.measure(ctx)
		if errors.Is(err, errMemory) {
			c.note("%s is left out: %v.", g.title, err)
			continue
		}
		if err != nil {
			return err
		}
		table.About = fmt.Sprintf("%s of weights are read for a decode step, %s of KV (%s) for each position; a token\n"+
			"of a prompt of 512 takes %.3g GFLOP.", bytesText(int64(g.work.weights)), bytesText(int64(g.work.kv)), g.kv, g.work.prefill(512)/1e9)
		table.Rows = append(table.Rows, g.rows...)
		if g.operators != nil {
			operators = append(operators, *g.operators)
		}
	}
	if len(table.Rows) > 0 {
		c.out.Tables = append(c.out.Tables, table.removeEmpty())
	}
	c.out.Tables = append(c.out.Tables, operators...)
	return nil
}

// Column keys of this section.
const (
	keyOfMemory  = "percent_of_memory"
	keyOfPeak    = "percent_of_peak"
	keyAlone     = "times_alone"
	keyPeer      = "peer_tokens_per_s"
	keyPeerShare = "peer_percent_of_limit"
	keyOverPeer  = "times_peer_share"
	keyOps       = "gops"
)

func cpuColumns() []Column {
	return []Column{
		{keyRate, "tokens/s", ""},
		{keyCPU, "CPU ms/token", "processor time of the whole process, which other programs hardly change"},
		{keyOfMemory, "% of memory", "bytes of weights and KV that must be read, against reading memory in the same round"},
		{keyOfPeak, "% of peak", "operations that must be done, against the fastest arithmetic of the machine for the format"},
		{keyAlone, "× alone", "tokens/s against the same case without the neighbor; sharing the cores evenly is 0.5"},
		{keyPeer, "peer tokens/s", "published, on another machine"},
		{keyPeerShare, "peer % of limit", "of that machine's memory for decode, of its tiles for prefill"},
		{keyOverPeer, "× peer's share", "share of this machine's limit against the peer's share of its own; prefill only where both limits are AMX tiles"},
	}
}

func threadsText(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", n)
}

// limitTable returns the machine's limits, over all rounds of the run.
func (c *cpuSection) limitTable() Table {
	t := Table{Name: "Limits", Columns: []Column{{keyGBps, "GB/s", ""}, {keyOps, "Gop/s", "a multiplication and an addition are two"}}}
	for _, name := range c.limitNames {
		row := Row{Name: name, Figures: map[string]Figure{}}
		for _, key := range []string{keyGBps, keyOps} {
			if f := Summarize(c.limits[name+key]); f.Repetitions > 0 {
				row.Figures[key] = f
			}
		}
		t.Rows = append(t.Rows, row)
	}
	peaks := kernel.Peaks()
	switch {
	case len(peaks) == 0:
		t.About = "This machine has no kernels of its own, so its arithmetic has no limit to compare with."
	case !slices.ContainsFunc(peaks, func(p kernel.Peak) bool { return p.Tiles }):
		t.About = "This machine has no AMX tiles, of which the peers' shares of prefill are: those are not compared."
	}
	return t
}

// addLimit records one round's measurement of a limit.
func (c *cpuSection) addLimit(name string, s Sample) {
	if !slices.Contains(c.limitNames, name) {
		c.limitNames = append(c.limitNames, name)
	}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		c.limits[name+key] = append(c.limits[name+key], s[key])
	}
}
