package planner

import (
	"math"

	core "github.com/dynctl/dynctl/internal/planner"
)

// Hardware is what policies know of a worker.
type Hardware interface {
	core.Performance
	// DecodeThroughput returns the most generated tokens a second at an ITL, in seconds, and a
	// context, in tokens; where no KV usage keeps the ITL, those of the lowest usage.
	DecodeThroughput(itl, context float64) float64
}

// Linear is a worker whose speed is given by a few numbers.
type Linear struct {
	PromptRate  float64 // prompt tokens a second
	PromptFixed float64 // seconds beside them
	StepFixed   float64 // seconds of a decode step without KV
	StepPerKV   float64 // seconds for each token of KV
	Capacity    float64 // tokens of KV
}

// H100 is made of the figures of Dynamo's regression test of its interpolation: 49,481 prompt tokens a
// second, and 4,555 generated ones at the ITL of ExampleITL and a context of 3,150.
var H100 = Linear{
	PromptRate: 49481, PromptFixed: 0.010,
	StepFixed: 0.005, StepPerKV: (ExampleITL - 0.005) / (4555 * ExampleITL * 3150),
	Capacity: 400_000,
}

// ExampleITL is the ITL in seconds at which H100 generates 4,555 tokens a second.
const ExampleITL = 0.010

// TTFT implements Performance.
func (h Linear) TTFT(isl float64) float64 { return h.PromptFixed + isl/h.PromptRate }

// PrefillThroughput implements Performance.
func (h Linear) PrefillThroughput(float64) float64 { return h.PromptRate }

// ITL implements Performance.
func (h Linear) ITL(kv, _ float64) float64 { return h.StepFixed + h.StepPerKV*kv }

// KVCapacity implements Performance.
func (h Linear) KVCapacity() float64 { return h.Capacity }

// DecodeThroughput returns the most generated tokens a second at an ITL and a context, as
// Dynamo reads its table: the highest of 100 KV usages whose ITL is low enough, else the lowest.
func (h Linear) DecodeThroughput(itl, context float64) float64 {
	const rows = 100
	for i := rows; ; i-- {
		kv := h.Capacity * float64(i) / rows
		if step := h.ITL(kv, context); step <= itl || i == 1 {
			return kv / context / step
		}
	}
}

// slower returns the hardware with all times longer by a factor.
func (h Linear) slower(factor float64) Linear {
	h.PromptRate /= factor
	h.PromptFixed *= factor
	h.StepFixed *= factor
	h.StepPerKV *= factor
	return h
}

// ceilDiv is the ceiling of a quotient of what is at least 0.
func ceilDiv(a, b float64) int { return int(math.Ceil(a / b)) }
