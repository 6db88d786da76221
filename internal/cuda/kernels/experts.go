package kernels

// Experts are the pairs of tokens and experts of a layer, as [Queue.Route] chooses them. A
// pair is a token with one of its experts; those of a token follow each other, the best
// expert first, and activations of pairs lie in that order.
type Experts struct {
	Chosen uint64 // int32 [Tokens][Active]
	Shares uint64 // float32 [Tokens][Active]
	// Plan is memory of [Experts.PlanBytes], at a multiple of 16 bytes.
	Plan   uint64
	Tokens int
	Count  int // experts of the layer, at most MaxExperts
	Active int // experts of a token, at most MaxActive
}

// MaxExperts and MaxActive are how many experts a layer and a token may have.
const (
	MaxExperts = 4096
	MaxActive  = 32
)

const (
	routeTokens   = 8 // of a block
	expertThreads = 256

	// A block's pairs, rows of a matrix, and bytes of its stages.
	expertTile      = 64
	expertRows      = 128
	expertShared    = 4 * (64 + 128) * 32 * 2
	fewPairsTile    = 16
	fewPairsRows    = 64
	fewPairsShared  = 5 * (16 + 64) * 64 * 2
	expertRunBytes  = 16
	combineThreads  = 128
	combinedAtATime = 8
)

func (e *Experts) pairs() int { return e.Tokens * e.Active }

// few reports whether experts have few pairs on the average. A token's results do not depend
// on it.
func (e *Experts) few() bool { return e.pairs() <= fewPairsTile*e.Count }

func (e *Experts) tile() int {
	if e.few() {
		return fewPairsTile
	}
	return expertTile
}

// runs bounds the runs of pairs: every expert that has some may leave one unfilled.
func (e *Experts) runs() int {
	used := min(e.Count, e.pairs())
	return used + (e.pairs()-used)/e.tile()
}

// PlanBytes is the size of Plan. It suffices for fewer tokens, too.
func (e *Experts) PlanBytes() int {
	runs := e.runs()
	if !e.few() { // the longer runs are fewer
		most := Experts{Tokens: fewPairsTile * e.Count, Count: e.Count, Active: 1}
		runs = max(runs, most.runs())
	}
	return expertRunBytes*(1+runs) + 4*e.pairs()
}

// plan returns the addresses of the number of runs, the runs and the order of pairs.
func (e *Experts) plan() (count, runs, order uint64) {
	runs = e.Plan + expertRunBytes
	return e.Plan, runs, runs + uint64(expertRunBytes*e.runs())
}

func (s *shape) experts(e *Experts) {
	s.count("tokens", e.Tokens)
	s.require(e.Count >= 1 && e.Count <= MaxExperts, "%d experts, kernels know 1 to %d", e.Count, MaxExperts)
	s.require(e.Active >= 1 && e.Active <= min(MaxActive, e.Count), "a token has %d of %d experts, kernels know up to %d", e.Active, e.Count, MaxActive)
	s.require(e.Tokens <= (1<<31-1)/max(1, e.Active), "%d tokens with %d experts each", e.Tokens, e.Active)
}

// Route is the choice of experts. It fills Chosen, Shares and Plan.
type Route struct {
	Experts
	Logits    uint64 // float32 [Tokens][Count]
	Normalize bool   // shares of a token's experts add up to one
}

// Route chooses experts as the CPU engine does: the largest logits, among equals the first,
// with shares of the softmax over all experts. A logit that is not a number comes last.
func (q *Queue) Route(o Route) error {
	s := shape{op: "route"}
	s.experts(&o.Experts)
	s.present(o.Logits, o.Chosen, o.Shares)
	s.aligned(o.Plan)
	if s.err != nil || o.Tokens == 0 {
		return s.err
	}
	var normalize int32
	if o.Normalize {
		normalize = 1
	}
	q.args().Pointer(o.Chosen).Pointer(o.Shares).Pointer(o.Logits).Int32(int32(o.Tokens)).Int32(int32(o.Count)).Int32(int32(o.Active)).Int32(normalize)
	if err := q.run("route", blocks(o.Tokens, routeTokens), 1, 1, 32*routeTokens, 0); err != nil {
		return err
	}
	count, runs, order := o.plan()
	q.args().Pointer(count).Pointer(runs).Pointer(order).Pointer(o.Chosen).Int32(int32(o.pairs())).Int32(int32(o.Count)).Int32(int32(o.tile()))
	return q.run("plan_experts", o.Count, 1, 1, expertThreads, 0)
}

// ExpertMatMul is the product of each pair's activations with its expert's matrix.
type ExpertMatMul struct {
	Experts        // that were routed
	Out     uint64 // bf16 [Tokens][Active][Rows]
	X       uint64 // bf16 [Tokens][In], or [Tokens][Active][In] with Own
	W       uint64 // of Type, [Count][Rows][In]: gate and up of an expert are one matrix, gate first
	Scales  uint64 // those of Type for all experts, or 0
	Rows    int
	In      int // a multiple of 8, or what Type asks for
	Type    WeightType
	// Own says that pairs have activations of their own: those of an expert's down matrix.
	Own bool
}

// ExpertMatMul computes products with the matrices of experts, on tensor cores. A token's
// result does not depend on the others.
func (q *Queue) ExpertMatMul(o ExpertMatMul) error {
	s := shape{op: "product of experts"}
	s.experts(&o.Experts)
	s.size("rows", o.Rows, 1)
	s.weights(o.Type, o.W, o.Scales, o.In)
	s.aligned(o.Out, o.X, o.Plan)
	if s.err != nil || o.Tokens == 0 {
		return s.err
	}
	each := o.Active
	if o.Own {
		each = 1
	}
	count, runs, order := o.plan()
	a := q.args().Pointer(o.Out).Pointer(o.X).Pointer(o.W)
	if o.Type != BF16 {
		a.Pointer(o.Scales)
	}
	a.Pointer(count).Pointer(runs).Pointer(order).Int32(int32(each)).Int32(int32(o.Rows)).Int32(int32(o.In))
	if o.few() {
		kernel := weightTypes[o.Type].expertsFew
		return q.run(kernel, blocks(o.Rows, fewPairsRows), o.runs(), 1, 128, DynamicShared(kernel))
	}
	kernel, threads := weightTypes[o.Type].experts, 128
	if o.Type != BF16 {
		threads = 256
	}
	return q.run(kernel, blocks(o.Rows, expertRows), o.runs(), 1, threads, DynamicShared(kernel))
}

// Combine is the sum of what a token's experts give, by their shares.
type Combine struct {
	Experts        // that were routed
	Out     uint64 // bf16 [Tokens][Hidden], or float32 with Wide
	X       uint64 // bf16 [Tokens][Active][Hidden]
	Hidden  int    // a multiple of 8
	// Wide leaves sums in float32, for those over ranks.
	Wide bool
}

// Combine adds up the experts of each token, the best one first as the CPU engine does.
func (q *Queue) Combine(o Combine) error {
	s := shape{op: "combine"}
	s.experts(&o.Experts)
	s.size("hidden", o.Hidden, combinedAtATime)
	s.aligned(o.Out, o.X)
	s.present(o.Shares)
	if s.err != nil {
		return s.err
	}
	size, wide := 2, int32(0)
	if o.Wide {
		size, wide = 4, 1
	}
	for from := 0; from < o.Tokens; from += maxGridY {
		row := func(base uint64, width, size int) uint64 { return base + uint64(from)*uint64(width*size) }
		q.args().Pointer(row(o.Out, o.Hidden, size)).Pointer(row(o.X, o.Active*o.Hidden, 2)).Pointer(row(o.Shares, o.Active, 4)).Int32(int32(o.Active)).Int32(int32(o.Hidden)).Int32(wide)
		if err := q.run("combine_experts", blocks(o.Hidden/combinedAtATime, combineThreads), min(o.Tokens-from, maxGridY), 1, combineThreads, 0); err != nil {
			return err
		}
	}
	return nil
}
