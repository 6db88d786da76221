package jinja_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/jinja"
)

func TestHasString(t *testing.T) {
	for source, want := range map[string]bool{
		`{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}`:                                       false,
		`{% for m in messages %}{% if m.role in ["system", "developer"] %}{% endif %}{% endfor %}`:             true,
		`{% macro show(role) %}{{ "a" if role == "developer" else "b" }}{% endmacro %}{{ show(m.developer) }}`: true,
		`developer {{ "developers" }}`: false,
	} {
		tmpl, err := jinja.Parse("t", source)
		if err != nil {
			t.Fatal(err)
		}
		if got := tmpl.HasString("developer"); got != want {
			t.Errorf("%s: %v, want %v", source, got, want)
		}
	}
}
