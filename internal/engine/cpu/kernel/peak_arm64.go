package kernel

import "golang.org/x/sys/cpu"

//go:noescape
func peakFMANEON(n int)

//go:noescape
func peakSDOT(n int)

//go:noescape
func peakUSMMLA(n int)

//go:noescape
func peakBFMMLA(n int)

func peaks() []Peak {
	const sums = 24 // of a turn
	out := []Peak{{Name: "float32 FMA, NEON", Ops: sums * 4 * 2, loop: peakFMANEON}}
	if hasFeatureBF16 {
		out = append(out, Peak{Name: "bf16, BFMMLA", Ops: sums * 16 * 2, loop: peakBFMMLA})
	}
	if cpu.ARM64.HasASIMDDP {
		out = append(out, Peak{Name: "int8, SDOT", Ops: sums * 16 * 2, Bytes: true, loop: peakSDOT})
	}
	if hasI8MM {
		out = append(out, Peak{Name: "int8, USMMLA", Ops: sums * 32 * 2, Bytes: true, loop: peakUSMMLA})
	}
	return out
}
