package cpu

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel/amxtest"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
)

// needBF16 skips where nothing multiplies activations in bf16.
func needBF16(t testing.TB) {
	t.Helper()
	if !kernel.Best().BF16() {
		t.Skip("this machine has none of AVX512_BF16, AMX and FEAT_BF16")
	}
}

// newDeviceAt starts a device with the best instructions and a precision.
func newDeviceAt(t testing.TB, cores int, activations string) *Device {
	t.Helper()
	d, err := OpenDevice("cpu:0", DeviceOptions{Cores: cores, Activations: activations})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// toBF16Exactly rounds to 8 significant bits, to the nearest, ties to even.
func toBF16Exactly(v float64) float64 {
	frac, exp := math.Frexp(v)
	return math.Ldexp(math.RoundToEven(math.Ldexp(frac, 8)), exp-8)
}

// bf16Specs are the shapes whose products take activations in bf16, some with sizes
// that are no multiples of tiles.
func bf16Specs() map[string]modeltest.Spec {
	return map[string]modeltest.Spec{
		"llama, llama3 rope": {Family: "llama", DType: "bf16", Vocab: 600, RopeScaling: llama3Scaling(), Seed: 4},
		"qwen3, tied, odd sizes": {Family: "qwen3", Layers: 3, Hidden: 50, Heads: 5, KVHeads: 1, HeadDim: 26,
			FFN: 131, Vocab: 333, DType: "bf16", Tied: true, RopeTheta: 1e6, Seed: 8},
		"qwen3, wider, biases": {Family: "qwen3", Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 512, Vocab: 391, AttentionBias: true, DType: "bf16", Seed: 10},
	}
}

// TestBF16AgainstReference compares with float64 arithmetic that rounds the inputs
// of linear layers to bf16, too, and with arithmetic that does not.
//
// An input that lies near the middle of two bf16 may be rounded the other way here
// and there: it takes an error of 1e-6 to cross one, which happens to one of some
// thousand inputs. So the distance from the reference that rounds is far below that
// from the one that does not, which is what the roundings cost: each adds 2^-9 at
// most and 2^-10 on average to its inputs, and a dozen of them one after the other
// some hundredths to the logits of random weights.
func TestBF16AgainstReference(t *testing.T) {
	needBF16(t)
	for name, spec := range bf16Specs() {
		if patience.RaceDetector && spec.Seed != 4 {
			continue // other arithmetic in the same goroutines
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := modeltest.Open(t, spec)
			r := newRigOn(t, newDeviceAt(t, 2, "bf16"), m, 16, Options{BlockSize: 7})
			count := 70
			if amxtest.Emulated() || patience.RaceDetector {
				count = 10 // for its speed
			}
			tokens := prompt(spec.Seed, count, m.TokenLimit())
			exact := reference{t: t, m: m, c: m.Config()}.logits(tokens)
			rounded := reference{t: t, m: m, c: m.Config(), round: toBF16Exactly}.logits(tokens)
			logits := r.newLogits()
			var near, far, size, divergence float64 // sums of squares, and of KL
			agree, n := 0, 0.0
			for i := range tokens {
				r.step(t, engine.BatchSeq{Tokens: tokens[i : i+1], Start: i, Blocks: table(0, 16), Logits: logits})
				for v, l := range logits {
					near += square(float64(l) - rounded[i][v])
					far += square(float64(l) - exact[i][v])
					size += square(exact[i][v])
					n++
				}
				divergence += klDivergence(exact[i], logits)
				if argmax(exact[i]) == argmax(logits) {
					agree++
				}
			}
			near, far, size = math.Sqrt(near/n), math.Sqrt(far/n), math.Sqrt(size/n)
			divergence /= float64(len(tokens))
			t.Logf("root mean squares: %.2g of the rounded reference, %.2g of the exact one, logits %.2g; KL %.2g; top token %d of %d", near, far, size, divergence, agree, len(tokens))
			if !(near < far/4) {
				t.Errorf("errors of %v beside a reference with the same roundings, and of %v beside one without", near, far)
			}
			if far == 0 || !(far < 0.03*size) {
				t.Errorf("rounding costs %v of logits of %v", far, size)
			}
			if !(divergence < 5e-3) || agree < len(tokens)*9/10 {
				t.Errorf("KL %v, top token %d of %d", divergence, agree, len(tokens))
			}
		})
	}
}

func square(v float64) float64 { return v * v }

// klDivergence is that of the distribution of got from that of want, in nats.
func klDivergence(want []float64, got []float32) (kl float64) {
	logSum := func(at func(i int) float64) float64 {
		top, sum := math.Inf(-1), 0.0
		for i := range want {
			top = max(top, at(i))
		}
		for i := range want {
			sum += math.Exp(at(i) - top)
		}
		return top + math.Log(sum)
	}
	w, g := func(i int) float64 { return want[i] }, func(i int) float64 { return float64(got[i]) }
	sw, sg := logSum(w), logSum(g)
	for i := range want {
		p := want[i] - sw
		kl += math.Exp(p) * (p - (g(i) - sg))
	}
	return kl
}

func argmax[T float32 | float64](x []T) (best int) {
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}

// TestBF16Everywhere runs the tests of equal bits and of steps with activations in
// bf16, in a process of its own.
func TestBF16Everywhere(t *testing.T) {
	needBF16(t)
	if os.Getenv(ActivationsVariable) != "f32" || testing.Short() {
		t.Skip("one precision is enough")
	}
	if patience.RaceDetector {
		t.Skip("other arithmetic in the goroutines of TestBF16AgainstReference")
	}
	const tests = "^(TestBits|TestEntriesOfOneSequence|TestFamiliesUnderScheduling|TestSharedDevice|TestNoAllocations|TestSplitAttention|TestBlocksMoveBetweenBackends)$"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+tests)
	cmd.Env = append(os.Environ(), ActivationsVariable+"=bf16")
	if out, err := orphan.CombinedOutput(cmd); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestDeviceActivations(t *testing.T) {
	best := kernel.Best()
	isa := func(level kernel.Level, activations string) (string, error) {
		d, err := OpenDevice("cpu:0", DeviceOptions{Cores: 1, ISA: level.String(), Activations: activations})
		if err != nil {
			return "", err
		}
		return d.ISA(), d.Close()
	}
	for _, level := range kernel.Levels() {
		plain, rounded := level.String(), level.String()+" bf16"
		auto := plain
		if level.FastBF16() {
			auto = rounded
		}
		for name, want := range map[string]string{"": auto, "auto": auto, " AUTO ": auto, "f32": plain} {
			if got, err := isa(level, name); got != want || err != nil {
				t.Errorf("%s, %q: %q, %v; want %q", level, name, got, err, want)
			}
		}
		got, err := isa(level, "bf16")
		if level.BF16() && (got != rounded || err != nil) || !level.BF16() && !errors.Is(err, ErrActivations) {
			t.Errorf("%s, bf16: %q, %v", level, got, err)
		}
	}
	if _, err := isa(best, "f16"); !errors.Is(err, ErrActivations) {
		t.Errorf("f16: %v, want ErrActivations", err)
	}
	t.Setenv(ActivationsVariable, "f16")
	d := NewDevice("cpu:0", 1)
	defer d.Close()
	if d.bf16 {
		t.Error("an unknown name in the environment stands for bf16")
	}
}

// TestRouterStaysExact: what an expert gets is chosen with activations in float32.
func TestRouterStaysExact(t *testing.T) {
	needBF16(t)
	spec := modeltest.Families()["qwen3_moe"]
	spec.DType = "bf16"
	m := modeltest.Open(t, spec)
	d := newDeviceAt(t, 1, "bf16")
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	sparse := 0
	for i := range w.layers {
		l := &w.layers[i]
		if l.experts == nil {
			continue
		}
		sparse++
		if l.router.form() != 0 || l.experts[0].gate.form() != bf16Form || l.q.form() != bf16Form {
			t.Errorf("layer %d: forms %v, %v, %v", i, l.router.form(), l.experts[0].gate.form(), l.q.form())
		}
	}
	if sparse == 0 {
		t.Error("no layer has experts")
	}
}

// TestApplyBF16 compares products of every shape of item with those of single rows:
// rows side by side and scattered, whole panels and cut ones.
func TestApplyBF16(t *testing.T) {
	needBF16(t)
	level := kernel.Best()
	for _, size := range [][2]int{{32, 32}, {40, 37}, {70, 64}, {5, 3}} {
		rows, cols := size[0], size[1]
		m := &matrix{rows: rows, cols: cols, u16: make([]uint16, rows*cols), bias: randomFloats(9, rows)}
		narrowBF16(m.u16, randomFloats(1, rows*cols))
		m.packed = panels{level: level, kind: kernel.BF16, data: make([]byte, m.packedBytes()), rounded: true}
		for i := range kernel.Panels(rows) {
			if err := m.packPanel(i, nil); err != nil {
				t.Fatal(err)
			}
		}
		const tokens = 40
		var a activations
		a.reserve(tokens, cols, tokens, m.form())
		for i := range a.rows {
			copy(a.rows[i], randomFloats(uint64(i+2), cols))
		}
		a.form = m.form()
		a.prepare(level, 0, tokens)
		outs := func(n int) [][]float32 { return reserveRows[float32](nil, n, rows, n) }
		l := new(lane)
		want := outs(tokens)
		for i := range tokens {
			m.apply(l, 0, rows, a.span(i, i+1), want[i:i+1])
			for r, got := range want[i] {
				sum, abs := float64(m.bias[r]), math.Abs(float64(m.bias[r]))
				for k, w := range m.u16[r*cols : (r+1)*cols] {
					p := toBF16Exactly(float64(a.rows[i][k])) * float64(math.Float32frombits(uint32(w)<<16))
					sum, abs = sum+p, abs+math.Abs(p)
				}
				if math.Abs(float64(got)-sum) > 1e-6*abs {
					t.Fatalf("%d × %d: row %d of token %d is %v, want %v", rows, cols, r, i, got, sum)
				}
			}
		}
		for _, n := range []int{1, 2, 12, 13, 33, tokens} {
			got := outs(n)
			m.apply(l, 0, rows, a.span(0, n), got)
			for i := range got {
				sameBits(t, fmt.Sprintf("%d × %d, %d tokens, token %d", rows, cols, n, i), got[i], want[i])
			}
		}
		scattered := activations{form: a.form, rows: make([][]float32, 20), halves: make([][]uint16, 20)}
		for i := range scattered.rows {
			scattered.refer(i, &a, i*7%tokens)
		}
		got := outs(20)
		m.apply(l, 0, rows, scattered.span(0, 20), got)
		for i := range got {
			sameBits(t, fmt.Sprintf("%d × %d, scattered, token %d", rows, cols, i), got[i], want[i*7%tokens])
		}
	}
}
