package doctor

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
)

func checksTable(checks []judge.Finding, wide bool) *output.Table {
	titles := []string{"GROUP", "CHECK", "STATUS", "~FOUND", "~FIX"}
	if wide {
		titles = append(titles, ">TOOK")
	}
	t := output.NewTable(titles...)
	for _, f := range checks {
		row := []string{f.Group, f.Name, f.Status, f.Found, human.OrDash(f.Fix)}
		if wide {
			row = append(row, fmt.Sprintf("%.1fms", f.TookMS))
		}
		t.Add(row...)
	}
	return t
}

// diagnosisText is the list as people read it on a terminal.
func diagnosisText(sess *session.Session, d Diagnosis) string {
	p := sess.Out.Palette()
	width := 0
	for _, f := range d.Checks {
		width = max(width, term.Width(f.Name))
	}
	var b strings.Builder
	group := ""
	for _, f := range d.Checks {
		if f.Group != group {
			if group != "" {
				b.WriteString("\n")
			}
			group = f.Group
			fmt.Fprintf(&b, "%s\n", p.Bold(group))
		}
		mark, paint := checkLook(f.Status, p)
		status := ""
		if f.Status != judge.OK {
			status = f.Status + ": "
		}
		fmt.Fprintf(&b, "  %s %s  %s%s\n", paint(mark), term.PadRight(f.Name, width), paint(status), term.Clean(f.Found))
		if f.Fix != "" {
			fmt.Fprintf(&b, "    %s  try: %s\n", strings.Repeat(" ", width), term.Clean(f.Fix))
		}
	}
	parts := []string{fmt.Sprintf("%d ok", d.OK), human.Plural(d.Warned, "warning"), human.Plural(d.Failed, "failure")}
	if d.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d skipped", d.Skipped))
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(parts, ", "))
	return b.String()
}

func checkLook(status string, p term.Palette) (mark string, paint func(string) string) {
	switch status {
	case judge.OK:
		return "✓", p.Good
	case judge.Warn:
		return "▲", p.Warn
	case judge.Skip:
		return "·", p.Dim
	}
	return "✗", p.Bad
}
