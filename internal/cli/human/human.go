package human

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cluster"
)

// How values look in tables and progress.

// StateLook returns the mark of a state, and how it is colored.
func StateLook(s cluster.State, p term.Palette) (mark string, paint func(string) string) {
	switch s {
	case cluster.StateReady:
		return "●", p.Good
	case cluster.StateDraining:
		return "◐", p.Warn
	case cluster.StateDrained, cluster.StateStopped, cluster.StateSleeping:
		return "◇", p.Dim
	case cluster.StateDegraded:
		return "▲", p.Warn
	case cluster.StateFailed, cluster.StateLost:
		return "✕", p.Bad
	}
	return "○", nil
}

// Device names a device of one of the nodes the short way.
func Device(nodes []cluster.Node, node, id string) string {
	i := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.ID == node || n.Name == node })
	if i < 0 {
		return (*cluster.Node)(nil).DeviceLabel(id)
	}
	return nodes[i].DeviceLabel(id)
}

// Place names what a worker computes on: its device and, if others wrote it, its engine.
func Place(nodes []cluster.Node, w cluster.Worker) string {
	i := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.ID == w.Node || n.Name == w.Node })
	if i < 0 {
		return w.Place(nil)
	}
	return w.Place(&nodes[i])
}

// Age prints how long something lasts, in two units: 45s, 14m, 2h11m, 3d04h.
func Age(d time.Duration) string {
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

// Duration prints how long an operation took: 0.2s, 12.3s, 1:12, 2:05:00.
func Duration(d time.Duration) string {
	s := int(max(d, 0).Seconds())
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", max(d, 0).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// Clock prints what is left until a deadline: 4:41.
func Clock(d time.Duration) string {
	s := int(max(d, 0).Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// Commas prints an integer with separators: 1,204.
func Commas(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural prints a count with its noun: 1 worker, 2 workers.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Commas(n) + " " + noun + "s"
}

// Shape prints how many workers a topology has: "2 prefill + 4 decode workers, pool small: 1
// decode worker, 3 attached servers".
func Shape(t cluster.Topology) string {
	text := shape(t)
	for _, name := range slices.Sorted(maps.Keys(t.Pools)) {
		text += ", pool " + name + ": " + shape(t.In(name))
	}
	if n := len(t.Attached); n > 0 {
		text += ", " + Plural(n, "attached server")
	}
	return text
}

func shape(t cluster.Topology) string {
	var parts []string
	last := cluster.RoleDecode
	for _, r := range cluster.Roles {
		if n := t.Count(r); n != 0 {
			parts, last = append(parts, fmt.Sprintf("%d %s", n, r)), r
		}
	}
	parts = append(parts[:max(len(parts)-1, 0)], Plural(t.Count(last), string(last)+" worker"))
	return strings.Join(parts, " + ")
}

// Names prints names in a row, long ones shortened: worker-1 … worker-7.
func Names(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	if len(names) > 8 {
		return fmt.Sprintf("%s … %s (%d)", names[0], names[len(names)-1], len(names))
	}
	return strings.Join(names, ", ")
}

// CompareNodes puts node-2 before node-10.
func CompareNodes(a, b string) int {
	return cmp.Or(len(a)-len(b), strings.Compare(a, b))
}

// Bytes prints a number of bytes: 1.2 GiB.
func Bytes(n int64) string {
	for _, u := range []struct {
		unit  string
		shift int
	}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if n >= 1<<u.shift {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(int64(1)<<u.shift), u.unit)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// Milliseconds is a duration as a number, for JSON.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Millis prints a short duration: 312 ms.
func Millis(d time.Duration) string {
	if d >= 10*time.Second {
		return Duration(d)
	}
	return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
}

// BrokenPath says why a path cannot be used; empty if it can.
func BrokenPath(p cluster.Path) string {
	switch {
	case p.Failed != "":
		return p.Failed
	case p.Test != nil && p.Test.Error != "":
		return "self-test: " + p.Test.Error
	}
	return ""
}

// Rate prints how fast bytes move.
func Rate(gbps float64) string { return fmt.Sprintf("%.1f GB/s", gbps) }

// ShellQuote makes a word of a POSIX shell.
func ShellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// OrDash is s, or a dash for nothing.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// State is a worker's state with its reason.
func State(w cluster.Worker) string {
	if w.Reason == "" {
		return string(w.State)
	}
	return string(w.State) + ": " + w.Reason
}

// Address is an address without its scheme.
func Address(addr string) string {
	if _, rest, ok := strings.Cut(addr, "://"); ok {
		return rest
	}
	return addr
}

// Lease prints the time left of a lease; nil is unknown.
func Lease(left *time.Duration) string {
	if left == nil {
		return "-"
	}
	return fmt.Sprintf("%.1fs", left.Seconds())
}
