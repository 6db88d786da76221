package kernel

import "golang.org/x/sys/cpu"

//go:noescape
func peakFMAAVX512(n int)

//go:noescape
func peakFMAAVX2(n int)

//go:noescape
func peakPairsAVX512(n int)

//go:noescape
func peakBytesAVX512(n int)

//go:noescape
func peakPairsAMX(n int)

//go:noescape
func peakBytesAMX(n int)

func peaks() []Peak {
	const sums, tiles = 12, 4 // of a turn
	var out []Peak
	switch Best() {
	case Portable:
		return nil
	case AVX2:
		return []Peak{{Name: "float32 FMA, AVX2", Ops: sums * 8 * 2, loop: peakFMAAVX2}}
	}
	out = append(out, Peak{Name: "float32 FMA, AVX-512", Ops: sums * 16 * 2, loop: peakFMAAVX512})
	if cpu.X86.HasAVX512BF16 {
		out = append(out, Peak{Name: "bf16, VDPBF16PS", Ops: sums * 32 * 2, loop: peakPairsAVX512})
	}
	if cpu.X86.HasAVX512VNNI {
		out = append(out, Peak{Name: "int8, VPDPBUSD", Ops: sums * 64 * 2, Bytes: true, loop: peakBytesAVX512})
	}
	if askedAMX() {
		out = append(out, Peak{Name: "bf16, AMX tiles", Ops: tiles * 16 * 16 * 32 * 2, Tiles: true, loop: peakPairsAMX})
		if cpu.X86.HasAMXInt8 {
			out = append(out, Peak{Name: "int8, AMX tiles", Ops: tiles * 16 * 16 * 64 * 2, Bytes: true, Tiles: true, loop: peakBytesAMX})
		}
	}
	return out
}
