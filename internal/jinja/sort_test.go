package jinja_test

import (
	"errors"
	"testing"

	"github.com/dynctl/dynctl/internal/jinja"
)

// The reverse of a sort is an int to Python, where most arguments are any truth value.
func TestSortReverse(t *testing.T) {
	for source, want := range map[string]string{
		"{{ [2,3,1]|sort(reverse=true) }}": "[3, 2, 1]", "{{ [2,3,1]|sort(reverse=-1) }}": "[3, 2, 1]", "{{ [2,3,1]|sort(reverse=0) }}": "[1, 2, 3]",
		"{{ {'a':1,'b':2}|dictsort(reverse=1) }}": "[('b', 2), ('a', 1)]",
		"{{ []|sort(reverse=u) }}":                "TypeError", "{{ {}|dictsort(reverse=u) }}": "TypeError", "{{ [1]|sort(reverse='x') }}": "TypeError",
		"{{ [1]|sort(reverse=none) }}": "TypeError", "{{ [1]|sort(reverse=1.0) }}": "TypeError", "{{ 5|sort(reverse=u) }}": "TypeError",
		"{{ [1]|sort(reverse=4294967296) }}": "OverflowError", "{{ [1]|sort(reverse=10**20) }}": "OverflowError",
	} {
		tmpl, err := jinja.Parse("t", source)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tmpl.Render(t.Context(), nil, jinja.Options{})
		if failed := (*jinja.RenderError)(nil); errors.As(err, &failed) {
			got = string(failed.Kind)
		}
		if got != want {
			t.Errorf("%s: %q, %v, want %q", source, got, err, want)
		}
	}
}
