package kernel

// hasFeatureBF16 is whether the processor has BFDOT and BFMMLA (FEAT_BF16).
var hasFeatureBF16 = detectBF16()

func (l Level) hasBF16() bool { return l == NEON && hasFeatureBF16 }

// Nobody has measured it: BFMMLA does four times the multiply-adds of float32 in an
// instruction, but roundings should not come by themselves before that is known to be
// faster.
func (l Level) fastBF16() bool { return false }

func (l Level) roundBF16(dst []uint16, src []float32) {
	if l == NEON {
		l.narrowBF16(dst, src)
	} else {
		roundBF16Go(dst, src)
	}
}

// pairsBF16 is a product in parts: as many rows at a time as there is a kernel for.
func (l Level) pairsBF16(c *CallBF16) {
	for row := 0; row < len(c.Dst); {
		switch rest := len(c.Dst) - row; {
		case rest >= 6:
			dotsBF16x6NEON(c, row, 0)
			dotsBF16x6NEON(c, row, Width/2)
			row += 6
		case rest >= 4:
			dotsBF16x4NEON(c, row, 0)
			dotsBF16x4NEON(c, row, Width/2)
			row += 4
		default:
			dotsBF16[rest](c, row, 0)
			row += rest
		}
	}
}

func (l Level) tilesBF16(int, *CallBF16) { panic("no tiles") }
