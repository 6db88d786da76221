package table

import (
	"math"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/tui/draw"
)

// fruits are the rows of the tests: a name and a number that may be unknown.
type fruits []fruit

type fruit struct {
	name string
	n    float64
}

func (f *fruits) source() Source {
	return Source{
		N:    func() int { return len(*f) },
		Key:  func(i int) Key { return Key{Name: (*f)[i].name} },
		Text: func(i int) string { return (*f)[i].name },
		Keys: []SortKey{
			{ID: "name", Text: func(i int) string { return (*f)[i].name }},
			{ID: "n", Desc: true, Num: func(i int) (float64, bool) { return (*f)[i].n, (*f)[i].n >= 0 }},
		},
	}
}

func (f *fruits) order(l *List) string {
	var names []string
	for _, row := range l.rows {
		names = append(names, (*f)[row].name)
	}
	return strings.Join(names, " ")
}

func (f *fruits) selected(t *testing.T, l *List) string {
	t.Helper()
	row, ok := l.Selected()
	if !ok {
		t.Fatal("no row is selected")
	}
	return (*f)[row].name
}

func TestOrder(t *testing.T) {
	f := fruits{{"fig", 2}, {"apple", -1}, {"plum", 7}, {"", 3}, {"pear", math.NaN()}}
	l := NewList(f.source())
	for _, tt := range []struct {
		do   func()
		want string
	}{
		{l.Rebuild, "apple fig pear plum "},
		{l.Reverse, "plum pear fig apple "},
		{l.SortNext, "plum  fig apple pear"}, // in its own direction
		{l.Reverse, "fig  plum apple pear"},  // unknown ones stay last
		{l.SortNext, "apple fig pear plum "},
	} {
		if tt.do(); f.order(l) != tt.want {
			t.Errorf("order %q, want %q", f.order(l), tt.want)
		}
	}
	if got := l.Order(draw.ASCIIGlyphs()); got != "sort: name ^" {
		t.Errorf("the order reads %q", got)
	}
}

func TestFilterKeepsTheRowUnderTheCursor(t *testing.T) {
	f := fruits{{"green apple", 1}, {"green plum", 2}, {"red apple", 3}}
	l := NewList(f.source())
	l.Rebuild()
	for _, tt := range []struct{ filter, rows, count string }{
		{"APPLE", "green apple red apple", "2 of 3"},
		{"apple green", "green apple", "1 of 3"}, // every word
		{"!green", "red apple", "1 of 3"},
		{"!", "green apple green plum red apple", "3 of 3"}, // no word yet
		{"", "green apple green plum red apple", "3"},
	} {
		l.SetFilter(tt.filter)
		if f.order(l) != tt.rows || l.Count() != tt.count {
			t.Errorf("%q shows %q, %s", tt.filter, f.order(l), l.Count())
		}
	}
	l.Move(2)
	l.SetFilter("red")
	if got := f.selected(t, l); got != "red apple" {
		t.Errorf("the cursor is on %s, want red apple", got)
	}
}

// The cursor follows its row; lists of the newest keep it on the first until it moves.
func TestCursor(t *testing.T) {
	for _, newest := range []bool{false, true} {
		f := fruits{{"b", 0}, {"c", 0}}
		src := f.source()
		src.Newest, src.Keys = newest, nil
		l := NewList(src)
		l.Rebuild()
		f = fruits{{"a", 0}, {"b", 0}, {"c", 0}}
		l.Rebuild()
		want := map[bool]string{false: "b", true: "a"}[newest]
		if got := f.selected(t, l); got != want {
			t.Errorf("newest %v: the cursor is on %s, want %s", newest, got, want)
		}
		l.Move(2)
		f = fruits{{"0", 0}, {"a", 0}, {"c", 0}}
		l.Rebuild()
		if got := f.selected(t, l); got != "c" {
			t.Errorf("newest %v: the cursor is on %s, want c", newest, got)
		}
		f = nil
		l.Rebuild()
		if _, ok := l.Selected(); ok {
			t.Error("a row is selected where there is none")
		}
	}
}

func TestScroll(t *testing.T) {
	f := make(fruits, 10)
	l := NewList(f.source())
	l.Rebuild()
	l.Move(7)
	l.Scroll(4)
	if got := l.Place(); got != "5-8 of 10" || l.HalfPage() != 2 {
		t.Errorf("the list shows %s, half a page is %d", got, l.HalfPage())
	}
	l.Point(0)
	if l.Scroll(4); l.cursor != 4 {
		t.Errorf("the cursor is on row %d, want 4: the first on the screen", l.cursor)
	}
	if l.Scroll(10); l.Place() != "" {
		t.Errorf("all rows are shown and the list says %s", l.Place())
	}
}
