package kernel

import "golang.org/x/sys/cpu"

//go:noescape
func peakFMANEON(n int)

//go:noescape
func peakSDOT(n int)

func peaks() []Peak {
	const sums = 24 // of a turn
	out := []Peak{{Name: "float32 FMA, NEON", Ops: sums * 4 * 2, loop: peakFMANEON}}
	if cpu.ARM64.HasASIMDDP {
		out = append(out, Peak{Name: "int8, SDOT", Ops: sums * 16 * 2, Bytes: true, loop: peakSDOT})
	}
	return out
}
