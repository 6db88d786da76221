package kernel

// Peak is one kind of arithmetic at the speed of the processor: a loop over registers
// that waits for nothing. It is a limit to compare products with.
type Peak struct {
	Name string
	// Ops is the number of operations in one turn of the loop; a multiplication and an
	// addition are two.
	Ops int
	// Bytes says that the operations are on 8-bit integers; otherwise they are on
	// floats.
	Bytes bool
	Tiles bool // AMX

	loop func(n int)
}

// Peaks returns the peaks of this machine, float32 first; none in portable Go.
func Peaks() []Peak { return peaks() }

// Run does so many turns, at least one, on the calling goroutine, which cannot be
// preempted meanwhile: a thousand take some 10 µs.
func (p Peak) Run(turns int) { p.loop(max(turns, 1)) }
