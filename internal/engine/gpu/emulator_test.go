package gpu_test

import (
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/enginetest"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// TestTokensOfPTX answers a question with the kernels as they are shipped, in the emulator,
// which finds races and what was not written: the first tokens are those of the CPU.
func TestTokensOfPTX(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("arithmetic of TestTokensOfTheCPU, and a minute of it")
	}
	m := builtin(t)
	prompts, _, text := questions(t, m, 1)
	cfg := engine.Config{NumBlocks: 32, MaxSeqs: 2, MaxBatchTokens: 64}
	ks, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	f := fake.New(fake.Options{PTX: true, Kernels: ks})
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	o := gpu.Options{BlockSize: blockSize, MaxContext: 256, MaxTokens: 64, MaxSeqs: 2}
	g := enginetest.Start(t, newRigOn(t, newDevice(t, f), m, cfg.NumBlocks, o), cfg)
	c := enginetest.Start(t, newCPURig(t, m, cfg.NumBlocks, blockSize), cfg)
	r := engine.Request{ID: "0", Tokens: prompts[0], Stop: protocol.StopConditions{MaxTokens: 5, StopTokenIDs: m.EOS()}}
	got, want := enginetest.Read(t, enginetest.Submit(t, g, r)), enginetest.Read(t, enginetest.Submit(t, c, r))
	if len(got) < 4 || !slices.Equal(got, want) {
		t.Errorf("%q, and the CPU's answer is %q", text.Decode(got), text.Decode(want))
	}
}
