package frontend

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/api.md lists exactly the fields that the endpoints accept.
func TestFieldsAreDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`([a-z_]+)`")
	listed := map[string][]string{}
	section := ""
	for line := range strings.Lines(string(raw)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(title)
		}
		if cells := strings.Split(line, "|"); len(cells) > 2 && strings.HasPrefix(line, "| `") {
			for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
				listed[section] = append(listed[section], m[1])
			}
		}
	}
	for own, q := range map[string]request{"Chat completions": &chatRequest{}, "Text completions": &completionRequest{}} {
		got := slices.Sorted(maps.Keys(q.fields()))
		want := slices.Concat(listed["Both endpoints"], listed[own])
		slices.Sort(want)
		for _, f := range got {
			if !slices.Contains(want, f) {
				t.Errorf("%s: '%s' is accepted, but not documented", own, f)
			}
		}
		for i, f := range want {
			if !slices.Contains(got, f) || i > 0 && want[i-1] == f {
				t.Errorf("%s: '%s' is documented, but not accepted, or documented twice", own, f)
			}
		}
	}
}
