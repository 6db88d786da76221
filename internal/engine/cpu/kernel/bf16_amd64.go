package kernel

import "golang.org/x/sys/cpu"

func (l Level) hasBF16() bool { return l == AMX || l == AVX512 && cpu.X86.HasAVX512BF16 }

func (l Level) roundBF16(dst []uint16, src []float32) {
	if l >= AVX512 {
		roundBF16AVX512(&dst[0], &src[0], len(dst))
	} else {
		roundBF16Go(dst, src)
	}
}

func (l Level) pairsBF16(c *CallBF16) { pairsAVX512[len(c.Dst)](c) }

func (l Level) tilesBF16(tiles int, c *CallBF16) {
	if tiles == 1 {
		tilesBF16x1AMX(c)
	} else {
		tilesBF16x2AMX(c)
	}
}
