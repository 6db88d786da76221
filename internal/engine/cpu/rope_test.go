package cpu

import "testing"

// Pairs turn by the position of their section, and by the one that there is without sections.
func TestSections(t *testing.T) {
	freqs := []float32{1, 0.5, 0.25, 0.125, 0.0625, 0.03125}
	turn := func(r rope, at [3]int) (cos, sin []float32) {
		cos, sin = make([]float32, len(freqs)), make([]float32, len(freqs))
		r.angles(cos, sin, at)
		return cos, sin
	}
	for _, sections := range [][3]int{{1, 2, 3}, {0, 6, 0}, {2, 2, 2}} {
		cos, sin := turn(rope{invFreq: freqs, factor: 1.5, sections: sections}, [3]int{11, 22, 33})
		pair := 0
		for i, n := range sections {
			at := 11 * (i + 1)
			oneCos, oneSin := turn(rope{invFreq: freqs, factor: 1.5}, [3]int{at, 0, 0})
			for range n {
				if cos[pair] != oneCos[pair] || sin[pair] != oneSin[pair] {
					t.Errorf("sections %v: pair %d does not turn by %d", sections, pair, at)
				}
				pair++
			}
		}
	}
}
