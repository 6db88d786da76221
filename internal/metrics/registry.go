package metrics

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The types of metrics. The aliases let other packages name them without importing the
// Prometheus client.
type (
	// Counter only goes up.
	Counter = prometheus.Counter
	// Gauge goes up and down.
	Gauge = prometheus.Gauge
	// Observer is a histogram that values are observed into.
	Observer = prometheus.Observer
	// CounterVec is a counter for each combination of label values.
	CounterVec = prometheus.CounterVec
	// GaugeVec is a gauge for each combination of label values.
	GaugeVec = prometheus.GaugeVec
	// HistogramVec is a histogram for each combination of label values.
	HistogramVec = prometheus.HistogramVec
)

// Registry holds the metrics of one process, or of one test. There is no global registry.
type Registry struct {
	prom *prometheus.Registry

	mu       sync.Mutex
	families map[string]family // by metric name
}

// family is one metric name with its labels. Asking for it twice returns the same
// collector, so that bundles of many workers share it.
type family struct {
	labels    []string
	collector prometheus.Collector
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{prom: prometheus.NewRegistry(), families: map[string]family{}}
}

// Handler serves the metrics in Prometheus text format.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.prom, promhttp.HandlerOpts{
		// One collector that fails must not hide all the others.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
}

// counter returns the counter of that name. Asking for a name again with other labels or
// as another type is a programming error and panics.
func (r *Registry) counter(name, help string, labels ...string) *CounterVec {
	return get(r, name, labels, func() *CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	})
}

// gauge returns the gauge of that name; see Registry.counter.
func (r *Registry) gauge(name, help string, labels ...string) *GaugeVec {
	return get(r, name, labels, func() *GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	})
}

// histogram returns the histogram of that name; see Registry.counter. The
// bounds of the first call stay.
func (r *Registry) histogram(name, help string, bounds []float64, labels ...string) *HistogramVec {
	return get(r, name, labels, func() *HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds}, labels)
	})
}

// gaugeFunc returns a gauge whose values are computed whenever metrics are read; see
// Registry.counter.
func (r *Registry) gaugeFunc(name, help string, labels ...string) *FuncVec {
	return r.computed(prometheus.GaugeValue, name, help, labels)
}

// counterFunc returns a counter whose values are computed whenever metrics are read; see
// Registry.counter.
func (r *Registry) counterFunc(name, help string, labels ...string) *FuncVec {
	return r.computed(prometheus.CounterValue, name, help, labels)
}

func (r *Registry) computed(kind prometheus.ValueType, name, help string, labels []string) *FuncVec {
	return get(r, name, labels, func() *FuncVec {
		return &FuncVec{desc: prometheus.NewDesc(name, help, labels, nil), kind: kind, labels: labels}
	})
}

func get[C prometheus.Collector](r *Registry, name string, labels []string, create func() C) C {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f, ok := r.families[name]; ok {
		c, ok := f.collector.(C)
		if !ok || !slices.Equal(f.labels, labels) {
			panic(fmt.Sprintf("metrics: %s with labels %q is registered as %T with labels %q", name, labels, f.collector, f.labels))
		}
		return c
	}
	c := create()
	r.prom.MustRegister(c) // panics for an invalid name, a programming error
	r.families[name] = family{labels, c}
	return c
}

// forget removes every series that has all of these label values.
func (r *Registry) forget(match prometheus.Labels) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.families {
		all := true
		for name := range match {
			all = all && slices.Contains(f.labels, name)
		}
		one, isOne := f.collector.(interface{ Delete(prometheus.Labels) bool })
		some, isSome := f.collector.(interface {
			DeletePartialMatch(prometheus.Labels) int
		})
		switch {
		case !all:
		case isOne && len(match) == len(f.labels): // found without looking at all series of others
			one.Delete(match)
		case isSome:
			some.DeletePartialMatch(match)
		}
	}
}

// FuncVec is a gauge or a counter for each combination of label values, computed when
// metrics are read.
type FuncVec struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	labels []string

	mu     sync.Mutex
	series []funcSeries
}

type funcSeries struct {
	values []string
	f      func() float64
}

// Set makes f compute the value for these label values, in place of an earlier function.
// f is called from any goroutine and must not block.
func (v *FuncVec) Set(f func() float64, labelValues ...string) {
	if len(labelValues) != len(v.labels) {
		panic(fmt.Sprintf("metrics: %d label values for labels %q", len(labelValues), v.labels))
	}
	labelValues = slices.Clone(labelValues)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.series = slices.DeleteFunc(v.series, func(s funcSeries) bool { return slices.Equal(s.values, labelValues) })
	v.series = append(v.series, funcSeries{labelValues, f})
}

// DeletePartialMatch removes the series that have all of these label values.
func (v *FuncVec) DeletePartialMatch(match prometheus.Labels) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := len(v.series)
	v.series = slices.DeleteFunc(v.series, func(s funcSeries) bool {
		for name, value := range match {
			i := slices.Index(v.labels, name)
			if i < 0 || s.values[i] != value {
				return false
			}
		}
		return true
	})
	return before - len(v.series)
}

// Describe implements prometheus.Collector.
func (v *FuncVec) Describe(ch chan<- *prometheus.Desc) { ch <- v.desc }

// Collect implements prometheus.Collector.
func (v *FuncVec) Collect(ch chan<- prometheus.Metric) {
	v.mu.Lock()
	series := slices.Clone(v.series)
	v.mu.Unlock()
	for _, s := range series {
		ch <- prometheus.MustNewConstMetric(v.desc, v.kind, s.f(), s.values...)
	}
}
