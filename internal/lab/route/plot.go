package route

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// panel is one chart: the 90th percentile of TTFT over the speed of a workload, a line for
// each policy.
type panel struct {
	title string
	lines []line
}

type line struct {
	policy string
	points [][2]float64 // speed, seconds
}

// add appends a point to the line of a policy.
func (p *panel) add(policy string, speed, seconds float64) {
	i := slices.IndexFunc(p.lines, func(l line) bool { return l.policy == policy })
	if i < 0 {
		i = len(p.lines)
		p.lines = append(p.lines, line{policy: policy})
	}
	p.lines[i].points = append(p.lines[i].points, [2]float64{speed, seconds})
}

// Sizes of a panel in pixels, and the axis of seconds, which is the same in all.
const (
	panelWidth, panelHeight = 420, 300
	left, right, top, foot  = 52, 14, 28, 40
	leastSeconds            = 0.01
	mostSeconds             = 1000
)

// colors are those of the policies, in their order. The first one is drawn thicker.
var colors = []string{"#d62728", "#7f7f7f", "#bcbd22", "#1f77b4", "#17becf", "#2ca02c", "#9467bd", "#ff7f0e"}

// across and down place a value on a logarithmic axis of a panel.
func (p *panel) across(speed float64) float64 {
	lo, hi := math.Inf(1), 0.0
	for _, l := range p.lines {
		for _, at := range l.points {
			lo, hi = min(lo, at[0]), max(hi, at[0])
		}
	}
	if hi <= lo {
		hi = 2 * lo
	}
	return left + (panelWidth-left-right)*math.Log(speed/lo)/math.Log(hi/lo)
}

func down(seconds float64) float64 {
	share := math.Log(min(max(seconds, leastSeconds), mostSeconds)/leastSeconds) / math.Log(mostSeconds/leastSeconds)
	return panelHeight - foot - (panelHeight-top-foot)*share
}

// plot writes the panels below each other in two columns, as SVG.
func plot(w io.Writer, panels []*panel) error {
	const columns = 2
	rows := (len(panels) + columns - 1) / columns
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n",
		min(columns, len(panels))*panelWidth, rows*panelHeight+24)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	var names []string
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%columns*panelWidth, i/columns*panelHeight)
		p.draw(&b, &names)
		b.WriteString("</g>\n")
	}
	for i, name := range names {
		x, y := 16+i%8*102, rows*panelHeight+10
		fmt.Fprintf(&b, `<path d="M%d %dh16" stroke="%s" stroke-width="%d"/><text x="%d" y="%d">%s</text>`+"\n", x, y, colors[i%len(colors)], thickness(i), x+20, y+4, name)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func thickness(i int) int {
	if i == 0 {
		return 3
	}
	return 1
}

// draw adds a panel. names are the policies so far, by which colors are given.
func (p *panel) draw(b *strings.Builder, names *[]string) {
	fmt.Fprintf(b, `<text x="%d" y="18" font-weight="bold">%s</text>`+"\n", left, p.title)
	for s := leastSeconds; s <= mostSeconds; s *= 10 {
		y := down(s)
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g s</text>`+"\n", left, y, panelWidth-right, left-4, y+4, s)
	}
	fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#888" stroke-dasharray="4 3"/>`+"\n", left, down(kneeLimit.Seconds()), panelWidth-right)
	var speeds []float64
	for _, l := range p.lines {
		for _, at := range l.points {
			speeds = append(speeds, at[0])
		}
	}
	slices.Sort(speeds)
	for _, speed := range slices.Compact(speeds) {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", p.across(speed), panelHeight-foot+15, speed)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">times as fast as the workload</text>`+"\n", (panelWidth+left)/2, panelHeight-8)
	for _, l := range slices.Backward(p.lines) { // the first on top
		i := slices.Index(*names, l.policy)
		if i < 0 {
			i = slices.IndexFunc(p.lines, func(o line) bool { return o.policy == l.policy })
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="%d" points="`, colors[i%len(colors)], thickness(i))
		for _, at := range l.points {
			fmt.Fprintf(b, "%.1f,%.1f ", p.across(at[0]), down(at[1]))
		}
		b.WriteString(`"/>` + "\n")
	}
	if len(*names) == 0 {
		for _, l := range p.lines {
			*names = append(*names, l.policy)
		}
	}
}
