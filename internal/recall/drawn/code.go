package drawn

import (
	"fmt"
	"image"
	"math/rand/v2"
)

// code draws a door in a wall, with a plate on it.
func (p *Picture) code(r *rand.Rand) {
	wi, hi := p.size()
	w, h := float64(wi), float64(hi)
	p.background(r, gray(r, 60+r.IntN(180)))
	door := r.IntN(len(palette))
	left, right, top := between(r, 0, 0.09)*w, between(r, 0.91, 1)*w, between(r, 0, 0.12)*h
	paintDoor := paint(r, door)
	frame := max(wi/40, 1)
	p.fill(image.Rect(int(left)-frame, int(top)-frame, int(right)+frame, hi), shift(paintDoor, -60))
	p.fill(image.Rect(int(left), int(top), int(right), hi), paintDoor)

	width := between(r, 0.5, 0.78) * w / 4
	height := min(max(width*between(r, 1.2, 1.7), h*0.14), h*0.32)
	margin := width * between(r, 0.15, 0.5)
	x := between(r, left+margin, right-margin-4*width)
	y := between(r, top+margin, h-margin-height)
	plate, digits := ink(r)
	p.fill(image.Rect(int(x-margin), int(y-margin), int(x+4*width+margin), int(y+height+margin)), plate)
	// The knob is where no digit is.
	knob := image.Pt(int(between(r, left+0.04*w, left+0.09*w)), int(between(r, 0.4, 0.6)*h))
	if r.IntN(2) == 0 {
		knob.X = wi - knob.X
	}
	if s := wi / 40; !knob.In(image.Rect(int(x-margin)-s, int(y-margin)-s, int(x+4*width+margin)+s, int(y+height+margin)+s)) {
		p.fill(image.Rect(knob.X-s, knob.Y-s, knob.X+s, knob.Y+s), shift(paintDoor, 90))
	}
	code := make([]int, 4)
	text := ""
	for i := range code {
		code[i] = r.IntN(10)
		text += fmt.Sprint(code[i])
		p.Facts[fmt.Sprintf("digit%d", i)] = code[i]
	}
	p.line(r, code, x, y, width, height, digits, true)
	p.Facts["door"] = door
	p.ask("code", text, "The code on the door is "+text+".")
	p.ask("door", colorNames[door], "The door is "+colorNames[door]+".")
	p.ask("what", "door", "A door with a code.")
}

// digits fills the picture with rows of digits.
func (p *Picture) digits(r *rand.Rand) {
	wi, hi := p.size()
	w, h := float64(wi), float64(hi)
	plate, digits := ink(r)
	p.background(r, plate)
	width := between(r, 0.125, 0.2) * w
	for y := between(r, 0, 0.1) * h; ; {
		height := min(max(width*between(r, 1.1, 1.8), h*0.14), h*0.32)
		if y+height > h {
			return
		}
		x := between(r, 0, 0.15) * w
		row := make([]int, int((w-x)/width))
		for i := range row {
			row[i] = r.IntN(10)
		}
		p.line(r, row, x, y, width, height, digits, false)
		y += height + between(r, 0.02, 0.12)*h
	}
}
