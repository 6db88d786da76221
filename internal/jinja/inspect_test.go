package jinja_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/jinja"
)

func TestInspect(t *testing.T) {
	tests := []struct {
		name, source          string
		loops, str, developer bool
	}{
		{"plain", `{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}`, false, false, false},
		{"attribute", `{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}`, true, false, false},
		{"item", `{% for m in messages %}{% if m['content'] is string %}x{% else %}{% for p in m['content'] %}{% endfor %}{% endif %}{% endfor %}`, true, true, false},
		{"variable", `{% for m in messages %}{% set c = m.content or [] %}{% if c is not string %}{% for p in c %}{% endfor %}{% endif %}{% endfor %}`, true, true, false},
		{"filtered", `{% for m in messages %}{% for p in m.content | selectattr('type', 'equalto', 'text') %}{% endfor %}{% endfor %}`, true, false, false},
		{"macro", `{% macro show(body) %}{% for p in body %}{{ p.text }}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m.content) }}{% endfor %}`, true, false, false},
		{"role", `{% for m in messages %}{% if m.role in ["system", "developer"] %}{% endif %}{% endfor %}`, false, false, true},
		{"other loop", `{% for c in m.tool_calls %}{{ c.content }}{% endfor %}`, false, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tmpl, err := jinja.Parse("t", tt.source)
			if err != nil {
				t.Fatal(err)
			}
			if got := tmpl.LoopsOver("content"); got != tt.loops {
				t.Errorf("LoopsOver(content): got %v, want %v", got, tt.loops)
			}
			if got := tmpl.UsesTest("string"); got != tt.str {
				t.Errorf("UsesTest(string): got %v, want %v", got, tt.str)
			}
			if got := tmpl.HasString("developer"); got != tt.developer {
				t.Errorf("HasString(developer): got %v, want %v", got, tt.developer)
			}
		})
	}
}
