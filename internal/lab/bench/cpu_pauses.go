package bench

import (
	"context"
	"runtime"
	"runtime/metrics"
	"time"
)

// pauseMetric counts how long the collector stopped the program, by duration.
const pauseMetric = "/sched/pauses/total/gc:seconds"

// pauses returns the garbage collector's pauses of the process so far.
func pauses() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: pauseMetric}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindFloat64Histogram {
		return nil // this version of Go does not have it
	}
	return s[0].Value.Float64Histogram()
}

// pausesSince returns quantiles of the pauses after an earlier reading, in milliseconds,
// and their number. A quantile is the upper end of its bucket.
func pausesSince(before *metrics.Float64Histogram) Sample {
	after := pauses()
	if before == nil || after == nil {
		return nil
	}
	counts := make([]uint64, len(after.Counts))
	for i := range counts {
		counts[i] = after.Counts[i] - before.Counts[i]
	}
	return quantilesOf(counts, after.Buckets)
}

// quantilesOf reads a histogram in seconds: counts[i] lie between buckets[i] and
// buckets[i+1].
func quantilesOf(counts []uint64, buckets []float64) Sample {
	var total uint64
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return Sample{keyPauses: 0}
	}
	at := func(q float64) float64 {
		var sum uint64
		for i, n := range counts {
			if sum += n; n > 0 && float64(sum) >= q*float64(total) {
				return buckets[i+1] * 1e3
			}
		}
		return 0
	}
	return Sample{keyPauses: float64(total), keyPause + "_p50": at(0.5), keyPause + "_p99": at(0.99), keyPause + "_max": at(1)}
}

const (
	keyPauses = "pauses"
	keyPause  = "pause_ms"
)

func pauseColumns() []Column {
	return []Column{
		{keyPauses, "pauses", "two for each collection"},
		{keyPause + "_p50", "p50 ms", ""}, {keyPause + "_p99", "p99 ms", ""},
		{keyPause + "_max", "longest ms", "of the runtime's own histogram, the upper end of a bucket"},
	}
}

// collectEvery is the interval of forced collections.
const collectEvery = 10 * time.Millisecond

// whileCollecting runs f while collections are forced continuously, and returns their
// pauses.
func whileCollecting(ctx context.Context, f func() error) (Sample, error) {
	before := pauses()
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(collectEvery)
		defer tick.Stop()
		for {
			runtime.GC()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	err := f()
	stop()
	<-ended
	return pausesSince(before), err
}
