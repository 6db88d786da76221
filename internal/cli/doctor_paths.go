package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// pathsFinding judges the NIXL paths that prefill workers know.
func pathsFinding(paths map[string][]cluster.Path, failed map[string]error) finding {
	var all []cluster.Path
	for _, from := range slices.SortedFunc(maps.Keys(paths), cluster.CompareNames) {
		all = append(all, paths[from]...)
	}
	var broken, lower, silent []string
	byTransport := map[string]int{}
	var slowest *cluster.Path
	for i, p := range all {
		if p.Transport != "" {
			byTransport[p.Transport]++
		}
		between := p.From + " to " + p.To
		if why := brokenText(p); why != "" || p.Transport == "" {
			broken = append(broken, between+": "+cmp.Or(why, "no path"))
			continue
		}
		for _, c := range p.Fallbacks() {
			lower = append(lower, fmt.Sprintf("%s over %s and not %s: %s", between, p.Transport, c.Transport, c.Reason))
		}
		if p.Test != nil && (slowest == nil || speed(p) < speed(*slowest)) {
			slowest = &all[i]
		}
	}
	for _, from := range slices.SortedFunc(maps.Keys(failed), cluster.CompareNames) {
		silent = append(silent, failed[from].Error())
	}
	var parts []string
	for _, t := range slices.Sorted(maps.Keys(byTransport)) {
		parts = append(parts, fmt.Sprintf("%d over %s", byTransport[t], t))
	}
	text := plural(len(all), "path") + ": " + strings.Join(parts, ", ")
	if slowest != nil {
		text += fmt.Sprintf("; the slowest, %s to %s, %s", slowest.From, slowest.To, rateText(speed(*slowest)))
	}
	f := good("%s", text)
	switch {
	case len(broken) > 0:
		f = bad("dynctl explain path, and the log of the first", "%s", firstOf(broken))
	case len(lower) > 0:
		f = poor("dynctl explain path, and nixl.transports", "%s", firstOf(lower))
	case len(silent) > 0:
		f = poor("dynctl ps", "%s", firstOf(silent))
	case len(all) == 0:
		return skipped("no prefill worker has met a decode worker")
	}
	return f.with("paths", all)
}

// speed is the slower direction of a path.
func speed(p cluster.Path) float64 { return min(p.Test.WriteGBps, p.Test.ReadGBps) }

// firstOf prints the first of some texts and how many more there are.
func firstOf(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	return fmt.Sprintf("%s; and %d more", texts[0], len(texts)-1)
}
