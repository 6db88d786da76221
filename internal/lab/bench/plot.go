package bench

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Plot is a chart of bars with their ranges, or several panels.
type Plot struct {
	Name  string `json:"name"` // of its file, without suffix
	Title string `json:"title"`
	Unit  string `json:"unit,omitempty"`
	Bars  []Bar  `json:"bars,omitempty"`
	// Panels take the place of bars.
	Panels []Panel `json:"panels,omitempty"`
}

// Bar is one figure of a plot.
type Bar struct {
	Label  string `json:"label"`
	Figure Figure `json:"figure"`
}

// Sizes of a plot, in pixels.
const (
	plotLabels = 320 // width of the labels
	plotWidth  = 360 // of the longest bar
	plotValues = 200 // of the values behind the bars
	plotRow    = 22
	plotHead   = 34
)

// SVG draws the plot: panels, or a bar for each median and a line for its range, starting
// at zero.
func (p Plot) SVG() []byte {
	if len(p.Panels) > 0 {
		return p.panelsSVG()
	}
	longest := 0.0
	for _, b := range p.Bars {
		longest = max(longest, b.Figure.High)
	}
	scale := 0.0
	if longest > 0 {
		scale = plotWidth / longest
	}
	width, height := plotLabels+plotWidth+plotValues, plotHead+plotRow*len(p.Bars)+8
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="14">%s</text>`+"\n", xmlText(p.Title))
	for i, bar := range p.Bars {
		f, y := bar.Figure, plotHead+i*plotRow
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", plotLabels-8, y+14, xmlText(bar.Label))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", plotLabels, y+2, f.Median*scale, plotRow-6, []string{"#7aa6c2", "#1f5f8b"}[i%2])
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#222222"/>`+"\n", plotLabels+f.Low*scale, y+plotRow/2-1, plotLabels+f.High*scale, y+plotRow/2-1)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", plotLabels+f.High*scale+6, y+14, xmlText(f.String()+" "+p.Unit))
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

func xmlText(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
