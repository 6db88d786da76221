package metrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/metrics"
)

// BenchmarkWorkerEnds times the end of one worker's series among those of many.
func BenchmarkWorkerEnds(b *testing.B) {
	for _, n := range []int{16, 128, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := metrics.NewRegistry()
			begin := func(i int) *metrics.Worker {
				w := metrics.NewWorker(r, metrics.WorkerLabels{Worker: fmt.Sprint("worker-", i)}, time.Now())
				for _, state := range []string{"free", "active", "cached", "incoming", "outgoing", "quarantined"} {
					w.Blocks(state, 1)
				}
				return w
			}
			for i := range n {
				begin(i)
			}
			for b.Loop() {
				begin(n).Close()
			}
		})
	}
}
