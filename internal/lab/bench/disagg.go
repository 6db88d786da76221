package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Column keys of this section.
const (
	keyWrite     = "write_ms"
	keyExposed   = "exposed_ms"
	keyHidden    = "percent_hidden"
	keyLocalTTFT = "times_local_ttft"
	keyITLTimes  = "times_idle_itl_p99"
)

// disaggScale holds the sizes of a disaggregation measurement.
type disaggScale struct {
	model   model.Synthetic
	prompts []int // lengths of the prompts whose TTFT is measured, tokens
	streams int   // that run during a prompt
	output  int   // tokens that they may generate: more than they can during the prompt
	prompt  int   // tokens of the prompt during which they run
	idle    time.Duration
	turns   turns
}

func measureDisagg(ctx context.Context, s *session) (Section, error) {
	on := "CPU devices of their own"
	if s.opts.GPUs != "" {
		if err := s.haveGPUs(); err != nil {
			return Section{}, err
		}
		on = "GPUs (" + s.opts.GPUs + ")"
		s.scale.disagg = s.scale.onGPUs
	}
	sc := s.scale.disagg
	sec := Section{
		Title: "Disaggregation",
		About: fmt.Sprintf("Chat completions over HTTP through whole nodes inside this process. Each has two workers\n"+
			"on %s: two decode workers that prefill for themselves (aggregated),\n"+
			"or a prefill and a decode worker that meet by one of the strategies, once with the prefill\n"+
			"worker in a process of its own. The model is random, in the shape of Qwen3-0.6B with %d\n"+
			"layers and a small vocabulary.", on, sc.model.Layers),
	}
	dir, err := s.synthesize(sc.model)
	if err != nil {
		return sec, err
	}
	p, err := newPathBench(s, dir)
	if err != nil {
		return sec, err
	}
	defer p.close()
	d := &disaggBench{pathBench: p, model: dir}
	defer d.close()
	if runtime.NumCPU() < 2 {
		sec.Notes = append(sec.Notes, "This machine has one core: the workers of a node share it.")
	}
	if err := d.open(ctx); err != nil {
		return sec, err
	}
	if err := d.firstTokens(ctx, &sec); err != nil {
		return sec, err
	}
	if err := d.besidePrompt(ctx, &sec); err != nil {
		return sec, err
	}
	if s.opts.GPUs != "" {
		return sec, nil
	}
	d.close() // the other nodes need the room
	err = d.otherDegrees(ctx, &sec)
	return sec, err
}

// haveGPUs checks for a driver before a large model is written.
func (s *session) haveGPUs() error {
	if s.opts.cuda != nil {
		return nil
	}
	d, err := driver.Open()
	if err != nil {
		return fmt.Errorf("--gpus %s: %w", s.opts.GPUs, err)
	}
	return d.Close()
}

// disaggBench is the state that the measurements of this section share.
type disaggBench struct {
	*pathBench
	model string // directory
	nodes []*node
}

const (
	aggregated   = "aggregated"
	byStrategy   = "strategy "
	twoProcesses = ", two processes"
)

// open starts the nodes.
func (d *disaggBench) open(ctx context.Context) error {
	sc := d.scale.disagg
	longest := sc.prompt
	for _, n := range sc.prompts {
		longest = max(longest, n)
	}
	// Room for all streams on one worker with their answers, and twice the longest
	// prompt.
	blocks := (sc.streams*(sc.output+rigBlockSize)+2*longest)/rigBlockSize + 8
	spec := nodeSpec{model: d.model, blocks: blocks, devices: d.devices(), gpus: d.opts.GPUs, cuda: d.opts.cuda}
	for _, kind := range []struct {
		name, strategy  string
		prefill, decode int
		apart           bool
	}{
		{aggregated, protocol.StrategyDecodeFirst, 0, 2, false},
		{byStrategy + protocol.StrategyDecodeFirst, protocol.StrategyDecodeFirst, 1, 1, false},
		{byStrategy + protocol.StrategyPrefillFirst, protocol.StrategyPrefillFirst, 1, 1, false},
		{byStrategy + protocol.StrategyDecodeFirst + twoProcesses, protocol.StrategyDecodeFirst, 1, 1, true},
	} {
		if kind.apart && len(d.opts.Child) == 0 {
			continue
		}
		spec.name, spec.strategy, spec.prefill, spec.decode, spec.apart = kind.name, kind.strategy, kind.prefill, kind.decode, kind.apart
		if kind.apart { // each process has one device, and does not know the other's
			spec.cores, spec.devices = max(1, runtime.NumCPU()/2), 1
		}
		n, err := d.node(ctx, spec)
		if err != nil {
			return err
		}
		d.nodes = append(d.nodes, n)
	}
	return nil
}

func (d *disaggBench) close() {
	for _, n := range d.nodes {
		n.close()
	}
	d.nodes = nil
}

// devices returns the number of CPU devices of a node: one for each worker, if possible.
func (d *disaggBench) devices() int { return min(2, runtime.NumCPU()) }

// firstTokens measures prompts one at a time, and the cost of their transfers.
func (d *disaggBench) firstTokens(ctx context.Context, sec *Section) error {
	sc := d.scale.disagg
	var cases []Case
	at := func(name string, length int) string { return fmt.Sprintf("%s, %d tokens", name, length) }
	for _, length := range sc.prompts {
		for _, n := range d.nodes {
			cases = append(cases, Case{at(n.spec.name, length), func(ctx context.Context) (Sample, error) { return d.firstToken(ctx, n, length) }})
		}
	}
	res, err := d.takeTurns(ctx, "disagg, time to first token", sc.turns, cases)
	if err != nil {
		return err
	}
	for _, length := range sc.prompts {
		for _, n := range d.nodes {
			res.ratio(at(n.spec.name, length), keyLocalTTFT, keyTTFT, at(aggregated, length), 1)
		}
	}
	sec.Tables = append(sec.Tables, res.table("Remote prefill against local prefill",
		"One prompt at a time, nothing beside it. Blocks are written when the chunk of 512 tokens that\n"+
			"they belong to is computed: what is left for the end depends on the length of a prompt, and is\n"+
			"a whole chunk at worst.", []Column{
			{keyTTFT, "TTFT ms", ""},
			{keyLocalTTFT, "× local", "TTFT against that of the aggregated node"},
			{keyWrite, "transfer ms", "time spent moving the KV of the prompt"},
			{keyExposed, "exposed ms", "from the end of the computation to the last block in place"},
			{keyHidden, "% hidden", "share of the transfer's time that passed while the prompt was still being computed"},
		}))
	return nil
}

// firstToken sends one prompt.
func (d *disaggBench) firstToken(ctx context.Context, n *node, length int) (Sample, error) {
	q, err := d.ask.question(ctx, length, 1)
	if err != nil {
		return nil, err
	}
	before, err := n.transfers(ctx)
	if err != nil {
		return nil, err
	}
	a, err := d.client.to(n.url).answer(ctx, q)
	if err != nil {
		return nil, err
	}
	s := Sample{keyTTFT: float64(a.ttft) / float64(time.Millisecond)}
	if n.spec.prefill == 0 {
		return s, nil
	}
	after, err := n.transfers(ctx)
	if err != nil {
		return nil, err
	}
	if after.prompts != before.prompts+1 {
		return nil, fmt.Errorf("%w: %g of 1", errNotRemote, after.prompts-before.prompts)
	}
	write, exposed := after.seconds-before.seconds, after.exposed-before.exposed
	s[keyWrite], s[keyExposed] = write*1e3, exposed*1e3
	if write > 0 {
		s[keyHidden] = max(0, 1-exposed/write) * 100
	}
	return s, nil
}
