package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
)

// cpuGroup is one model in one format with one number of threads. Its cases take turns
// with the measurements of its limits.
type cpuGroup struct {
	*cpuSection
	shape   cpuShape
	format  cpuFormat
	model   *model.Model
	threads int
	title   string

	work      work
	kv        string // type of KV elements
	rig       *rig
	cases     []cpuCase
	rows      []Row
	operators *Table
}

// cpuCase is a case of a group.
type cpuCase struct {
	Case
	id      string   // as in --cases and the published figures
	prompt  int      // tokens of prefill; 0: it decodes
	decode  decoding // of cases whose limit is memory
	against string   // id of the same case without a neighbor
}

// ops returns the operations of a token if arithmetic limits the case, else 0.
func (c cpuCase) ops(w work) float64 {
	switch {
	case c.prompt > 0:
		return w.prefill(c.prompt)
	case c.decode.seqs > 1:
		return w.decodeOps(c.decode.past + 1)
	}
	return 0
}

// bytes returns the bytes read for a token if memory limits the case, else 0.
func (c cpuCase) bytes(w work) float64 {
	if c.decode.seqs == 0 {
		return 0
	}
	return w.decodeBytes(c.decode.seqs, c.decode.past+1)
}

func (g *cpuGroup) measure(ctx context.Context) error {
	if err := g.start(ctx); err != nil {
		return err
	}
	defer g.rig.close()
	g.plan()
	if err := g.takeTurns(ctx); err != nil {
		return err
	}
	if g.opts.wants(kindPauses) {
		if err := g.measurePauses(ctx); err != nil {
			return err
		}
	}
	if g.opts.Operators {
		return g.account(ctx)
	}
	return nil
}

// start loads the model and fills the KV pool with numbers, so that contexts need not be
// computed.
func (g *cpuGroup) start(ctx context.Context) (err error) {
	sc := g.scale.cpu
	blocks := (sc.context+sc.steps)/rigBlockSize + 2
	blocks = max(blocks, sc.parallel*((sc.parallelPrompt+sc.parallelOutput)/rigBlockSize+2))
	blocks = max(blocks, slices.Max(sc.prefill)/rigBlockSize+2)
	c := g.model.Config()
	kv := int64(blocks) * rigBlockSize * int64(2*c.Layers*c.KVHeads*c.HeadDim*4)
	need := kv + 2*weightBytes(g.model) + int64(sc.readBytes)
	if free := availableMemory(); free > 0 && need > free {
		return fmt.Errorf("%w: %s are needed, %s are free", errMemory, bytesText(need), bytesText(free))
	}
	if g.rig, err = newCPURig(ctx, g.model, g.threads, blocks, g.log); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			g.rig.close()
		}
	}()
	g.kv = g.rig.info.KV.DType
	g.work = newWork(g.model, g.format.bits, float64(g.rig.info.KV.BlockBytes())/rigBlockSize)
	g.rig.fillKV()
	// Buffers grow and caches fill before the measurements.
	_, err = g.rig.prefill(ctx, min(128, slices.Max(sc.prefill)))
	return err
}

// plan lists the chosen cases.
func (g *cpuGroup) plan() {
	sc := g.scale.cpu
	add := func(c cpuCase) {
		if g.opts.wants(c.id) {
			g.cases = append(g.cases, c)
		}
	}
	suffix := ", " + threadsText(g.threads)
	for _, n := range sc.prefill {
		add(cpuCase{
			Case: Case{fmt.Sprintf("prefill, %d tokens%s", n, suffix), func(ctx context.Context) (Sample, error) { return g.rig.prefillRate(ctx, n) }},
			id:   fmt.Sprintf("%s-%d", kindPrefill, n), prompt: n,
		})
	}
	decode := func(id, name string, d decoding) cpuCase {
		return cpuCase{
			Case: Case{name + suffix, func(ctx context.Context) (Sample, error) { return g.rig.decodeRate(ctx, d) }},
			id:   id, decode: d,
		}
	}
	one := decode(kindDecode, "decode, 1 sequence", decoding{seqs: 1, steps: sc.steps, window: sc.window})
	add(one)
	add(decode(fmt.Sprintf("%s-%d", kindDecode, sc.context), fmt.Sprintf("decode, 1 sequence, %d tokens of context", sc.context),
		decoding{seqs: 1, past: sc.context, steps: sc.steps, window: sc.window}))
	add(decode(fmt.Sprintf("%s-x%d", kindDecode, sc.parallel), fmt.Sprintf("decode, %d sequences, prompts of %d", sc.parallel, sc.parallelPrompt),
		decoding{seqs: sc.parallel, past: sc.parallelPrompt - 1, steps: sc.parallelOutput}))
	if !g.opts.wants(kindNeighbor) || len(g.session.opts.Child) == 0 {
		return
	}
	if !g.opts.wants(kindDecode) { // the case to compare with
		g.cases = append(g.cases, one)
	}
	add(cpuCase{
		Case: Case{"decode, 1 sequence, busy neighbor on all cores" + suffix, func(ctx context.Context) (Sample, error) {
			return g.besideNeighbor(ctx, one.Run)
		}},
		id: kindNeighbor, against: kindDecode,
	})
}

// besideNeighbor runs f while another process keeps all cores busy.
func (g *cpuGroup) besideNeighbor(ctx context.Context, f func(context.Context) (Sample, error)) (_ Sample, err error) {
	c, err := g.startChild(ctx, childSpec{Spin: runtime.NumCPU()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	if _, err := c.line(); err != nil { // the process spins now
		return nil, err
	}
	return f(ctx)
}

// takeTurns measures the cases and their limits and makes rows from the results.
func (g *cpuGroup) takeTurns(ctx context.Context) error {
	if len(g.cases) == 0 {
		return nil
	}
	sc := g.scale.cpu
	var memory scratch
	defer memory.close()
	pool, err := memory.take(sc.readBytes)
	if err != nil {
		return err
	}
	suffix := ", " + threadsText(g.threads)
	read := "read memory" + suffix
	cases := []Case{readCase(read, sc.window, g.threads, pool)}
	var peaks []string // that may limit this format
	for _, p := range kernel.Peaks() {
		name := p.Name + suffix
		cases = append(cases, peakCase(name, sc.limitWindow, g.threads, p))
		if !p.Bytes || g.format.bytes {
			peaks = append(peaks, name)
		}
	}
	limits := len(cases)
	for _, c := range g.cases {
		cases = append(cases, c.Case)
	}
	res, err := g.session.takeTurns(ctx, "cpu, "+g.title, sc.turns, cases)
	if err != nil {
		return err
	}
	for _, round := range res.rounds {
		for _, c := range cases[:limits] {
			g.addLimit(c.Name, round[c.Name])
		}
	}
	for _, c := range g.cases {
		g.shares(res, c, read, peaks)
	}
	for _, c := range g.cases {
		t := res.table("", "", cpuColumns(), c.Name)
		g.addPeer(c, t.Rows[0].Figures)
		g.rows = append(g.rows, t.Rows...)
	}
	return nil
}

// shares computes the share of its limits that a case reached.
func (g *cpuGroup) shares(res *results, c cpuCase, read string, peaks []string) {
	if need := c.bytes(g.work); need > 0 {
		res.derive(c.Name, keyOfMemory, func(round map[string]Sample) (float64, bool) {
			rate, ok := round[c.Name][keyRate]
			limit, ok2 := round[read][keyGBps]
			return rate * need / (limit * 1e9) * 100, ok && ok2
		})
	}
	if need := c.ops(g.work); need > 0 && len(peaks) > 0 {
		res.derive(c.Name, keyOfPeak, func(round map[string]Sample) (float64, bool) {
			rate, ok := round[c.Name][keyRate]
			best := 0.0
			for _, p := range peaks {
				best = max(best, round[p][keyOps])
			}
			return rate * need / (best * 1e9) * 100, ok && best > 0
		})
	}
	if i := slices.IndexFunc(g.cases, func(o cpuCase) bool { return o.id == c.against }); i >= 0 {
		res.ratio(c.Name, keyAlone, keyRate, g.cases[i].Name, 1)
	}
}

// addPeer adds the published figure of a case, and the ratio of this build's share of its
// limit to the published one.
func (g *cpuGroup) addPeer(c cpuCase, figures map[string]Figure) {
	rate, ok := peerRate(peerKey{g.shape.name, g.format.name, c.id}, g.threads)
	if !ok {
		return
	}
	theirs, limit := newWork(g.model, g.format.bits, peerKV(g.model.Config())), peerMachine[g.threads]
	own, share := keyOfPeak, rate*c.ops(theirs)/limit.tiles*100
	if need := c.bytes(theirs); need > 0 {
		own, share = keyOfMemory, rate*need/limit.read*100
	}
	figures[keyPeer], figures[keyPeerShare] = constant(rate), constant(share)
	if own == keyOfPeak && !g.hasTiles() {
		return // a share of other arithmetic
	}
	if f := figures[own]; f.Repetitions > 0 {
		figures[keyOverPeer] = Figure{f.Median / share, f.Low / share, f.High / share, f.Repetitions}
	}
}

// hasTiles reports whether this machine has the arithmetic to which the peers' shares of
// prefill refer.
func (g *cpuGroup) hasTiles() bool {
	return slices.ContainsFunc(kernel.Peaks(), func(p kernel.Peak) bool { return p.Tiles && !p.Bytes })
}

// constant is a figure that was not measured here.
func constant(v float64) Figure { return Figure{v, v, v, 1} }

// peakCase does one kind of arithmetic on the given number of cores.
func peakCase(name string, window time.Duration, threads int, p kernel.Peak) Case {
	const turns = 1000 // of one call, which cannot be preempted
	return Case{name, func(context.Context) (Sample, error) {
		var calls atomic.Int64
		var wg sync.WaitGroup
		begin := time.Now()
		for range threads {
			wg.Go(func() {
				for time.Since(begin) < window {
					for range 16 {
						p.Run(turns)
					}
					calls.Add(16)
				}
			})
		}
		wg.Wait()
		took := time.Since(begin)
		return Sample{keyOps: float64(calls.Load()) * turns * float64(p.Ops) / took.Seconds() / 1e9}, nil
	}}
}
