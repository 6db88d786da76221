//go:build unix

package cpu

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// TestKernelFaults takes weights away under a running backend: kernels fault like Go
// code, and the process lives.
func TestKernelFaults(t *testing.T) {
	type device struct {
		level     kernel.Level
		bf16      bool
		quantized func(string) gguf.Type
	}
	var devices []device
	for _, level := range kernel.Levels()[1:] {
		devices = append(devices, device{level, false, nil}, device{level, false, all(gguf.Q8_0)})
		if level.BF16() {
			devices = append(devices, device{level, true, nil})
		}
	}
	for _, tt := range devices {
		d := newDevice("cpu:0", 2, tt.level)
		defer d.Close()
		d.bf16 = tt.bf16
		t.Run(fmt.Sprintf("%s, quantized %v", d.ISA(), tt.quantized != nil), func(t *testing.T) {
			m := bits{spec: modeltest.Spec{DType: "bf16", Hidden: 64, FFN: 96}, quantized: tt.quantized}.open(t)
			r := newRigOn(t, d, m, 4, Options{BlockSize: 16})
			seq := engine.BatchSeq{Tokens: prompt(1, 40, 200), Blocks: table(0, 4), Logits: r.newLogits()}
			r.step(t, seq)
			data := r.weights.layers[0].q.packed.data // the first in its memory, so it starts a page
			if err := unix.Mprotect(data[:len(data)&^(os.Getpagesize()-1)], unix.PROT_NONE); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := r.Step(t.Context(), []engine.BatchSeq{seq}); !errors.Is(err, ErrMemory) {
					t.Errorf("err = %v, want ErrMemory", err)
				}
			}
		})
	}
}
