package drawn

import (
	"image"
	"math/rand/v2"
)

// lengths draws as many lengths from lo to hi; the longest one exceeds the others by gap.
func lengths(r *rand.Rand, n int, lo, hi, gap float64) (all []float64, longest int) {
	longest = r.IntN(n)
	top := between(r, lo+2*gap, hi)
	for range n {
		all = append(all, between(r, lo, top-gap))
	}
	all[longest] = top
	return all, longest
}

// chart draws upright bars.
func (p *Picture) chart(r *rand.Rand) {
	wi, hi := p.size()
	w, h := float64(wi), float64(hi)
	back := paper(r)
	p.background(r, back)
	n := 2 + r.IntN(MaxCount-1)
	tall, highest := lengths(r, n, 0.1, 0.85, 0.08)
	base := between(r, 0.9, 0.97) * h
	left, right := between(r, 0.03, 0.12)*w, between(r, 0.88, 0.97)*w
	step := (right - left) / float64(n)
	thick := step * between(r, 0.5, 0.75)
	colors := r.Perm(shapeColors)
	if r.IntN(4) == 0 { // all of one color
		for i := range colors {
			colors[i] = colors[0]
		}
	}
	for i, part := range tall {
		x := left + (float64(i)+0.5)*step - thick/2
		box := image.Rect(int(x), int(base-part*h), int(x+thick), int(base))
		p.fill(box, paint(r, colors[i]))
		p.Objects = append(p.Objects, Object{Class: chartBar, Color: colors[i], Place: i, Box: box})
	}
	line := 60
	if back.R < 100 {
		line = 190
	}
	p.fill(image.Rect(int(left), int(base), int(right), int(base)+max(hi/80, 1)), gray(r, line))
	p.Facts["bars"], p.Facts["highest"], p.Facts["highest_color"] = n, highest, colors[highest]
	p.ask("bars", counts[n]+" bar", there(n, "bar"))
	name := "Bar " + counts[highest+1]
	p.ask("highest", name, name+" is the highest.")
	p.ask("highest color", colorNames[colors[highest]], "The highest bar is "+colorNames[colors[highest]]+".")
	p.ask("what", "chart", "A chart with bars.")
}

// panel draws lying bars of workers, one below the other, each behind its number.
func (p *Picture) panel(r *rand.Rand) {
	wi, hi := p.size()
	w, h := float64(wi), float64(hi)
	p.background(r, gray(r, 8+r.IntN(25)))
	n := 2 + r.IntN(MaxCount-1)
	long, busiest := lengths(r, n, 0.04, 1, 0.08)
	top := between(r, 0.03, 0.1) * h
	step := (between(r, 0.9, 0.98)*h - top) / float64(n)
	thick := min(step*between(r, 0.45, 0.7), 0.14*h)
	left, right := between(r, 0.14, 0.2)*w, between(r, 0.88, 0.97)*w
	full, rail := paint(r, []int{1, 2, 3, 5}[r.IntN(4)]), gray(r, 55+r.IntN(25))
	text := gray(r, 190+r.IntN(50))
	for i, part := range long {
		y := top + float64(i)*step
		box := image.Rect(int(left), int(y), int(left+part*(right-left)), int(y+thick))
		p.fill(image.Rect(int(left), int(y), int(right), int(y+thick)), rail)
		p.fill(box, full)
		p.digit(0, i+1, image.Rect(int(left-0.1*w), int(y), int(left-0.03*w), int(y+thick)), text)
		p.Objects = append(p.Objects, Object{Class: panelBar, Color: -1, Place: i, Box: box})
	}
	p.Facts["workers"], p.Facts["busiest"] = n, busiest
	p.ask("workers", counts[n]+" worker", there(n, "worker"))
	name := "Worker " + counts[busiest+1]
	p.ask("busiest", name, name+" is the busiest.")
	p.ask("what", "panel", "A panel of workers.")
}
