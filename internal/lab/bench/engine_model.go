package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/model"
)

// Names of cases with which other cases are compared.
const (
	caseReadWeights = "read, all cores, the mapped weights"
	caseDecodeOne   = "decode, 1 sequence"
)

// engineModel is a model under measurement.
type engineModel struct {
	*engineSection
	model   *model.Model
	weights int64 // bytes read in a decode step
	cores   int
	rig     *rig
	names   []string // of its cases
}

// errMemory is returned when a model and its KV blocks do not fit.
var errMemory = errors.New("not enough memory")

// maxSteps bounds the tokens of one decode repetition, so that their KV stays within
// half a gigabyte and a sequence within the context.
func (w *engineModel) maxSteps() int {
	sc := w.scale.engine
	n := (512 << 20) / (w.kvBytes(1) * int64(slices.Max(sc.sequences)))
	return min(max(int(n), 64), 2048, w.model.Config().MaxContext-sc.context-1)
}

// start loads the model and fills the KV pool with numbers, so that contexts need
// not be computed.
func (w *engineModel) start(ctx context.Context) (err error) {
	sc := w.scale.engine
	longest := sc.context + 1 + max(w.maxSteps(), 0)
	blocks := 8
	for _, n := range sc.sequences {
		blocks = max(blocks, n*(longest/rigBlockSize+2))
	}
	for _, n := range sc.prefill {
		blocks = max(blocks, n/rigBlockSize+2)
	}
	if w.maxSteps() < 16 {
		return fmt.Errorf("the model's context of %d tokens is too short to decode after %d", w.model.Config().MaxContext, sc.context)
	}
	need := int64(blocks) * w.kvBytes(rigBlockSize)
	if free := availableMemory(); free > 0 && need+w.weights+int64(sc.readBytes) > free {
		return fmt.Errorf("%w: %s of KV blocks, %s of weights and %s of scratch, %s are free",
			errMemory, bytesText(need), bytesText(w.weights), bytesText(int64(sc.readBytes)), bytesText(free))
	}
	if w.rig, err = newCPURig(ctx, w.model, w.cores, blocks, w.log); err != nil {
		return err
	}
	w.rig.fillKV()
	return nil
}

// kvBytes returns the size of the KV of n tokens.
func (w *engineModel) kvBytes(n int) int64 {
	c := w.model.Config()
	kv, _ := cpu.KVDType(w.model, cpu.KVAuto) // fails for other names only
	shape := kvlayout.Shape{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, BlockSize: rigBlockSize, DType: kv}
	return int64(n) * shape.BlockBytes() / int64(shape.BlockSize)
}

// cases plans the cases. It runs the model once to estimate their duration.
func (w *engineModel) cases(ctx context.Context) ([]Case, error) {
	sc := w.scale.engine
	const probe = 32                                     // tokens
	if _, err := w.rig.prefill(ctx, probe); err != nil { // reads the weights from the disk
		return nil, err
	}
	perToken, err := w.rig.prefill(ctx, probe)
	if err != nil {
		return nil, err
	}
	var cases []Case
	for _, n := range sc.prefill {
		if expect := perToken * time.Duration(n); expect > sc.caseLimit {
			w.note("Prefill of %d tokens with %s of weights is left out: one takes about %s, the limit is %s.",
				n, bytesText(w.weights), expect.Round(time.Second), sc.caseLimit)
			continue
		}
		cases = append(cases, Case{fmt.Sprintf("prefill, %d tokens", n), func(ctx context.Context) (Sample, error) {
			return w.rig.prefillRate(ctx, n)
		}})
	}
	for _, past := range []int{0, sc.context} {
		for _, n := range sc.sequences {
			cases = append(cases, w.decodeCase(n, past))
		}
	}
	for _, c := range cases {
		w.names = append(w.names, c.Name)
	}
	return cases, nil
}

// decodeCase measures decoding with seqs sequences over past tokens each.
func (w *engineModel) decodeCase(seqs, past int) Case {
	name := caseDecodeOne
	if seqs > 1 {
		name = fmt.Sprintf("decode, %d sequences", seqs)
	}
	if past > 0 {
		name += fmt.Sprintf(", %d tokens of context", past)
	}
	stepBytes := float64(w.weights + w.kvBytes(past*seqs))
	return Case{name, func(ctx context.Context) (Sample, error) {
		s, err := w.rig.decodeRate(ctx, decoding{seqs: seqs, past: past, steps: w.maxSteps(), window: w.scale.engine.window})
		if err == nil {
			s[keyRead] = stepBytes * s[keyRate] / float64(seqs) / 1e9
		}
		return s, err
	}}
}

// mapped returns the memory of all weights.
func (w *engineModel) mapped() [][]byte {
	var out [][]byte
	eachWeight(w.model, func(t model.Tensor) { out = append(out, t.Data) })
	return out
}

// weightBytes returns how many bytes of weights a decode step reads: all of them, but
// only one row of an embedding that is not also the head. It counts all experts, because
// a step of many sequences may need them all.
func weightBytes(m *model.Model) int64 {
	var n int64
	eachWeight(m, func(t model.Tensor) { n += int64(len(t.Data)) })
	return n
}

func eachWeight(m *model.Model, f func(model.Tensor)) {
	for _, spec := range m.Tensors() {
		if spec.Role.Vision() || spec.Role == model.RoleEmbed && !m.Config().TiedHead {
			continue
		}
		if t, err := m.Tensor(spec.Name); err == nil { // Open has seen them all
			f(t)
		}
	}
}

// fillKV fills the KV pool.
func (r *rig) fillKV() {
	for _, m := range r.mem {
		fillFloats(m.Bytes())
	}
}

// fillFloats writes small random numbers, so that attention over them is finite.
func fillFloats(b []byte) {
	pattern := make([]byte, min(1<<20, len(b)))
	for i := 0; i+2 <= len(pattern); i += 2 { // numbers as float32 and as bf16
		binary.LittleEndian.PutUint16(pattern[i:], uint16(math.Float32bits(rand.Float32()-0.5)>>16))
	}
	for len(b) > 0 {
		b = b[copy(b, pattern):]
	}
}

// bytesText formats a size.
func bytesText(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	if n < 1<<20 {
		return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
