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
		return []Peak{{"float32 FMA, AVX2", sums * 8 * 2, false, peakFMAAVX2}}
	}
	out = append(out, Peak{"float32 FMA, AVX-512", sums * 16 * 2, false, peakFMAAVX512})
	if cpu.X86.HasAVX512BF16 {
		out = append(out, Peak{"bf16, VDPBF16PS", sums * 32 * 2, false, peakPairsAVX512})
	}
	if cpu.X86.HasAVX512VNNI {
		out = append(out, Peak{"int8, VPDPBUSD", sums * 64 * 2, true, peakBytesAVX512})
	}
	if cpu.X86.HasAMXTile && (cpu.X86.HasAMXBF16 || cpu.X86.HasAMXInt8) && tilesPermitted() {
		if cpu.X86.HasAMXBF16 {
			out = append(out, Peak{"bf16, AMX tiles", tiles * 16 * 16 * 32 * 2, false, peakPairsAMX})
		}
		if cpu.X86.HasAMXInt8 {
			out = append(out, Peak{"int8, AMX tiles", tiles * 16 * 16 * 64 * 2, true, peakBytesAMX})
		}
	}
	return out
}
