package tui

import (
	"sort"
	"strings"

	"github.com/dynctl/dynctl/internal/tui/cells"
)

// complete extends the last word as far as it is certain.
func (l commandLine) complete(m *model, text string) string {
	words := strings.Split(text, " ")
	last := words[len(words)-1]
	var match []string
	for _, o := range l.options(m, words) {
		if strings.HasPrefix(o, last) {
			match = append(match, o)
		}
	}
	if len(match) == 0 {
		return text
	}
	sort.Strings(match)
	common := match[0]
	for common != "" && !strings.HasPrefix(match[len(match)-1], common) {
		common = cells.DropLast(common)
	}
	words[len(words)-1] = common
	out := strings.Join(words, " ")
	if len(match) == 1 && len(words) == 1 {
		out += " "
	}
	return out
}

// options returns the candidates for the last of some words.
func (l commandLine) options(m *model, words []string) []string {
	var out []string
	for _, c := range l {
		if len(words) == 1 {
			out = append(out, c.name)
		} else if len(words) == 2 && c.name == words[0] && c.complete != nil {
			return c.complete(m)
		}
	}
	return out
}

func workerNames(m *model) []string {
	var names []string
	for i := range m.shown.Snap.Workers {
		names = append(names, m.shown.Snap.Workers[i].Name)
	}
	return names
}

func ownerNames(m *model) []string {
	names := workerNames(m)
	for i := range m.shown.Snap.Nodes {
		names = append(names, m.shown.Snap.Nodes[i].Name)
	}
	return names
}

func sortNames(m *model) []string {
	if rows := m.panes.rows(); rows != nil {
		return rows.SortKeys()
	}
	return nil
}
