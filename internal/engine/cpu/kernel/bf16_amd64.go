package kernel

import "golang.org/x/sys/cpu"

func (l Level) hasBF16() bool { return l == AMX || l == AVX512 && cpu.X86.HasAVX512BF16 }

// vendor is the name of the processor's maker, four letters in each.
func vendor() (b, d, c uint32)

func intel() bool {
	b, d, c := vendor()
	return b == 'G'|'e'<<8|'n'<<16|'u'<<24 && d == 'i'|'n'<<8|'e'<<16|'I'<<24 && c == 'n'|'t'<<8|'e'<<16|'l'<<24
}

// Intel's VDPBF16PS takes two cycles, in which other units do four fused
// multiply-adds of as many lanes; AMD's is as fast as these.
func (l Level) fastBF16() bool {
	return l == AMX || l.hasBF16() && !intel()
}

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
