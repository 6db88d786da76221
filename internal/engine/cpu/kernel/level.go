package kernel

import (
	"errors"
	"fmt"
	"strings"
)

// Level is a set of instructions.
type Level uint8

// Levels, each of which includes the ones before it.
const (
	// Portable stands for no kernels at all.
	Portable Level = iota
	// AVX2 needs AVX2, FMA and F16C.
	AVX2
	// AVX512 needs AVX-512 F, BW, DQ and VL.
	AVX512
	// AMX needs tiles with bf16, too.
	AMX
)

// ErrLevel is returned for a level that does not exist or that this machine lacks.
var ErrLevel = errors.New("unusable instruction set")

func (l Level) String() string { return [...]string{"portable", "avx2", "avx512", "amx"}[l] }

// Best is the highest level of this machine.
func Best() Level { return best() }

// Levels are all that this machine has, the lowest first.
func Levels() []Level {
	var out []Level
	for l := Portable; l <= Best(); l++ {
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
	for l := Portable; l <= AMX; l++ {
		switch {
		case l.String() != name:
		case l > Best():
			return Portable, fmt.Errorf("%w: this machine has no %s, its best is %s", ErrLevel, l, Best())
		default:
			return l, nil
		}
	}
	return Portable, fmt.Errorf("%w: %q is not one of auto, portable, avx2, avx512, amx", ErrLevel, name)
}
