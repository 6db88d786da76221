package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// Labels cannot break the document, and the widest range stays inside it.
func TestPlotSVG(t *testing.T) {
	svg := Plot{Title: `a <b> & "c"`, Unit: "ms", Bars: []Bar{
		{"idle", Figure{Median: 2, Low: 1, High: 4, Repetitions: 3}},
		{"<busy>", Figure{Median: 20, Low: 10, High: 40, Repetitions: 3}},
		{"nothing", Figure{}},
	}}.SVG()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
	for _, want := range []string{`x="320" y="36" width="18.0"`, `x="320" y="58" width="180.0"`, `x2="680.0"`, `20.0 (10.0–40.0) ms`, `&lt;busy&gt;`} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}

// Only a document that lies in a folder of plots shows them.
func TestPlotsInDocument(t *testing.T) {
	r := &Report{Sections: []Section{{Name: "disagg", Plots: []Plot{{Name: "p", Title: "Title"}}}}}
	if s := string(r.Markdown()); strings.Contains(s, ".svg") {
		t.Errorf("without a folder:\n%s", s)
	}
	r.Run.Plots = "benchmarks"
	if s := string(r.Markdown()); !strings.Contains(s, "![Title](benchmarks/p.svg)") {
		t.Errorf("with a folder:\n%s", s)
	}
}
