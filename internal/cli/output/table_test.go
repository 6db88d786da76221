package output

import (
	"bytes"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/term"
)

func TestTablesFitTheTerminal(t *testing.T) {
	tb := NewTable("NAME", "~DEVICE", ">SEQS", "~NODE")
	tb.Add("worker-12", "gpu0 H200", "7", "node-with-a-long-name")
	tb.Add("worker-2", "cpu0 2c", "12+3", "node-1")
	tb.Paint(2, term.Palette{On: true}.Bad)
	var b bytes.Buffer
	for _, width := range []int{80, 36, 10} {
		if err := tb.write(&b, tableStyle{terminal: true, width: width, bold: func(s string) string { return s }}); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
	}
	if err := tb.write(&b, tableStyle{}); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "table", b.String())
}
