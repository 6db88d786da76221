package cpu

import (
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
)

// expert is one of the MLPs of a layer.
type expert struct {
	gate, up, down matrix
}

// moe is the working memory of layers with experts. The tokens of a pass are sorted by
// expert, and each token has a slot for each of its experts. So the weights of an expert
// are read once for all of its tokens.
type moe struct {
	scores [][]float32 // [token][expert]
	active int         // experts of a token
	chosen []choice    // [token × active + rank]
	runs   []run
	starts []int // [expert], while sorting

	in   activations // [slot], rows of pass.norm
	gate activations // [slot][expert ffn]
	up   [][]float32 // [slot][expert ffn]
	out  [][]float32 // [slot][hidden]
}

// choice is one of the experts of a token.
type choice struct {
	expert int
	share  float32
	slot   int
}

// run is an expert with the slots of its tokens.
type run struct {
	expert     int
	first      int // slot
	count      int
	gate, down grid
	gateAt     int // first item of the expert in the task
	downAt     int
}

func (m *moe) reserve(tokens, hidden int, c model.MoE, f forms) {
	slots, limit := tokens*c.Active, passTokens*c.Active
	m.active = c.Active
	m.scores = reserveRows(m.scores, tokens, c.Experts, passTokens)
	m.gate.reserve(slots, c.FFN, limit, f.down)
	m.up = reserveRows(m.up, slots, c.FFN, limit)
	m.out = reserveRows(m.out, slots, hidden, limit)
	if slots > len(m.chosen) {
		room := max(slots, min(2*len(m.chosen), limit)) // doubles as the rows do
		m.in, m.chosen = activations{rows: make([][]float32, room), blocks: make([][]kernel.Block, room), halves: make([][]uint16, room)}, make([]choice, room)
	}
	m.starts = grow(m.starts, c.Experts)
}

// of returns the experts of a token, the best one first.
func (m *moe) of(token int) []choice { return m.chosen[token*m.active : (token+1)*m.active] }

// pick chooses the experts of a token by its scores: the largest ones, the first among
// equals. Their shares come from the softmax over all experts; normalize scales them to a
// sum of one.
func pick(chosen []choice, scores []float32, normalize bool) {
	n := 0
	for e, s := range scores {
		at := n
		for at > 0 && s > scores[chosen[at-1].expert] {
			at--
		}
		if at == len(chosen) {
			continue
		}
		n = min(n+1, len(chosen))
		copy(chosen[at+1:n], chosen[at:])
		chosen[at] = choice{expert: e}
	}
	top := scores[chosen[0].expert]
	var all, some float32
	for _, s := range scores {
		all += expf(s - top)
	}
	for i := range chosen {
		chosen[i].share = expf(scores[chosen[i].expert]-top) / all
		some += chosen[i].share
	}
	if normalize {
		for i := range chosen {
			chosen[i].share /= some
		}
	}
}

// sort assigns each choice a slot. Slots are ordered by expert, then by token.
func (m *moe) sort(norm *activations) {
	m.in.form = norm.form
	chosen := m.chosen[:len(norm.rows)*m.active]
	clear(m.starts)
	for i := range chosen {
		m.starts[chosen[i].expert]++
	}
	m.runs = m.runs[:0]
	slot := 0
	for e, count := range m.starts {
		if count > 0 {
			m.runs = append(m.runs, run{expert: e, first: slot, count: count})
		}
		m.starts[e] = slot
		slot += count
	}
	for i := range chosen {
		c := &chosen[i]
		c.slot = m.starts[c.expert]
		m.starts[c.expert]++
		m.in.refer(c.slot, norm, i/m.active)
	}
}

// find returns the run of an item; at returns the first item of a run.
func (m *moe) find(item int, at func(*run) int) *run {
	low, high := 0, len(m.runs)
	for high-low > 1 {
		if mid := (low + high) / 2; at(&m.runs[mid]) <= item {
			low = mid
		} else {
			high = mid
		}
	}
	return &m.runs[low]
}

func gateAt(r *run) int { return r.gateAt }
func downAt(r *run) int { return r.downAt }

// runExperts computes the MLP of a layer with experts.
func (s *step) runExperts() error {
	p, l := &s.b.pass, s.layer
	m := &p.moe
	if err := s.do(&s.routeTask, s.plan(len(p.tokens), &l.router)); err != nil {
		return err
	}
	if err := s.do(&s.pickTask, s.perToken()); err != nil {
		return err
	}
	m.sort(&p.norm)
	gateItems, downItems := 0, 0
	for i := range m.runs {
		r := &m.runs[i]
		e, cores := &l.experts[r.expert], s.b.device.cores
		r.gate, r.gateAt = e.gate.grid(r.count, cores), gateItems
		r.down, r.downAt = e.down.grid(r.count, cores), downItems
		gateItems += r.gate.items()
		downItems += r.down.items()
	}
	if err := s.do(&s.expertGateTask, gateItems); err != nil {
		return err
	}
	if err := s.prepare(&m.gate, l.forms.down); err != nil {
		return err
	}
	if err := s.do(&s.expertDownTask, downItems); err != nil {
		return err
	}
	return s.do(&s.combineTask, s.perToken())
}

func (s *step) routeItem(l *lane, item int) {
	p := &s.b.pass
	r0, r1, t0, t1 := s.grids[0].cell(item)
	s.layer.router.apply(l, r0, r1, p.norm.span(t0, t1), p.moe.scores[t0:t1])
}

func (s *step) pickItem(l *lane, item int) {
	m := &s.b.pass.moe
	from, to := s.itemTokens(item)
	for t := from; t < to; t++ {
		pick(m.of(t), m.scores[t], s.b.weights.config.MoE.Normalize)
	}
}

func (s *step) expertGateItem(l *lane, item int) {
	m := &s.b.pass.moe
	r := m.find(item, gateAt)
	e := &s.layer.experts[r.expert]
	r0, r1, t0, t1 := r.gate.cell(item - r.gateAt)
	t0, t1 = r.first+t0, r.first+t1
	e.gate.apply(l, r0, r1, m.in.span(t0, t1), m.gate.rows[t0:t1])
	e.up.apply(l, r0, r1, m.in.span(t0, t1), m.up[t0:t1])
	for t := t0; t < t1; t++ {
		s.activate(m.gate.rows[t][r0:r1], m.up[t][r0:r1])
	}
}

func (s *step) expertDownItem(l *lane, item int) {
	m := &s.b.pass.moe
	r := m.find(item, downAt)
	r0, r1, t0, t1 := r.down.cell(item - r.downAt)
	t0, t1 = r.first+t0, r.first+t1
	s.layer.experts[r.expert].down.apply(l, r0, r1, m.gate.span(t0, t1), m.out[t0:t1])
}

// combineItem adds up the experts of each token in the order of their rank, which
// depends on the token alone, and adds the sum to the residual.
func (s *step) combineItem(l *lane, item int) {
	p := &s.b.pass
	m := &p.moe
	from, to := s.itemTokens(item)
	for t := from; t < to; t++ {
		sum := p.proj[t]
		clear(sum)
		for _, c := range m.of(t) {
			axpy(sum, m.out[c.slot], c.share)
		}
		if norm := s.layer.postMLPNorm; norm != nil {
			rmsNorm(s.b.device.level, sum, sum, norm, s.b.weights.config.NormEps)
		}
		add(p.x[t], sum)
	}
}
