package tui

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
)

func TestWriteTable(t *testing.T) {
	tests := []struct {
		name string
		odd  bool
		opts TableOptions
	}{
		{name: "table-terminal", opts: TableOptions{Terminal: true}},
		{name: "table-wide", opts: TableOptions{Terminal: true, Wide: true, Views: []string{"workers"}}},
		{name: "table-narrow", opts: TableOptions{Terminal: true, Width: 80}},
		{name: "table-piped", opts: TableOptions{}},
		{name: "table-exact", opts: TableOptions{Exact: true, Views: []string{"workers", "latency"}}},
		{name: "table-odd", odd: true, opts: TableOptions{Terminal: true, Views: []string{"workers", "leases", "queue"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := labSnapshot()
			if tt.odd {
				s = oddSnapshot()
			}
			var b bytes.Buffer
			if err := WriteTable(&b, s, tt.opts); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(b.String(), "\x1b") {
				t.Error("escape sequences in a table")
			}
			golden(t, tt.name, b.String())
		})
	}
}

// No row is wider than the terminal, down to two short columns.
func TestTablesFitTheWidth(t *testing.T) {
	for _, s := range []cluster.Snapshot{labSnapshot(), oddSnapshot()} {
		for width := 32; width < 250; width++ {
			var b bytes.Buffer
			if err := WriteTable(&b, s, TableOptions{Terminal: true, Width: width, ASCII: width%2 == 0}); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				if line = strings.TrimSuffix(line, "\n"); cells.Width(line) > width {
					t.Fatalf("%d cells wide on %d: %q", cells.Width(line), width, line)
				}
			}
		}
	}
}

func TestTablesHaveEveryPane(t *testing.T) {
	var names []string
	for _, tb := range Tables(labSnapshot(), TableOptions{}) {
		names = append(names, tb.Name)
		for i, r := range tb.Rows {
			if len(r) != len(tb.Columns) {
				t.Errorf("%s row %d has %d cells of %d", tb.Name, i, len(r), len(tb.Columns))
			}
		}
	}
	if got, want := strings.Join(names, " "), strings.Join(append(Views(), "sequences of worker-4", "transfers of worker-4"), " "); got != want {
		t.Errorf("tables %s, want %s", got, want)
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken pipe")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteTableReportsAFailedWrite(t *testing.T) {
	if err := WriteTable(brokenWriter{}, labSnapshot(), TableOptions{}); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want %v", err, errBroken)
	}
}
