package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Paths judges the NIXL paths between workers, as they have just been tested.
func Paths(m client.Measured) Finding {
	all := m.Paths
	var broken, lower, silent []string
	byTransport := map[string]int{}
	var slowest, fastest *cluster.Path
	for i, p := range all {
		if p.Transport != "" {
			byTransport[p.Transport]++
		}
		between := p.From + " to " + p.To
		if why := human.BrokenPath(p); why != "" || p.Transport == "" {
			broken = append(broken, between+": "+cmp.Or(why, "no path"))
			continue
		}
		for _, c := range p.Fallbacks() {
			lower = append(lower, fmt.Sprintf("%s over %s and not %s: %s", between, p.Transport, c.Transport, c.Reason))
		}
		if p.Test == nil {
			continue
		}
		if slowest == nil || speed(p) < speed(*slowest) {
			slowest = &all[i]
		}
		if fastest == nil || speed(p) > speed(*fastest) {
			fastest = &all[i]
		}
	}
	for _, err := range m.Failed {
		silent = append(silent, err.Error())
	}
	var parts []string
	for _, t := range slices.Sorted(maps.Keys(byTransport)) {
		parts = append(parts, fmt.Sprintf("%d over %s", byTransport[t], t))
	}
	text := human.Plural(len(all), "path") + ": " + strings.Join(parts, ", ")
	if slowest != nil {
		text += fmt.Sprintf("; %s to %s, the slowest %s to %s", human.Rate(speed(*slowest)), human.Rate(speed(*fastest)), slowest.From, slowest.To)
	}
	if m.Left > 0 {
		text += fmt.Sprintf("; %d more not tested", m.Left)
	}
	f := good("%s", text)
	switch {
	case len(broken) > 0:
		f = Bad("dynctl explain path, and the log of the first", "%s", firstOf(broken))
	case len(lower) > 0:
		f = poor("dynctl explain path, and nixl.transports", "%s", firstOf(lower))
	case len(silent) > 0:
		f = Bad("dynctl logs of the worker", "%s", firstOf(silent))
	case len(all) == 0:
		return Skipped("no two workers exchange KV blocks")
	}
	return f.With("paths", all)
}

// speed is the slower direction of a path.
func speed(p cluster.Path) float64 { return min(p.Test.WriteGBps, p.Test.ReadGBps) }
