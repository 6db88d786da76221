package kernels

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"sync"
)

//go:embed tiles.txt
var tilesText []byte

// MeasuredTile is the fastest kernel of Tiles for a product.
type MeasuredTile struct {
	Rows, In int
	Tokens   int // up to which it holds
	Kernel   string
}

// ParseTiles reads a table of measured tiles: a line for each, with rows, in, tokens and
// the kernel.
func ParseTiles(text []byte) ([]MeasuredTile, error) {
	var table []MeasuredTile
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var m MeasuredTile
		var rest string
		if n, _ := fmt.Sscan(string(line), &m.Rows, &m.In, &m.Tokens, &m.Kernel, &rest); n != 4 || m.Rows < 1 || m.In < 1 || m.Tokens < 1 {
			return nil, fmt.Errorf("measured tiles: line %q is not rows, in, tokens and a kernel", line)
		}
		if !slices.ContainsFunc(Tiles, func(t Tile) bool { return t.Kernel == m.Kernel }) {
			return nil, fmt.Errorf("measured tiles: line %q: no such kernel", line)
		}
		table = append(table, m)
	}
	return table, nil
}

// FormatTiles writes a table as ParseTiles reads it.
func FormatTiles(table []MeasuredTile) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(tilesText) {
		if line[0] == '#' {
			out.Write(line)
		}
	}
	for _, m := range table {
		fmt.Fprintf(&out, "%d %d %d %s\n", m.Rows, m.In, m.Tokens, m.Kernel)
	}
	return out.Bytes()
}

// measuredTiles is the table of this program; a test reads it.
var measuredTiles = sync.OnceValue(func() []MeasuredTile {
	table, err := ParseTiles(tilesText)
	if err != nil {
		return nil
	}
	return table
})

// measuredTile is the kernel that was measured to be the fastest for a product: for the fewest
// tokens that are not less, or the most there are.
func measuredTile(tokens, rows, in int) string { return findTile(measuredTiles(), tokens, rows, in) }

func findTile(table []MeasuredTile, tokens, rows, in int) string {
	var best *MeasuredTile
	for i := range table {
		m := &table[i]
		if m.Rows != rows || m.In != in {
			continue
		}
		closer := best == nil
		if !closer && m.Tokens >= tokens {
			closer = best.Tokens < tokens || m.Tokens < best.Tokens
		} else if !closer {
			closer = best.Tokens < m.Tokens
		}
		if closer {
			best = m
		}
	}
	if best == nil {
		return ""
	}
	return best.Kernel
}
