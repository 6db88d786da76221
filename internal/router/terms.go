package router

import "github.com/dynctl/dynctl/internal/cluster"

// Terms are the costs of some candidates, each a sum of named terms.
type Terms struct {
	candidates int
	names      []string
	values     [][]float64 // by term, then by candidate; those beyond names are spare memory
}

// Add adds a term and returns its value for each candidate. They are 0 until the caller
// sets them.
func (t *Terms) Add(name string) []float64 {
	at := len(t.names)
	t.names = append(t.names, name)
	if at == len(t.values) {
		t.values = append(t.values, nil)
	}
	t.values[at] = zeroed(t.values[at], t.candidates)
	return t.values[at]
}

// reset removes all terms and prepares for n candidates.
func (t *Terms) reset(n int) { t.candidates, t.names = n, t.names[:0] }

// sums adds up the terms of each candidate, in their order. It uses the memory of into.
func (t *Terms) sums(into []float64) []float64 {
	into = zeroed(into, t.candidates)
	for _, values := range t.values[:len(t.names)] {
		for i, v := range values {
			into[i] += v
		}
	}
	return into
}

// of lists the terms of one candidate.
func (t *Terms) of(candidate int) []cluster.CostTerm {
	out := make([]cluster.CostTerm, len(t.names))
	for k, name := range t.names {
		out[k] = cluster.CostTerm{Name: name, Value: t.values[k][candidate]}
	}
	return out
}

// zeroed returns n zeros, in the memory of s if that is large enough.
func zeroed(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	s = s[:n]
	clear(s)
	return s
}
