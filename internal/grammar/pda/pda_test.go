package pda

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// oracle matches expressions by computing where each can end, to a fixed point.
type oracle struct {
	rules   *Rules
	text    []rune
	ends    map[[2]int]map[int]bool // rule, start
	changed bool
}

func (o *oracle) rule(id RuleID, at int) map[int]bool {
	key := [2]int{int(id), at}
	if o.ends[key] == nil {
		o.ends[key] = map[int]bool{}
		o.changed = true
	}
	return o.ends[key]
}

func (o *oracle) from(e Expr, at int) map[int]bool {
	out := map[int]bool{}
	switch e := e.(type) {
	case literal:
		r := []rune(string(e))
		if len(o.text)-at >= len(r) && string(o.text[at:at+len(r)]) == string(e) {
			out[at+len(r)] = true
		}
	case runeSet:
		if at < len(o.text) {
			for _, r := range e {
				if r.Lo <= o.text[at] && o.text[at] <= r.Hi {
					out[at+1] = true
				}
			}
		}
	case seq:
		out[at] = true
		for _, p := range e {
			out = o.after(p, out)
		}
	case alt:
		for _, p := range e {
			for end := range o.from(p, at) {
				out[end] = true
			}
		}
	case *repeat:
		now := map[int]bool{at: true}
		for i := 0; i <= e.min+len(o.text)+1 && (e.max < 0 || i <= e.max); i++ {
			if i >= e.min {
				for end := range now {
					out[end] = true
				}
			}
			now = o.after(e.e, now)
		}
	case ref:
		for end := range o.rule(RuleID(e), at) {
			out[end] = true
		}
	case *Graph:
		reached := map[[2]int]bool{{0, at}: true}
		work := [][2]int{{0, at}}
		for len(work) > 0 {
			w := work[len(work)-1]
			work = work[:len(work)-1]
			for _, edge := range e.edges {
				if edge.from != w[0] {
					continue
				}
				for end := range o.from(edge.e, w[1]) {
					if next := [2]int{edge.to, end}; !reached[next] {
						reached[next] = true
						work = append(work, next)
					}
				}
			}
		}
		for _, a := range e.accept {
			for i := range len(o.text) + 1 {
				if reached[[2]int{a, i}] {
					out[i] = true
				}
			}
		}
	}
	return out
}

func (o *oracle) after(e Expr, starts map[int]bool) map[int]bool {
	out := map[int]bool{}
	for s := range starts {
		for end := range o.from(e, s) {
			out[end] = true
		}
	}
	return out
}

func matches(rules *Rules, root RuleID, text string) bool {
	o := &oracle{rules: rules, text: []rune(text), ends: map[[2]int]map[int]bool{}}
	for {
		o.changed = false
		o.rule(root, 0)
		for key, ends := range o.ends {
			for end := range o.from(rules.exprs[key[0]], key[1]) {
				if !ends[end] {
					ends[end] = true
					o.changed = true
				}
			}
		}
		if !o.changed {
			return o.ends[[2]int{int(root), 0}][len(o.text)]
		}
	}
}

// read runs the automaton over text; prefix says that all of it could be read.
func read(a *Automaton, text string) (whole, prefix bool) {
	var s Scratch
	items, ended := a.Start(&s)
	for i := range len(text) {
		var ok bool
		if items, ended, ok = a.Step(&s, nil, items, text[i]); !ok {
			panic("too many items")
		}
		if len(items) == 0 && !ended {
			return false, false
		}
	}
	return ended, true
}

// randomExpr makes an expression over few letters so that texts often match.
func randomExpr(r *rand.Rand, depth, rules int) Expr {
	if depth == 0 || r.IntN(4) == 0 {
		switch r.IntN(5) {
		case 0:
			return Text([]string{"a", "b", "ab", "", "é"}[r.IntN(5)])
		case 1:
			return Set(Range{'a', 'b'}, Range{'é', '€'})
		case 2:
			return Text("a")
		default:
			return Ref(RuleID(r.IntN(rules)))
		}
	}
	sub := func() Expr { return randomExpr(r, depth-1, rules) }
	switch r.IntN(5) {
	case 0:
		return Alt(sub(), sub())
	case 1:
		least := r.IntN(3)
		return Repeat(sub(), least, []int{-1, least, least + 2}[r.IntN(3)])
	case 2:
		g := NewGraph()
		for range r.IntN(3) {
			g.State()
		}
		for range r.IntN(5) {
			g.Edge(r.IntN(g.states), r.IntN(g.states), sub())
		}
		g.Accept(r.IntN(g.states))
		return g
	default:
		return Seq(sub(), sub())
	}
}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(7) {
		b.WriteString([]string{"a", "b", "é", "€"}[min(r.IntN(6), 3)*r.IntN(2)])
	}
	return b.String()
}

// TestAgainstOracle compares random grammars, left-recursive, ambiguous and empty
// ones included, with a matcher that knows nothing of automata.
func TestAgainstOracle(t *testing.T) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		var rules Rules
		n := 1 + r.IntN(4)
		for range n {
			rules.Declare()
		}
		for i := range n {
			rules.Define(RuleID(i), randomExpr(r, 3, n))
		}
		a, err := Compile(&rules, 0, nil, DefaultLimits())
		for range 12 {
			text := randomText(r)
			want := matches(&rules, 0, text)
			if err != nil {
				if want {
					t.Fatalf("seed %d: %v, but %q matches", seed, err, text)
				}
				continue
			}
			whole, prefix := read(a, text)
			if whole != want || whole && !prefix {
				t.Fatalf("seed %d: %q: matches = %v, want %v", seed, text, whole, want)
			}
		}
	}
}

// TestNondeterministicRules compiles without a budget for determinization.
func TestNondeterministicRules(t *testing.T) {
	lim := DefaultLimits()
	lim.Work = -1
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		var rules Rules
		rules.Declare()
		rules.Declare()
		rules.Define(0, randomExpr(r, 4, 2))
		rules.Define(1, randomExpr(r, 3, 2))
		a, err := Compile(&rules, 0, nil, lim)
		if err != nil {
			continue
		}
		for range 12 {
			text := randomText(r)
			if got, _ := read(a, text); got != matches(&rules, 0, text) {
				t.Fatalf("seed %d: %q: matches = %v", seed, text, got)
			}
		}
	}
}

func TestLargeCounts(t *testing.T) {
	for _, tt := range []struct{ least, most int }{{0, 700}, {600, 600}, {513, -1}, {100, 1000}, {3, 5000}, {4096, 4097}} {
		var rules Rules
		root := rules.Add(Seq(Text("<"), Repeat(Set(Range{'a', 'c'}), tt.least, tt.most), Text(">")))
		a, err := Compile(&rules, root, nil, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, 2, 3, 15, 16, 17, 99, 100, 255, 256, 257, 511, 512, 513, 599, 600, 601, 699, 700, 701, 999, 1000, 1001, 4095, 4096, 4097, 4098, 4999, 5000, 5001, 6000} {
			want := n >= tt.least && (tt.most < 0 || n <= tt.most)
			if got, _ := read(a, "<"+strings.Repeat("b", n)+">"); got != want {
				t.Errorf("{%d,%d}: %d copies: %v, want %v", tt.least, tt.most, n, got, want)
			}
		}
		if a.States() > 1500 {
			t.Errorf("{%d,%d}: %d states", tt.least, tt.most, a.States())
		}
	}
}

// TestSharedCounts: repetitions of the same differ in a few states only.
func TestSharedCounts(t *testing.T) {
	var rules Rules
	char := func() Expr { return Alt(Set(Range{'a', 'z'}, Range{'é', '€'}), Text("\\n")) }
	states := func(e Expr) int {
		a, err := Compile(&rules, rules.Add(e), nil, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		return a.States()
	}
	one := states(Seq(Repeat(char(), 0, 900), Text("0")))
	both := states(Alt(Seq(Repeat(char(), 0, 900), Text("0")), Seq(Text("1"), Repeat(char(), 7, 901), Text("0"))))
	if both > one+one/2 {
		t.Errorf("%d states, one alone takes %d", both, one)
	}
}

func TestUTF8(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	border := []rune{0, 1, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0x10FFFF}
	pick := func() rune { return border[r.IntN(len(border))] + rune(r.IntN(5)-2) }
	for range 60 {
		set := []Range{{pick(), pick()}, {pick(), pick()}}
		var rules Rules
		a, err := Compile(&rules, rules.Add(Set(set...)), nil, DefaultLimits())
		for range 60 {
			c := pick()
			if !utf8.ValidRune(c) {
				continue
			}
			want := false
			for _, x := range set {
				want = want || x.Lo <= c && c <= x.Hi
			}
			if err != nil {
				if want {
					t.Fatal(err)
				}
				continue
			}
			if got, _ := read(a, string(c)); got != want {
				t.Fatalf("%v: %U: %v, want %v", set, c, got, want)
			}
		}
	}
}

// TestStackStaysFlat reads lists that recurse to the left, to the right, and
// through two rules, and counts the frames that the items still reach.
func TestStackStaysFlat(t *testing.T) {
	item := Repeat(Set(Range{'a', 'z'}), 1, 20)
	for name, define := range map[string]func(*Rules) RuleID{
		"left": func(r *Rules) RuleID {
			list := r.Declare()
			r.Define(list, Alt(item, Seq(Ref(list), Text(","), item)))
			return list
		},
		"right": func(r *Rules) RuleID {
			list := r.Declare()
			r.Define(list, Alt(item, Seq(item, Text(","), Ref(list))))
			return list
		},
		"two rules": func(r *Rules) RuleID {
			list, tail := r.Declare(), r.Declare()
			r.Define(list, Seq(item, Ref(tail)))
			r.Define(tail, Alt(Seq(Text(","), Ref(list)), Repeat(Text("."), 0, 30)))
			return list
		},
	} {
		t.Run(name, func(t *testing.T) {
			var rules Rules
			root := define(&rules)
			a, err := Compile(&rules, root, nil, DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			var s Scratch
			items, _ := a.Start(&s)
			for _, b := range []byte(strings.Repeat("ab,", 500)) {
				items, _, _ = a.Step(&s, nil, items, b)
			}
			seen := map[*Frame]bool{}
			var visit func([]Item)
			visit = func(items []Item) {
				for _, it := range items {
					if !seen[it.Frame] {
						seen[it.Frame] = true
						visit(it.Frame.Callers())
					}
				}
			}
			visit(items)
			if len(items) == 0 || len(items) > 8 || len(seen) > 8 {
				t.Errorf("%d items, %d frames", len(items), len(seen))
			}
		})
	}
}

// TestAmbiguity reads a grammar whose readings grow exponentially: those that go on
// alike are merged. Where items grow without end, that is refused instead of slowing
// down.
func TestAmbiguity(t *testing.T) {
	compile := func(define func(*Rules, RuleID) Expr) *Automaton {
		var rules Rules
		s := rules.Declare()
		rules.Define(s, define(&rules, s))
		a, err := Compile(&rules, s, nil, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	doubling := compile(func(_ *Rules, s RuleID) Expr { return Alt(Seq(Ref(s), Ref(s)), Text("a")) })
	if whole, _ := read(doubling, strings.Repeat("a", 40)); !whole {
		t.Error("40 letters do not match")
	}
	var scratch Scratch
	items, _ := doubling.Start(&scratch)
	for i := range 1000 {
		scratch.Spend()
		var ok bool
		if items, _, ok = doubling.Step(&scratch, nil, items, 'a'); !ok || len(items) > 4 || scratch.Spent() > 100 {
			t.Fatalf("letter %d: %d items for %d steps", i, len(items), scratch.Spent())
		}
	}
	nested := compile(func(_ *Rules, s RuleID) Expr {
		return Alt(Seq(Text("a"), Ref(s), Text("b")), Seq(Text("a"), Ref(s), Ref(s)), Text("a"))
	})
	items, _ = nested.Start(&scratch)
	for i := range 20_000 {
		var ok bool
		if items, _, ok = nested.Step(&scratch, nil, items, 'a'); !ok {
			return
		}
		if i == 19_999 {
			t.Errorf("never refused, with %d items", len(items))
		}
	}
}

func TestLimits(t *testing.T) {
	var rules Rules
	root := rules.Add(Text(strings.Repeat("x", 300_000)))
	if _, err := Compile(&rules, root, nil, DefaultLimits()); err == nil {
		t.Error("no error for a text of 300000 bytes")
	}
	self := rules.Declare()
	rules.Define(self, Seq(Text("a"), Ref(self)))
	if _, err := Compile(&rules, self, nil, DefaultLimits()); fmt.Sprint(err) != ErrImpossible.Error() {
		t.Errorf("endless rule: %v", err)
	}
	if _, err := Compile(&rules, rules.Add(Text("é")), []Range{{0, 0x7F}}, DefaultLimits()); fmt.Sprint(err) != ErrImpossible.Error() {
		t.Errorf("unspellable text: %v", err)
	}
}
