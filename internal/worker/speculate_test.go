package worker

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/protocol"
)

// What an assignment says of speculation reaches the engine, and what the engine
// measures reaches the metrics.
func TestSpeculationOfAnAssignment(t *testing.T) {
	w := newWorld(t)
	w.opts.Next = func(tokens []uint32) uint32 { return tokens[len(tokens)-3] }
	w.opts.Work = func([]engine.BatchSeq) (busy, wait time.Duration) { return time.Millisecond, time.Millisecond }
	const n = 90
	var steps []uint64
	for _, method := range []string{cluster.SpeculativeOff, cluster.SpeculativeNgram} {
		name := "worker-" + method
		r := w.start(name, cluster.RoleDecode, func(c *Config) {
			c.Assignment.Engine = cluster.EngineSpec{ITLTargetMS: 50, Speculative: cluster.Speculative{Method: method}}
		})
		res := w.generate(t.Context(), name, request("a", prompt(seeded(t), 20), n))
		if res.err != nil || len(res.tokens) != n || res.finish != protocol.FinishLength {
			t.Fatalf("%s: %d tokens, %q %v", method, len(res.tokens), res.finish, res.err)
		}
		st := r.engine().Stats()
		steps = append(steps, st.StepsTotal)
		if (st.AcceptedTokensTotal > 0) != (method == cluster.SpeculativeNgram) {
			t.Errorf("%s: %d drafted, %d accepted", method, st.DraftTokensTotal, st.AcceptedTokensTotal)
		}
		if got := r.metric(t, "dynamo_component_step_duration_seconds_count", `phase="decode"`); got < float64(st.StepsTotal-1) {
			t.Errorf("%s: %v decode steps of %d in the metrics", method, got, st.StepsTotal)
		}
		eventually(t, "the figures are in the metrics", func() bool {
			return r.metric(t, "dynamo_component_spec_decode_draft_tokens_total") == float64(st.DraftTokensTotal) &&
				r.metric(t, "dynamo_component_spec_decode_accepted_tokens_total") == float64(st.AcceptedTokensTotal) &&
				r.metric(t, "dynamo_component_step_wait_seconds_total") > 0
		})
	}
	if steps[1] > steps[0]/2 {
		t.Errorf("%d steps with speculation, %d without", steps[1], steps[0])
	}
}
