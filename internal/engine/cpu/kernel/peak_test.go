package kernel

import "testing"

// Every loop ends, and has instructions that this machine knows.
func TestPeaks(t *testing.T) {
	peaks := Peaks()
	if (Best() == Portable) != (len(peaks) == 0) {
		t.Fatalf("%d peaks at level %s", len(peaks), Best())
	}
	for i, p := range peaks {
		t.Run(p.Name, func(t *testing.T) {
			if p.Ops <= 0 || i == 0 && (p.Bytes || p.Tiles) {
				t.Errorf("%+v", p)
			}
			p.Run(0) // one turn
			p.Run(1000)
		})
	}
}

func BenchmarkPeaks(b *testing.B) {
	for _, p := range Peaks() {
		b.Run(p.Name, func(b *testing.B) {
			const turns = 2000
			for b.Loop() {
				p.Run(turns)
			}
			b.ReportMetric(float64(p.Ops)*turns*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gop/s")
		})
	}
}
