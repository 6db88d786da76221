package bench

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/bench/stats"
)

// lagEvery is the time between two looks at the client's own punctuality.
const lagEvery = 20 * time.Millisecond

// lag measures how late goroutines of this process wake up: a busy client sees tokens late.
type lag struct{ late *stats.Sample } // milliseconds

func newLag(seed uint64) *lag { return &lag{stats.NewSample(phaseSampleLimit, seed)} }

// measure looks until ctx ends.
func (l *lag) measure(ctx context.Context) {
	for {
		before := time.Now()
		if !pause(ctx, lagEvery) {
			return
		}
		l.late.Add(ms(time.Since(before) - lagEvery))
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
