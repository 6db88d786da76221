package drawn

import (
	"bytes"
	"image/png"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func draw(kind Kind, seed uint64) Picture { return Draw(rand.New(rand.NewPCG(seed, 0)), kind) }

// A picture has questions of its own that answers tell apart, and its objects lie in it.
func TestDraw(t *testing.T) {
	topics := map[string]bool{}
	for _, kind := range append(Kinds, Digits) {
		for seed := range uint64(150) {
			p := draw(kind, seed)
			w, h := p.size()
			if p.Kind != kind || w < 96 || w > 320 || h < 96 || h > 320 {
				t.Fatalf("%s %d: %s of %d x %d", kind, seed, p.Kind, w, h)
			}
			for _, o := range p.Objects {
				if !o.Box.In(p.Image.Rect) || o.Box.Empty() {
					t.Errorf("%s %d: object %+v outside of %v", kind, seed, o, p.Image.Rect)
				}
			}
			for _, a := range p.Asks {
				topics[a.Topic] = true
				if !a.Right(a.Answer) || a.Right("I do not know.") || len(a.Ways) < 10 || len(a.Held) < 4 || strings.ContainsAny(strings.Join(append(a.Held, a.Ways...), ""), "%{|}#") {
					t.Errorf("%s %d: %+v", kind, seed, a)
				}
			}
			if !bytes.Equal(p.Image.Pix, draw(kind, seed).Image.Pix) {
				t.Errorf("%s %d: another picture from the same numbers", kind, seed)
			}
			if m, err := png.Decode(bytes.NewReader(p.PNG())); err != nil || m.Bounds() != p.Image.Rect {
				t.Errorf("%s %d: as a file: %v", kind, seed, err)
			}
		}
	}
	if len(topics) != 3+1+3*len(shapeNames)+2+3+2 {
		t.Errorf("topics %v", topics)
	}
}

// No question is both trained with and held out, and the usual one is trained with.
func TestWays(t *testing.T) {
	for topic, a := range texts() {
		for _, way := range a.Held {
			if slices.Contains(a.Ways, way) {
				t.Errorf("%s: %q is not held out", topic, way)
			}
		}
		if list, ok := patterns[topic]; ok && a.Text() != list[0] {
			t.Errorf("%s: the usual way is %q", topic, a.Text())
		}
	}
	if got := variants("a{b|c}d{|e}"); !slices.Equal(got, []string{"abd", "acd", "abde", "acde"}) {
		t.Errorf("%q", got)
	}
}

// The code of a door is what its digits show, from left to right.
func TestCode(t *testing.T) {
	for seed := range uint64(100) {
		p := draw(Code, seed)
		ask, ok := p.Ask("code")
		text, right := "", 0
		for _, o := range p.Objects {
			text += string(rune('0' + o.Class))
			if o.Box.Min.X < right {
				t.Errorf("%d: digits overlap", seed)
			}
			right = o.Box.Max.X
			if !inked(p, o) {
				t.Errorf("%d: no digit is seen at %v", seed, o.Box)
			}
		}
		if !ok || ask.Key != text || len(text) != 4 || ask.Answer != "The code on the door is "+text+"." {
			t.Errorf("%d: %+v, drawn %s", seed, ask, text)
		}
	}
}

// inked reports whether a box has dark and light pixels.
func inked(p Picture, o Object) bool {
	lo, hi := 255, 0
	for y := o.Box.Min.Y; y < o.Box.Max.Y; y++ {
		for x := o.Box.Min.X; x < o.Box.Max.X; x++ {
			c := p.Image.RGBAAt(x, y)
			v := (int(c.R) + int(c.G) + int(c.B)) / 3
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	return hi-lo > 80
}

// Counts, colors and places are those of the objects.
func TestShapes(t *testing.T) {
	for seed := range uint64(200) {
		p := draw(Shapes, seed)
		counts := map[int]int{}
		for _, o := range p.Objects {
			counts[o.Class-firstShape]++
		}
		if p.Facts["total"] != len(p.Objects) || len(p.Objects) < 1 || len(p.Objects) > MaxCount {
			t.Errorf("%d: %d shapes, %v", seed, len(p.Objects), p.Facts)
		}
		for kind, name := range shapeNames {
			if ask, _ := p.Ask("count " + name); p.Facts["count_"+name] != counts[kind] || ask.Answer != there(counts[kind], name) {
				t.Errorf("%d: %d of %s, asked %q", seed, counts[kind], name, ask.Answer)
			}
			ask, ok := p.Ask("color " + name)
			if ok != (counts[kind] == 1) {
				t.Errorf("%d: %d of %s, color %q", seed, counts[kind], name, ask.Answer)
			}
			at := slices.IndexFunc(p.Objects, func(o Object) bool { return o.Class-firstShape == kind })
			if ok && ask.Key != colorNames[p.Objects[at].Color] {
				t.Errorf("%d: color of %s: %s", seed, name, ask.Key)
			}
			if ask, ok := p.Ask("place " + name); ok {
				b, r := p.Objects[at].Box, p.Image.Rect
				left, top := b.Min.X+b.Max.X < r.Dx(), b.Min.Y+b.Max.Y < r.Dy()
				if strings.HasSuffix(ask.Key, "left") != left || strings.HasPrefix(ask.Key, "top") != top {
					t.Errorf("%d: %s at %v of %v is %s", seed, name, b, r, ask.Key)
				}
			}
		}
		if ask, ok := p.Ask("leftmost"); ok {
			first := slices.MinFunc(p.Objects, func(a, b Object) int { return a.Box.Min.X + a.Box.Max.X - b.Box.Min.X - b.Box.Max.X })
			if ask.Key != colorNames[first.Color]+" "+shapeNames[first.Class-firstShape] {
				t.Errorf("%d: leftmost %s of %+v", seed, ask.Key, p.Objects)
			}
		}
	}
}

// The highest bar and the busiest worker are the longest ones by far.
func TestBars(t *testing.T) {
	for _, tc := range []struct {
		kind          Kind
		topic, number string
		long          func(o Object) int
		gap           float64
	}{
		{Chart, "highest", "bars", func(o Object) int { return o.Box.Dy() }, 0.07},
		{Panel, "busiest", "workers", func(o Object) int { return o.Box.Dx() }, 0.04},
	} {
		for seed := range uint64(100) {
			p := draw(tc.kind, seed)
			sorted := slices.Clone(p.Objects)
			slices.SortFunc(sorted, func(a, b Object) int { return tc.long(b) - tc.long(a) })
			ask, _ := p.Ask(tc.topic)
			if p.Facts[tc.topic] != sorted[0].Place || !strings.HasSuffix(ask.Key, string(rune('1'+sorted[0].Place))) || p.Facts[tc.number] != len(p.Objects) {
				t.Errorf("%s %d: %+v, %+v", tc.kind, seed, ask, sorted)
			}
			w, h := p.size()
			if float64(tc.long(sorted[0])-tc.long(sorted[1])) < tc.gap*float64(map[Kind]int{Chart: h, Panel: w}[tc.kind]) {
				t.Errorf("%s %d: the longest two are %d and %d", tc.kind, seed, tc.long(sorted[0]), tc.long(sorted[1]))
			}
		}
	}
}

// Every fact that a picture has is among those with a size, and below it.
func TestFacts(t *testing.T) {
	sizes := map[string]int{}
	for _, f := range FactSizes() {
		sizes[f.Name] = f.Size
	}
	met := map[string]bool{}
	for _, kind := range Kinds {
		for seed := range uint64(200) {
			for name, v := range draw(kind, seed).Facts {
				if v < 0 || v >= sizes[name] {
					t.Errorf("%s %d: %s is %d of %d", kind, seed, name, v, sizes[name])
				}
				met[name] = true
			}
		}
	}
	if len(met) != len(sizes) {
		t.Errorf("%d of %d facts were met", len(met), len(sizes))
	}
}
