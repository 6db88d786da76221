package tui

import (
	"strings"
	"testing"
)

func TestYAML(t *testing.T) {
	lines := yamlLines([]byte(`{"a":1,"b":{"c":"x: y","d":[],"e":{}},"f":[1,{"g":null,"h":[true]},[2]],"i":"","j":"12","k":"plain text"}`))
	var got []string
	for _, l := range lines {
		s := ""
		for _, sp := range l {
			s += sp.Text
		}
		got = append(got, s)
	}
	want := `a: 1
b:
  c: "x: y"
  d: []
  e: {}
f:
  - 1
  - g: null
    h:
      - true
  - - 2
i: ""
j: "12"
k: plain text`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got:\n%s\nwant:\n%s", s, want)
	}
}
