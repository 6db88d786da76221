package pda

import "math"

const unreached = math.MaxInt32

// lengths computes, per state, the fewest bytes to the end of its rule.
func (a *Automaton) lengths() []int32 {
	short := make([]int32, len(a.flags))
	for s, f := range a.flags {
		if short[s] = unreached; f&accepts != 0 {
			short[s] = 0
		}
	}
	// Calls make lengths depend on one another in any order, so until none changes.
	// Later states tend to be nearer to the end. If that takes too long, lengths are
	// too great or, where none was found, without limit.
	n := len(short)
	untilStable(n, func(i int) bool {
		s := int32(n - 1 - i)
		best := a.length(s, short)
		changed := best < short[s]
		short[s] = best
		return changed
	})
	return short
}

func (a *Automaton) length(s int32, short []int32) int32 {
	best := short[s]
	better := func(n, m int32) {
		if n != unreached && m != unreached && n+m < best {
			best = n + m
		}
	}
	if a.flags[s]&reads != 0 {
		last := int32(none)
		for _, to := range a.table[int(s)*a.classes:][:a.classes] {
			switch {
			case to >= 0 && to != last:
				better(1, short[to])
			case to < none:
				for _, t := range a.targets[-2-to] {
					better(1, short[t])
				}
			}
			last = to
		}
	}
	for _, c := range a.calls[a.callStart[s]:a.callStart[s+1]] {
		better(short[a.rules[c.rule].start], short[c.to])
	}
	return best
}

// Shortest returns the fewest bytes that complete a text which has been read up to
// items; there must be some.
func (a *Automaton) Shortest(items []Item) int {
	a.once.Do(func() { a.short = a.lengths() })
	// The fewest bytes to leave each frame are known once it is settled: Dijkstra's
	// algorithm, with few frames and no heap.
	open := map[*Frame]int{}
	reach := func(it Item, cost int) {
		cost += int(a.short[it.State])
		if have, ok := open[it.Frame]; !ok || cost < have {
			open[it.Frame] = cost
		}
	}
	for _, it := range items {
		reach(it, 0)
	}
	settled := map[*Frame]bool{}
	for {
		var next *Frame
		best := math.MaxInt
		for f, cost := range open {
			if cost < best && !settled[f] {
				next, best = f, cost
			}
		}
		if next == nil || len(next.callers) == 0 {
			return best
		}
		settled[next] = true
		for _, c := range next.callers {
			reach(c, best)
		}
	}
}
