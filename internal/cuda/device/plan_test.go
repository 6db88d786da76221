package device_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
)

const gib = int64(1) << 30

func TestFit(t *testing.T) {
	h200 := device.Budget{Device: "NVIDIA H200", Total: 141 * gib, Free: 140 * gib, Utilization: 0.9}
	shared := device.Budget{Device: "NVIDIA H200", Total: 141 * gib, Free: 30 * gib, Utilization: 0.9}
	llama := device.Plan{Weights: 15 * gib, Workspace: gib, IO: gib / 4, BlockBytes: 8 << 20, MinBlocks: 100}
	few := llama
	few.MaxBlocks = 200
	// 0.9 of 141 GiB are 126.9; 1 GiB of it is in use, 16.25 are fixed, and 2 MiB for alignment.
	for name, c := range map[string]struct {
		p    device.Plan
		b    device.Budget
		want int
	}{
		"what is left": {llama, h200, 14034},
		"at most":      {few, h200, 200},
	} {
		if got, err := c.p.Fit(c.b); got != c.want || err != nil {
			t.Errorf("%s: Fit() = %d, %v, want %d", name, got, err, c.want)
		}
	}
	_, err := llama.Fit(shared)
	if !errors.Is(err, device.ErrNoRoom) {
		t.Fatalf("Fit() without room = %v", err)
	}
	for _, want := range []string{
		"weights 15.0 GiB + workspace 1.0 GiB + io 256.0 MiB + 100 KV blocks 800.0 MiB = 17.0 GiB", "15.9 GiB are available on NVIDIA H200",
		"141.0 GiB total, 111.0 GiB in use, at most 0.9 of the total may be (--gpu-memory-utilization)",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	for name, p := range map[string]device.Plan{
		"negative weights": {Weights: -1, BlockBytes: 1}, "no block size": {Weights: 1}, "more at least than at most": {BlockBytes: 1, MinBlocks: 2, MaxBlocks: 1},
		"absurd weights": {Weights: 1 << 60, BlockBytes: 1}, "absurd blocks": {BlockBytes: 1 << 60}, "negative blocks": {BlockBytes: 1, MinBlocks: -1},
	} {
		if _, err := p.Fit(h200); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What fits can be allocated, and one block more would be over the budget.
func TestWhatFitsCanBeAllocated(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		b := device.Budget{Total: 1 + r.Int64N(1<<40), Utilization: r.Float64()}
		b.Free = r.Int64N(b.Total + 1)
		p := device.Plan{Weights: r.Int64N(1 << 36), Workspace: r.Int64N(1 << 30), IO: r.Int64N(1 << 20), BlockBytes: 1 + r.Int64N(1<<24), MinBlocks: r.IntN(1000)}
		if b.Left() < 0 || b.Left() > b.Free {
			t.Fatalf("%+v: Left() = %d", b, b.Left())
		}
		n, err := p.Fit(b)
		with := func(blocks int) int64 { return p.Weights + p.Workspace + p.IO + int64(blocks)*p.BlockBytes }
		if err != nil {
			if with(max(p.MinBlocks, 1))+768+2<<20 <= b.Left() {
				t.Fatalf("%+v in %+v: %v", p, b, err)
			}
			continue
		}
		if n < max(p.MinBlocks, 1) || with(n) > b.Left() || with(n+1)+768+2<<20 <= b.Left() {
			t.Fatalf("%+v in %+v: %d blocks", p, b, n)
		}
	}
}

func TestBudget(t *testing.T) {
	r := newRig(t)
	b, err := r.Budget(0.5)
	r.ok(err)
	if b.Total != gib || b.Free != gib-1<<16 || b.Left() != gib/2-1<<16 || b.Device != "Fake H200" {
		t.Errorf("Budget() = %+v, %d left", b, b.Left())
	}
	for _, u := range []float64{0, -1, 1.01, nan()} {
		if _, err := r.Budget(u); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Budget(%g) = %v", u, err)
		}
	}
	r.ok(r.close())
}

func nan() float64 { var zero float64; return zero / zero }
