// Screenshot turns a screen, as text with escape sequences on standard input, into an SVG
// picture on standard output. scripts/screenshots.sh uses it for the pictures of
// documents. It knows the sequences that "dynctl top -o screen" writes, no others.
package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Sizes of a cell in pixels, and the margin around the screen.
const (
	cellWidth, cellHeight = 8.4, 17.0
	margin                = 12.0
)

// The ground, and text on it.
const (
	ground = "#1b1f24"
	text   = "#d6dbe1"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("screenshot: ")
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	out := bufio.NewWriter(os.Stdout)
	draw(out, strings.Split(strings.TrimRight(string(in), "\n"), "\n"))
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

// look is a style of text.
type look struct {
	fore, back           string // empty: the usual
	bold, faint, reverse bool
}

// draw writes the picture.
func draw(w *bufio.Writer, lines []string) {
	width := 0
	for _, l := range lines {
		n := 0
		each(l, func(_ look, run string) { n += utf8.RuneCountInString(run) })
		width = max(width, n)
	}
	wide, high := float64(width)*cellWidth+2*margin, float64(len(lines))*cellHeight+2*margin
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14">`+"\n", wide, high, wide, high)
	fmt.Fprintf(w, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", ground)
	for y, l := range lines {
		x := 0
		top := margin + float64(y)*cellHeight
		each(l, func(k look, run string) {
			n := utf8.RuneCountInString(run)
			part(w, k, run, margin+float64(x)*cellWidth, top, float64(n)*cellWidth)
			x += n
		})
	}
	fmt.Fprintln(w, "</svg>")
}

// part writes one run of characters that look the same.
func part(w *bufio.Writer, k look, run string, x, top, wide float64) {
	fore, back := k.fore, k.back
	if fore == "" {
		fore = text
	}
	if k.reverse {
		if back == "" {
			back = ground
		}
		fore, back = back, fore
	}
	if back != "" {
		fmt.Fprintf(w, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, top, wide, cellHeight, back)
	}
	if strings.TrimSpace(run) == "" {
		return
	}
	style := ""
	if k.bold {
		style += ` font-weight="bold"`
	}
	if k.faint {
		style += ` opacity="0.55"`
	}
	// textLength keeps columns in place whatever font there is.
	fmt.Fprintf(w, `<text x="%.1f" y="%.1f" textLength="%.1f" xml:space="preserve" fill="%s"%s>%s</text>`+"\n",
		x, top+cellHeight*0.76, wide, fore, style, html.EscapeString(run))
}

// each calls f for the runs of a line.
func each(line string, f func(k look, run string)) {
	var k look
	for line != "" {
		at := strings.Index(line, "\x1b[")
		if at != 0 {
			run := line
			if at > 0 {
				run = line[:at]
			}
			f(k, run)
			line = line[len(run):]
			continue
		}
		end := strings.IndexByte(line, 'm')
		if end < 0 {
			log.Fatalf("an unknown escape sequence: %q", line)
		}
		k = k.with(strings.Split(line[2:end], ";"))
		line = line[end+1:]
	}
}

// with is the look after the parameters of an SGR sequence.
func (k look) with(codes []string) look {
	for i := 0; i < len(codes); i++ {
		n, err := strconv.Atoi("0" + codes[i])
		if err != nil {
			log.Fatalf("an unknown color %q", codes)
		}
		switch {
		case n == 0:
			k = look{}
		case n == 1:
			k.bold = true
		case n == 2:
			k.faint = true
		case n == 7:
			k.reverse = true
		case (n == 38 || n == 48) && i+2 < len(codes) && codes[i+1] == "5":
			c := indexed(codes[i+2])
			if n == 38 {
				k.fore = c
			} else {
				k.back = c
			}
			i += 2
		default:
			log.Fatalf("an unknown color %q", codes)
		}
	}
	return k
}

// indexed is a color of the cube or of the gray ramp of 256-color terminals.
func indexed(code string) string {
	n, err := strconv.Atoi(code)
	if err != nil || n < 16 || n > 255 {
		log.Fatalf("an unknown color %q", code)
	}
	if n >= 232 {
		v := 8 + 10*(n-232)
		return fmt.Sprintf("#%02x%02x%02x", v, v, v)
	}
	level := [6]int{0, 95, 135, 175, 215, 255}
	n -= 16
	return fmt.Sprintf("#%02x%02x%02x", level[n/36], level[n/6%6], level[n%6])
}
