package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Level is a set of instructions.
type Level uint8

// Levels. Of those of one kind of processor, each includes the ones before it.
const (
	// Portable stands for no kernels at all.
	Portable Level = iota
	// AVX2 needs AVX2, FMA and F16C.
	AVX2
	// AVX512 needs AVX-512 F, BW, DQ and VL.
	AVX512
	// AMX needs tiles with bf16, too. Those with int8 are used where the processor has
	// them, see [Level.Int8Tiles]; they change no bits.
	AMX
	// NEON needs what every arm64 processor has.
	NEON
)

var levelNames = [...]string{"portable", "avx2", "avx512", "amx", "neon"}

// ErrLevel is returned for a level that does not exist or that this machine lacks.
var ErrLevel = errors.New("unusable instruction set")

func (l Level) String() string { return levelNames[l] }

// Best is the highest level of this machine.
func Best() Level { return best() }

// Levels are all that this machine has, the lowest first.
func Levels() []Level {
	out := []Level{Portable}
	for l := lowest; l <= Best(); l++ {
		out = append(out, l)
	}
	return out
}

// Parse returns the level of a name, and the best one for "" and "auto". It fails
// with [ErrLevel].
func Parse(name string) (Level, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" || name == "auto" {
		return Best(), nil
	}
	i := slices.Index(levelNames[:], name)
	switch l := Level(max(i, 0)); {
	case i < 0:
		return Portable, fmt.Errorf("%w: %q is not one of auto, %s", ErrLevel, name, strings.Join(levelNames[:], ", "))
	case !slices.Contains(Levels(), l):
		return Portable, fmt.Errorf("%w: this machine has no %s, its best is %s", ErrLevel, l, Best())
	default:
		return l, nil
	}
}
