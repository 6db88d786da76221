package drawn

import (
	"image"
	"image/color"
	"math"
	"math/rand/v2"
	"slices"
)

var shapeNames = []string{"circle", "square", "triangle", "star"}

// MaxCount is the most shapes, bars or workers that a picture shows.
const MaxCount = 6

var (
	places = []string{"top left", "top right", "bottom left", "bottom right"}
	counts = []string{"no", "1", "2", "3", "4", "5", "6"}
)

// shape is one of a picture; its measures are fractions of the sides.
type shape struct {
	kind, color int
	x, y, size  float64
}

func (p *Picture) shapes(r *rand.Rand) {
	p.background(r, paper(r))
	kinds := r.Perm(len(shapeNames))[:1+r.IntN(3)]
	var all []shape
	n := 1 + r.IntN(MaxCount)
	for tries := 0; len(all) < n && tries < 200; tries++ {
		s := shape{kind: kinds[r.IntN(len(kinds))], color: r.IntN(shapeColors), size: between(r, 0.09, 0.15)}
		s.x, s.y = between(r, s.size+0.01, 0.99-s.size), between(r, s.size+0.01, 0.99-s.size)
		if !slices.ContainsFunc(all, func(o shape) bool { return math.Hypot(o.x-s.x, o.y-s.y) < 1.15*(o.size+s.size) }) {
			all = append(all, s)
		}
	}
	for _, s := range all {
		p.shape(s, paint(r, s.color))
	}
	p.askShapes(all)
}

// shape paints one.
func (p *Picture) shape(s shape, c color.RGBA) {
	wi, hi := p.size()
	w, h := float64(wi), float64(hi)
	box := image.Rect(int((s.x-s.size)*w), int((s.y-s.size)*h), int((s.x+s.size)*w), int((s.y+s.size)*h))
	p.Objects = append(p.Objects, Object{Class: firstShape + s.kind, Color: s.color, Place: -1, Box: box})
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			u, v := ((float64(x)+0.5)/w-s.x)/s.size, ((float64(y)+0.5)/h-s.y)/s.size
			if inShape(s.kind, u, v) {
				p.fill(image.Rect(x, y, x+1, y+1), c)
			}
		}
	}
}

// inShape tells whether a shape covers a place; its box is from -1 to 1.
func inShape(kind int, u, v float64) bool {
	switch kind {
	case 0:
		return u*u+v*v < 0.95
	case 1:
		return math.Abs(u) < 0.82 && math.Abs(v) < 0.82
	case 2:
		return v < 0.85 && math.Abs(u) < (v+0.95)*0.53
	}
	// Five points: the radius falls from a point to the notch beside it.
	turn := math.Mod(math.Atan2(u, -v)/(2*math.Pi)+1, 1) * 5
	off := math.Abs(turn-math.Round(turn)) * 2 * math.Pi / 5
	const outer, inner = 0.98, 0.42
	// The edge from the point (outer, 0) to the notch (inner, π/5).
	nx, ny := inner*math.Cos(math.Pi/5), inner*math.Sin(math.Pi/5)
	edge := outer * ny / (math.Cos(off)*ny + math.Sin(off)*(outer-nx))
	return math.Hypot(u, v) < edge
}

func (p *Picture) askShapes(all []shape) {
	p.Facts["total"] = len(all)
	p.ask("shapes", counts[len(all)]+" shape", there(len(all), "shape"))
	for kind, name := range shapeNames {
		var of []shape
		for _, s := range all {
			if s.kind == kind {
				of = append(of, s)
			}
		}
		p.Facts["count_"+name] = len(of)
		p.ask("count "+name, counts[len(of)]+" "+name, there(len(of), name))
		if len(of) != 1 {
			continue
		}
		s := of[0]
		p.Facts["color_"+name] = s.color
		p.ask("color "+name, colorNames[s.color], "The "+name+" is "+colorNames[s.color]+".")
		if math.Abs(s.x-0.5) > 0.06 && math.Abs(s.y-0.5) > 0.06 {
			place := 0
			if s.x > 0.5 {
				place++
			}
			if s.y > 0.5 {
				place += 2
			}
			p.Facts["place_"+name] = place
			p.ask("place "+name, places[place], "The "+name+" is at the "+places[place]+".")
		}
	}
	p.ask("what", "shapes", "Some shapes.")
	if len(all) < 2 {
		return
	}
	slices.SortFunc(all, func(a, b shape) int { return int(math.Copysign(1, a.x-b.x)) })
	if first := all[0]; all[1].x-first.x > 0.08 {
		p.end("leftmost", first)
	}
	if last := all[len(all)-1]; last.x-all[len(all)-2].x > 0.08 {
		p.end("rightmost", last)
	}
}

func (p *Picture) end(which string, s shape) {
	p.Facts[which+"_kind"], p.Facts[which+"_color"] = s.kind, s.color
	name := colorNames[s.color] + " " + shapeNames[s.kind]
	if s.color == 5 {
		p.ask(which, name, "The "+which+" shape is an "+name+".")
		return
	}
	p.ask(which, name, "The "+which+" shape is a "+name+".")
}

// there says how many there are.
func there(n int, name string) string {
	if n == 1 {
		return "There is 1 " + name + "."
	}
	return "There are " + counts[n] + " " + name + "s."
}
