package wire

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// maxSamples bounds the samples that are kept of an answer.
const maxSamples = 100_000

// Metrics are samples in the text format of Prometheus, by the name of their metric.
type Metrics map[string][]Sample

// Sample is one value of a metric.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// ParseMetrics reads samples for which want reports true. Lines that it cannot read are left
// out: what a metric lacks then is not zero, but unknown.
func ParseMetrics(b []byte, want func(name string) bool) Metrics {
	m, n := Metrics{}, 0
	for line := range bytes.Lines(b) {
		name, s, ok := parseSample(string(bytes.TrimSpace(line)), want)
		if !ok {
			continue
		}
		if n++; n > maxSamples {
			break
		}
		m[name] = append(m[name], s)
	}
	return m
}

func parseSample(line string, want func(string) bool) (name string, s Sample, ok bool) {
	if line == "" || line[0] == '#' {
		return "", s, false
	}
	end := strings.IndexAny(line, "{ \t")
	if end <= 0 || !want(line[:end]) {
		return "", s, false
	}
	name, rest := line[:end], line[end:]
	if rest[0] == '{' {
		if s.Labels, rest, ok = parseLabels(rest[1:]); !ok {
			return "", s, false
		}
	}
	words := strings.Fields(rest) // a value, and perhaps a time
	if len(words) == 0 || len(words) > 2 {
		return "", s, false
	}
	v, err := strconv.ParseFloat(words[0], 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return "", s, false
	}
	s.Value = v
	return name, s, true
}

// parseLabels reads labels up to the brace that ends them.
func parseLabels(s string) (labels map[string]string, rest string, ok bool) {
	labels = map[string]string{}
	for {
		s = strings.TrimLeft(s, " \t,")
		if s == "" {
			return nil, "", false
		}
		if s[0] == '}' {
			return labels, s[1:], true
		}
		name, after, found := strings.Cut(s, "=")
		after = strings.TrimLeft(after, " \t")
		if !found || after == "" || after[0] != '"' {
			return nil, "", false
		}
		var value strings.Builder
		i := 1
		for ; i < len(after) && after[i] != '"'; i++ {
			if after[i] == '\\' && i+1 < len(after) {
				if i++; after[i] == 'n' {
					value.WriteByte('\n')
					continue
				}
			}
			value.WriteByte(after[i])
		}
		if i == len(after) {
			return nil, "", false
		}
		labels[strings.TrimSpace(name)] = value.String()
		s = after[i+1:]
	}
}

// first returns the samples under the first of the names that has any.
func (m Metrics) first(names []string) []Sample {
	for _, name := range names {
		if s := m[name]; len(s) > 0 {
			return s
		}
	}
	return nil
}

// Sum adds the samples up under the first of the spellings that is there, which adds up the
// data-parallel ranks of a server; nil if none is there.
func (m Metrics) Sum(names ...string) *float64 {
	samples := m.first(names)
	if samples == nil {
		return nil
	}
	sum := 0.0
	for _, s := range samples {
		sum += s.Value
	}
	return &sum
}

// Int is as Sum, for counts. A sum that is no count is unknown.
func (m Metrics) Int(names ...string) *int {
	sum := m.Sum(names...)
	if sum == nil || *sum < 0 || *sum > math.MaxInt32 {
		return nil
	}
	n := int(*sum)
	return &n
}

// Count is as Sum, for counters. A sum that is no count is unknown.
func (m Metrics) Count(names ...string) *int64 {
	sum := m.Sum(names...)
	if sum == nil || *sum < 0 || *sum > 1<<53 {
		return nil
	}
	n := int64(*sum)
	return &n
}

// Share is the mean over the ranks, for shares of 0 to 1; nil if none is there.
func (m Metrics) Share(names ...string) *float64 {
	samples := m.first(names)
	if samples == nil {
		return nil
	}
	mean := *m.Sum(names...) / float64(len(samples))
	mean = min(max(mean, 0), 1)
	return &mean
}

// Largest returns the largest sample, for what is the same on all ranks; nil if none is there.
func (m Metrics) Largest(names ...string) *float64 {
	var most *float64
	for _, s := range m.first(names) {
		if most == nil || s.Value > *most {
			most = &s.Value
		}
	}
	return most
}

// Label returns the values of a label over the samples under the first of the spellings that
// is there.
func (m Metrics) Label(label string, names ...string) []string {
	var values []string
	for _, s := range m.first(names) {
		if v, ok := s.Labels[label]; ok {
			values = append(values, v)
		}
	}
	return values
}
