package engine

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestExp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	worst := 0.0
	try := func(x float64) {
		want := math.Exp(x)
		off := math.Abs(exp(x)/want - 1)
		if worst = max(worst, off); off > 2*0x1p-52 {
			t.Fatalf("exp(%v) is %v, want %v", x, exp(x), want)
		}
	}
	for _, x := range []float64{0, math.Copysign(0, -1), -0x1p-1074, -1e-300, -1e-17, -math.Ln2, -1, leastExp} {
		try(x)
	}
	for range 1_000_000 {
		try(leastExp * r.Float64())
		try(-40 * r.Float64())
		try(-math.Ln2 / expSteps * float64(r.IntN(100)) / 2) // where the table changes steps
	}
	if exp(0) != 1 {
		t.Errorf("exp(0) is %v", exp(0))
	}
	t.Logf("off by at most %.2g", worst)
}

func TestWide(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 1_000_000 {
		l := math.Float32frombits(r.Uint32())
		got, want := wide(l), float64(l)
		switch {
		case l != l:
		case math.IsInf(want, 0):
			if math.Abs(got) <= math.MaxFloat32 || math.Signbit(got) != math.Signbit(want) {
				t.Fatalf("wide(%v) is %v", l, got)
			}
		case math.Abs(want) < 0x1p-126:
			if math.Abs(got) >= 0x1p-126 {
				t.Fatalf("wide(%v) is %v", l, got)
			}
		case got != want:
			t.Fatalf("wide(%v) is %v", l, got)
		}
	}
}
