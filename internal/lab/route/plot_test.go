package route

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// A chart is an image with a line for each policy, whose points are where the axes say.
func TestPlot(t *testing.T) {
	first, second := &panel{title: "a"}, &panel{title: "b"}
	for _, p := range []*panel{first, second} {
		for i, policy := range []string{"kv", "round-robin"} {
			for _, speed := range []float64{0.5, 1, 2} {
				p.add(policy, speed, speed*float64(1+i))
			}
		}
	}
	second.add("kv", 4, 1e6) // beyond the axis
	var b bytes.Buffer
	if err := plot(&b, []*panel{first, second}); err != nil {
		t.Fatal(err)
	}
	lines, texts := 0, map[string]int{}
	for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "polyline" {
				lines++
			}
		case xml.CharData:
			texts[string(token)]++
		}
	}
	if lines != 4 || texts["a"] != 1 || texts["b"] != 1 || texts["kv"] != 1 || texts["round-robin"] != 1 || texts["4"] != 1 || texts["0.5"] != 2 {
		t.Errorf("%d lines, texts %v", lines, texts)
	}
	ends := fmt.Sprintf("%d.0,%.1f ", panelWidth-right, down(2)) // of kv in the first panel
	begins := fmt.Sprintf(`points="%d.0,%.1f `, left, down(0.5))
	if !strings.Contains(b.String(), ends) || !strings.Contains(b.String(), begins) {
		t.Errorf("no line from %s to %s", begins, ends)
	}
	if down(1e6) != top || down(0) != panelHeight-foot || !(down(0.1) > down(1)) {
		t.Errorf("places of 1e6, 0, 0.1 and 1 s: %v %v %v %v", down(1e6), down(0), down(0.1), down(1))
	}
}
