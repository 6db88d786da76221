package bench

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Sizes of a chart, in pixels.
const (
	chartWidth, chartHeight = 460, 250
	chartLeft, chartRight   = 58, 16
	chartTop, chartFoot     = 30, 34
	chartHead               = 28
	chartTicks              = 5   // about so many on an axis
	chartSteps              = 200 // of a distribution
)

// Chart shows curves over two linear axes that begin at 0.
type Chart struct {
	Title, Across string
	Curves        []Curve
}

// Curve is dots, or a line. Several of a chart have names.
type Curve struct {
	Name   string
	Xs, Ys []float64 // equally many
	Line   bool
}

// colors are told apart by color-blind people, too (Okabe and Ito).
var colors = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"}

// SVG draws times to the first token and between tokens over the time of the load, and how
// they are distributed. It needs a report that [Run] returned: one that was read has no
// points.
func (r *Report) SVG(w io.Writer) error {
	var ttft, itl Curve
	for _, p := range r.points {
		ttft.Xs, ttft.Ys = append(ttft.Xs, p.at), append(ttft.Ys, p.ttft)
		itl.Xs, itl.Ys = append(itl.Xs, p.at), append(itl.Ys, p.itl)
	}
	return WriteCharts(w, r.Model+" · "+r.Load.Arrivals+" · "+r.Started.UTC().Format("2006-01-02 15:04 MST"),
		Chart{"TTFT, ms", "s", []Curve{ttft}}, distribution("TTFT: share of requests below", r.sorted["ttft"]),
		Chart{"ITL of each answer, ms", "s", []Curve{itl}}, distribution("ITL: share of tokens below", r.sorted["itl"]))
}

// WriteCharts draws charts as one SVG, two in a row.
func WriteCharts(w io.Writer, title string, charts ...Chart) error {
	var b strings.Builder
	width, height := 2*chartWidth, chartHead+(len(charts)+1)/2*chartHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="12" y="20" font-size="14">%s</text>`+"\n", escape(title))
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%2*chartWidth, chartHead+i/2*chartHeight)
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// distribution is the share of sorted values up to each value.
func distribution(title string, sorted []float64) Chart {
	c := Curve{Line: true}
	for i := range min(len(sorted), chartSteps) {
		k := i
		if len(sorted) > chartSteps {
			k = i * (len(sorted) - 1) / (chartSteps - 1)
		}
		c.Xs, c.Ys = append(c.Xs, sorted[k]), append(c.Ys, float64(k+1)/float64(len(sorted)))
	}
	return Chart{title, "ms", []Curve{c}}
}

func (c Chart) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<text x="%d" y="18" font-size="12" font-weight="bold">%s</text>`+"\n", chartLeft, escape(c.Title))
	var xs, ys []float64
	for _, v := range c.Curves {
		xs, ys = append(xs, v.Xs...), append(ys, v.Ys...)
	}
	if len(xs) == 0 {
		fmt.Fprintf(b, `<text x="%d" y="%d">nothing to show</text>`+"\n", chartLeft, chartHeight/2)
		return
	}
	xTick, xEnd := ticks(xs)
	yTick, yEnd := ticks(ys)
	x := func(v float64) float64 { return chartLeft + v/xEnd*(chartWidth-chartLeft-chartRight) }
	y := func(v float64) float64 { return chartHeight - chartFoot - v/yEnd*(chartHeight-chartTop-chartFoot) }
	for i := 0; float64(i)*yTick <= yEnd*1.001; i++ {
		at := y(float64(i) * yTick)
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", chartLeft, at, chartWidth-chartRight, chartLeft-5, at+4, round(float64(i)*yTick))
	}
	for i := 0; float64(i)*xTick <= xEnd*1.001; i++ {
		at := x(float64(i) * xTick)
		fmt.Fprintf(b, `<path d="M%.1f %dv4" stroke="#888888"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", at, chartHeight-chartFoot, at, chartHeight-chartFoot+16, round(float64(i)*xTick))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", chartWidth-chartRight, chartHeight-4, c.Across)
	for i, v := range c.Curves {
		color := colors[i%len(colors)]
		v.draw(b, x, y, color)
		if v.Name != "" {
			at := chartTop + 12 + 14*i
			fmt.Fprintf(b, `<path d="M%d %dh14" stroke="%s" stroke-width="2"/><text x="%d" y="%d">%s</text>`+"\n", chartLeft+10, at-4, color, chartLeft+29, at, escape(v.Name))
		}
	}
}

func (v Curve) draw(b *strings.Builder, x, y func(float64) float64, color string) {
	if v.Line {
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, color)
		for i := range v.Xs {
			fmt.Fprintf(b, "%.1f,%.1f ", x(v.Xs[i]), y(v.Ys[i]))
		}
		b.WriteString(`"/>` + "\n")
		return
	}
	for i := range v.Xs {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="1.6" fill="%s" fill-opacity="0.5"/>`+"\n", x(v.Xs[i]), y(v.Ys[i]), color)
	}
}

// ticks returns the distance of round numbers on an axis of the values, and its end.
func ticks(values []float64) (step, end float64) {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	if most <= 0 {
		return 1, 1
	}
	step = math.Pow(10, math.Floor(math.Log10(most/chartTicks)))
	for _, m := range []float64{1, 2, 5, 10} {
		if most/(step*m) <= chartTicks {
			step *= m
			break
		}
	}
	return step, math.Ceil(most/step-1e-9) * step
}

func round(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
