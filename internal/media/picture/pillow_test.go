package picture

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorded is what scripts/reference/pictures.py writes.
type recorded struct {
	Files     []recordedFile
	Resizes   []recordedResize
	OverWhite string `json:"over_white"`
	Ink       string
}

type recordedFile struct {
	File, RGB, White string
	W, H             int
	Turned           string
	TurnedW          int `json:"turned_w"`
	TurnedH          int `json:"turned_h"`
}

type recordedResize struct {
	From, To      [2]int
	Filter        Filter
	SHA256, Harsh string
}

func pillow(t testing.TB) recorded {
	t.Helper()
	var r recorded
	content, err := os.ReadFile("testdata/pillow.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Files) < 70 || len(r.Resizes) < 45 {
		t.Fatalf("%d files and %d resizes are recorded", len(r.Files), len(r.Resizes))
	}
	return r
}

func file(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/decode", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// sample makes noise over gradients, as the function of the same name in pictures.py.
func sample(w, h int, seed uint64) *Image {
	m := New(w, h)
	for i := range m.Pix {
		n := uint64(i)
		x, y, c := n/3%uint64(w), n/(3*uint64(w)), n%3
		m.Pix[i] = uint8(x*(5+c) + y*3*(c+1) + (n*2654435761+seed*40503)%(1<<32)>>26)
	}
	return m
}

func TestDecodeEqualsPillow(t *testing.T) {
	for _, f := range pillow(t).Files {
		t.Run(f.File, func(t *testing.T) {
			data := file(t, f.File)
			for _, c := range []struct {
				options Options
				want    string
				w, h    int
			}{
				{Options{AsStored: true}, f.RGB, f.W, f.H},
				{Options{AsStored: true, OverWhite: true}, f.White, f.W, f.H},
				{Options{}, f.Turned, f.TurnedW, f.TurnedH},
			} {
				if c.want == "" { // not turned
					c.want, c.w, c.h = f.RGB, f.W, f.H
				}
				m, err := Decode(data, c.options)
				if err != nil {
					t.Fatal(err)
				}
				if m.W != c.w || m.H != c.h || len(m.Pix) != 3*c.w*c.h {
					t.Fatalf("%+v: %d x %d in %d bytes, want %d x %d", c.options, m.W, m.H, len(m.Pix), c.w, c.h)
				}
				if w, h, err := Size(data, c.options); w != c.w || h != c.h || err != nil {
					t.Errorf("Size %d x %d %v, want %d x %d", w, h, err, c.w, c.h)
				}
				if !strings.HasSuffix(f.File, ".jpg") && digest(m.Pix) != c.want {
					t.Errorf("%+v: other pixels", c.options)
				}
			}
		})
	}
}

// The inverse cosine transform of Go rounds otherwise than that of libjpeg-turbo, by 1.
// Interpolation keeps that, conversion to RGB makes up to 3 of it.
func TestDecodeIsCloseToLibjpeg(t *testing.T) {
	worst, sum, count := 0, 0, 0
	for _, f := range pillow(t).Files {
		if !strings.HasSuffix(f.File, ".jpg") {
			continue
		}
		m, err := Decode(file(t, f.File), Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := wanted(t, f.File)
		most, total := 0, 0
		for i, v := range m.Pix {
			d := max(int(v), int(want[i])) - min(int(v), int(want[i]))
			most, total = max(most, d), total+d
		}
		limit := 3
		if f.File == "gray.jpg" || f.File == "rgb.jpg" {
			limit = 1
		}
		if mean := float64(total) / float64(len(want)); most > limit || mean > 0.1 {
			t.Errorf("%s: differs by up to %d, %.3f in the mean", f.File, most, mean)
		}
		worst, sum, count = max(worst, most), sum+total, count+len(want)
	}
	t.Logf("differs by up to %d, %.4f in the mean", worst, float64(sum)/float64(count))
}

// wanted reads the pixels of a golden picture.
func wanted(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata/decode", name+".want.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	var pix []byte
	for y := range m.Bounds().Dy() {
		for x := range m.Bounds().Dx() {
			c := color.NRGBAModel.Convert(m.At(x, y)).(color.NRGBA)
			pix = append(pix, c.R, c.G, c.B)
		}
	}
	return pix
}

// Every color at every opacity, and every ink with every amount of black.
func TestRoundingEqualsPillow(t *testing.T) {
	var white, inks []byte
	for a := range 256 {
		for c := range 256 {
			white = append(white, overWhite(uint8(c), uint8(a)))
			var rgb [3]uint8
			ink(rgb[:], []byte{uint8(c), uint8(c), uint8(c), uint8(a)})
			inks = append(inks, rgb[0])
		}
	}
	if digest(white) != pillow(t).OverWhite {
		t.Error("colors over white differ")
	}
	if digest(inks) != pillow(t).Ink {
		t.Error("CMYK differs")
	}
}

func TestResizeEqualsPillow(t *testing.T) {
	for _, c := range pillow(t).Resizes {
		m := sample(c.From[0], c.From[1], uint64(c.From[0]+c.From[1]))
		harsh := New(m.W, m.H)
		for i, v := range m.Pix {
			if v > 127 {
				harsh.Pix[i] = 255
			}
		}
		for _, in := range []struct {
			m    *Image
			want string
		}{{m, c.SHA256}, {harsh, c.Harsh}} {
			got, err := in.m.Resize(c.To[0], c.To[1], c.Filter)
			if err != nil {
				t.Fatal(err)
			}
			if got.W != c.To[0] || got.H != c.To[1] || digest(got.Pix) != in.want {
				t.Errorf("%v from %v to %v differs", c.Filter, c.From, c.To)
			}
		}
	}
}
