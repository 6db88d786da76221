package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"strings"
	"testing"
)

// A file that ends early is refused, wherever it ends, but where only what follows the
// pixels is lost.
func TestDecodeRefusesTruncatedFiles(t *testing.T) {
	for _, f := range pillow(t).Files {
		data := file(t, f.File)
		whole, err := Decode(data, Options{})
		if err != nil {
			t.Fatal(err)
		}
		step := 1 + len(data)/100 // of small files every length
		for n := 0; n < len(data); n += step {
			m, err := Decode(data[:n], Options{})
			switch {
			case err != nil:
				if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnsupported) {
					t.Fatalf("%s cut to %d bytes: %v matches no error of this package", f.File, n, err)
				}
			case !bytes.Equal(m.Pix, whole.Pix) && f.File != "turned8.webp": // its EXIF data come last
				t.Fatalf("%s cut to %d of %d bytes decodes to something else", f.File, n, len(data))
			}
		}
		if _, err := Decode(data[:len(data)*3/4], Options{}); !strings.HasPrefix(f.File, "animated") && !errors.Is(err, ErrFormat) {
			t.Errorf("%s cut to three quarters: %v", f.File, err)
		}
	}
}

func TestLimitsAreCheckedBeforeDecoding(t *testing.T) {
	for _, name := range []string{"rgb8.png", "420.jpg", "lossy.webp", "lossless.webp", "animated.webp", "animated.gif", "rgb24.bmp"} {
		data := file(t, name) // 45 × 31
		for _, c := range []struct {
			limits Limits
			over   bool
		}{
			{Limits{Side: 45}, false},
			{Limits{Side: 44}, true},
			{Limits{Pixels: 45 * 31}, false},
			{Limits{Pixels: 45*31 - 1}, true},
			{Limits{Bytes: len(data)}, false},
			{Limits{Bytes: len(data) - 1}, true},
		} {
			_, _, sizeErr := Size(data, Options{Limits: c.limits})
			_, err := Decode(data, Options{Limits: c.limits})
			if errors.Is(err, ErrLimit) != c.over || errors.Is(sizeErr, ErrLimit) != c.over {
				t.Errorf("%s with %+v: decode %v, size %v", name, c.limits, err, sizeErr)
			}
		}
	}
}

// Headers that announce far more than follows cost nothing.
func TestBombsCostNothing(t *testing.T) {
	png := file(t, "rgb8.png")
	binary.BigEndian.PutUint32(png[16:], 60000)
	binary.BigEndian.PutUint32(png[20:], 60000)
	binary.BigEndian.PutUint32(png[29:], crc32.ChecksumIEEE(png[12:29]))
	jpeg := file(t, "420.jpg")
	frame := bytes.Index(jpeg, []byte("\xff\xc0"))
	binary.BigEndian.PutUint16(jpeg[frame+5:], 60000)
	binary.BigEndian.PutUint16(jpeg[frame+7:], 60000)
	gif := file(t, "whole.gif")
	binary.LittleEndian.PutUint16(gif[6:], 60000)
	binary.LittleEndian.PutUint16(gif[8:], 60000)
	webp := file(t, "animated.webp")
	copy(webp[24:], "\xff\xff\xff\xff\xff\xff")
	bmp := file(t, "rgb24.bmp")
	binary.LittleEndian.PutUint32(bmp[18:], 60000)
	binary.LittleEndian.PutUint32(bmp[22:], 60000)
	for name, data := range map[string][]byte{"PNG": png, "JPEG": jpeg, "GIF": gif, "WebP": webp, "BMP": bmp} {
		var err error
		allocated := testing.AllocsPerRun(1, func() { _, err = Decode(data, Options{}) })
		if !errors.Is(err, ErrLimit) || allocated > 200 {
			t.Errorf("%s: %v with %.0f allocations", name, err, allocated)
		}
	}
}

// A still WebP may announce a small canvas and bring a large frame.
func TestFrameMustHaveTheAnnouncedSize(t *testing.T) {
	small, large := file(t, "lossy-odd.webp"), file(t, "lossy.webp")
	vp8x := append([]byte("VP8X\x0a\x00\x00\x00"), make([]byte, 10)...) // 1 × 1
	data := bytes.Join([][]byte{large[:12], vp8x, large[12:]}, nil)
	if _, err := Decode(data, Options{}); !errors.Is(err, ErrFormat) {
		t.Errorf("a large frame: %v", err)
	}
	data = bytes.Join([][]byte{small[:12], vp8x, small[12:]}, nil)
	binary.LittleEndian.PutUint32(data[4:], uint32(len(data)-8))
	if _, err := Decode(data, Options{}); err != nil {
		t.Errorf("a frame as announced: %v", err)
	}
}

// Every scan of a progressive JPEG costs a pass over the picture.
func TestScansOfAJPEGAreBounded(t *testing.T) {
	data := file(t, "progressive.jpg")
	scan := bytes.LastIndex(data, []byte("\xff\xda"))
	for _, c := range []struct {
		more int
		over bool
	}{{5, false}, {200, true}} {
		long := bytes.Clone(data[:len(data)-2])
		for range c.more {
			long = append(long, data[scan:len(data)-2]...)
		}
		_, err := Decode(append(long, 0xff, 0xd9), Options{})
		if errors.Is(err, ErrLimit) != c.over {
			t.Errorf("%d more scans: %v", c.more, err)
		}
	}
}

func TestDecodeNamesWhatItRefuses(t *testing.T) {
	jpeg := file(t, "420.jpg")
	frame := bytes.Index(jpeg, []byte("\xff\xc0"))
	with := func(at int, b ...byte) []byte {
		data := bytes.Clone(jpeg)
		copy(data[at:], b)
		return data
	}
	noPixels := file(t, "whole.gif")
	noPixels[6] = 0
	shortFrame := file(t, "animated-part.webp")
	anmf := bytes.Index(shortFrame, []byte("ANMF"))
	shortFrame = append(shortFrame[:anmf], "ANMF\x0f\x00\x00\x00123456789012345"...)
	cmyk := file(t, "cmyk.jpg")
	adobe := bytes.Index(cmyk, []byte("Adobe"))
	cmyk[adobe] = 'a'
	bmp := file(t, "rgb24.bmp")
	bmp[30] = 1
	gif := file(t, "part.gif")
	gif[6] = 18 // the frame needs 19
	for name, c := range map[string]struct {
		data []byte
		kind error
		text string
	}{
		"nothing":               {nil, ErrUnsupported, "not PNG, JPEG, WebP, GIF or BMP"},
		"text":                  {[]byte("<svg/>"), ErrUnsupported, "not PNG, JPEG, WebP, GIF or BMP"},
		"PNG without a header":  {file(t, "rgb8.png")[:20], ErrFormat, "IHDR"},
		"JPEG of height 0":      {with(frame+5, 0, 0), ErrUnsupported, "height"},
		"JPEG of width 0":       {with(frame+7, 0, 0), ErrFormat, "0 x 31"},
		"arithmetic JPEG":       {with(frame+1, 0xc9), ErrUnsupported, "arithmetic"},
		"JPEG of 12 bits":       {with(frame+4, 12), ErrUnsupported, "precision"},
		"JPEG of 3 x 1 samples": {with(frame+11, 0x31), ErrUnsupported, "ratio"},
		"JPEG with no scan":     {[]byte("\xff\xd8\xff\xd9"), ErrFormat, "no frame"},
		"JPEG of no component":  {with(bytes.Index(jpeg, []byte("\xff\xda"))+5, 9), ErrFormat, "component"},
		"unmarked CMYK":         {cmyk, ErrUnsupported, "Adobe"},
		"compressed BMP":        {bmp, ErrUnsupported, "compressed"},
		"GIF frame outside":     {gif, ErrFormat, "bounds"},
		"GIF of no pixels":      {noPixels, ErrFormat, "0 x 11"},
		"WebP of a short frame": {shortFrame, ErrFormat, "first frame"},
		"GIF without a frame":   {append(file(t, "part.gif")[:61], ';'), ErrFormat, "no frame"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(c.data, Options{})
			if !errors.Is(err, c.kind) || !strings.Contains(fmt.Sprint(err), c.text) {
				t.Errorf("%v, want %v with %q", err, c.kind, c.text)
			}
		})
	}
}

// Segments may hold anything, and markers may be preceded by any number of 0xff.
func TestMarkersOfAJPEG(t *testing.T) {
	data := file(t, "420.jpg")
	want, err := Decode(data, Options{})
	if err != nil {
		t.Fatal(err)
	}
	decoy := []byte("\xff\xc0\x00\x0b\x08\xff\xff\xff\xff\x01\x01\x11\x00" + strings.Repeat("\xff\xda\x00\x02", 300))
	segment := append([]byte("\xff\xff\xff\xe2\x00\x00"), decoy...)
	binary.BigEndian.PutUint16(segment[4:], uint16(2+len(decoy)))
	m, err := Decode(bytes.Join([][]byte{data[:2], segment, data[2:]}, nil), Options{})
	if err != nil || !bytes.Equal(m.Pix, want.Pix) {
		t.Errorf("a segment that looks like markers: %v", err)
	}
}

func TestCheckedComparesBothSides(t *testing.T) {
	m := image.NewGray(image.Rect(0, 0, 4, 3))
	for _, c := range []struct {
		w, h int
		err  error
	}{{4, 3, nil}, {5, 3, ErrFormat}, {4, 2, ErrFormat}} {
		if _, err := checked(m, nil, c.w, c.h); !errors.Is(err, c.err) {
			t.Errorf("%d x %d: %v", c.w, c.h, err)
		}
	}
}

func TestWindowCropsAndPads(t *testing.T) {
	m := sample(7, 5, 1)
	for _, c := range [][4]int{{0, 0, 7, 5}, {2, 1, 3, 2}, {-2, -3, 20, 20}, {5, 3, 9, 9}, {7, 0, 2, 2}, {-4, 0, 4, 5}, {0, -9, 7, 9}, {0, 8, 7, 2}} {
		got := m.Window(c[0], c[1], c[2], c[3])
		for y := range c[3] {
			for x := range c[2] {
				want := []byte{0, 0, 0}
				if sx, sy := x+c[0], y+c[1]; sx >= 0 && sx < 7 && sy >= 0 && sy < 5 {
					want = m.Pix[3*(sy*7+sx):][:3]
				}
				if have := got.Pix[3*(y*c[2]+x):][:3]; !bytes.Equal(have, want) {
					t.Fatalf("window %v at %d, %d: %v, want %v", c, x, y, have, want)
				}
			}
		}
	}
}

func TestResizeWindowIsAWindowOfTheWhole(t *testing.T) {
	m := sample(37, 29, 1)
	for _, size := range [][2]int{{37, 29}, {37, 90}, {80, 29}, {15, 11}, {64, 57}} {
		whole, err := m.Resize(size[0], size[1], Lanczos)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range [][4]int{{0, 0, size[0], size[1]}, {3, 2, 9, 5}, {-2, -3, 100, 100}, {0, 4, size[0], 3}, {4, 0, 3, size[1]}, {-9, 3, 12, 4}, {10, 8, 90, 90}, {200, 0, 4, 4}} {
			got, err := m.ResizeWindow(size[0], size[1], Lanczos, c[0], c[1], c[2], c[3])
			if err != nil {
				t.Fatal(err)
			}
			want := whole.Window(c[0], c[1], c[2], c[3])
			if got.W != want.W || got.H != want.H || !bytes.Equal(got.Pix, want.Pix) {
				t.Errorf("window %v of %v: %d x %d pixels differ", c, size, got.W, got.H)
			}
		}
	}
	// The whole would have 35 G pixels.
	if got, err := sample(1, 1000, 1).ResizeWindow(336, 336*1000000, Bicubic, 0, 168*1000000, 336, 336); err != nil || got.H != 336 {
		t.Errorf("the middle of a strip: %v", err)
	}
}

func TestResizeRefuses(t *testing.T) {
	m := sample(4, 4, 1)
	if _, err := m.Resize(2, 2, 4); !errors.Is(err, ErrUnsupported) {
		t.Errorf("an unknown filter: %v", err)
	}
	for _, c := range [][2]int{{0, 2}, {2, 0}, {-1, 2}} {
		if _, err := m.Resize(c[0], c[1], Bilinear); err == nil {
			t.Errorf("resized to %v", c)
		}
	}
	for _, c := range [][2]int{{0, 2}, {2, 0}} {
		if _, err := m.ResizeWindow(2, 2, Bilinear, 0, 0, c[0], c[1]); err == nil {
			t.Errorf("a window of %v", c)
		}
	}
	if same, err := m.Resize(4, 4, Lanczos); same != m || err != nil {
		t.Errorf("the same size: %v", err)
	}
}

func TestOrientationOfDamagedEXIF(t *testing.T) {
	good := []byte("Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00")
	if got := orientation(good); got != 6 {
		t.Fatalf("orientation %d, want 6", got)
	}
	for n := range len(good) {
		if got := orientation(good[:n]); got != 1 && got != 6 {
			t.Errorf("cut to %d bytes: %d", n, got)
		}
	}
	for at, b := range map[int]byte{6: 'X', 10: 200, 13: 255, 18: 4, 24: 9} {
		bad := bytes.Clone(good)
		bad[at] = b
		if got := orientation(bad); got != 1 {
			t.Errorf("byte %d is %d: %d, want 1", at, b, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range pillow(f).Files {
		f.Add(file(f, r.File), true, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, stored, white bool) {
		o := Options{AsStored: stored, OverWhite: white, Limits: Limits{Pixels: 1 << 16, Bytes: 1 << 16}}
		w, h, sizeErr := Size(data, o)
		m, err := Decode(data, o)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrLimit) {
				t.Errorf("%v matches no error of this package", err)
			}
			return
		}
		if sizeErr != nil || m.W != w || m.H != h || len(m.Pix) != 3*w*h || w*h > 1<<16 {
			t.Errorf("%d x %d in %d bytes, Size says %d x %d, %v", m.W, m.H, len(m.Pix), w, h, sizeErr)
		}
	})
}

func FuzzResize(f *testing.F) {
	f.Add(uint16(64), uint16(48), uint16(20), uint16(90), uint8(0))
	f.Fuzz(func(t *testing.T, sw, sh, w, h uint16, filter uint8) {
		m := sample(int(sw)%300+1, int(sh)%300+1, 5)
		for i := range m.Pix { // one color stays one color
			m.Pix[i] = uint8(40 * (1 + i%3))
		}
		got, err := m.Resize(int(w)%300+1, int(h)%300+1, Filter(filter%3)+1)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range got.Pix {
			if want := uint8(40 * (1 + i%3)); v != want {
				t.Fatalf("byte %d is %d, want %d", i, v, want)
			}
		}
	})
}

func BenchmarkResize12MP(b *testing.B) {
	m := sample(4000, 3000, 1)
	for _, filter := range []Filter{Lanczos, Bicubic, Bilinear} {
		b.Run(filter.String(), func(b *testing.B) {
			for b.Loop() {
				if _, err := m.Resize(512, 384, filter); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
