package tui

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
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

func TestModelText(t *testing.T) {
	for want, w := range map[string]cluster.Worker{
		"qwen in q8_0": {WorkerStatus: cluster.WorkerStatus{Model: "qwen", Weights: "q8_0"}},
		"qwen":         {WorkerStatus: cluster.WorkerStatus{Model: "qwen"}},
		cells.Unknown:  {},
	} {
		if got := modelText(&w); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
