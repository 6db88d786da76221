package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cluster"
)

// How values look in tables and progress.

// stateLook returns the mark of a state, and how it is colored.
func stateLook(s cluster.State, p term.Palette) (mark string, paint func(string) string) {
	switch s {
	case cluster.StateReady:
		return "●", p.Good
	case cluster.StateDraining:
		return "◐", p.Warn
	case cluster.StateDrained, cluster.StateStopped:
		return "◇", p.Dim
	case cluster.StateDegraded:
		return "▲", p.Warn
	case cluster.StateFailed, cluster.StateLost:
		return "✕", p.Bad
	}
	return "○", nil
}

// deviceText names a device of one of the nodes the short way.
func deviceText(nodes []cluster.Node, node, id string) string {
	i := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.ID == node || n.Name == node })
	if i < 0 {
		return (*cluster.Node)(nil).DeviceLabel(id)
	}
	return nodes[i].DeviceLabel(id)
}

// age prints how long something lasts, in two units: 45s, 14m, 2h11m, 3d04h.
func age(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// duration prints how long an operation took: 0.2s, 12.3s, 1:12, 2:05:00.
func duration(d time.Duration) string {
	s := int(max(d, 0).Seconds())
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", max(d, 0).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// clockLeft prints what is left until a deadline: 4:41.
func clockLeft(d time.Duration) string {
	s := int(max(d, 0).Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// commas prints an integer with separators: 1,204.
func commas(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural prints a count with its noun: 1 worker, 2 workers.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return commas(n) + " " + noun + "s"
}

// shape prints a topology: "2 prefill + 4 decode workers".
func shape(prefill, decode int) string {
	switch {
	case prefill == 0:
		return plural(decode, "decode worker")
	case decode == 0:
		return plural(prefill, "prefill worker")
	case decode == 1:
		return fmt.Sprintf("%d prefill + 1 decode worker", prefill)
	}
	return fmt.Sprintf("%d prefill + %d decode workers", prefill, decode)
}

// nameList prints names in a row, long ones shortened: worker-1 … worker-7.
func nameList(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	if len(names) > 8 {
		return fmt.Sprintf("%s … %s (%d)", names[0], names[len(names)-1], len(names))
	}
	return strings.Join(names, ", ")
}

// nodeOrder puts node-2 before node-10.
func nodeOrder(a, b string) int {
	return cmp.Or(len(a)-len(b), strings.Compare(a, b))
}
