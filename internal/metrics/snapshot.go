package metrics

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// HistogramSnapshotVec is a histogram for each combination of label values, counted
// outside of this package. Its series are replaced as a whole.
type HistogramSnapshotVec struct {
	desc   *prometheus.Desc
	labels []string
	bounds []float64

	mu     sync.Mutex
	series map[string]snapshotSeries
}

type snapshotSeries struct {
	values []string // of the labels
	counts []uint64 // one per bound, and one for values above all bounds
	sum    float64
}

// histogramSnapshot returns the histogram of that name; see Registry.counter. The
// bounds of the first call stay.
func (r *Registry) histogramSnapshot(name, help string, bounds []float64, labels ...string) *HistogramSnapshotVec {
	return get(r, name, labels, func() *HistogramSnapshotVec {
		return &HistogramSnapshotVec{
			desc: prometheus.NewDesc(name, help, labels, nil), labels: labels, bounds: bounds, series: map[string]snapshotSeries{},
		}
	})
}

// Set replaces a series: the counts by bucket, one more than there are bounds, and the
// sum of all values. A wrong number of counts or label values is a programming error and
// ignored.
func (v *HistogramSnapshotVec) Set(counts []uint64, sum float64, values ...string) {
	if len(counts) != len(v.bounds)+1 || len(values) != len(v.labels) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.series[strings.Join(values, "\x00")] = snapshotSeries{slices.Clone(values), slices.Clone(counts), sum}
}

// DeletePartialMatch removes the series that have all of these label values and
// returns how many there were.
func (v *HistogramSnapshotVec) DeletePartialMatch(match prometheus.Labels) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, s := range v.series {
		all := true
		for i, name := range v.labels {
			if want, asked := match[name]; asked && s.values[i] != want {
				all = false
			}
		}
		if all {
			delete(v.series, key)
			n++
		}
	}
	return n
}

// Describe implements prometheus.Collector.
func (v *HistogramSnapshotVec) Describe(ch chan<- *prometheus.Desc) { ch <- v.desc }

// Collect implements prometheus.Collector.
func (v *HistogramSnapshotVec) Collect(ch chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.series {
		below := make(map[float64]uint64, len(v.bounds))
		total := uint64(0)
		for i, c := range s.counts {
			if total += c; i < len(v.bounds) {
				below[v.bounds[i]] = total
			}
		}
		ch <- prometheus.MustNewConstHistogram(v.desc, total, s.sum, below, s.values...)
	}
}
