package grammar

import (
	"runtime"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// walker compares the token trie with an automaton. Only one goroutine may use it at a
// time.
type walker struct {
	scratch pda.Scratch
	lazy    pda.Lazy
	levels  []pda.Place  // after each byte of the path
	room    [][]pda.Item // memory for them
	ids     []uint32     // tokens that fit
	partial bool         // incomplete: the walk became too expensive
	visited int          // nodes
	nodes   []int32      // nodes at which the rule at the bottom can end, see goesOn
}

// walkBudget bounds the cost of a walk to some tenths of a second. Grammars that are not
// malicious stay far below.
const walkBudget = 2_000_000

// yieldNodes is the number of nodes that are visited before the goroutine yields.
const yieldNodes = 2048

// begin readies the walker for the next part of a mask.
func (w *walker) begin(a *pda.Automaton) {
	w.ids, w.nodes, w.partial, w.visited = w.ids[:0], w.nodes[:0], false, 0
	w.scratch.Spend()
	w.lazy.Reset(a, &w.scratch)
}

// cost returns the cost since begin.
func (w *walker) cost() int { return w.visited + w.scratch.Spent() }

// walk reads the tokens below the nodes in from, which are sorted, from items that stand
// at each of them. It passes the trie once: a node reached from several nodes of from has
// the items of all. ended reports that the rule at the bottom can end at the nodes
// themselves. A rule whose frame has no callers is the bottom, and follow holds the bytes
// that can come after it.
func (w *walker) walk(a *pda.Automaton, t *trie, from []int32, items []pda.Item, ended bool, follow *pda.ByteSet) {
	start := w.lazy.At(items)
	n, live := int32(0), int32(0) // below live something may be read
	for next := 0; next < len(from) || n < live; {
		if n >= live { // on the way to the next of the nodes nothing is read
			n = from[next]
			w.blank(0, int(t.depth[n]))
		}
		if w.visited++; w.visited%yieldNodes == 0 {
			runtime.Gosched() // engines have priority
		}
		at, end, ok := w.step(t, n)
		if !ok || w.scratch.Spent() > walkBudget {
			w.partial = true
			return
		}
		if len(at.Items()) > 0 || end {
			w.ids = append(w.ids, t.tokens(n)...)
		}
		if next < len(from) && from[next] == n {
			next++
			at, end = w.lazy.Join(&at, &start), end || ended
		}
		if end && t.goesOn(n, follow) {
			w.nodes = append(w.nodes, n)
		}
		d := int(t.depth[n])
		w.blank(d, d+1)
		w.levels[d] = at
		if len(at.Items()) > 0 {
			live = max(live, t.end[n])
			n++
			continue
		}
		after := t.end[n]
		if next < len(from) && from[next] < after {
			after = from[next]
			w.blank(d, int(t.depth[after]))
		}
		n = after
	}
}

// step reads the byte of a node where its parent left off.
func (w *walker) step(t *trie, n int32) (at pda.Place, ended, ok bool) {
	d := int(t.depth[n])
	if d == 0 || len(w.levels[d-1].Items()) == 0 {
		return pda.Place{}, false, true
	}
	for d > len(w.room) {
		w.room = append(w.room, nil)
	}
	at, ended, ok = w.lazy.Step(&w.levels[d-1], t.label[n], w.room[d-1][:0])
	w.room[d-1] = at.Room(w.room[d-1])
	return at, ended, ok
}

// blank marks the levels from to to-1 as reading nothing.
func (w *walker) blank(from, to int) {
	for len(w.levels) < to {
		w.levels = append(w.levels, pda.Place{})
	}
	clear(w.levels[from:to])
}

// fromState finds the tokens that fit at a state.
func (w *walker) fromState(a *pda.Automaton, t *trie, state int32) {
	w.begin(a)
	w.walk(a, t, []int32{0}, []pda.Item{{State: state, Frame: &pda.Frame{}}}, false, a.Follow(state))
}

// fromEnds finds the tokens below the ends of a called rule whose rest fits at the state
// to which the rule returns.
func (w *walker) fromEnds(a *pda.Automaton, t *trie, from *ends, state int32) {
	w.begin(a)
	items, ended, ok := a.Close(&w.scratch, nil, pda.Item{State: state, Frame: &pda.Frame{}})
	if w.partial = !ok; ok { // if ended, the state's own rule can end without reading
		w.walk(a, t, from.nodes, items, ended, a.Follow(state))
	}
}
