package wire

import (
	"slices"
	"testing"
)

func TestAdapters(t *testing.T) {
	parent := func(name string) *string { return &name }
	vllm := []Model{{ID: "m", Root: "/m"}, {ID: "alias", Root: "/m"}, {ID: "z", Root: "/z", Parent: parent("m")}, {ID: "a", Parent: parent("m")}, {ID: "a", Parent: parent("m")}}
	many := []Model{{ID: "m", Root: "m"}, {ID: "n", Root: "n"}, {ID: "of-m", Parent: parent("m")}, {ID: "of-n", Parent: parent("n")}, {ID: "of-a", Parent: parent("of-m")}}
	for name, tc := range map[string]struct {
		models []Model
		model  string
		want   []string
	}{
		"by its name":           {vllm, "m", []string{"a", "z"}},
		"by another name":       {vllm, "alias", []string{"a", "z"}},
		"any":                   {vllm, "", []string{"a", "z"}},
		"an adapter":            {vllm, "z", nil},
		"unknown":               {vllm, "x", nil},
		"of one of many":        {many, "n", []string{"of-n"}},
		"of the first of many":  {many, "m", []string{"of-m"}},
		"without roots":         {[]Model{{ID: "m"}, {ID: "n"}, {ID: "a", Parent: parent("m")}}, "n", nil},
		"a parent of its own":   {[]Model{{ID: "m", Parent: parent("m")}, {ID: "a", Parent: parent("m")}}, "m", []string{"a"}},
		"nothing":               {nil, "m", nil},
		"a parent that is gone": {[]Model{{ID: "a", Parent: parent("m")}}, "m", nil},
	} {
		if got := Adapters(tc.models, tc.model); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
