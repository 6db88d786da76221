package grammar

import (
	"slices"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// walker compares the token trie with an automaton. It belongs to one goroutine at
// a time.
type walker struct {
	scratch pda.Scratch
	levels  [][]pda.Item // the items after each byte of the path
	ids     []uint32     // tokens that fit
	partial bool         // that became too much
	visited int          // nodes
	nodes   []int32      // nodes at which the rule at the bottom can end, see goesOn
}

// walkBudget bounds the cost of a walk to some tenths of a second. Grammars that are
// not made for it stay far below.
const walkBudget = 5_000_000

// begin makes the walker ready for the next part of a mask.
func (w *walker) begin() {
	w.ids, w.nodes, w.partial, w.visited = w.ids[:0], w.nodes[:0], false, 0
	w.scratch.Spend()
}

// cost is what was spent since begin.
func (w *walker) cost() int { return w.visited + w.scratch.Spent() }

// walk reads the tokens below node, from items that stand there. A rule whose frame
// has no callers is the bottom; follow is what can come after it.
func (w *walker) walk(a *pda.Automaton, t *trie, node int32, items []pda.Item, follow *pda.ByteSet) {
	base := t.depth[node]
	if len(w.levels) == 0 {
		w.levels = append(w.levels, nil)
	}
	w.levels[0] = append(w.levels[0][:0], items...)
	for n, end := node+1, t.end[node]; n < end; {
		w.visited++
		d := int(t.depth[n] - base)
		if d == len(w.levels) {
			w.levels = append(w.levels, nil)
		}
		out, ended, ok := a.Step(&w.scratch, w.levels[d][:0], w.levels[d-1], t.label[n])
		w.levels[d] = out
		if !ok || w.scratch.Spent() > walkBudget {
			w.partial = true
			return
		}
		if len(out) > 0 || ended {
			w.ids = append(w.ids, t.tokens(n)...)
		}
		if ended && t.goesOn(n, follow) {
			w.nodes = append(w.nodes, n)
		}
		if len(out) == 0 {
			n = t.end[n]
		} else {
			n++
		}
	}
}

// fromState finds the tokens that fit at a state.
func (w *walker) fromState(a *pda.Automaton, t *trie, state int32) {
	w.begin()
	w.walk(a, t, 0, []pda.Item{{State: state, Frame: &pda.Frame{}}}, a.Follow(state))
}

// fromEnds finds the tokens below the ends of a called rule whose rest fits at the
// state that the rule returns to.
func (w *walker) fromEnds(a *pda.Automaton, t *trie, from *ends, state int32) {
	w.begin()
	items, ended, ok := a.Close(&w.scratch, nil, pda.Item{State: state, Frame: &pda.Frame{}})
	w.partial = !ok
	follow := a.Follow(state)
	for _, n := range from.nodes {
		if w.partial {
			break
		}
		w.walk(a, t, n, items, follow)
		if ended && t.goesOn(n, follow) { // the state's own rule can end without reading
			w.nodes = append(w.nodes, n)
		}
	}
	slices.Sort(w.nodes)
	w.nodes = slices.Compact(w.nodes)
	slices.Sort(w.ids)
	w.ids = slices.Compact(w.ids)
}
