package cpu

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// ActivationsVariable is the environment variable that selects the precision of
// activations of [NewDevice].
const ActivationsVariable = "DYNAMOD_CPU_ACTIVATIONS"

// ErrActivations is returned for a precision of activations that does not exist or that
// this machine does not support.
var ErrActivations = errors.New("unusable precision of activations")

// parseActivations reads auto, f32 or bf16, or "" for auto. It returns whether
// activations are rounded to bf16 for products with weights of bf16.
func parseActivations(name string, level kernel.Level) (bf16 bool, err error) {
	switch name = strings.ToLower(strings.TrimSpace(name)); name {
	case "", "auto":
		return level.FastBF16(), nil
	case "f32":
		return false, nil
	case "bf16":
		if !level.BF16() {
			return false, fmt.Errorf("%w: bf16 needs AVX512_BF16, AMX or FEAT_BF16, which %s does not have here; use auto or f32", ErrActivations, level)
		}
		if err := level.CheckBF16(); err != nil {
			return false, fmt.Errorf("%w: %w; use auto or f32", ErrActivations, err)
		}
		return true, nil
	}
	return false, fmt.Errorf("%w: %q is not one of auto, f32, bf16", ErrActivations, name)
}
