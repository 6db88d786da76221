package bench

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Panel is a chart of one figure over an axis, beside others in a plot. Both scales are
// logarithmic.
type Panel struct {
	Title  string       `json:"title"`
	Points []PanelPoint `json:"points"`
	// Law is drawn as a line; nil draws none.
	Law Law `json:"law,omitempty"`
}

// PanelPoint is a measured figure.
type PanelPoint struct {
	At     float64 `json:"at"`
	Figure Figure  `json:"figure"`
}

// Sizes of a panel, in pixels.
const (
	panelColumns           = 4
	panelWidth             = 270
	panelHeight            = 180
	panelLeft, panelRight  = 52, 14
	panelTop, panelBottom  = 26, 24
	panelSteps             = 40 // of the line of a law
	panelHead, panelMargin = 30, 8
)

// panelsSVG draws the panels of a plot in rows, with the axis named at the top.
func (p Plot) panelsSVG() []byte {
	rows := (len(p.Panels) + panelColumns - 1) / panelColumns
	width, height := min(panelColumns, len(p.Panels))*panelWidth+panelMargin, panelHead+rows*panelHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="10">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="14">%s</text>`+"\n", xmlText(p.Title))
	for i, panel := range p.Panels {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%panelColumns*panelWidth, panelHead+i/panelColumns*panelHeight)
		panel.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// axis places values on a logarithmic scale of pixels.
type axis struct{ low, high, from, to float64 }

func newAxis(values []float64, from, to float64) axis {
	a := axis{low: slices.Min(values), high: slices.Max(values), from: from, to: to}
	if a.high < 1.05*a.low { // one value, in the middle
		a.low, a.high = a.low/1.5, a.high*1.5
	}
	return a
}

func (a axis) place(v float64) float64 {
	return a.from + (a.to-a.from)*math.Log(v/a.low)/math.Log(a.high/a.low)
}

// draw writes one panel. Points that are not positive have no place on it.
func (p Panel) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<text x="%d" y="16" font-size="11" font-weight="bold">%s</text>`+"\n", panelLeft, xmlText(p.Title))
	points := slices.DeleteFunc(slices.Clone(p.Points), func(x PanelPoint) bool { return !(x.At > 0 && x.Figure.Low > 0) })
	if len(points) == 0 {
		fmt.Fprintf(b, `<text x="%d" y="%d">nothing above 0</text>`+"\n", panelLeft, panelHeight/2)
		return
	}
	var xs, ys []float64
	for _, x := range points {
		xs, ys = append(xs, x.At), append(ys, x.Figure.Low, x.Figure.High)
	}
	across := newAxis(xs, panelLeft, panelWidth-panelRight)
	steps := make([]float64, 0, panelSteps+1)
	for i := range panelSteps + 1 {
		n := across.low * math.Pow(across.high/across.low, float64(i)/panelSteps)
		if v := p.Law.At(n); v > 0 {
			steps, ys = append(steps, n), append(ys, v)
		}
	}
	down := newAxis(ys, panelHeight-panelBottom, panelTop)
	for _, v := range []float64{down.low, math.Sqrt(down.low * down.high), down.high} {
		y := down.place(v)
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", panelLeft, y, panelWidth-panelRight, panelLeft-4, y+3, number(v))
	}
	if len(steps) > 0 {
		b.WriteString(`<polyline fill="none" stroke="#7aa6c2" points="`)
		for _, n := range steps {
			fmt.Fprintf(b, "%.1f,%.1f ", across.place(n), down.place(p.Law.At(n)))
		}
		b.WriteString(`"/>` + "\n")
	}
	for _, x := range points {
		at := across.place(x.At)
		fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1f" stroke="#222222"/><circle cx="%.1f" cy="%.1f" r="3" fill="#1f5f8b"/>`+"\n",
			at, down.place(x.Figure.Low), down.place(x.Figure.High), at, down.place(x.Figure.Median))
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", at, panelHeight-panelBottom+14, group(strconv.FormatFloat(x.At, 'f', -1, 64)))
	}
}
