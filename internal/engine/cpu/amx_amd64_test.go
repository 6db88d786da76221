package cpu

import (
	"testing"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel/amxtest"
)

func init() {
	if amxtest.Emulated() {
		kernel.AssumeAMX()
	}
}

// TestEmulatedAMX runs whole models at the level AMX on machines without it. Machines
// with AMX run these tests as they are.
func TestEmulatedAMX(t *testing.T) {
	if kernel.Best() == kernel.AMX {
		t.Skip("this machine has AMX")
	}
	if kernel.Best() < kernel.AVX512 {
		t.Skip("the level needs AVX-512, too, which nobody emulates")
	}
	if testing.Short() {
		t.Skip("an emulator is slow")
	}
	t.Run("bf16", func(t *testing.T) {
		usedTiles(t, amxtest.Run(t, "^(TestBF16AgainstReference|TestApplyBF16|TestDeviceActivations|TestKernelFaults)$"))
	})
	t.Run("bits", func(t *testing.T) {
		usedTiles(t, amxtest.Run(t, "^TestBits$/^qwen3_moe$", ActivationsVariable+"=bf16"))
	})
	t.Run("quantized", func(t *testing.T) {
		usedTilesOfBytes(t, amxtest.Run(t, "^(TestApplyQuantized|TestApplyScatteredBlocks|TestLevelsAgree)$/^llama_mixed$"))
	})
	t.Run("quantized bits", func(t *testing.T) {
		usedTilesOfBytes(t, amxtest.Run(t, "^TestBits$/^(llama_Q8_0|qwen3_moe_Q4_0)$"))
	})
	t.Run("float32", func(t *testing.T) { // is what it is at the level below
		amxtest.Run(t, "^(TestLevelsAgree|TestApplyBF16)$/^qwen3")
	})
}

// usedTiles checks that models and not only the check of the device used tiles.
func usedTiles(t *testing.T, c amxtest.Counts) {
	t.Helper()
	t.Logf("%d products in %d calls", c.Products(), c.Configured())
	if c.Products() < 10000 {
		t.Errorf("%d products on tiles", c.Products())
	}
}

// usedTilesOfBytes is usedTiles for quantized weights.
func usedTilesOfBytes(t *testing.T, c amxtest.Counts) {
	t.Helper()
	t.Logf("%d products of bytes in %d calls", c.BytesProducts(), c.Configured())
	if c.BytesProducts() < 10000 {
		t.Errorf("%d products of bytes on tiles", c.BytesProducts())
	}
}
