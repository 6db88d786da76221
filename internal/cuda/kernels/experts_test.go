package kernels_test

import (
	"bytes"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

// A token gets the same bits alone and among many, whichever kernel computes it.
func TestExpertsDoNotDependOnTheBatch(t *testing.T) {
	const many, few, count, active, hidden, inner = 90, 3, 4, 2, 96, 32
	for _, kind := range weightTypes {
		l := newLab(newHostDevice(t, 3), t.Name())
		q := l.device.queue()
		logits, x := make([]float32, many*count), l.Values(many*hidden, 0.1)
		for i := range logits {
			logits[i] = float32(l.NormFloat64())
		}
		gateUp, gateUpScales := l.Weights(kind, count*2*inner, hidden)
		down, downScales := l.Weights(kind, count*hidden, inner)
		var results [][]byte
		for _, n := range []int{many, few} {
			e := kernels.Experts{Tokens: n, Count: count, Active: active}
			e.Chosen, e.Shares, e.Plan = l.Working(4*n*active), l.Working(4*n*active), l.Working(e.PlanBytes())
			joined, act, given := l.Working(2*n*active*2*inner), l.Working(2*n*active*inner), l.Working(2*n*active*hidden)
			out := l.Out("out", 2*n*hidden, kerneltest.Exact)
			l.must(
				q.Route(kernels.Route{Experts: e, Logits: l.Float32s(logits[:n*count]...), Normalize: true}),
				q.ExpertMatMul(kernels.ExpertMatMul{Experts: e, Out: joined, X: x, W: gateUp, Scales: gateUpScales, Rows: 2 * inner, In: hidden, Type: kind}),
				q.GLU(kernels.GLU{Out: act, In: joined, Tokens: n * active, Inner: inner}),
				q.ExpertMatMul(kernels.ExpertMatMul{Experts: e, Out: given, X: act, W: down, Scales: downScales, Rows: hidden, In: inner, Type: kind, Own: true}),
				q.Combine(kernels.Combine{Experts: e, Out: out, X: given, Hidden: hidden}),
			)
			results = append(results, l.Outputs[len(l.Outputs)-1].Memory)
		}
		if got, want := results[1], results[0][:2*few*hidden]; !bytes.Equal(got, want) {
			t.Errorf("type %d: the first tokens have other results than among many", kind)
		}
		if bytes.Contains(results[1], []byte{0x3c, 0x3c, 0x3c, 0x3c}) { // what it was before
			t.Errorf("type %d: a result was not written", kind)
		}
	}
}

// Memory for a plan of some tokens suffices for fewer.
func TestPlanBytesGrow(t *testing.T) {
	for _, e := range []kernels.Experts{{Count: 1, Active: 1}, {Count: 8, Active: 2}, {Count: 10, Active: 10}, {Count: 128, Active: 8}} {
		for last := 0; e.Tokens < 600; e.Tokens++ {
			n := e.PlanBytes()
			if n < last {
				t.Errorf("%d of %d experts: a plan of %d tokens has %d bytes, of one less %d", e.Active, e.Count, e.Tokens, n, last)
			}
			last = n
		}
	}
}
