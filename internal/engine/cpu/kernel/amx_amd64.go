package kernel

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

// xgetbv is the lower half of XCR0: the states that the system saves.
func xgetbv() uint32

// tileStates are the states of tiles and of their configuration in XCR0.
const tileStates = 1<<17 | 1<<18

// assumed is set by AssumeAMX.
var assumed atomic.Bool

// AssumeAMX makes the level AMX usable on a machine without it, for tests whose
// process runs under an emulator of its instructions. Any other process ends with
// an illegal instruction.
func AssumeAMX() { assumed.Store(true) }

// askedAMX is whether the processor has tiles and the system lets this process use
// them, which it must be asked for once.
var askedAMX = sync.OnceValue(func() bool {
	x := &cpu.X86
	return x.HasAMXTile && x.HasAMXBF16 && xgetbv()&tileStates == tileStates && requestTiles()
})

func hasAMX() bool { return assumed.Load() || askedAMX() }
