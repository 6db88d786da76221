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
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// TestEveryLevel runs the tests of results at the levels that NewDevice would not
// choose by itself, each in a process of its own.
func TestEveryLevel(t *testing.T) {
	if os.Getenv(ISAVariable) != "" {
		t.Skip("one level was asked for")
	}
	if testing.Short() {
		t.Skip("three times the other tests")
	}
	const tests = "^(TestBits|TestEntriesOfOneSequence|TestSplitAttention|TestFamilies|TestFamiliesUnderScheduling|TestAgainstReference|TestRecorded|TestKVTypes|TestNoAllocations)$"
	for _, level := range kernel.Levels() {
		if level == kernel.Best() {
			continue
		}
		t.Run(level.String(), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+tests)
			cmd.Env = append(os.Environ(), ISAVariable+"="+level.String())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestLevelsAgree shows that AVX2 and AVX-512 give the same bits, and that portable
// Go, which rounds products before it adds them, stays close.
func TestLevelsAgree(t *testing.T) {
	for name, tt := range bitSpecs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := modeltest.Open(t, tt.spec)
			tokens := prompt(3, 300, m.TokenLimit())
			var all [][]float32
			for _, level := range kernel.Levels() {
				d := newDevice("cpu:0", 2, level)
				defer d.Close()
				r := newRigOn(t, d, m, 40, Options{BlockSize: 16, KVDType: tt.kv})
				logits := r.newLogits()
				r.step(t, engine.BatchSeq{Tokens: tokens, Blocks: table(0, 40), Logits: logits})
				all = append(all, logits)
			}
			for i, logits := range all[1:] {
				sameBits(t, fmt.Sprint("level ", i+1), logits, all[1])
				top, worst := 0.0, 0.0
				for v, l := range logits {
					top, worst = max(top, math.Abs(float64(l))), max(worst, math.Abs(float64(l-all[0][v])))
				}
				bound := 1e-4
				if tt.kv != "f32" {
					bound = 1e-2 // a last bit of difference may round K or V the other way
				}
				if worst > bound*top {
					t.Errorf("level %d differs from portable by %v of %v", i+1, worst, top)
				}
			}
		})
	}
}

func TestOpenDevice(t *testing.T) {
	for _, level := range kernel.Levels() {
		d, err := OpenDevice("cpu:0", DeviceOptions{Cores: 1, ISA: level.String()})
		if err != nil || d.ISA() != level.String() || d.Close() != nil {
			t.Errorf("%s: %v, %v", level, d, err)
		}
	}
	if d, err := OpenDevice("cpu:0", DeviceOptions{Cores: 1}); err != nil || d.ISA() != kernel.Best().String() || d.Close() != nil {
		t.Errorf("the default: %v, %v", d, err)
	}
	if _, err := OpenDevice("cpu:0", DeviceOptions{Cores: 1, ISA: "mmx"}); !errors.Is(err, kernel.ErrLevel) {
		t.Errorf("mmx: %v, want ErrLevel", err)
	}
	t.Setenv(ISAVariable, "mmx")
	if d := NewDevice("cpu:0", 1); d.ISA() != "portable" || d.Close() != nil {
		t.Errorf("unknown name in the environment: %s", d.ISA())
	}
}
