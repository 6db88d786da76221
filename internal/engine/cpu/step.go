package cpu

import (
	"context"

	"github.com/dynctl/dynctl/internal/engine"
)

// step runs batches through the layers. Each phase is a task of independent items for the
// pool, and all workers meet between phases. The leader writes the fields before a task
// starts; during the task they are only read.
type step struct {
	runner
	b     *Backend
	layer *layer
	index int // of the layer

	// Grids of the products of the current phase.
	grids [3]grid
	attn  attention
	// preparing is the input of prepareTask.
	preparing *activations

	embedTask, attnNormTask, qkvTask, rotateTask, attnTask task
	outTask, mlpNormTask, gateTask, downTask               task
	attnJoinTask, mlpJoinTask                              task
	routeTask, pickTask, expertGateTask                    task
	expertDownTask, combineTask                            task
	lastTask, headTask, prepareTask                        task
}

// bind connects the tasks to the step, which must not be copied afterwards.
func (s *step) bind(b *Backend) {
	s.b = b
	s.runner.bind(b.device, b.turn)
	s.embedTask.run = s.embedItem
	s.attnNormTask.run = s.attnNormItem
	s.qkvTask.run = s.qkvItem
	s.rotateTask.run = s.rotateItem
	s.attnTask.run = s.attnItem
	s.outTask.run = s.outItem
	s.mlpNormTask.run = s.mlpNormItem
	s.gateTask.run = s.gateItem
	s.downTask.run = s.downItem
	s.attnJoinTask.run = s.attnJoinItem
	s.mlpJoinTask.run = s.mlpJoinItem
	s.routeTask.run = s.routeItem
	s.pickTask.run = s.pickItem
	s.expertGateTask.run = s.expertGateItem
	s.expertDownTask.run = s.expertDownItem
	s.combineTask.run = s.combineItem
	s.lastTask.run = s.lastItem
	s.headTask.run = s.headItem
	s.prepareTask.run = s.prepareItem
	for op, tasks := range map[operator][]*task{
		opEmbed:     {&s.embedTask},
		opNorm:      {&s.attnNormTask, &s.mlpNormTask, &s.attnJoinTask, &s.mlpJoinTask, &s.lastTask},
		opQKV:       {&s.qkvTask},
		opRotate:    {&s.rotateTask},
		opAttention: {&s.attnTask},
		opAttnOut:   {&s.outTask},
		opGateUp:    {&s.gateTask},
		opDown:      {&s.downTask},
		opRouter:    {&s.routeTask, &s.pickTask},
		opExperts:   {&s.expertGateTask, &s.expertDownTask, &s.combineTask},
		opHead:      {&s.headTask},
		opPrepare:   {&s.prepareTask},
	} {
		for _, t := range tasks {
			t.op = op
		}
	}
}

// run computes a checked batch. The caller has acquired the device.
func (s *step) run(ctx context.Context, batch []engine.BatchSeq) error {
	s.ctx, s.waited = ctx, 0
	defer func() { s.ctx = nil }()
	defer s.b.device.pool.observer.unlabel(ctx)
	c := s.b.weights.config
	var at cursor
	for s.b.pass.fill(&at, batch, s.b.info.KV.BlockSize, c.Heads/c.KVHeads) {
		if err := s.runPass(); err != nil {
			return err
		}
	}
	return nil
}

func (s *step) runPass() error {
	p, w := &s.b.pass, s.b.weights
	p.reserve(s.b)
	s.attn = attention{
		level: s.b.device.level, pairs: s.b.pairs, ranks: s.b.ranks, plan: &p.plan, group: w.config.Heads / w.config.KVHeads, headDim: w.config.HeadDim,
		blockSize: s.b.info.KV.BlockSize, query: p.q, out: p.attn.rows, limit: float32(w.config.ScoreCap),
	}
	if err := s.do(&s.embedTask, s.perToken()); err != nil {
		return err
	}
	for i := range w.layers {
		s.layer, s.index, s.attn.layer, s.attn.window = &w.layers[i], i, i, w.layers[i].window
		if err := s.runLayer(); err != nil {
			return err
		}
	}
	return s.runHead()
}

func (s *step) runLayer() error {
	l, p := s.layer, &s.b.pass
	n := len(p.tokens)
	p.norm.form = l.forms.attn
	if err := s.do(&s.attnNormTask, s.perToken()); err != nil {
		return err
	}
	if err := s.do(&s.qkvTask, s.plan(n, &l.q, &l.k, &l.v)); err != nil {
		return err
	}
	if err := s.do(&s.rotateTask, s.perToken()); err != nil {
		return err
	}
	if err := s.do(&s.attnTask, s.planAttention()); err != nil {
		return err
	}
	if err := s.prepare(&p.attn, l.forms.out); err != nil {
		return err
	}
	if err := s.do(&s.outTask, s.plan(n, &l.o)); err != nil {
		return err
	}
	if l.postAttnNorm != nil {
		if err := s.do(&s.attnJoinTask, s.perToken()); err != nil {
			return err
		}
	}
	p.norm.form = l.forms.mlp
	if err := s.do(&s.mlpNormTask, s.perToken()); err != nil {
		return err
	}
	if l.experts != nil {
		return s.runExperts()
	}
	if err := s.do(&s.gateTask, s.plan(n, &l.gate)); err != nil {
		return err
	}
	if err := s.prepare(&p.gate, l.forms.down); err != nil {
		return err
	}
	if err := s.do(&s.downTask, s.plan(n, &l.down)); err != nil || l.postMLPNorm == nil {
		return err
	}
	return s.do(&s.mlpJoinTask, s.perToken())
}

// runHead computes the requested logits.
func (s *step) runHead() error {
	p := &s.b.pass
	if len(p.lastOf) == 0 {
		return nil
	}
	p.last.form = s.b.weights.head.form()
	if err := s.do(&s.lastTask, len(p.lastOf)); err != nil {
		return err
	}
	return s.do(&s.headTask, s.plan(len(p.lastOf), &s.b.weights.head))
}

// tokensPerItem is the number of tokens of an item in phases that work token by token.
const tokensPerItem = 16

func (s *step) perToken() int {
	return (len(s.b.pass.tokens) + tokensPerItem - 1) / tokensPerItem
}

// itemTokens returns the range of tokens of an item.
func (s *step) itemTokens(item int) (from, to int) {
	return item * tokensPerItem, min((item+1)*tokensPerItem, len(s.b.pass.tokens))
}

func (s *step) embedItem(l *lane, item int) {
	p, w := &s.b.pass, s.b.weights
	from, to := s.itemTokens(item)
	for t := from; t < to; t++ {
		x := p.x[t]
		for i := range s.b.ropes {
			s.b.ropes[i].angles(p.cos[i][t], p.sin[i][t], p.tokens[t].at)
		}
		if row := p.tokens[t].row; row != nil { // as the encoder made it: no scale
			copy(x, row)
			continue
		}
		if row := w.embed.widen(x, int(p.tokens[t].id)); &row[0] != &x[0] {
			copy(x, row)
		}
		if w.embedScale != 0 {
			for i := range x {
				x[i] *= w.embedScale
			}
		}
	}
}

func (s *step) attnNormItem(l *lane, item int) {
	p := &s.b.pass
	from, to := s.itemTokens(item)
	for t := from; t < to; t++ {
		rmsNorm(s.b.device.level, p.norm.rows[t], p.x[t], s.layer.attnNorm, s.b.weights.config.NormEps)
	}
	p.norm.prepare(s.b.device.level, from, to)
}

func (s *step) qkvItem(l *lane, item int) {
	p := &s.b.pass
	for i, m := range [3]*matrix{&s.layer.q, &s.layer.k, &s.layer.v} {
		if g := s.grids[i]; item < g.items() {
			dst := [3][][]float32{p.q, p.k, p.v}[i]
			r0, r1, t0, t1 := g.cell(item)
			m.apply(l, r0, r1, p.norm.span(t0, t1), dst[t0:t1])
			return
		}
		item -= s.grids[i].items()
	}
}

// rotateItem normalizes and rotates queries and keys and stores K and V.
func (s *step) rotateItem(l *lane, item int) {
	p, c := &s.b.pass, s.b.weights.config
	scale := float32(c.ScoreScale())
	from, to := s.itemTokens(item)
	for t := from; t < to; t++ {
		for h := range c.Heads {
			s.rotateHead(p.q[t][h*c.HeadDim:][:c.HeadDim], s.layer.qNorm, t, scale)
		}
		for h := range c.KVHeads {
			s.rotateHead(p.k[t][h*c.HeadDim:][:c.HeadDim], s.layer.kNorm, t, 1)
		}
		tok := p.tokens[t]
		s.b.ranks.write(s.b.device.level, &l.write, tok.block, s.index, 0, tok.slot, p.k[t])
		s.b.ranks.write(s.b.device.level, &l.write, tok.block, s.index, 1, tok.slot, p.v[t])
	}
}

func (s *step) rotateHead(x, norm []float32, t int, scale float32) {
	if norm != nil {
		rmsNorm(s.b.device.level, x, x, norm, s.b.weights.config.NormEps)
	}
	r := s.layer.rope
	rotate(s.b.device.level, x, s.b.pass.cos[r][t], s.b.pass.sin[r][t], scale)
}

func (s *step) attnItem(l *lane, item int) {
	it := s.b.pass.plan.items[item]
	s.attn.run(l, s.b.pass.tiles[it.tile], it)
}

func (s *step) outItem(l *lane, item int) {
	s.project(l, &s.layer.o, &s.b.pass.attn, item, s.layer.postAttnNorm != nil)
}

func (s *step) lastItem(l *lane, item int) {
	p := &s.b.pass
	rmsNorm(s.b.device.level, p.last.rows[item], p.x[p.lastOf[item]], s.b.weights.finalNorm, s.b.weights.config.NormEps)
	p.last.prepare(s.b.device.level, item, item+1)
}

func (s *step) headItem(l *lane, item int) {
	p := &s.b.pass
	r0, r1, t0, t1 := s.grids[0].cell(item)
	s.b.weights.head.apply(l, r0, r1, p.last.span(t0, t1), p.logits[t0:t1])
	if limit := float32(s.b.weights.config.LogitCap); limit > 0 {
		for t := t0; t < t1; t++ {
			bend(p.logits[t][r0:r1], limit)
		}
	}
}
