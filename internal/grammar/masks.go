package grammar

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// masks caches the parts of token masks of one automaton. When they exceed the limit, all
// are dropped and computed again as needed.
type masks struct {
	a       *pda.Automaton
	t       *trie
	words   int
	limit   int64
	grown   func(bytes int64) // called with every change of size
	walkers *sync.Pool        // of *walker

	states []atomic.Pointer[fit]

	mu     sync.RWMutex // guards the rest
	below  map[belowKey]*fit
	sets   map[uint64][]*tokenSet // to store equal parts once
	places map[uint64][]*ends
	bytes  int64
	seed   maphash.Seed
}

// belowKey is a set of ends together with the state to which the rule that ends there
// returns.
type belowKey struct {
	from  *ends
	state int32
}

func (m *masks) init(c *Compiler, a *pda.Automaton, grown func(int64)) {
	m.a, m.t, m.words, m.walkers = a, c.trie, c.words, &c.walkers
	m.limit, m.grown, m.seed = c.options.MaskBytes, grown, maphash.MakeSeed()
	m.states = make([]atomic.Pointer[fit], a.States())
	m.reset()
}

func (m *masks) size() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.bytes
}

func (m *masks) full() bool { return m.size() > m.limit }

// reset drops all parts. Matchers that hold parts can still use them.
func (m *masks) reset() {
	for i := range m.states {
		m.states[i].Store(nil)
	}
	m.below = map[belowKey]*fit{}
	m.sets = map[uint64][]*tokenSet{}
	m.places = map[uint64][]*ends{}
	m.bytes = 0
}

// state returns the part of a state that reads, and subtracts the cost of making it from
// the budget.
func (m *masks) state(state int32, budget *int) *fit {
	if f := m.states[state].Load(); f != nil {
		return f
	}
	w := m.walkers.Get().(*walker)
	defer m.walkers.Put(w)
	w.fromState(m.a, m.t, state)
	*budget -= w.cost()
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.keep(w)
	m.states[state].Store(f)
	return f
}

// ended returns the part of a state to which a rule returns.
func (m *masks) ended(from *ends, state int32, budget *int) *fit {
	key := belowKey{from, state}
	m.mu.RLock()
	f, ok := m.below[key]
	m.mu.RUnlock()
	if ok {
		return f
	}
	w := m.walkers.Get().(*walker)
	defer m.walkers.Put(w)
	w.fromEnds(m.a, m.t, from, state)
	*budget -= w.cost()
	m.mu.Lock()
	defer m.mu.Unlock()
	f = m.keep(w)
	m.below[key] = f
	return f
}

// keep makes a part of a walker's results.
func (m *masks) keep(w *walker) *fit {
	before := m.bytes
	if m.bytes > m.limit {
		m.reset()
	}
	f := &fit{tokens: m.set(newTokenSet(w.ids, m.words)), partial: w.partial}
	if len(w.nodes) > 0 {
		f.ends = m.place(&ends{w.nodes})
	}
	m.bytes += 80             // the part and its entry
	m.grown(m.bytes - before) // takes the compiler's lock, after ours
	return f
}

func (m *masks) set(t *tokenSet) *tokenSet {
	h := t.hash(m.seed)
	for _, have := range m.sets[h] {
		if have.equal(t) {
			return have
		}
	}
	m.sets[h] = append(m.sets[h], t)
	m.bytes += int64(t.size())
	return t
}

func (m *masks) place(e *ends) *ends {
	h := e.hash(m.seed)
	for _, have := range m.places[h] {
		if slices.Equal(have.nodes, e.nodes) {
			return have
		}
	}
	e = &ends{slices.Clone(e.nodes)}
	m.places[h] = append(m.places[h], e)
	m.bytes += int64(e.size())
	return e
}
