package cpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
)

// TestEveryLevel runs the tests of results at the levels that NewDevice would not
// choose by itself, each in a process of its own.
func TestEveryLevel(t *testing.T) {
	if os.Getenv(ISAVariable) != "" {
		t.Skip("one level was asked for")
	}
	if testing.Short() || patience.RaceDetector {
		t.Skip("three times the other tests, whose goroutines are the same")
	}
	// TestLevelsAgree gives portable Go alone other bits: what others computed is for it.
	const tests, portable = "TestBits|TestEntriesOfOneSequence|TestFamilies|TestAgainstReference|TestKVTypes|TestSplitAttention|TestNoAllocations|TestNoAllocationsQuantized|TestRanks", "TestRecorded|TestQuantizedAgainstReference"
	for _, level := range kernel.Levels() {
		if level == kernel.Best() {
			continue
		}
		t.Run(level.String(), func(t *testing.T) {
			names := tests
			if level == kernel.Portable {
				names += "|" + portable
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^("+names+")$")
			cmd.Env = append(os.Environ(), ISAVariable+"="+level.String())
			if out, err := orphan.CombinedOutput(cmd); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestLevelsAgree shows that all kernels of the machine give the same bits, and that
// portable Go, which rounds products before it adds them, stays close.
func TestLevelsAgree(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the same goroutines: TestBits")
	}
	for name, tt := range bitSpecs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := tt.open(t)
			tokens := prompt(3, min(300, tt.tokens), m.TokenLimit())
			var all [][]float32
			for _, level := range kernel.Levels() {
				d := newDevice("cpu:0", 2, level)
				defer d.Close()
				r := newRigOn(t, d, m, 40, Options{BlockSize: 16, KVDType: tt.kv})
				logits := r.newLogits()
				r.step(t, engine.BatchSeq{Tokens: tokens, Blocks: table(0, 40), Logits: logits})
				all = append(all, logits)
			}
			for i, logits := range all[:min(len(all), 2)] { // scripts/test-arm64.sh compares machines
				t.Logf("bits of %s, %s: %016x", name, [...]string{"portable", "with kernels"}[i], hash(logits))
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
				if tt.quantized != nil || tt.quantize != "" {
					bound = 3e-2 // or an activation, which has 7 bits
				}
				if worst > bound*top {
					t.Errorf("level %d differs from portable by %v of %v", i+1, worst, top)
				}
			}
		})
	}
}

// hash of the bits of logits.
func hash(logits []float32) uint64 {
	h := fnv.New64a()
	for _, v := range logits {
		h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
	}
	return h.Sum64()
}

func TestOpenDevice(t *testing.T) {
	for _, level := range kernel.Levels() {
		d, err := OpenDevice("cpu:0", DeviceOptions{Cores: 1, ISA: level.String()})
		if err != nil || d.level != level || d.Warning() != "" || d.Close() != nil {
			t.Errorf("%s: %v, %v", level, d, err)
		}
	}
	if d, err := OpenDevice("cpu:0", DeviceOptions{Cores: 1}); err != nil || d.level != kernel.Best() || d.Close() != nil {
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

// Wrong products of bytes cost a device its tiles for quantized weights, not its level.
func TestCheckInt8Tiles(t *testing.T) {
	wrong := errors.New("two is three")
	for _, tt := range []struct {
		has  bool
		err  error
		want bool
	}{{true, nil, true}, {true, wrong, false}, {false, wrong, false}} {
		d := &Device{level: kernel.AMX, int8Tiles: tt.has}
		d.checkInt8Tiles(func() error { return tt.err })
		if warned := strings.Contains(d.Warning(), "two is three"); d.int8Tiles != tt.want || warned != (tt.has && tt.err != nil) || d.level != kernel.AMX {
			t.Errorf("%+v: tiles %v, warning %q, level %s", tt, d.int8Tiles, d.Warning(), d.level)
		}
	}
}
