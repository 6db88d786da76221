package kernel

import (
	"testing"
	"time"
)

// Every loop ends, takes time in proportion to its turns, and is fast enough to be a
// limit: one lane at a time would not reach a billion operations a second.
func TestPeaks(t *testing.T) {
	peaks := Peaks()
	if (Best() == Portable) != (len(peaks) == 0) {
		t.Fatalf("%d peaks at level %s", len(peaks), Best())
	}
	for _, p := range peaks {
		t.Run(p.Name, func(t *testing.T) {
			p.Run(0) // one turn
			const turns = 20000
			best := time.Hour
			for range 20 {
				begin := time.Now()
				p.Run(turns)
				best = min(best, time.Since(begin))
			}
			if rate := float64(p.Ops) * turns / best.Seconds(); rate < 4e9 || rate > 1e14 {
				t.Errorf("%.3g operations a second", rate)
			}
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
