package pda

import (
	"slices"
	"sync"
)

// Automaton is a compiled grammar.
type Automaton struct {
	class   [256]uint8 // bytes that no edge tells apart share a class
	classes int
	// table holds, per state and class, the next state, or none, or for rules that
	// stayed nondeterministic -2-i for targets[i].
	table     []int32
	targets   [][]int32
	callStart []int32 // per state, into calls; one more at the end
	calls     []nfaCall
	flags     []stateFlag
	rules     []ruleInfo // 0 is the root
	ruleOf    []int32    // per state
	follow    []ByteSet  // per rule
	bytes     int

	once  sync.Once
	short []int32 // by state, see Shortest
}

type ruleInfo struct {
	start    int32
	nullable bool
}

type stateFlag uint8

const (
	accepts stateFlag = 1 << iota // the rule may end here
	reads                         // there are byte edges
	called                        // there are calls
)

const none = -1

// Compile turns the rules that root reaches into an automaton. Code points outside
// spellable are taken out of every set; nil keeps all. The errors are ErrTooLarge
// and ErrImpossible. Compile adds helper rules to rules.
func Compile(rules *Rules, root RuleID, spellable []Range, lim Limits) (*Automaton, error) {
	n, err := buildNFA(rules, root, spellable, lim)
	if err != nil {
		return nil, err
	}
	live := n.backward(false)
	if !live[n.rules[0].start] {
		return nil, ErrImpossible
	}
	n.prune(live)
	return assemble(n, lim)
}

func assemble(n *nfa, lim Limits) (*Automaton, error) {
	empty := n.backward(true)
	a := &Automaton{rules: make([]ruleInfo, len(n.rules))}
	d := &determinizer{n: n, work: lim.Work, most: lim.Work, minimize: minimizeWork, mark: make([]int32, len(n.states))}
	done := make([]bool, len(n.rules))
	queue := []int32{0}
	done[0] = true
	var all []dfaState // with targets across rules
	for len(queue) > 0 {
		r := queue[0]
		queue = queue[1:]
		base := int32(len(all))
		a.rules[r] = ruleInfo{base, empty[n.rules[r].start]}
		one := d.rule(n.rules[r])
		if one == nil {
			return nil, tooLarge("steps", 2*lim.Work)
		}
		for _, st := range one.states {
			for i := range st.bytes {
				st.bytes[i].to += base
			}
			for i, c := range st.calls {
				st.calls[i].to += base
				if !done[c.rule] {
					done[c.rule] = true
					queue = append(queue, c.rule)
				}
			}
			all = append(all, st)
			a.ruleOf = append(a.ruleOf, r)
		}
		if len(all) > lim.States {
			return nil, tooLarge("states", lim.States)
		}
	}
	a.findClasses(all)
	if len(all)*a.classes > lim.Table {
		return nil, tooLarge("entries of the transition table", lim.Table)
	}
	if !a.fill(all, lim.Table) {
		return nil, tooLarge("entries of the transition table", lim.Table)
	}
	a.findFollow()
	return a, nil
}

func (a *Automaton) findClasses(all []dfaState) {
	var starts [257]bool
	for i := range all {
		for _, e := range all[i].bytes {
			starts[e.lo], starts[int(e.hi)+1] = true, true
		}
	}
	for b := 1; b < 256; b++ {
		if starts[b] {
			a.classes++
		}
		a.class[b] = uint8(a.classes)
	}
	a.classes++
}

// fill reports whether the table and its lists of targets stay within limit.
func (a *Automaton) fill(all []dfaState, limit int) bool {
	a.table = make([]int32, len(all)*a.classes)
	a.callStart = make([]int32, 0, len(all)+1)
	a.flags = make([]stateFlag, len(all))
	used := len(a.table)
	byClass := make([][]int32, a.classes)
	for s, st := range all {
		for i := range byClass {
			byClass[i] = byClass[i][:0]
		}
		for _, e := range st.bytes {
			for c := int(a.class[e.lo]); c <= int(a.class[e.hi]); c++ {
				byClass[c] = append(byClass[c], e.to)
			}
			a.flags[s] |= reads
		}
		for c, to := range byClass {
			used += a.connect(&a.table[s*a.classes+c], to)
		}
		if used > limit {
			return false
		}
		a.callStart = append(a.callStart, int32(len(a.calls)))
		a.calls = append(a.calls, st.calls...)
		if len(st.calls) > 0 {
			a.flags[s] |= called
		}
		if st.accept {
			a.flags[s] |= accepts
		}
	}
	a.callStart = append(a.callStart, int32(len(a.calls)))
	a.bytes = 4*(used+2*len(a.callStart)+2*len(a.calls)) + len(a.flags) + 40*len(a.rules) + 24*len(a.targets)
	return true
}

// connect sets an entry of the table and returns how many targets it had to list.
func (a *Automaton) connect(entry *int32, to []int32) (listed int) {
	if len(to) > 1 {
		slices.Sort(to)
		to = slices.Compact(to)
	}
	switch len(to) {
	case 0:
		*entry = none
		return 0
	case 1:
		*entry = to[0]
		return 0
	}
	last := len(a.targets) - 1
	if last < 0 || !slices.Equal(a.targets[last], to) { // neighbors are often alike
		a.targets = append(a.targets, slices.Clone(to))
		last++
		listed = len(to)
	}
	*entry = int32(-2 - last)
	return listed
}

// States is the number of states; items hold smaller numbers.
func (a *Automaton) States() int { return len(a.flags) }

// Rules is the number of rules that were left after copying small ones.
func (a *Automaton) Rules() int { return len(a.rules) }

// Bytes is about how much memory the automaton takes.
func (a *Automaton) Bytes() int { return a.bytes }

// Reads reports whether a state reads a byte.
func (a *Automaton) Reads(state int32) bool { return a.flags[state]&reads != 0 }

// Only returns the single byte that a state reads, if there is just one.
func (a *Automaton) Only(state int32) (b byte, ok bool) {
	row := a.table[int(state)*a.classes:][:a.classes]
	found := 0
	for i, class := range a.class {
		if row[class] != none {
			b = byte(i)
			found++
		}
	}
	return b, found == 1
}
