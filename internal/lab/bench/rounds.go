package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Sample holds the values that one run of a case measured, by column key.
type Sample map[string]float64

// Case is one row of a table.
type Case struct {
	Name string
	// Run measures once. No other case runs at the same time.
	Run func(ctx context.Context) (Sample, error)
}

// turns bounds how often the cases of a table run.
type turns struct {
	rounds int
	// limit ends the rounds: no further round begins if it would end later. The first
	// round is always complete.
	limit time.Duration
}

// results are the samples of all rounds, by case.
type results struct {
	names  []string
	rounds []map[string]Sample
}

// takeTurns runs every case once a round. Every second round runs backwards, so that a
// drift of the machine affects all cases alike.
func (s *session) takeTurns(ctx context.Context, what string, t turns, cases []Case) (*results, error) {
	r := &results{}
	for _, c := range cases {
		r.names = append(r.names, c.Name)
	}
	begin := time.Now()
	var longest time.Duration
	for n := range t.rounds {
		if n > 0 && time.Since(begin)+longest > t.limit {
			s.say("%s: time is up after %d of %d rounds", what, n, t.rounds)
			break
		}
		s.say("%s: round %d of %d, %d cases", what, n+1, t.rounds, len(cases))
		order := slices.Clone(cases)
		if n%2 == 1 {
			slices.Reverse(order)
		}
		round, started := map[string]Sample{}, time.Now()
		for _, c := range order {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			sample, err := c.Run(ctx)
			if err != nil {
				return nil, fmt.Errorf("measure %s, %s: %w", what, c.Name, err)
			}
			round[c.Name] = sample
		}
		r.rounds = append(r.rounds, round)
		longest = max(longest, time.Since(started))
	}
	return r, nil
}

// derive adds a quantity of a case that is computed from the samples of one round. f
// returns false if the round has none.
func (r *results) derive(name, key string, f func(round map[string]Sample) (float64, bool)) {
	for _, round := range r.rounds {
		if v, ok := f(round); ok && round[name] != nil {
			round[name][key] = v
		}
	}
}

// ratio adds column key to a case: its value of column of, divided by another case's
// value and multiplied by scale. A case has no ratio to itself.
func (r *results) ratio(name, key, of, by string, scale float64) {
	if name == by {
		return
	}
	r.derive(name, key, func(round map[string]Sample) (float64, bool) {
		v, ok := round[name][of]
		base, ok2 := round[by][of]
		return v / base * scale, ok && ok2 && base != 0
	})
}

// difference adds column key to a case: its value of column of minus another case's
// value.
func (r *results) difference(name, key, of, less string) {
	r.derive(name, key, func(round map[string]Sample) (float64, bool) {
		v, ok := round[name][of]
		base, ok2 := round[less][of]
		return v - base, ok && ok2
	})
}

// figure summarizes one column of one case over all rounds.
func (r *results) figure(name, key string) Figure {
	var values []float64
	for _, round := range r.rounds {
		if v, ok := round[name][key]; ok {
			values = append(values, v)
		}
	}
	return Summarize(values)
}

// table makes a table with a row for each of the named cases, or for all if none is
// named.
func (r *results) table(name, about string, columns []Column, cases ...string) Table {
	if len(cases) == 0 {
		cases = r.names
	}
	t := Table{Name: name, About: about, Columns: columns}
	for _, c := range cases {
		row := Row{Name: c, Figures: map[string]Figure{}}
		for _, col := range columns {
			if f := r.figure(c, col.Key); f.Repetitions > 0 {
				row.Figures[col.Key] = f
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
